"""What ConsumerPerformance prints is understood, the CPU of a process tree is counted, files are
seen when they appear, and a topic that is mostly local is refused.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.consumer import PerfLine
from bench.processes import BenchError, CpuMark, run_measured
from bench.topics import require_remote
from bench.watching import FilesSeen

PRINTED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-21 14:00:00:000, 2026-11-21 14:00:03:000, 1024.0000, 341.3333, 1048576, 349525.3, \
500, 2500, 409.6000, 419430.4
"""
BURN = "sum(range(20_000_000))"


def test_the_line_of_consumer_performance_is_understood() -> None:
    assert PerfLine.parse(PRINTED) == PerfLine(
        value_mib=1024.0, records=1048576, join_ms=500, fetch_ms=2500, fetch_mib_s=409.6
    )


@pytest.mark.parametrize("output", ["", PRINTED.splitlines()[0], "Exiting before consuming"])
def test_output_without_numbers_is_an_error(output: str) -> None:
    with pytest.raises(BenchError, match="no result"):
        PerfLine.parse(output)


def test_a_finished_process_has_output_cpu_and_duration() -> None:
    done = run_measured([sys.executable, "-c", f"print({BURN})"])
    assert done.output.strip() == "199999990000000"
    assert done.cpu_s > 0.05
    assert done.wall_s > 0.05


def test_a_failed_process_is_an_error_with_what_it_said() -> None:
    with pytest.raises(BenchError, match="ended with 3: no luck"):
        run_measured([sys.executable, "-c", "import sys; print('no luck'); sys.exit(3)"])


def test_cpu_of_children_counts_even_when_they_are_gone() -> None:

    before = CpuMark.now({"me": os.getpid()})
    subprocess.run([sys.executable, "-c", BURN], check=True)
    after = CpuMark.now({"me": os.getpid()})
    assert after.roles["me"] - before.roles["me"] > 0.05
    assert after.machine > before.machine


def test_a_file_is_seen_once_it_is_there(tmp_path: Path) -> None:
    wanted, other = tmp_path / "topic-0" / "1.log", tmp_path / "topic-0" / "1.index"
    wanted.parent.mkdir()
    with FilesSeen(tmp_path, "topic-*/*.log") as seen:
        other.touch()
        before_s = time.time()
        assert seen.at_s == {}
        wanted.touch()
        while not seen.at_s:
            time.sleep(0.001)
        after_s = time.time()
    assert list(seen.at_s) == [wanted]
    assert before_s <= seen.first_s <= after_s


@pytest.mark.parametrize(("share", "is_enough"), [(0.5, True), (0.97, True), (0.49, False)])
def test_a_topic_that_is_mostly_local_is_no_topic_of_remote_reads(
    share: float, is_enough: bool
) -> None:
    if is_enough:
        require_remote("bench-proxy-64", share)
    else:
        with pytest.raises(BenchError, match=r"bench-proxy-64: 0\.49 .*segments smaller"):
            require_remote("bench-proxy-64", share)

"""The benchmarks of copies beside Kafka's own, of producing beside copies, of rolls, of changes of
leaders and of bytes that only pass work from end to end; their numbers are not looked at. Most run
in `make long` alone, as those of connections, idle services and copies to a directory do.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import copying_native, latency, leadership, pass_through, rolls
from bench.plan import DIRECT, NATIVE, PROXY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def _measured(
    main: Callable[[Sequence[str]], int], stem: str, folder: Path, *options: str
) -> dict[str, Any]:
    """What the benchmark has written, without the name of anybody's home."""
    assert main(["--quick", "--out", str(folder), *options]) == 0
    text = (folder / f"{stem}-quick.json").read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.long
def test_quick_copies_a_backlog_both_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--segment-mib", "1", "--partitions", "2")
    result = _measured(copying_native.main, "copying-native", tmp_path, *options)
    assert [run["variant"] for run in result["runs"]] == [copying_native.OURS, NATIVE]
    assert all(run["seconds"] > 0 and run["segments"] > 1 for run in result["runs"])
    assert "of the speed of Kafka's own" in capsys.readouterr().out


@pytest.mark.long
def test_quick_times_a_producer_beside_a_copy(tmp_path: Path) -> None:
    result = _measured(latency.main, "latency", tmp_path)
    phases = [one["phase"] for one in result["runs"]]
    assert phases == [latency.IDLE, latency.COPYING, latency.IDLE]
    assert all(0 < one["p50_ms"] <= one["p95_ms"] <= one["p99_ms"] for one in result["runs"])
    [ratio] = result["ratios"]
    assert ratio["p95"] > 0


def test_quick_times_rolls(tmp_path: Path) -> None:
    result = _measured(rolls.main, "rolls", tmp_path, "--brokers", "1")
    starts = [one["start_offset"] for one in result["runs"]]
    assert len(starts) > 1
    assert starts == sorted({0, *starts})


@pytest.mark.long
def test_quick_times_changes_of_leaders_of_both_kinds(tmp_path: Path) -> None:
    result = _measured(leadership.main, "leadership", tmp_path)
    changes = [(one["way"], one["node"] == 1) for one in result["runs"]]
    assert changes == [*[(leadership.SHUTDOWN, False)] * 2, *[(leadership.ELECTION, True)] * 2]


def test_quick_measures_what_passes(tmp_path: Path) -> None:
    result = _measured(pass_through.main, "pass-through", tmp_path)
    runs = [(one["case"].split()[0], one["variant"]) for one in result["runs"]]
    assert runs == [(part, variant) for part in pass_through.PARTS for variant in (PROXY, DIRECT)]
    assert all(one["mb_s"] > 0 and one["peak_mib"] > 0 for one in result["runs"])
    timed = [one["avg_ms"] is not None for one in result["runs"]]
    assert timed == [part == pass_through.PRODUCE for part, _ in runs]

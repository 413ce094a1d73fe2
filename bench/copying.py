"""`python -m bench.copying`: how fast a backlog is copied to a directory, in segments a second.

Each shape is a segment size and a number of partitions, and each of its rounds has a topic of its
own, which is filled before it is enabled. To compare two versions of the software, run this command
in a checkout of each by turns, so that both have the same hours of the machine.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.command import measure, numbers, parser, say
from bench.machine import commit, load_in_words, machine_in_words
from bench.plan import MIB
from bench.processes import BenchError, CpuMark, run_measured
from bench.topics import local_starts, make_topic, produce
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxSpec

_HEAP_MIB = 1024
_TIMEOUT_S = 600
_POLL_S = 0.1
_LEAST_SEGMENTS = 4
"""In each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRun:
    """One backlog. `seconds` from the first to the last segment_copied of the service's log, so
    `segments` counts all but the first.
    """

    segment_mib: int
    partitions: int
    round: int
    segments: int
    seconds: float
    cpu_s_gb: float
    load: str

    @property
    def segments_s(self) -> float:
        return self.segments / self.seconds

    @property
    def mb_s(self) -> float:
        return self.segments * self.segment_mib * MIB / self.seconds / 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _run(given, say)
        return [_line(one) for one in runs], _document(given, runs)

    return measure(given, "copying", run)


def _run(given: argparse.Namespace, progress: Callable[[str], None]) -> list[CopyRun]:
    """All rounds in one sandbox, shape after shape within a round."""
    runs = []
    rounds, size_mib = (1, 16) if given.quick else (given.rounds, given.size_mib)
    with tempfile.TemporaryDirectory(prefix="rlm-bench-") as folder:
        spec = SandboxSpec(store="local", jvm="full", heap_mib=_HEAP_MIB)
        sandbox = Sandbox.up(Path(folder) / "sandbox", spec, progress=progress)
        try:
            for number in range(rounds):
                for segment_mib in given.segment_mib:
                    for partitions in given.partitions:
                        run = _measured(sandbox, number, segment_mib, partitions, size_mib)
                        progress(_line(run))
                        runs.append(run)
        finally:
            sandbox.down(delete=True)
    return runs


def _measured(
    sandbox: Sandbox, number: int, segment_mib: int, partitions: int, size_mib: int
) -> CopyRun:
    topic = f"copying-{segment_mib}-{partitions}-{number}"
    make_topic(sandbox, topic, partitions, segment_mib)
    least_mib = _LEAST_SEGMENTS * segment_mib * partitions
    produce(sandbox, topic, max(size_mib, least_mib) * MIB // 1024)
    closed = sum(len(local_starts(sandbox, topic, one)) - 1 for one in range(partitions))
    if closed < 2:
        raise BenchError(f"{topic} has {closed} closed segments: make it larger")
    broker = sandbox.json["brokers"][0]
    pids = {"service": broker["rlm_pid"], "plugin": broker["plugin_pid"]}
    log = sandbox.layout.log("rlm:1")
    seen, before = log.stat().st_size, CpuMark.now(pids)
    enable = (sys.executable, "-P", "-m", "rlm.cli.main", "topics", "enable", topic)
    run_measured([*enable, "--address", broker["grpc"]])
    times = _copied_at(log, seen, topic, closed)
    after = CpuMark.now(pids)
    used_s = sum(after.roles[role] - before.roles[role] for role in pids)
    return CopyRun(
        segment_mib=segment_mib,
        partitions=partitions,
        round=number,
        segments=closed - 1,
        seconds=round(times[-1] - times[0], 3),
        cpu_s_gb=round(used_s / (closed * segment_mib * MIB / 1e9), 3),
        load=load_in_words(),
    )


def _copied_at(log: Path, position: int, topic: str, count: int) -> list[float]:
    """When each segment was copied, in seconds, once all of them are."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        with open(log, "rb") as file:
            file.seek(position)
            lines = [line for line in file.read().splitlines() if b'"segment_copied"' in line]
        events = [event for line in lines if (event := json.loads(line))["topic"] == topic]
        if len(events) >= count:
            return sorted(datetime.fromisoformat(one["timestamp"]).timestamp() for one in events)
        time.sleep(_POLL_S)
    raise BenchError(f"{topic} was not copied within {_TIMEOUT_S} s")


def _line(run: CopyRun) -> str:
    return (
        f"{run.segment_mib:>4} MiB, {run.partitions} part., round {run.round}: "
        f"{run.segments_s:6.1f} segments/s, {run.mb_s:6.1f} MB/s, "
        f"{run.cpu_s_gb:5.2f} CPU s/GB, load {run.load}"
    )


def _document(given: argparse.Namespace, runs: Sequence[CopyRun]) -> dict[str, Any]:
    return {
        "v": 1,
        "kind": "bench",
        "name": "copying",
        "commit": commit(),
        "machine": machine_in_words(),
        "options": {
            "size_mib": given.size_mib,
            "segment_mib": given.segment_mib,
            "partitions": given.partitions,
            "rounds": given.rounds,
        },
        "cpu": "user + system seconds of service and plugin for 1e9 bytes of values",
        "runs": [asdict(run) for run in runs],
    }


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.copying", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--size-mib", type=int, default=256, help="values of each topic")
    made.add_argument("--segment-mib", type=numbers(), default=(1, 16), help="such as 1,16")
    made.add_argument("--partitions", type=numbers(), default=(1, 8), help="such as 1,8")
    return made


if __name__ == "__main__":
    raise SystemExit(main())

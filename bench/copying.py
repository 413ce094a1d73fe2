"""`python -m bench.copying`: how fast a backlog is copied to a directory, in segments a second.

Beside each copy, `cp --reflink=never` copies the same files, followed by an fsync of each and a
pass over what was written for its CRC-32C: what a copy cannot do without. Which of the two comes
first changes from round to round.

Each shape is a segment size and a number of partitions, and each of its rounds has a topic of its
own, which is filled before it is enabled. To compare two versions of the software, run this command
in a checkout of each by turns, so that both have the same hours of the machine.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.command import document, measure, numbers, parser, say
from bench.machine import load_in_words
from bench.plan import MIB
from bench.processes import CpuMark, run_measured
from bench.production import production_sandbox
from bench.topics import enable, logged_at_s, make_filled, wait_logged
from bench.watching import WATCH_S, copies_seen
from kip405.crc import crc32c
from rlm_sandbox.sandbox import Sandbox
from rsm_plugins.files.durable import sync_path

_TIMEOUT_S = 600
_OPTIONS = ("size_mib", "segment_mib", "partitions", "rounds")
_CPU = "user + system seconds of service and plugin for 1e9 bytes of values"
_LEAST_SEGMENTS = 4
"""In each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRun:
    """One backlog. `seconds` from the first file in the store to the last segment_copied of the
    service's log; `plain_seconds` of the same files by cp, fsync and CRC.
    """

    segment_mib: int
    partitions: int
    round: int
    segments: int
    seconds: float
    plain_seconds: float
    cpu_s_gb: float
    load: str

    @property
    def segments_s(self) -> float:
        return self.segments / self.seconds

    @property
    def of_plain(self) -> float:
        """Speed by that of the plain copy."""
        return self.plain_seconds / self.seconds

    @property
    def mb_s(self) -> float:
        return self.segments * self.segment_mib * MIB / self.seconds / 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _run(given, say)
        return [_line(one) for one in runs], document(given, "copying", _OPTIONS, runs, cpu=_CPU)

    return measure(given, "copying", run)


def _run(given: argparse.Namespace, progress: Callable[[str], None]) -> list[CopyRun]:
    """All rounds in one sandbox, shape after shape within a round."""
    runs = []
    rounds, size_mib = (1, 16) if given.quick else (given.rounds, given.size_mib)
    with production_sandbox(progress) as sandbox:
        for number in range(rounds):
            for segment_mib in given.segment_mib:
                for partitions in given.partitions:
                    run = _measured(sandbox, number, segment_mib, partitions, size_mib)
                    progress(_line(run))
                    runs.append(run)
    return runs


def _measured(
    sandbox: Sandbox, number: int, segment_mib: int, partitions: int, size_mib: int
) -> CopyRun:
    topic = f"copying-{segment_mib}-{partitions}-{number}"
    least_mib = _LEAST_SEGMENTS * segment_mib * partitions
    closed = make_filled(sandbox, topic, partitions, segment_mib, max(size_mib, least_mib))
    plain_s = _plain_seconds(sandbox, topic) if number % 2 else None
    broker = sandbox.json["brokers"][0]
    pids = {"service": broker["rlm_pid"], "plugin": broker["plugin_pid"]}
    before = CpuMark.now(pids)
    times = copy_backlog(sandbox, topic, closed)
    after = CpuMark.now(pids)
    used_s = sum(after.roles[role] - before.roles[role] for role in pids)
    return CopyRun(
        segment_mib=segment_mib,
        partitions=partitions,
        round=number,
        segments=closed,
        seconds=round(times.ended_s - times.first_s, 3),
        plain_seconds=round(plain_s or _plain_seconds(sandbox, topic), 3),
        cpu_s_gb=round(used_s / (closed * segment_mib * MIB / 1e9), 3),
        load=load_in_words(),
    )


def _plain_seconds(sandbox: Sandbox, topic: str) -> float:
    """How long cp, fsync and CRC take for the closed segments of the topic."""
    files = [
        path
        for folder in sandbox.log_dirs()
        for partition in folder.glob(f"{topic}-*")
        for path in sorted(partition.glob("*.log"))[:-1]
    ]
    with tempfile.TemporaryDirectory(dir=sandbox.layout.store.parent) as target:
        began_s = time.monotonic()
        for number, path in enumerate(files):
            copy = Path(target) / str(number)
            run_measured(["cp", "--reflink=never", str(path), str(copy)])
            sync_path(copy)
            with copy.open("rb") as file:
                while piece := file.read(MIB):
                    crc32c(piece)
        return time.monotonic() - began_s


class CopyTimes(NamedTuple):
    """When the copy of a topic was asked for, when its first file came, and when the last segment
    was finished, in seconds since the epoch.
    """

    enabled_s: float
    first_s: float
    ended_s: float


def copy_backlog(
    sandbox: Sandbox, topic: str, closed: int, *, every_s: float = WATCH_S
) -> CopyTimes:
    """Enable a filled topic, and wait until so many segments are copied to the directory; it is
    looked for the first file each `every_s` seconds.
    """
    log = sandbox.layout.log("rlm:1")
    seen = log.stat().st_size
    with copies_seen(sandbox, topic, every_s=every_s, most=1) as files:
        enable(sandbox, topic)
        enabled_s = time.time()
        ended_s = copied_at(log, seen, topic, closed)[-1]
    return CopyTimes(enabled_s=enabled_s, first_s=files.first_s, ended_s=ended_s)


def copied_at(log: Path, position: int, topic: str, count: int) -> list[float]:
    """When each segment was copied, in seconds, once all of them are."""
    events = wait_logged(
        log,
        position,
        "segment_copied",
        topic,
        lambda found: len(found) >= count,
        timeout_s=_TIMEOUT_S,
    )
    return sorted(logged_at_s(one) for one in events)


def _line(run: CopyRun) -> str:
    return (
        f"{run.segment_mib:>4} MiB, {run.partitions} part., round {run.round}: "
        f"{run.segments_s:6.1f} segments/s, {run.mb_s:6.1f} MB/s, "
        f"{run.of_plain:5.2f} of cp + fsync + CRC, {run.cpu_s_gb:5.2f} CPU s/GB, load {run.load}"
    )


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.copying", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--size-mib", type=int, default=256, help="values of each topic")
    made.add_argument("--segment-mib", type=numbers(), default=(1, 16), help="such as 1,16")
    made.add_argument("--partitions", type=numbers(), default=(1, 8), help="such as 1,8")
    return made


if __name__ == "__main__":
    raise SystemExit(main())

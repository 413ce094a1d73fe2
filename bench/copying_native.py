"""`python -m bench.copying_native`: a backlog copied by us and by Kafka's own tiered storage.

Each pair has two topics of the same size on one broker, ours and Kafka's own (LocalTieredStorage).
Both are filled before either is copied, and are deleted afterwards; which is copied first changes
from round to round. Both stores are directories of one disk. Only ours makes its files durable and
checks every batch, which is part of the comparison.

Both get the same interval for copy tasks, and keep their defaults otherwise: ten threads each, no
limit that this machine reaches. The interval matters for when a copy begins only, as one task of
either copies the whole backlog; so the time counts from the first file, and the wait before it is a
value of its own. Ours ends with the record that the last segment is finished, Kafka's own with the
last file in its store, before its record.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.command import document, measure, numbers, parser, say
from bench.copying import CopyTimes, copy_backlog
from bench.machine import load_in_words
from bench.plan import MIB, NATIVE
from bench.processes import BenchError, CpuMark
from bench.production import production_sandbox
from bench.topics import admin_client, alter_topic, make_filled, run_rlm
from bench.watching import FilesSeen
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override

OURS = "ours"
_INTERVAL_MS = 2_000
_INTERVALS = tuple(
    Override.parse(f"{scope}.remote.log.manager.task.interval.ms={_INTERVAL_MS}")
    for scope in ("rlm", "broker")
)
_TIMEOUT_S = 300
_POLL_S = 0.05
_LEAST_CLOSED = 2
_SLACK_MIB = 4
_OPTIONS = ("size_mib", "segment_mib", "partitions", "rounds")
_CPU = "user + system seconds of broker, service and plugin for 1e9 bytes, from the switch on"
_NATIVE_FILES = ("log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRun:
    """One backlog of one variant. `seconds` from the first file in the store to the end of the
    last segment; `wait_seconds` from the answer to the switch to that first file.
    """

    variant: str
    segment_mib: int
    partitions: int
    round: int
    segments: int
    seconds: float
    wait_seconds: float
    cpu_s_gb: float
    load: str

    @property
    def shape(self) -> tuple[int, int]:
        return self.segment_mib, self.partitions

    @property
    def mb_s(self) -> float:
        return self.segments * self.segment_mib * MIB / self.seconds / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backlog:
    """A filled topic whose `closed` segments are to be copied."""

    sandbox: Sandbox
    topic: str
    closed: int

    def copied_by_us(self) -> CopyTimes:
        return copy_backlog(self.sandbox, self.topic, self.closed)

    def copied_by_kafka(self) -> CopyTimes:
        """The copy of a segment ends with its last file."""
        store = self.sandbox.layout.native_store
        with FilesSeen(store, f"*/{self.topic}-*/*", most=1) as files:
            alter_topic(self.sandbox, self.topic, {"remote.storage.enable": "true"})
            on_s = time.time()
            self._wait_for_files(store)
        ended_s = max(path.stat().st_mtime for path in store.glob(f"*/{self.topic}-*/*"))
        return CopyTimes(enabled_s=on_s, first_s=files.first_s, ended_s=ended_s)

    def _wait_for_files(self, store: Path) -> None:
        deadline_s = time.monotonic() + _TIMEOUT_S
        while any(
            sum(1 for _ in store.glob(f"*/{self.topic}-*/*.{suffix}")) < self.closed
            for suffix in _NATIVE_FILES
        ):
            if time.monotonic() > deadline_s:
                raise BenchError(f"{self.topic} was not copied within {_TIMEOUT_S} s")
            time.sleep(_POLL_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _run(given, say)
        result = document(
            given, "copying_native", _OPTIONS, runs, cpu=_CPU, intervals=f"{_INTERVAL_MS} ms"
        )
        return _ratio_lines(runs), result

    return measure(given, "copying-native", run)


def _run(given: argparse.Namespace, progress: Callable[[str], None]) -> list[CopyRun]:
    """All rounds in one sandbox, shape after shape within a round."""
    runs = []
    rounds, size_mib = (1, 8) if given.quick else (given.rounds, given.size_mib)
    with production_sandbox(progress, native_tiering=True, overrides=_INTERVALS) as sandbox:
        for number in range(rounds):
            for segment_mib in given.segment_mib:
                for partitions in given.partitions:
                    for run in _pair(sandbox, number, segment_mib, partitions, size_mib):
                        progress(_line(run))
                        runs.append(run)
    return runs


def _pair(
    sandbox: Sandbox, number: int, segment_mib: int, partitions: int, size_mib: int
) -> Iterable[CopyRun]:
    least_mib = partitions * (_LEAST_CLOSED * segment_mib + _SLACK_MIB)
    variants = (OURS, NATIVE) if number % 2 == 0 else (NATIVE, OURS)
    topics = {one: f"{one}-{segment_mib}-{partitions}-{number}" for one in variants}
    backlogs = {
        one: _Backlog(
            sandbox=sandbox,
            topic=topic,
            closed=make_filled(sandbox, topic, partitions, segment_mib, max(size_mib, least_mib)),
        )
        for one, topic in topics.items()
    }
    for variant, backlog in backlogs.items():
        yield _measured(backlog, variant, number, segment_mib, partitions)
    _delete(sandbox, topics)


def _measured(
    backlog: _Backlog, variant: str, number: int, segment_mib: int, partitions: int
) -> CopyRun:
    broker = backlog.sandbox.json["brokers"][0]
    pids = {role: broker[f"{role}_pid"] for role in ("broker", "rlm", "plugin")}
    before = CpuMark.now(pids)
    copied = backlog.copied_by_us if variant == OURS else backlog.copied_by_kafka
    times = copied()
    after = CpuMark.now(pids)
    used_s = sum(after.roles[role] - before.roles[role] for role in pids)
    return CopyRun(
        variant=variant,
        segment_mib=segment_mib,
        partitions=partitions,
        round=number,
        segments=backlog.closed,
        seconds=round(times.ended_s - times.first_s, 3),
        wait_seconds=round(times.first_s - times.enabled_s, 3),
        cpu_s_gb=round(used_s / (backlog.closed * segment_mib * MIB / 1e9), 3),
        load=load_in_words(),
    )


def _delete(sandbox: Sandbox, topics: dict[str, str]) -> None:
    """Both topics with what was copied of them, so that the disk has room for the next pair."""
    run_rlm(sandbox, "topics", "disable", topics[OURS], "--delete", "--yes")
    with admin_client(sandbox) as admin:
        for deleted in admin.delete_topics(list(topics.values())).values():
            deleted.result(_TIMEOUT_S)


def _ratio_lines(runs: Sequence[CopyRun]) -> list[str]:
    lines = []
    for shape in dict.fromkeys(run.shape for run in runs):
        of_shape = {(run.round, run.variant): run for run in runs if run.shape == shape}
        ratios = [
            run.mb_s / of_shape[number, NATIVE].mb_s
            for (number, variant), run in of_shape.items()
            if variant == OURS
        ]
        values = " ".join(f"{ratio:.2f}" for ratio in ratios)
        lines.append(
            f"{shape[0]} MiB, {shape[1]} part.: {median(ratios):.2f} of the speed of Kafka's "
            f"own, the median of {values}"
        )
    return lines


def _line(run: CopyRun) -> str:
    return (
        f"{run.segment_mib:>4} MiB, {run.partitions} part., round {run.round}, {run.variant:6}: "
        f"{run.segments} segments, {run.mb_s:6.1f} MB/s, {run.seconds:6.2f} s after "
        f"{run.wait_seconds:5.2f} s, {run.cpu_s_gb:5.2f} CPU s/GB, load {run.load}"
    )


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.copying_native", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--size-mib", type=int, default=192, help="values of each topic, at least")
    made.add_argument("--segment-mib", type=numbers(), default=(16, 64), help="such as 16,64")
    made.add_argument("--partitions", type=numbers(), default=(1, 8), help="such as 1,8")
    return made


if __name__ == "__main__":
    raise SystemExit(main())

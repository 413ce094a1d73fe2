"""`python -m bench.deleting`: how fast the segments of a deleted topic go, in segments a second.

Each round has a topic of its own: filled, copied, and then disabled with `--delete`. The time is
that from the record that its deletion begins to the record that it is finished, as the service logs
them, over all partitions. It holds the ledger records of each segment, in the order of G4, its
objects and the lines in the audit log.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.command import document, measure, numbers, parser, say
from bench.copying import copied_at
from bench.machine import load_in_words
from bench.processes import CpuMark
from bench.stores.lab import Lab, lab
from bench.stores.options import S3, STORES, StoreOptions
from bench.topics import enable, logged_at_s, make_filled, run_rlm, wait_logged

_TIMEOUT_S = 300
_OPTIONS = ("store", "size_mib", "partitions", "rounds")
_CPU = (
    "user + system milliseconds of service and plugin for each segment, from the first record that "
    "a deletion begins"
)
_SEGMENT_MIB = 1
_LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRun:
    """One topic. CPU is that of service and plugin, from the first record to the end."""

    store: str
    partitions: int
    round: int
    segments: int
    seconds: float
    cpu_ms_segment: float
    cpu_ms_by_role: dict[str, float]
    requests: dict[str, int]
    load: str

    @property
    def segments_s(self) -> float:
        return self.segments / self.seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _run(given, say)
        lines = [
            f"{partitions} partitions: {median(rates):.0f} segments/s, the median of {len(rates)}"
            for partitions in given.partitions
            if (rates := [one.segments_s for one in runs if one.partitions == partitions])
        ]
        return lines, document(given, "deleting", _OPTIONS, runs, cpu=_CPU)

    return measure(given, "deleting", run)


def _run(given: argparse.Namespace, progress: Callable[[str], None]) -> list[DeleteRun]:
    runs = []
    rounds, size_mib = (1, 16) if given.quick else (given.rounds, given.size_mib)
    with lab(given.store, StoreOptions.full(), progress) as running:
        for number in range(rounds):
            for partitions in given.partitions:
                run = _measured(running, number, partitions, size_mib)
                progress(_line(run))
                runs.append(run)
    return runs


def _measured(running: Lab, number: int, partitions: int, size_mib: int) -> DeleteRun:
    sandbox, topic = running.sandbox, f"deleting-{partitions}-{number}"
    closed = make_filled(sandbox, topic, partitions, _SEGMENT_MIB, size_mib)
    log = sandbox.layout.log("rlm:1")
    seen = log.stat().st_size
    enable(sandbox, topic)
    copied_at(log, seen, topic, closed)
    pids = {role: pid for role, pid in running.pids.items() if role in ("service", "plugin")}
    running.take()
    seen = log.stat().st_size
    run_rlm(sandbox, "topics", "disable", topic, "--delete", "--yes")
    (began_s, *_), before = _recorded(log, seen, topic, "STARTED", 1), CpuMark.now(pids)
    ended_s = _recorded(log, seen, topic, "FINISHED", partitions)[-1]
    after = CpuMark.now(pids)
    used_ms = {role: (after.roles[role] - before.roles[role]) * 1000 / closed for role in pids}
    return DeleteRun(
        store=running.store,
        partitions=partitions,
        round=number,
        segments=closed,
        seconds=round(ended_s - began_s, 3),
        cpu_ms_segment=round(sum(used_ms.values()), 2),
        cpu_ms_by_role={role: round(used, 2) for role, used in used_ms.items()},
        requests=dict(sorted(running.take()["requests"].items())),
        load=load_in_words(),
    )


def _recorded(log: Path, position: int, topic: str, state: str, count: int) -> list[float]:
    """When the deletions of so many partitions reached a state, in seconds, in this order."""
    wanted = f"DELETE_PARTITION_{state}"

    def reached(events: Sequence[dict[str, Any]]) -> list[float]:
        return sorted(logged_at_s(event) for event in events if event["state"] == wanted)

    return reached(
        wait_logged(
            log,
            position,
            "partition_deletion",
            topic,
            lambda found: len(reached(found)) >= count,
            timeout_s=_TIMEOUT_S,
        )
    )


def _line(run: DeleteRun) -> str:
    return (
        f"{run.store}, {run.partitions} part., round {run.round}: {run.segments} segments, "
        f"{run.segments_s:6.1f} segments/s, {run.cpu_ms_segment:5.2f} CPU ms/segment, "
        f"load {run.load}"
    )


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.deleting", __doc__)
    made.add_argument("--store", choices=(*STORES, _LOCAL), default=S3)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--size-mib", type=int, default=512, help="values of each topic")
    made.add_argument("--partitions", type=numbers(), default=(1, 8), help="such as 1,8")
    return made


if __name__ == "__main__":
    raise SystemExit(main())

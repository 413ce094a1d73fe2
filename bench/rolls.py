"""`python -m bench.rolls`: how long after a roll the first byte of the closed segment is uploaded.

Records are produced at a steady rate to a topic that is enabled, so that its partition gets a new
segment every few seconds; the services run at the intervals that they have by default. Both ends
are seen from outside, a hundred times a second: a roll when the file of the new segment appears in
the leader's log directory, the first byte when the copy of the segment before it appears in the
directory that is the store, under its temporary name. The end of the copy is the service's event.

With three brokers, as by default, the partition has three replicas. The only replica of a partition
has to be flushed before it is copied (H35): with one broker that wait is part of the result, and a
sandbox makes it shorter than Kafka does by default.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from bench.command import document, measure, parser, say
from bench.machine import load_in_words
from bench.plan import MIB, RECORD_BYTES
from bench.production import production_sandbox
from bench.report import p95
from bench.topics import (
    enable,
    leaders,
    local_starts,
    logged_at_s,
    make_topic,
    produce,
    wait_logged,
)
from bench.watching import FilesSeen, copies_seen
from rlm_sandbox.sandbox import Sandbox

MOST_P95_S = 2.0
_TOPIC = "rolls"
_TIMEOUT_S = 120
_OFFSET_DIGITS = 20
_OPTIONS = ("segment_mib", "mib_s", "rolls", "rounds", "brokers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """One segment that was closed, with the seconds from its roll to the first byte and to the end
    of its copy.
    """

    round: int
    start_offset: int
    first_byte_s: float
    copied_s: float
    load: str


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _run(given, say)
        return _summary(runs), document(given, "rolls", _OPTIONS, runs)

    return measure(given, "rolls", run)


def _run(given: argparse.Namespace, progress: Callable[[str], None]) -> list[Roll]:
    rounds, rolls, segment_mib = given.rounds, given.rolls, given.segment_mib
    if given.quick:
        rounds, rolls, segment_mib = 1, 3, 1
    with production_sandbox(progress, brokers=given.brokers) as sandbox:
        make_topic(sandbox, _TOPIC, 1, segment_mib, replicas=given.brokers)
        enable(sandbox, _TOPIC)
        [node] = leaders(sandbox, _TOPIC)
        runs: list[Roll] = []
        for number in range(rounds):
            found = _round(sandbox, node, number, rolls * segment_mib, given.mib_s)
            for one in found:
                progress(_line(one))
            runs += found
        return runs


def _round(sandbox: Sandbox, node: int, number: int, size_mib: int, mib_s: int) -> list[Roll]:
    """Produces so much more; the segments that were closed meanwhile."""
    log = sandbox.layout.log(f"rlm:{node}")
    seen = log.stat().st_size
    [log_dir] = sandbox.log_dirs(node)
    before = local_starts(sandbox, _TOPIC, 0, node)
    with (
        FilesSeen(log_dir, f"{_TOPIC}-0/*.log") as local,
        copies_seen(sandbox, _TOPIC) as remote,
    ):
        produce(
            sandbox, _TOPIC, size_mib * MIB // RECORD_BYTES, records_s=mib_s * MIB // RECORD_BYTES
        )
        bases = local_starts(sandbox, _TOPIC, 0, node)
        new = {start: end for start, end in pairwise(bases) if end not in before}
        copied_s = _copied_s(log, seen, len(new))
    rolled_s = _first_seen_s(local)
    uploaded_s = _first_seen_s(remote)
    return [
        Roll(
            round=number,
            start_offset=start,
            first_byte_s=round(uploaded_s[start] - rolled_s[end], 3),
            copied_s=round(copied_s[start] - rolled_s[end], 3),
            load=load_in_words(),
        )
        for start, end in new.items()
    ]


def _first_seen_s(files: FilesSeen) -> dict[int, float]:
    """By the base offset that the names of files begin with."""
    found: dict[int, float] = {}
    for path, at_s in files.at_s.items():
        start = int(path.name[:_OFFSET_DIGITS])
        found[start] = min(at_s, found.get(start, at_s))
    return found


def _copied_s(log: Path, position: int, count: int) -> dict[int, float]:
    """When each copy was finished, by base offset, once so many are."""
    events = wait_logged(
        log,
        position,
        "segment_copied",
        _TOPIC,
        lambda found: len(found) >= count,
        timeout_s=_TIMEOUT_S,
    )
    return {event["start_offset"]: logged_at_s(event) for event in events}


def _summary(runs: Sequence[Roll]) -> list[str]:
    first, copied = [one.first_byte_s for one in runs], [one.copied_s for one in runs]
    return [
        f"roll to first byte: median {median(first):.2f} s, p95 {p95(first):.2f} s, most "
        f"{max(first):.2f} s of {len(first)} rolls; p95 of at most {MOST_P95_S:.0f} s wanted",
        f"roll to the end of the copy: median {median(copied):.2f} s, p95 {p95(copied):.2f} s",
    ]


def _line(one: Roll) -> str:
    return (
        f"round {one.round}, offset {one.start_offset:>8}: first byte after {one.first_byte_s:.2f} "
        f"s, copied after {one.copied_s:.2f} s, load {one.load}"
    )


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.rolls", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--rolls", type=int, default=8, help="segments produced in each round")
    made.add_argument("--segment-mib", type=int, default=16)
    made.add_argument("--mib-s", type=int, default=8, help="MiB of values produced a second")
    made.add_argument("--brokers", type=int, choices=(1, 3), default=3)
    return made


if __name__ == "__main__":
    raise SystemExit(main())

"""The broker's log directories: how fast each fills, and whether it is under pressure (H18). Pure.

A broker whose log directory is full goes down. Where retention was taken over, only trims make
room, so the disk is measured here: free space against a floor (disk.min.free.bytes), its growth
over the last hour with trims included, and the bytes that no trim may delete yet.

Pressure begins below the floor and ends at half as much again, so that it does not come and go with
each segment. A free space that could not be read changes nothing about it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlm.plans.problems import Finding, ProblemKind, human_bytes, human_duration
from rlm.plans.trim import NoTrim

WINDOW_MS = 3_600_000
LEAST_SPAN_MS = 600_000
"""A shorter time says little: segments come and go in steps."""
_TRIMS = (NoTrim.WITHIN_RETENTION, NoTrim.UNLIMITED, NoTrim.NOTHING_COPIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceSample:
    """Free bytes at one time (monotonic ms)."""

    at_ms: int
    free_bytes: int


def with_sample(known: Sequence[SpaceSample], new: SpaceSample) -> tuple[SpaceSample, ...]:
    """The samples of the last hour, ascending."""
    return (*(one for one in known if new.at_ms - one.at_ms < WINDOW_MS), new)


def growth_bytes_per_second(samples: Sequence[SpaceSample]) -> float | None:
    """By how much more was used at the end than at the beginning; below 0 = it empties.

    None where the samples cover too short a time.
    """
    if not samples or samples[-1].at_ms - samples[0].at_ms < LEAST_SPAN_MS:
        return None
    span_ms = samples[-1].at_ms - samples[0].at_ms
    return (samples[0].free_bytes - samples[-1].free_bytes) * 1000 / span_ms


def full_in_ms(free_bytes: int, growth: float | None) -> int | None:
    """None where it does not grow, or nobody knows how fast."""
    return int(free_bytes * 1000 / growth) if growth is not None and growth > 0 else None


def under_pressure(before: bool, free_bytes: int | None, floor_bytes: int) -> bool:
    """`before`: whether there was pressure; `free_bytes` None = not known."""
    if free_bytes is None:
        return before
    return free_bytes < (relief_bytes(floor_bytes) if before else floor_bytes)


def relief_bytes(floor_bytes: int) -> int:
    """The free bytes at which pressure ends."""
    return floor_bytes + floor_bytes // 2


def untrimmable_bytes(
    held: NoTrim | None, *, size_bytes: int, active_bytes: int, lag_bytes: int
) -> int:
    """Of one partition's log, what no trim may delete now: what is not remote, the active segment
    with it, or all of it where something forbids every trim. `held`: why the last run trimmed
    nothing, None = it trimmed.
    """
    if held is not None and held not in _TRIMS:
        return size_bytes
    return lag_bytes + active_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirReport:
    """One log directory. None = not known; `full_in_ms` None also where it does not grow.

    `untrimmable_bytes` are those of the partitions of tiered topics that this broker leads;
    `unmeasured_partitions` of them are not in the sum, as nobody knows.
    """

    path: str
    size_bytes: int | None
    free_bytes: int | None
    growth_bytes_per_second: float | None
    full_in_ms: int | None
    under_pressure: bool
    error: str = ""
    untrimmable_bytes: int = 0
    unmeasured_partitions: int = 0


def disk_findings(
    reports: Sequence[LogDirReport], *, floor_bytes: int, warn_ms: int
) -> Iterator[Finding]:
    """What is wrong with log directories; `warn_ms` is problem.disk.full.ms."""
    for report in reports:
        subject = f"log dir {report.path}"
        if report.free_bytes is None:
            yield Finding(
                kind=ProblemKind.LOG_DIR_UNKNOWN,
                subject=subject,
                text=f"its free space is not known: {report.error or 'it was not read yet'}",
            )
        elif report.under_pressure:
            yield Finding(
                kind=ProblemKind.LOG_DIR_LOW,
                subject=subject,
                text=f"{human_bytes(report.free_bytes)} are free, and the floor is "
                f"{human_bytes(floor_bytes)} (disk.min.free.bytes); the broker goes down when it "
                f"is full{_rest(report)}",
            )
        elif report.full_in_ms is not None and report.full_in_ms < warn_ms:
            yield Finding(
                kind=ProblemKind.LOG_DIR_FILLS,
                subject=subject,
                text=f"{human_bytes(report.free_bytes)} are free{_rest(report)}",
            )


def _rest(report: LogDirReport) -> str:
    full = "" if report.full_in_ms is None else f"; full in {human_duration(report.full_in_ms)}"
    unknown = report.unmeasured_partitions
    more = f", and an unknown part of {unknown} more partitions" if unknown else ""
    return f"{full}; no trim may delete {human_bytes(report.untrimmable_bytes)} of it{more}"

"""The list of holes on record of a partition: ascending, joined where they touch, bounded. Pure."""

from collections.abc import Iterable

from kip405.errors import Invalid
from rlmm.ledger import Hole

NO_RECORDS = "no records: emptied by the log cleaner"
"""Cause of a recorded hole in which nothing is missed."""
MOST_HOLES = 5_000  # about half a MiB of JSON: one record of the settings topic
Ranges = tuple[tuple[int, int], ...]


def with_holes(known: Iterable[Hole], new: Iterable[Hole]) -> tuple[Hole, ...]:
    """All of them; neighbours of one cause that touch become one. Invalid: too many."""
    joined: list[Hole] = []
    for hole in sorted({*known, *new}):
        last = joined[-1] if joined else None
        if last is not None and last.cause == hole.cause and hole.start <= last.end:
            joined[-1] = Hole(start=last.start, end=max(last.end, hole.end), cause=last.cause)
        else:
            joined.append(hole)
    if len(joined) > MOST_HOLES:
        raise Invalid(f"a partition may have at most {MOST_HOLES} holes on record")
    return tuple(joined)


def without_copied(known: Iterable[Hole], start: int, next_offset: int) -> tuple[Hole, ...]:
    """What is left of the holes where [start, next_offset) is copied; what had no records stays."""
    left: list[Hole] = []
    for hole in known:
        if hole.cause == NO_RECORDS:
            left.append(hole)
            continue
        rest = missed([(hole.start, hole.end)], ((start, next_offset),))
        left += [Hole(start=first, end=end, cause=hole.cause) for first, end in rest]
    return tuple(left)


def ranges_without_records(holes: Iterable[Hole]) -> Ranges:
    """Of the holes on record those in which nobody misses anything, ascending."""
    return tuple((hole.start, hole.end) for hole in holes if hole.cause == NO_RECORDS)


def missed(ranges: Iterable[tuple[int, int]], empty: Ranges) -> Ranges:
    """What is left of ranges [start, end) without the empty ones, which ascend."""
    left: list[tuple[int, int]] = []
    for start, end in ranges:
        cursor = start
        for empty_start, empty_end in empty:
            if empty_end <= cursor or empty_start >= end:
                continue
            if empty_start > cursor:
                left.append((cursor, empty_start))
            cursor = max(cursor, empty_end)
        if cursor < end:
            left.append((cursor, end))
    return tuple(left)

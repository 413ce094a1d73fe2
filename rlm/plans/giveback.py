"""How much retention is given back to the brokers where a disk is nearly full, and how long (H18).

A broker that is full goes down, and then nobody reads or writes. So with on.disk.pressure=giveback
the broker's own retention acts again on topics whose segments lie there beyond local retention, as
trims would have deleted them. The retention that the topic had before would free nothing: it was
the total one, and what lies on the disk is younger. The limit is a size, the largest that frees
what is missing, and never so small that it reaches into local retention: a broker's limit by size
deletes oldest segments of the largest partitions first, and never an active one; a limit by age
would delete the last records of idle partitions too. The most excessive topics come first.

Whole segments of what is deleted may not be copied: that is what an operator chose. Pure.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kip405.ids import Uuid
from rlmm.settings_records import GivenBack

FORGOTTEN_AFTER_MS = 600_000
"""A broker may delete by the old limit for a moment after it was raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLog:
    """One log of a topic on a nearly full disk: sizes of its segments, oldest first, and how many
    of them are beyond local retention.
    """

    topic_id: Uuid
    sizes: tuple[int, ...]
    beyond: int

    @property
    def least_bytes(self) -> int:
        """What local retention keeps."""
        return sum(self.sizes[self.beyond :])

    def freed(self, limit_bytes: int) -> int:
        """What a broker deletes by retention.bytes: whole segments, while the rest reaches the
        limit. Source: UnifiedLog.deleteRetentionSizeBreachedSegments.
        """
        left = sum(self.sizes) - limit_bytes
        freed = 0
        for size in self.sizes:
            if left - freed < size:
                break
            freed += size
        return freed


def give_back(
    logs: Iterable[ReplicaLog], needed_bytes: int, before: Mapping[Uuid, int]
) -> dict[Uuid, int]:
    """retention.bytes by topic that free `needed_bytes`, or as much as may be freed. Topics that
    are given back already (`before`) stay so, with no higher limit. What their limits free counts
    first: a broker deletes only at its next check.
    """
    by_topic: dict[Uuid, list[ReplicaLog]] = {}
    for log in logs:
        by_topic.setdefault(log.topic_id, []).append(log)
    wanted = dict(before)
    freed = {one: _freed(by_topic.get(one, ()), limit) for one, limit in before.items()}
    needed_bytes -= sum(freed.values())
    for topic_id, several in sorted(by_topic.items(), key=_most_excess_first):
        if needed_bytes <= 0 or not any(log.beyond for log in several):
            break
        so_far = freed.get(topic_id, 0)
        limit = _largest_limit(several, needed_bytes + so_far)
        limit = wanted[topic_id] = min(limit, wanted.get(topic_id, limit))
        needed_bytes -= _freed(several, limit) - so_far
    return wanted


def _freed(logs: Iterable[ReplicaLog], limit: int) -> int:
    return sum(log.freed(limit) for log in logs)


def _most_excess_first(item: tuple[Uuid, Sequence[ReplicaLog]]) -> tuple[int, bytes]:
    topic_id, logs = item
    return -sum(sum(log.sizes[: log.beyond]) for log in logs), topic_id.raw


def _largest_limit(logs: Sequence[ReplicaLog], needed_bytes: int) -> int:
    """By bisection: what is freed never rises with the limit."""
    low, high = max(1, *(log.least_bytes for log in logs)), max(sum(log.sizes) for log in logs)
    while low < high:
        middle = (low + high + 1) // 2
        if _freed(logs, middle) >= needed_bytes:
            low = middle
        else:
            high = middle - 1
    return low


class Step(enum.Enum):
    """What the service of a topic's partition-0 leader does next."""

    BEGIN = "begin"
    END = "end"
    FORGET = "forget"


def next_step(
    given: GivenBack | None, *, wanted: int | None, is_led: bool, is_known: bool, now_ms: int
) -> Step | None:
    """`wanted`: the least retention.bytes that a broker with a replica asks for, None = none does;
    `is_led` False: some partition has no leader with a live service, which could say that it must
    be frozen; `is_known` False: some broker with a replica is alive and has no live service that
    could ask. None = nothing to do.
    """
    is_active = given is not None and given.ended_ms is None
    if wanted is not None:
        is_enough = is_active and given is not None and limit_of(given) <= wanted
        return Step.BEGIN if is_led and not is_enough else None
    if is_active:
        return Step.END if is_known else None
    if given is not None and now_ms - (given.ended_ms or 0) >= FORGOTTEN_AFTER_MS:
        return Step.FORGET
    return None


def may_have_ended(
    given: GivenBack, segments: Sequence[tuple[int, int]], log_start_offset: int
) -> bool:
    """Whether a broker may have moved its log start there by one of our limits. It deletes whole
    segments, and leaves no less than the limit. `segments`: base offsets and sizes now, ascending.
    """
    limits = [limits.get("retention.bytes") for limits in (given.limits, given.former_limits)]
    known = [int(limit) for limit in limits if limit is not None]
    if not known or not segments or segments[0][0] != log_start_offset:
        return False
    return sum(size for _, size in segments) >= min(known)


def limit_of(given: GivenBack) -> int:
    """Its retention.bytes; -1 where there is none, as in a record of another version."""
    return int(given.limits.get("retention.bytes", -1))

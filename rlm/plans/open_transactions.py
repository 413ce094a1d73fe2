"""Names the transaction that keeps a last stable offset where it is, so that nothing is copied.

Only what lies below the last stable offset is copied (G2), and it never passes the first record of
an open transaction. A producer that died in a transaction of long timeout, or one that the
coordinator has forgotten (a hanging transaction), stops the copies of a partition, and in mode tier
its trims too, until the disk is full (H18). Times are monotonic ms, but for timestamps. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kip405.ids import TopicPartition
from rlm.plans.problems import Finding, ProblemKind, human_duration


class Transaction(Protocol):
    """A producer's open transaction in a partition (rlm.broker.answers.OpenTransaction)."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def last_timestamp_ms(self) -> int: ...


T = TypeVar("T", bound=Transaction)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedOffset:
    """A last stable offset that has not moved since `since_ms` while closed segments wait for it.

    `transaction` is what keeps it there; None = not known, `why` says why not.
    """

    partition: TopicPartition
    last_stable_offset: int
    since_ms: int
    transaction: Transaction | None = None
    why: str = "it was not asked for yet"


def first_open(transactions: Iterable[T]) -> T | None:
    """The one that keeps the last stable offset where it is; None where there is none."""
    return min(transactions, key=lambda one: one.start_offset, default=None)


def pinned_finding(pinned: PinnedOffset, *, now_ms: int, now_wall_ms: int) -> Finding:
    """One pinned offset, in words."""
    head = (
        f"closed segments wait for the last stable offset {pinned.last_stable_offset}, which has "
        f"not moved for {human_duration(now_ms - pinned.since_ms)}"
    )
    return Finding(
        kind=ProblemKind.OPEN_TRANSACTION,
        subject=str(pinned.partition),
        topic=pinned.partition.topic,
        text=f"{head}: {_cause(pinned, now_wall_ms)}",
    )


def _cause(pinned: PinnedOffset, now_wall_ms: int) -> str:
    found, partition = pinned.transaction, pinned.partition
    if found is None:
        return f"which transaction is open is not known: {pinned.why}"
    ago = human_duration(max(0, now_wall_ms - found.last_timestamp_ms))
    return (
        f"producer {found.producer_id} (epoch {found.producer_epoch}) has a transaction open from "
        f"offset {found.start_offset} on, its last record is {ago} old; if it hangs, "
        f"`kafka-transactions.sh --bootstrap-server BROKER abort --topic {partition.topic} "
        f"--partition {partition.partition} --start-offset {found.start_offset}`"
    )

"""Asks our broker which transaction is open where closed segments wait for the last stable offset.

The copy task knows that they wait, but not for whom. So the broker is asked once an offset has not
moved for long enough, and again at every interval: the producer may be another one by then. What
follows from the answer is in rlm.plans.open_transactions.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey, TopicPartition
from rlm.broker.answers import OpenTransaction
from rlm.clock import Clock
from rlm.plans.copy import WhyNot
from rlm.plans.open_transactions import PinnedOffset, first_open, pinned_finding
from rlm.plans.problems import Finding
from rlm.tasks.copy import CopyStatus

_NONE_OPEN = "the broker knows no open transaction there now"


class Producers(Protocol):
    """Our own broker (rlm.broker.OwnBroker)."""

    def open_transactions(
        self, topic: str, partition: int
    ) -> Awaitable[tuple[OpenTransaction, ...]]: ...


class CopyStatuses(Protocol):
    """What the last runs of the copy task found (rlm.tasks.copy.CopyTask)."""

    @property
    def statuses(self) -> Mapping[PartitionKey, CopyStatus]: ...


class TransactionWatch:
    """`run` checks until cancelled; `least_ms`: how long an offset must not have moved."""

    def __init__(
        self,
        *,
        copies: CopyStatuses,
        broker: Producers,
        clock: Clock,
        interval_ms: Callable[[], int],
        least_ms: Callable[[], int],
    ) -> None:
        self._copies = copies
        self._broker = broker
        self._clock = clock
        self._interval_ms = interval_ms
        self._least_ms = least_ms
        self._pinned: dict[PartitionKey, PinnedOffset] = {}

    def findings(self) -> Iterator[Finding]:
        """One problem for each partition that has waited long enough."""
        now_ms, now_wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        for one in self._long_pinned().values():
            yield pinned_finding(one, now_ms=now_ms, now_wall_ms=now_wall_ms)

    def pinned_ms(self) -> Mapping[TopicPartition, int]:
        """For how long closed segments have waited for the same last stable offset."""
        now_ms = self._clock.monotonic_ms()
        return {one.partition: now_ms - one.since_ms for one in self._pinned.values()}

    async def run(self) -> None:
        """Check at every interval."""
        while True:
            await self.check()
            await self._clock.sleep_ms(self._interval_ms())

    async def check(self) -> None:
        """See which partitions wait now, and ask about those that have waited long enough."""
        self._see()
        for key, pinned in self._long_pinned().items():
            answer = await self._ask(pinned)
            if self._pinned.get(key) is pinned:
                self._pinned[key] = answer

    def _see(self) -> None:
        now_ms, before = self._clock.monotonic_ms(), self._pinned
        self._pinned = {}
        for key, status in self._copies.statuses.items():
            if status.reason != WhyNot.LAST_STABLE_OFFSET.value:
                continue
            known, offset = before.get(key), status.last_stable_offset
            if known is None or known.last_stable_offset != offset:
                known = PinnedOffset(
                    partition=TopicPartition(status.topic, status.partition),
                    last_stable_offset=offset,
                    since_ms=now_ms,
                )
            self._pinned[key] = known

    def _long_pinned(self) -> dict[PartitionKey, PinnedOffset]:
        since_ms = self._clock.monotonic_ms() - self._least_ms()
        return {key: one for key, one in self._pinned.items() if one.since_ms <= since_ms}

    async def _ask(self, pinned: PinnedOffset) -> PinnedOffset:
        partition = pinned.partition
        try:
            found = await self._broker.open_transactions(partition.topic, partition.partition)
        except RemoteStorageError as error:
            return replace(pinned, transaction=None, why=str(error))
        return replace(pinned, transaction=first_open(found), why=_NONE_OPEN)

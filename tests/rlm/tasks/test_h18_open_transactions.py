"""The transaction that keeps closed segments from being copied is named (H18)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import PartitionKey, TopicPartition
from rlm.broker.answers import OpenTransaction
from rlm.plans.copy import WhyNot
from rlm.plans.open_transactions import PinnedOffset, first_open, pinned_finding
from rlm.plans.problems import Severity
from rlm.tasks.copy import CopyStatus
from rlm.tasks.transaction_watch import TransactionWatch
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION

LEAST_MS = 90_000


def transaction(start_offset: int, producer_id: int = 4_000) -> OpenTransaction:
    return OpenTransaction(
        producer_id=producer_id, producer_epoch=2, start_offset=start_offset, last_timestamp_ms=0
    )


@dataclass(kw_only=True)
class World:
    """A partition that waits for its last stable offset; `answer` is the broker's."""

    clock: ManualClock = field(default_factory=ManualClock)
    reason: WhyNot = WhyNot.LAST_STABLE_OFFSET
    last_stable_offset: int = 150
    is_led: bool = True
    answer: tuple[OpenTransaction, ...] | RemoteStorageError = (transaction(150),)
    asked: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = TransactionWatch(
            copies=self,
            broker=self,
            clock=self.clock,
            interval_ms=lambda: 30_000,
            least_ms=lambda: LEAST_MS,
        )

    @property
    def statuses(self) -> Mapping[PartitionKey, CopyStatus]:
        status = CopyStatus(
            topic=PARTITION.topic,
            partition=PARTITION.partition,
            leader_epoch=0,
            reason=self.reason.value,
            detail="",
            frozen=None,
            copied_next_offset=0,
            log_start_offset=0,
            last_stable_offset=self.last_stable_offset,
            high_watermark=400,
            pending_segments=0,
            pending_bytes=0,
            lag_segments=1,
            lag_bytes=1_000,
            measured_at_ms=0,
            behind_since_ms=0,
        )
        return {PARTITION.key: status} if self.is_led else {}

    async def open_transactions(self, topic: str, partition: int) -> tuple[OpenTransaction, ...]:
        self.asked.append((topic, partition))
        if isinstance(self.answer, RemoteStorageError):
            raise self.answer
        return self.answer

    async def after(self, *, ms: int) -> list[str]:
        """What is a problem after so long."""
        self.clock.advance(ms)
        await self.watch.check()
        return [one.text for one in self.watch.findings()]


async def test_h18_the_producer_is_named_once_the_offset_has_not_moved_for_long() -> None:
    world = World(answer=(transaction(300, 5), transaction(150)))
    assert await world.after(ms=0) == []
    assert await world.after(ms=LEAST_MS - 1) == []
    assert world.asked == [], "a broker is not asked about every transaction"
    [text] = await world.after(ms=1)
    assert "producer 4000 (epoch 2) has a transaction open from offset 150 on" in text
    assert "--topic orders --partition 0 --start-offset 150" in text
    assert world.asked == [(PARTITION.topic, PARTITION.partition)]
    [finding] = world.watch.findings()
    assert (finding.subject, finding.severity) == ("orders-0", Severity.WARNING)
    assert world.watch.pinned_ms() == {TopicPartition("orders", 0): LEAST_MS}


@pytest.mark.parametrize("change", ["moves", "copied", "led elsewhere"])
async def test_h18_what_moves_on_is_no_problem(change: str) -> None:
    world = World()
    await world.after(ms=0)
    assert await world.after(ms=LEAST_MS)
    if change == "moves":
        world.last_stable_offset = 151
    elif change == "copied":
        world.reason = WhyNot.CAUGHT_UP
    else:
        world.is_led = False
    assert await world.after(ms=1_000) == []
    assert list(world.watch.pinned_ms().values()) == ([0] if change == "moves" else [])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Unavailable("no answer"), "is not known: no answer"),
        ((), "is not known: the broker knows no open transaction there now"),
    ],
)
async def test_h38_a_transaction_that_is_not_known_is_said_so(
    answer: tuple[OpenTransaction, ...] | RemoteStorageError, words: str
) -> None:
    world = World()
    await world.after(ms=0)
    await world.after(ms=LEAST_MS)
    world.answer = answer
    [text] = await world.after(ms=1_000)
    assert words in text


def test_the_first_open_transaction_pins_the_offset() -> None:
    assert first_open([]) is None
    assert first_open([transaction(7), transaction(3), transaction(5)]) == transaction(3)


def test_a_record_of_the_future_has_no_negative_age() -> None:
    pinned = PinnedOffset(
        partition=TopicPartition("orders", 0),
        last_stable_offset=1,
        since_ms=0,
        transaction=transaction(1),
    )
    assert "its last record is 0 s old" in pinned_finding(pinned, now_ms=0, now_wall_ms=-5).text

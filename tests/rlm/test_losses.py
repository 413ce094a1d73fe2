"""What is remembered of segments that readers found lost (H25)."""

import asyncio
import weakref
from typing import Never

import pytest

from kip405.errors import Corrupt, NotFound
from kip405.ids import PartitionKey, Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.proxy.begun import Begun, begin
from rlm.reading.values import RemoteRead
from rlm.remote_log.history import LineageReader, Losses, RemoteHistory
from rlmm.publisher import deadline
from tests.builders.ledger import PARTITION, MemoryLedger, metadata

KEY = PartitionKey(Uuid(bytes(15) + b"\x01"), 0)
ONE, TWO = Uuid(bytes(15) + b"\x02"), Uuid(bytes(15) + b"\x03")


def test_h25_a_lost_segment_is_an_alarm_until_it_is_read_again() -> None:
    losses = Losses()
    losses.note(KEY, ONE, NotFound("one.log is not there"), {ONE})
    losses.note(KEY, TWO, Corrupt("two.log is damaged"), {ONE, TWO})
    losses.note(KEY, TWO, Corrupt("two.log is damaged"), {ONE, TWO})
    first, second = losses.alarms(KEY, {ONE, TWO})
    assert str(ONE) in first and "one.log is not there" in first
    assert "two.log is damaged" in second
    losses.forget(KEY, ONE)
    assert losses.alarms(KEY, {ONE, TWO}) == (second,)
    assert losses.alarms(PartitionKey(KEY.topic_id, 1), {ONE, TWO}) == ()


def test_a_segment_that_the_ledger_gave_up_is_no_alarm() -> None:
    losses = Losses()
    losses.note(KEY, ONE, NotFound("deleted by retention meanwhile"), {ONE})
    assert losses.alarms(KEY, {TWO}) == ()


def test_what_is_remembered_is_bounded() -> None:
    losses = Losses()
    ids = [Uuid(number.to_bytes(16)) for number in range(1, 300)]
    for segment_id in ids:
        losses.note(KEY, segment_id, NotFound("gone"), ids)
    assert len(losses.alarms(KEY, set(ids))) == 100


def test_h25_what_the_ledger_gave_up_makes_room_for_what_is_lost_now() -> None:
    losses = Losses()
    for number in range(1, 101):
        before = Uuid(number.to_bytes(16))
        losses.note(KEY, before, NotFound("gone"), {before})
    new = Uuid((200).to_bytes(16))
    losses.note(KEY, new, NotFound("gone too"), {new})
    (alarm,) = losses.alarms(KEY, {new})
    assert "gone too" in alarm


class Chunk:
    """What a read has in its hands."""


def _fails(found: list[weakref.ref[Chunk]]) -> None:
    chunk = Chunk()
    found.append(weakref.ref(chunk))
    raise Corrupt("damaged")


def test_g10_a_loss_keeps_nothing_of_the_read_that_found_it() -> None:
    """A loss stays until the segment is read again; an error refers to the frames it passed."""
    losses, found = Losses(), list[weakref.ref[Chunk]]()
    try:
        _fails(found)
    except Corrupt as error:
        losses.note(KEY, ONE, error, {ONE})
    assert losses.damaged(KEY) == {ONE: "damaged"}
    assert [one() for one in found] == [None]


class HangingLedger(MemoryLedger):
    """No broker answers, so that a barrier takes all its time."""

    async def barrier(self, key: PartitionKey, deadline_ms: int) -> None:
        async with deadline(50, "barrier"):
            await asyncio.Event().wait()


class DamagedMetadata:
    """A reader that need not wait to see that it cannot read."""

    async def read(self, *_: object, **__: object) -> Never:
        raise Corrupt("metadata are damaged")


async def test_h25_a_loss_that_is_seen_at_once_cancels_nobody_who_begins_the_read() -> None:
    """The proxy begins a read in the task of the fetch, and goes on with it in another one: the
    deadline of the barrier must end the wait there.
    """
    ledger = HangingLedger()
    ledger.copied(metadata(1, 0, 100, {0: 0}))
    history = RemoteHistory(
        name="t-0",
        ledger=ledger.view,
        lineage=Lineage((EpochEntry(epoch=0, start_offset=0),)),
        log_end_offset=200,
        trusted=True,
    )
    request = RemoteRead(
        topic_id=PARTITION.topic_id,
        partition=0,
        offset=0,
        upper_offset=100,
        max_bytes=1 << 20,
        at_least_one=True,
        read_committed=False,
    )
    reader = LineageReader(DamagedMetadata(), ledger)  # type: ignore[arg-type]  # as far as it is used
    begun = begin(reader.read(history, request))
    assert isinstance(begun, Begun)

    async def go_on() -> None:
        await begun

    going_on = asyncio.ensure_future(go_on())
    await asyncio.sleep(0.2)  # as a fetch waits for the broker
    with pytest.raises(Corrupt, match="damaged"):
        await going_on
    assert reader.losses.partitions == (PARTITION.key,)

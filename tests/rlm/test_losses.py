"""What is remembered of segments that readers found lost (H25)."""

import weakref

from kip405.errors import Corrupt, NotFound
from kip405.ids import PartitionKey, Uuid
from rlm.remote_log.history import Losses

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

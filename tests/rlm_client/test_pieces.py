"""Records of a piece lie between its offsets; one that cannot be read takes no other with it."""

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import CorruptRecordException
from aiokafka.structs import TopicPartition

from kip405.batches import batch_headers
from rlm_client.counters import ConsumerCounters, TierCounters
from rlm_client.pieces import PieceRecords, RecordFormat, Results, piece_result, ready
from rlm_client.tiered_fetcher import TieredFetcher
from tests.kip405.batch_builder import batch, legacy
from tests.rlm_client.world import FakeClient, World
from tests.rlm_spark.decode.encoding import ABORT, Batch, Rec, control
from tiered_reads import values
from tiered_reads.values import DataLoss, Fetched, ReadMode

READABLE, UNREADABLE = TopicPartition("t", 0), TopicPartition("t", 1)


def _refuse(value: bytes | None) -> Any:
    raise ValueError("cannot be read")


async def _filled(*partitions: TopicPartition) -> TieredFetcher:
    """A fetcher that has a piece of each partition and fetches no more."""
    subscription = SubscriptionState()
    subscription.assign_from_user([*partitions])
    assignment = subscription.subscription.assignment
    fetcher = TieredFetcher(
        FakeClient(World()),
        subscription,
        mode=ReadMode.REMOTE_ONLY,
        remote_log=SimpleNamespace(close=lambda: None),
        counters=ConsumerCounters(),
        auto_offset_reset="none",
    )
    fetcher._fetch_task.cancel()
    for one in partitions:
        assignment.state_value(one).seek(0)
        form = RecordFormat(
            key_deserializer=None,
            value_deserializer=_refuse if one is UNREADABLE else None,
            check_crcs=True,
            isolation_level=0,
        )
        piece = Fetched(batches=batch(0, 3), start_offset=0, next_offset=3)
        records = PieceRecords(one, piece, form, TierCounters())
        fetcher._records[one] = FetchResult(
            one, assignment=assignment, partition_records=records, backoff=0
        )
    return fetcher


@pytest.mark.parametrize("start", [0, 2])
def test_h37_records_of_a_piece_end_where_it_does(start: int) -> None:
    """Inside a batch, as where Kafka's log begins: the other tier has the rest."""
    piece = Fetched(batches=batch(0, 6), start_offset=start, next_offset=4)
    form = RecordFormat(
        key_deserializer=None, value_deserializer=None, check_crcs=True, isolation_level=0
    )
    records = PieceRecords(READABLE, piece, form, TierCounters())
    assert [record.offset for record in records] == list(range(start, 4))
    assert records.next_fetch_offset == 4


@pytest.mark.parametrize("order", [(READABLE, UNREADABLE), (UNREADABLE, READABLE)])
async def test_one_call_for_two_partitions_loses_nothing(order: tuple[TopicPartition, ...]) -> None:
    fetcher = await _filled(*order)
    found = await fetcher.fetched_records(())
    assert [record.offset for record in found[READABLE]] == [0, 1, 2]
    with pytest.raises(ValueError, match="cannot be read"):
        await fetcher.fetched_records(())
    assert fetcher._subscriptions.subscription.assignment.state_value(UNREADABLE).position == 0
    await fetcher.close()


async def test_calls_that_wait_raise_at_once() -> None:
    fetcher = await _filled(UNREADABLE)
    with pytest.raises(ValueError, match="cannot be read"):
        await fetcher.next_record(())
    await fetcher.close()
    fetcher = await _filled(UNREADABLE)
    with pytest.raises(ValueError, match="cannot be read"):
        await fetcher.fetched_records((), 600)
    await fetcher.close()


def _same(value: bytes | None) -> bytes | None:
    return value


def _result(
    piece: Fetched, *, is_plain: bool, isolation_level: int
) -> tuple[FetchResult, Any, TierCounters]:
    subscription, counters = SubscriptionState(), TierCounters()
    subscription.assign_from_user([READABLE])
    assignment = subscription.subscription.assignment
    assignment.state_value(READABLE).seek(piece.start_offset)
    form = RecordFormat(
        key_deserializer=None if is_plain else _same,
        value_deserializer=None,
        check_crcs=True,
        isolation_level=isolation_level,
    )
    result = piece_result(READABLE, piece, form, counters, assignment=assignment, backoff=0)
    Results(TierCounters(), lambda: None)[READABLE] = result
    return result, assignment.state_value(READABLE), counters


def _log() -> bytes:
    """All codecs, gaps that compaction has left, an aborted transaction and its marker."""
    plain = Rec(offset=28, key=b"k", value=b"v")
    rest = (
        Batch(base_offset=28, last_offset=29, records=(plain,), transactional=True, producer_id=7),
        control(30, ABORT, 7),
        Batch(base_offset=31, last_offset=38, records=(Rec(offset=33), Rec(offset=36, key=b""))),
        Batch(base_offset=39, last_offset=39, records=()),
        Batch(
            base_offset=40,
            last_offset=44,
            records=(Rec(offset=41, headers=((b"h", b"v"), (b"h", None))), Rec(offset=44)),
            log_append_ms=7_000,
        ),
    )
    parts = [batch(0, 3)]
    parts += [batch(3 + 5 * codec, 5, compression=codec, value=b"v" * 50) for codec in range(5)]
    return b"".join((*parts, *(one.encode() for one in rest)))


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("most", [None, 1, 2, 3, 7])
async def test_whole_batches_are_what_one_record_after_the_other_is(
    most: int | None, isolation_level: int
) -> None:
    log = _log()
    for start, end in ((0, 45), (1, 44), (4, 31), (33, 41), (34, 36), (44, 50), (29, 30), (37, 40)):
        first = next(at for at, one in batch_headers(log) if one.next_offset > start)
        piece = Fetched(
            batches=log[first:], start_offset=start, next_offset=end, aborted=((7, 28),)
        )
        ours, our_state, counted = _result(piece, is_plain=True, isolation_level=isolation_level)
        theirs, state, _ = _result(piece, is_plain=False, isolation_level=isolation_level)
        assert hasattr(ours, "getall") and ours.getall is not FetchResult.getall
        given = []
        while theirs.has_more():
            wanted = theirs.getall(most)
            found = ours.getall(most)
            assert found == wanted
            assert [type(one.headers) for one in found] == [tuple] * len(found)
            given += found
            if found:
                assert our_state.position == state.position
        while ours.has_more():
            assert ours.getall(most) == []
        assert our_state.position == state.position == end
        assert counted.records == len(given)


async def test_one_record_after_the_other_of_whole_batches() -> None:
    piece = Fetched(batches=_log(), start_offset=0, next_offset=45)
    ours, our_state, _ = _result(piece, is_plain=True, isolation_level=0)
    theirs, state, _ = _result(piece, is_plain=False, isolation_level=0)
    while (wanted := theirs.getone()) is not None:
        assert ours.getone() == wanted
        assert our_state.position == state.position
    assert ours.getone() is None and not ours.has_more()
    assert our_state.position == state.position == 45


async def test_batches_of_the_older_format() -> None:
    piece = Fetched(batches=b"".join(map(legacy, range(5))), start_offset=1, next_offset=4)
    ours, _, _ = _result(piece, is_plain=True, isolation_level=1)
    theirs, _, _ = _result(piece, is_plain=False, isolation_level=1)
    found = ours.getall()
    assert found == theirs.getall()
    assert [one.offset for one in found] == [1, 2, 3] and found[0].checksum is not None


@pytest.mark.parametrize("most", [None, 1, 2])
async def test_g9_records_before_a_damaged_batch_come_and_its_error_after_them(
    most: int | None,
) -> None:
    log = bytearray(batch(0, 3) + batch(3, 3))
    log[-2] ^= 1
    piece = Fetched(batches=bytes(log), start_offset=0, next_offset=6)
    result, state, _ = _result(piece, is_plain=True, isolation_level=0)
    raised: list[Exception] = []
    result._partition_records.on_error = raised.append
    offsets = []
    while result.has_more():
        offsets += [one.offset for one in result.getall(most)]
    assert (offsets, state.position, raised) == ([0, 1, 2], 3, [])
    again = Fetched(batches=bytes(log[len(log) // 2 :]), start_offset=3, next_offset=6)
    result, state, _ = _result(again, is_plain=True, isolation_level=0)
    result._partition_records.on_error = raised.append
    assert result.getall(most) == [] and state.position == 3
    assert [type(one) for one in raised] == [CorruptRecordException]


def test_batches_are_checked_once_and_what_is_wrong_is_left_to_the_records() -> None:
    good, older = batch(0, 3) + batch(3, 3), legacy(0)
    bad = bytes([*good[:-2], good[-2] ^ 1, good[-1]])
    loss = DataLoss(
        topic_partition=values.TopicPartition("t", 0), start_offset=6, end_offset=7, reason=""
    )

    def items() -> Generator[Fetched | DataLoss, None, None]:
        for data in (good, bad, older, good[:-1], b""):
            yield Fetched(batches=memoryview(data), start_offset=0, next_offset=6)
        yield loss

    found = list(ready(items(), check_crcs=True))
    assert found[-1] is loss
    pieces = [one for one in found if isinstance(one, Fetched)]
    assert [one.is_checked for one in pieces] == [True, False, False, False, True]
    assert [one.batches for one in pieces] == [good, bad, older, good[:-1], b""]
    unchecked = [one for one in ready(items(), check_crcs=False) if isinstance(one, Fetched)]
    assert not any(one.is_checked for one in unchecked)


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize("is_longer", [True, False])
async def test_g9_a_batch_that_is_cut_short_is_an_error_and_not_the_end(
    is_plain: bool, is_longer: bool
) -> None:
    """The size of a batch is not under its checksum, and aiokafka ends before what is not whole."""
    log = bytearray(batch(0, 3) + batch(3, 3))
    if is_longer:
        log[len(log) // 2 + 11] += 1
    else:
        del log[-1:]
    piece = Fetched(batches=bytes(log), start_offset=0, next_offset=6)
    result, state, _ = _result(piece, is_plain=is_plain, isolation_level=0)
    assert [one.offset for one in result.getall()] == [0, 1, 2]
    assert state.position == 3

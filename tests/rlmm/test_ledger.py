"""Answers of one partition's view: lineage, contiguity, holes, overlaps, disputes (H4, H15)."""

from itertools import permutations

import pytest

from kip405.lineage import Lineage
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlmm.ledger import Hole, PartitionLedger, SegmentTotal, UsableSegment
from rlmm.records import LedgerKey, LedgerRecord, RecordHeaders
from rlmm.replay import LedgerState
from tests.rlmm.builders import DELETED, DELETING, FINISHED, KEY, STARTED, record, segment, uuid

ONE_EPOCH = Lineage((EpochEntry(epoch=0, start_offset=0),))
END = 10_000


def ledger(*segments: RemoteLogSegmentMetadata) -> PartitionLedger:
    state = LedgerState()
    headers = RecordHeaders(leader_epoch=5, expected_previous=-1, writer=uuid(1))
    for offset, metadata in enumerate(segments):
        key = LedgerKey.of(metadata.segment_id)
        state.apply(
            LedgerRecord(key=key, metadata=metadata, headers=headers, offset=offset, timestamp_ms=0)
        )
    return PartitionLedger.of(KEY, state.partitions[KEY])


def starts(found: tuple[UsableSegment, ...]) -> list[int]:
    return [usable.metadata.start_offset for usable in found]


def test_only_finished_segments_count_and_in_order() -> None:
    view = ledger(segment(3), segment(1), segment(2, STARTED), segment(4, DELETING))
    assert starts(view.usable(ONE_EPOCH, END)) == [10, 30]
    assert view.contiguous_end(ONE_EPOCH, END, 10) == 20
    assert view.highest_end(ONE_EPOCH) == 40
    assert [entry.metadata.start_offset for entry in view.in_state(STARTED, DELETING)] == [20, 40]


def test_finished_segments_are_counted_with_their_bytes() -> None:
    view = ledger(segment(3), segment(1), segment(2, STARTED), segment(4, DELETING))
    sizes = [view.in_state(FINISHED)[at].metadata.segment_size_bytes for at in (0, 1)]
    assert view.finished_total == SegmentTotal(segments=2, size_bytes=sum(sizes))
    assert PartitionLedger.empty(KEY).finished_total == SegmentTotal(segments=0, size_bytes=0)


def test_the_highest_end_is_that_of_a_segment_that_ends_inside_the_log() -> None:
    view = ledger(segment(1), segment(3), segment(4))
    assert [view.highest_end(ONE_EPOCH, end) for end in (50, 49, 40, 19)] == [50, 40, 40, None]


def test_an_empty_ledger_answers() -> None:
    view = PartitionLedger.empty(KEY)
    assert view.contiguous_end(ONE_EPOCH, END, 7) == 7
    assert view.highest_end(ONE_EPOCH) is None
    assert view.usable_segment_for(ONE_EPOCH, END, 0) is None
    assert view.remote_lineage == Lineage()


def test_the_empty_ledger_of_a_partition_is_made_once() -> None:
    """Every step of a partition without segments asks for it."""
    empty = PartitionLedger.empty(KEY)
    assert PartitionLedger.empty(KEY) is empty
    other = PartitionLedger.empty(KEY._replace(partition=77))
    assert (empty.key, other.key.partition, other.is_empty) == (KEY, 77, True)


@pytest.mark.parametrize(
    ("offset", "start"), [(0, 10), (10, 10), (19, 10), (20, 30), (39, 30), (40, None)]
)
def test_lookup_serves_the_offset_or_the_first_after_the_hole(
    offset: int, start: int | None
) -> None:
    found = ledger(segment(1), segment(3)).usable_segment_for(ONE_EPOCH, END, offset)
    assert (found.metadata.start_offset if found else None) == start


def test_of_overlapping_segments_the_one_that_reaches_furthest_serves() -> None:
    view = ledger(segment(1, start=5, end=50), segment(2, start=14, end=150), segment(3, start=20))
    found = view.usable_segment_for(ONE_EPOCH, END, 25)
    assert found is not None
    assert found.metadata.end_offset == 150
    first = view.usable_segment_for(ONE_EPOCH, END, 7)
    assert first is not None
    assert first.metadata.end_offset == 50
    assert view.contiguous_end(ONE_EPOCH, END, 5) == 151


@pytest.mark.parametrize(
    ("segments", "offset", "found"),
    [
        ([(1, 10, 100), (2, 101, 200)], 90, 1),
        ([(1, 10, 100), (2, 101, 200)], 150, 2),
        ([(1, 10, 100), (2, 101, 200)], 9, 1),
        ([(1, 10, 100), (2, 101, 200)], 201, None),
        ([(1, 10, 100), (2, 5, 150)], 11, 2),
        ([(1, 10, 90), (2, 5, 100), (3, 101, 200)], 95, 2),
        ([(1, 10, 100), (2, 5, 150), (3, 148, 155), (4, 4, 200)], 11, 4),
        ([(1, 10, 100), (2, 10, 150)], 111, 2),
        ([(1, 10, 100), (2, 5, 50)], 11, 1),
        ([(1, 10, 100), (2, 5, 50)], 7, 2),
        ([(1, 10, 100), (2, 10, 50)], 11, 1),
        ([(1, 10, 100), (2, 10, 50)], 60, 1),
    ],
)
def test_the_segment_of_an_offset_among_overlapping_ones(
    segments: list[tuple[int, int, int]], offset: int, found: int | None
) -> None:
    """Kafka's RemoteLogLeaderEpochStateTest. Before the first segment we answer that one, and the
    one that reaches furthest serves, whichever finished later: Kafka finds nothing at 60 in the
    last case.
    """
    view = ledger(*(segment(one, start=start, end=end) for one, start, end in segments))
    usable = view.usable_segment_for(ONE_EPOCH, END, offset)
    wanted = None if found is None else uuid(found)
    assert (usable.metadata.segment_id.id if usable else None) == wanted


def test_one_of_two_equal_segments_serves_whichever_was_written_first() -> None:
    records = [segment(number, start=10, end=100) for number in (1, 2, 3)]
    served = {
        usable.metadata.segment_id.id if usable else None
        for order in permutations(records)
        for usable in [ledger(*order).usable_segment_for(ONE_EPOCH, END, 50)]
    }
    assert len(served) == 1
    assert None not in served


def test_segments_are_listed_by_start_offset_whatever_was_written_first() -> None:
    view = ledger(
        segment(1, STARTED, start=0, end=4),
        segment(2, start=5, end=10),
        segment(3, start=11, end=100),
        segment(4, start=9, end=150),
    )
    assert [one.metadata.start_offset for one in view.in_state(STARTED, FINISHED)] == [0, 5, 9, 11]
    assert starts(view.usable(ONE_EPOCH, END)) == [5, 9, 11]


LIFE_CYCLE = (
    segment(1, start=0, end=100, epochs=((0, 0), (1, 20), (2, 80))),
    segment(2, start=101, end=200, epochs=((2, 101),)),
    segment(3, start=201, end=300, epochs=((2, 201), (3, 240))),
    segment(4, start=250, end=400, epochs=((3, 250), (4, 370))),
)


@pytest.mark.parametrize("state", [STARTED, DELETING, DELETED])
def test_the_life_cycle_of_segments_as_in_kafkas_own_test(state: RemoteLogSegmentState) -> None:
    """The segments of RemoteLogSegmentLifecycleTest, then with the first in another state."""
    view = ledger(*LIFE_CYCLE)
    lineage = view.remote_lineage
    assert [(one.epoch, one.start_offset) for one in lineage.entries] == [
        (0, 0),
        (1, 20),
        (2, 80),
        (3, 240),
        (4, 370),
    ]
    assert starts(view.usable(lineage, END)) == [0, 101, 201, 250]
    assert view.contiguous_end(lineage, END, 0) == 401
    first = LIFE_CYCLE[0].in_state(state, event_timestamp_ms=0, broker_id=1)
    later = ledger(first, *LIFE_CYCLE[1:])
    assert [one.metadata for one in later.in_state(state)] == [first]
    assert starts(later.usable(lineage, END)) == [101, 201, 250]
    assert later.contiguous_end(lineage, END, 0) == 0
    assert later.highest_end(lineage, END) == 401


def test_h15_contiguity_restarts_behind_a_recorded_hole() -> None:
    view = ledger(segment(1), segment(3))
    assert view.contiguous_end(ONE_EPOCH, END, 10) == 20
    hole = Hole(start=18, end=30, cause="retention")
    assert view.contiguous_end(ONE_EPOCH, END, 10, [hole]) == 40
    assert view.contiguous_end(ONE_EPOCH, END, 15, [hole]) == 40


def test_h04_a_dead_lineage_bounds_nothing() -> None:
    """Unclean election: epoch 5 copied 0-999, epoch 6 began at 500 and has grown to 2000."""
    view = ledger(segment(1, start=0, end=999, epochs=((5, 0),)))
    lineage = Lineage((EpochEntry(epoch=5, start_offset=0), EpochEntry(epoch=6, start_offset=500)))
    assert view.contiguous_end(lineage, 2_000, 0) == 500
    assert view.highest_end(lineage, 2_000) == 500
    usable = view.usable_segment_for(lineage, 2_000, 499)
    assert usable is not None
    assert usable.next_offset == 500
    assert view.usable_segment_for(lineage, 2_000, 500) is None


def test_h04_a_remote_end_beyond_the_log_end_covers_nothing() -> None:
    view = ledger(segment(0), segment(1))
    assert view.contiguous_end(ONE_EPOCH, 15, 0) == 10
    assert view.highest_end(ONE_EPOCH) == 20
    assert view.usable(ONE_EPOCH, 5) == ()
    assert len(view.usable(ONE_EPOCH, 20)) == 2


def test_segments_below_the_remote_start_are_left_out() -> None:
    view = ledger(segment(0), segment(1), segment(2))
    assert starts(view.usable(ONE_EPOCH, END, 15)) == [10, 20]
    assert starts(view.usable(ONE_EPOCH, END, 20)) == [20]


def test_h03_a_disputed_segment_is_read_but_not_trimmed_on() -> None:
    state = LedgerState()
    state.apply(record(0, 1, STARTED))
    state.apply(record(1, 1, FINISHED, previous=STARTED))
    state.apply(record(2, 2, STARTED, epoch=6))
    state.apply(record(3, 2, FINISHED, epoch=5, previous=STARTED))
    view = PartitionLedger.of(KEY, state.partitions[KEY])
    assert "older" in view.entries[uuid(2)].disputed
    assert view.contiguous_end(ONE_EPOCH, END, 10) == 20
    assert view.highest_end(ONE_EPOCH) == 20
    served = view.usable_segment_for(ONE_EPOCH, END, 25)
    assert served is not None
    assert served.metadata.start_offset == 20


def test_a_snapshot_is_not_changed_by_later_records_and_hands_on_what_it_knows() -> None:
    state = LedgerState()
    state.apply(record(0, 1, FINISHED))
    before = PartitionLedger.of(KEY, state.partitions[KEY])
    assert before.highest_end(ONE_EPOCH) == 20
    state.apply(record(1, 2, FINISHED))
    state.apply(record(2, 1, DELETING, previous=FINISHED))
    after = PartitionLedger.of(KEY, state.partitions[KEY], before)
    assert starts(before.usable(ONE_EPOCH, END)) == [10]
    assert starts(after.usable(ONE_EPOCH, END)) == [20]
    other = Lineage((EpochEntry(epoch=0, start_offset=0), EpochEntry(epoch=1, start_offset=25)))
    assert after.contiguous_end(other, END, 20) == 25
    assert after.contiguous_end(ONE_EPOCH, END, 20) == 30


def test_results_for_two_alternating_lineages_are_kept() -> None:
    """The proxy asks by the lineage of the leader, readers of one tier by the remote one."""
    view = ledger(segment(1), segment(2))
    other = Lineage((EpochEntry(epoch=0, start_offset=0), EpochEntry(epoch=1, start_offset=25)))
    before = [view.usable(lineage, END) for lineage in (ONE_EPOCH, other)]
    again = [view.usable(lineage, END) for lineage in (ONE_EPOCH, other)]
    assert [one.next_offset for one in before[1]] == [20, 25]
    for first, second in zip(before, again, strict=True):
        assert all(one is two for one, two in zip(first, second, strict=True))


def test_g01_contiguity_ends_at_a_gap_of_one_offset() -> None:
    view = ledger(segment(1), segment(2, start=21, end=30))
    assert view.contiguous_end(ONE_EPOCH, END, 10) == 20
    assert view.contiguous_end(ONE_EPOCH, END, 10, [Hole(start=20, end=21, cause="x")]) == 31


def disputed_after(*history: LedgerRecord) -> PartitionLedger:
    """Segment 1 is finished under epoch 5, epoch 6 has begun, then the records given."""
    state = LedgerState()
    lawful = (record(0, 1, STARTED), record(1, 1, FINISHED, previous=STARTED))
    for one in (*lawful, record(2, 9, STARTED, epoch=6), *history):
        state.apply(one)
    return PartitionLedger.of(KEY, state.partitions[KEY])


@pytest.mark.parametrize("state", [DELETING, STARTED])
def test_h03_what_a_zombie_denies_is_read_and_not_trimmed_on(state: RemoteLogSegmentState) -> None:
    view = disputed_after(record(3, 1, state, epoch=4, previous=STARTED))
    found = view.usable_segment_for(ONE_EPOCH, END, 15)
    assert found is not None
    assert (found.metadata.start_offset, found.disputed) == (10, True)
    assert view.contiguous_end(ONE_EPOCH, END, 10) == 10
    assert view.highest_end(ONE_EPOCH) is None
    assert view.highest_end(ONE_EPOCH, disputed=True) == 20


def test_h03_what_a_later_leader_confirms_as_deleted_is_read_no_more() -> None:
    """The zombie's tombstone left no record, so only the dispute differs between the two views."""
    state = LedgerState()
    lawful = (record(0, 1, STARTED), record(1, 1, FINISHED, previous=STARTED))
    zombies = record(3, 1, None, epoch=4, previous=FINISHED)
    for one in (*lawful, record(2, 9, STARTED, epoch=6), zombies):
        state.apply(one)
    before = PartitionLedger.of(KEY, state.partitions[KEY])
    assert [one.disputed for one in before.usable(ONE_EPOCH, END)] == [True]
    for offset in range(4, 20):
        state.apply(record(offset, 20 + offset, FINISHED, epoch=6))
    between = PartitionLedger.of(KEY, state.partitions[KEY], before)
    assert len(between.usable(ONE_EPOCH, END)) > 1
    state.apply(record(20, 1, None, epoch=7))
    after = PartitionLedger.of(KEY, state.partitions[KEY], between)
    assert uuid(1) not in {one.metadata.segment_id.id for one in after.usable(ONE_EPOCH, END)}


def with_a_long_disputed_copy() -> PartitionLedger:
    """[0, 100) is disputed, [50, 60) is not."""
    state = LedgerState()
    long, short = segment(1, start=0, end=99), segment(2, start=50, end=59)
    for offset, (metadata, epoch) in enumerate(((short, 6), (long, 5))):
        headers = RecordHeaders(leader_epoch=epoch, expected_previous=-1, writer=uuid(1))
        key = LedgerKey.of(metadata.segment_id)
        state.apply(
            LedgerRecord(key=key, metadata=metadata, headers=headers, offset=offset, timestamp_ms=0)
        )
    return PartitionLedger.of(KEY, state.partitions[KEY])


@pytest.mark.parametrize(("offset", "start"), [(49, 0), (50, 50), (59, 50), (60, 0), (99, 0)])
def test_h03_an_undisputed_copy_is_read_first_where_it_holds_the_offset(
    offset: int, start: int
) -> None:
    found = with_a_long_disputed_copy().usable_segment_for(ONE_EPOCH, END, offset)
    assert found is not None
    assert found.metadata.start_offset == start


def test_h04_a_lookup_gives_nothing_beyond_the_logs_end() -> None:
    view = ledger(segment(1), segment(3))
    assert view.usable_segment_for(ONE_EPOCH, 19, 10) is None
    assert view.usable_segment_for(ONE_EPOCH, 20, 10) is not None
    assert view.usable_segment_for(ONE_EPOCH, 39, 25) is None


def test_h15_a_hole_has_an_offset_at_least() -> None:
    with pytest.raises(ValueError, match=r"5\.\.5 are no hole"):
        Hole(start=5, end=5, cause="x")


def test_h11_what_is_gone_from_its_store_covers_nothing() -> None:
    view = ledger(segment(1), segment(2), segment(3))
    assert view.contiguous_end(ONE_EPOCH, END, 10) == 40
    assert view.contiguous_end(ONE_EPOCH, END, 10, without={uuid(2)}) == 20
    assert view.contiguous_end(ONE_EPOCH, END, 10, without={uuid(1)}) == 10

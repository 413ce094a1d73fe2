"""The histories of H3 one by one: who objects to what, what is republished, what a gap does."""

import pytest

from kip405.segments import RemoteLogSegmentState
from rlmm.records import LaterRecord
from rlmm.replay import TOMBSTONE_MEMORY_MS, LedgerState, repairs
from tests.rlmm.builders import DELETED, DELETING, FINISHED, KEY, STARTED, record, uuid
from tests.rlmm.histories import partition, read


def test_h03_a_zombies_finished_after_the_tombstone_is_disputed_and_answered_by_a_tombstone() -> (
    None
):
    state = read(
        (
            record(0, 1, STARTED, epoch=5),
            record(1, 1, DELETING, epoch=6, previous=STARTED),
            record(2, 1, DELETED, epoch=6, previous=DELETING),
            record(3, 1, None, epoch=6, previous=DELETED),
            record(4, 1, FINISHED, epoch=5, previous=STARTED),
        )
    )
    assert partition(state).records[uuid(1)].state is FINISHED
    (repair,) = repairs(partition(state).disputes)
    assert (repair.metadata, repair.expected_previous) == (None, FINISHED)
    state.apply(record(5, 1, None, epoch=6, previous=FINISHED))
    assert not partition(state).records
    assert not partition(state).disputes


def test_h03_a_late_reader_disputes_a_finished_that_comes_out_of_nowhere() -> None:
    state = LedgerState()
    state.apply(record(7, 2, FINISHED, epoch=6))
    state.go_live(absence_is_known=True)
    state.apply(record(8, 1, FINISHED, epoch=5, previous=STARTED))
    assert list(partition(state).disputes) == [uuid(1)]


def test_h03_a_zombies_delete_of_a_finished_segment_is_taken_back() -> None:
    state = read(
        (
            record(0, 1, STARTED),
            record(1, 1, FINISHED, previous=STARTED),
            record(2, 1, DELETING, previous=STARTED, writer=2),
            record(3, 1, DELETED, previous=DELETING, writer=2),
        )
    )
    dispute = partition(state).disputes[uuid(1)]
    assert dispute.newest.state is DELETED
    assert dispute.lawful is not None
    assert dispute.lawful.offset == 1
    state.apply(record(4, 1, FINISHED, previous=DELETED))
    assert not partition(state).disputes


def test_h06_adoption_says_finished_after_any_state_it_has_seen() -> None:
    for history in (
        (),
        (record(0, 1, STARTED),),
        (record(0, 1, STARTED), record(1, 1, DELETING, previous=STARTED)),
    ):
        offset = len(history)
        previous = history[-1].state_id if history else -1
        state = read((*history, record(offset, 1, FINISHED, previous=previous)))
        assert not partition(state).disputes


def test_an_illegal_tombstone_hides_the_segment_until_the_leader_writes_it_again() -> None:
    state = read(
        (
            record(0, 1, STARTED),
            record(1, 1, FINISHED, previous=STARTED),
            record(2, 1, None, previous=DELETED, writer=2),
        )
    )
    assert not partition(state).records
    (repair,) = repairs(partition(state).disputes)
    assert repair.metadata is not None
    assert (repair.metadata.state, repair.expected_previous) == (FINISHED, -1)


def test_behind_a_gap_nothing_is_disputed_and_the_newest_counts() -> None:
    state = read((record(0, 1, STARTED), record(5, 1, DELETED, previous=DELETING)))
    assert partition(state).records[uuid(1)].state is DELETED
    assert not partition(state).disputes
    assert not state.is_complete


def test_a_record_that_cannot_be_read_is_a_gap() -> None:
    state = read((record(0, 1, STARTED),))
    state.skip(1)
    state.apply(record(2, 1, DELETED, previous=DELETING))
    assert not partition(state).disputes
    assert state.next_offset == 3


def test_what_a_later_version_wrote_of_a_segment_is_a_gap_too() -> None:
    state = read((record(0, 1, STARTED),))
    later = LaterRecord(partition=KEY, key=b"x", kind="api key 7, version 0", offset=1)
    state.apply_later(later)
    state.apply_later(later)
    state.apply(record(2, 1, DELETED, previous=DELETING))
    assert not partition(state).disputes
    assert partition(state).later == {b"x": later}
    assert state.next_offset == 3


def test_a_record_read_twice_changes_nothing() -> None:
    state = read((record(0, 1, STARTED), record(1, 1, FINISHED, previous=STARTED)))
    assert not state.apply(record(0, 1, STARTED))
    assert not state.apply(record(1, 1, FINISHED, previous=STARTED))
    assert not partition(state).disputes
    assert partition(state).records[uuid(1)].state is FINISHED


def test_deleted_keys_do_not_pile_up() -> None:
    early = read(
        (
            record(0, 1, STARTED),
            record(1, 1, DELETING, previous=STARTED),
            record(2, 1, DELETED, previous=DELETING),
            record(3, 1, None, previous=DELETED),
        )
    )
    assert not partition(early).keys
    late = LedgerState()
    late.apply(record(10, 1, None, previous=DELETED, timestamp_ms=1_000))
    late.go_live(absence_is_known=True)
    assert partition(late).keys
    late.apply(record(11, 2, STARTED, timestamp_ms=1_001 + TOMBSTONE_MEMORY_MS))
    assert list(partition(late).keys) == [uuid(2)]


def test_h03_a_key_deleted_after_records_may_have_been_missed_is_remembered() -> None:
    """A reader who came late has not seen all of it: a zombie's word may follow."""
    late = LedgerState()
    late.apply(record(10, 1, DELETED, previous=DELETING))
    late.go_live(absence_is_known=True)
    late.apply(record(11, 1, None, previous=DELETED))
    assert list(partition(late).keys) == [uuid(1)]
    assert not partition(late).records


def test_h03_a_key_that_came_back_is_not_forgotten_with_its_old_tombstone() -> None:
    late = LedgerState()
    late.apply(record(10, 1, None, previous=DELETED, timestamp_ms=1_000))
    late.apply(record(11, 1, FINISHED, timestamp_ms=1_000))
    late.apply(record(12, 2, STARTED, timestamp_ms=1_001 + TOMBSTONE_MEMORY_MS))
    assert partition(late).records[uuid(1)].state is FINISHED


@pytest.mark.parametrize("state", [FINISHED, DELETING])
def test_h03_a_tombstone_is_lawful_after_a_finished_deletion_only(
    state: RemoteLogSegmentState,
) -> None:
    history = [record(0, 1, STARTED), record(1, 1, FINISHED, previous=STARTED)]
    if state is DELETING:
        history.append(record(2, 1, DELETING, previous=FINISHED))
    found = read((*history, record(len(history), 1, None, previous=state, writer=2)))
    assert "no change" in partition(found).disputes[uuid(1)].why


def test_h03_a_key_deleted_twice_is_remembered_from_its_newest_tombstone_on() -> None:
    late = LedgerState()
    late.apply(record(10, 1, None, previous=DELETED, timestamp_ms=1_000))
    late.apply(record(11, 1, FINISHED, timestamp_ms=1_000))
    late.apply(record(12, 1, None, epoch=6, previous=FINISHED, timestamp_ms=9_000))
    late.apply(record(13, 2, STARTED, epoch=6, timestamp_ms=1_001 + TOMBSTONE_MEMORY_MS))
    assert late.partitions[KEY].keys == {uuid(1), uuid(2)}
    late.apply(record(14, 3, STARTED, epoch=6, timestamp_ms=9_001 + TOMBSTONE_MEMORY_MS))
    assert late.partitions[KEY].keys == {uuid(2), uuid(3)}

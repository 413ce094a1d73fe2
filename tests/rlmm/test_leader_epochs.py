"""Visibility by state and epoch: the cases of Kafka's RemoteLogLeaderEpochStateTest and
RemoteLogMetadataCacheTest, on the values that a ledger holds.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from kip405.segments import CustomMetadata, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlmm.leader_epochs import LeaderEpochs, SeenSegment
from tests.rlmm.builders import DELETED, DELETING, FINISHED, STARTED, STORE_ID, segment

COPIED = CustomMetadata(store_id=STORE_ID, indexes_size_bytes=100).encode()


def seen(
    *segments: tuple[int, int, int] | tuple[int, int, int, RemoteLogSegmentState],
    epoch: int = 0,
) -> LeaderEpochs:
    """Segments (number, first, last offset, state) of one epoch, in the order of their records."""
    found = []
    for offset, (number, first, last, *states) in enumerate(segments):
        state = states[0] if states else FINISHED
        metadata = segment(number, state, start=first, end=last, epochs=((epoch, first),))
        found.append(SeenSegment(metadata=metadata, offset=offset))
    return LeaderEpochs(found)


def numbers(segments: Sequence[RemoteLogSegmentMetadata]) -> list[int]:
    return [number(one) for one in segments]


def number(metadata: RemoteLogSegmentMetadata | None) -> int:
    return 0 if metadata is None else int.from_bytes(metadata.segment_id.id.raw, "big")


def test_nothing_is_known_of_an_epoch_without_segments() -> None:
    empty = LeaderEpochs(())
    assert empty.segments == empty.of_epoch(0) == ()
    assert empty.segment(0, 0) is empty.next_segment_with_txn_index(0, 0) is None
    assert empty.highest_offset(0) is None


@pytest.mark.parametrize(
    ("state", "is_found", "is_listed", "has_highest"),
    [
        (STARTED, False, True, False),
        (FINISHED, True, True, True),
        (DELETING, False, True, True),
        (DELETED, False, False, True),
    ],
)
def test_what_is_seen_of_a_segment_depends_on_its_state(
    state: RemoteLogSegmentState, is_found: bool, is_listed: bool, has_highest: bool
) -> None:
    """The table of RemoteLogMetadataCache; a segment that was copied has sizes from then on."""
    custom = CustomMetadata(store_id=STORE_ID).encode() if state is STARTED else COPIED
    metadata = replace(segment(1, state, start=0, end=50), custom_metadata=custom)
    epochs = LeaderEpochs([SeenSegment(metadata=metadata, offset=3)])
    assert (epochs.segment(0, 20) is metadata) is is_found
    assert (epochs.next_segment_with_txn_index(0, 20) is metadata) is is_found
    assert (epochs.of_epoch(0) == epochs.segments == (metadata,)) is is_listed
    assert (epochs.highest_offset(0) == 50) is has_highest


@pytest.mark.parametrize("custom", [None, b"unknown", CustomMetadata(store_id=STORE_ID).encode()])
def test_a_segment_that_was_deleted_before_it_was_copied_has_no_highest_offset(
    custom: bytes | None,
) -> None:
    metadata = replace(segment(1, DELETING), custom_metadata=custom)
    assert LeaderEpochs([SeenSegment(metadata=metadata, offset=0)]).highest_offset(0) is None


@pytest.mark.parametrize(
    ("segments", "offset", "found", "highest"),
    [
        ([(1, 10, 100), (2, 101, 200)], 90, 1, 200),
        ([(1, 10, 100), (2, 101, 200)], 150, 2, 200),
        ([(1, 10, 100), (2, 101, 200)], 9, 0, 200),
        ([(1, 10, 100), (2, 101, 200)], 201, 0, 200),
        # overlapping: the later one reaches further and replaces those above its start
        ([(1, 10, 100), (2, 5, 150)], 11, 2, 150),
        ([(1, 10, 90), (2, 5, 100), (3, 101, 200)], 95, 2, 200),
        ([(1, 10, 100), (2, 5, 150), (3, 148, 155), (4, 4, 200)], 11, 4, 200),
        # duplicates, and the same start
        ([(1, 10, 100), (2, 10, 100)], 11, 2, 100),
        ([(1, 10, 100), (2, 10, 150)], 111, 2, 150),
        # the later one does not reach as far: both stay, or the later one has the start
        ([(1, 10, 100), (2, 5, 50)], 11, 1, 100),
        ([(1, 10, 100), (2, 5, 50)], 7, 2, 100),
        ([(1, 10, 100), (2, 10, 50)], 11, 2, 100),
        ([(1, 10, 100), (2, 10, 50)], 60, 0, 100),
        # one that is being deleted replaces nothing
        ([(1, 10, 100), (2, 5, 150, DELETING)], 11, 1, 100),
        ([(1, 10, 100, STARTED), (2, 5, 50)], 11, 2, 50),
    ],
)
def test_the_segment_of_an_offset_among_overlapping_ones(
    segments: list[tuple[int, int, int]], offset: int, found: int, highest: int
) -> None:
    epochs = seen(*segments)
    assert number(epochs.segment(0, offset)) == found
    assert epochs.highest_offset(0) == highest
    assert sorted(numbers(epochs.of_epoch(0))) == sorted(one[0] for one in segments)


def test_segments_are_listed_by_start_offset_whatever_was_written_first() -> None:
    listed = seen((1, 0, 4, STARTED), (2, 5, 10), (3, 11, 100), (4, 9, 150))
    assert numbers(listed.of_epoch(0)) == [1, 2, 4, 3]


def test_the_order_of_records_decides_not_the_order_in_which_they_are_given() -> None:
    records = [
        SeenSegment(metadata=segment(1, start=10, end=100), offset=7),
        SeenSegment(metadata=segment(2, start=10, end=100), offset=8),
        SeenSegment(metadata=segment(3, start=10, end=100), offset=9),
    ]
    assert {number(LeaderEpochs(order).segment(0, 50)) for order in permutations(records)} == {3}


LIFE_CYCLE = (
    segment(1, start=0, end=100, epochs=((0, 0), (1, 20), (2, 80))),
    segment(2, start=101, end=200, epochs=((2, 101),)),
    segment(3, start=201, end=300, epochs=((2, 201), (3, 240))),
    segment(4, start=250, end=400, epochs=((3, 250), (4, 370))),
)


@pytest.mark.parametrize(
    ("epoch", "offset", "found"),
    [
        (0, 19, 1),
        (0, 20, 0),
        (1, 40, 1),
        (1, 80, 0),
        (2, 80, 1),
        (2, 110, 2),
        (3, 240, 3),
        (3, 250, 4),
        (3, 369, 4),
        (3, 370, 0),
        (4, 375, 4),
        (1, 110, 0),
        (4, 401, 0),
        (5, 301, 0),
    ],
)
def test_segments_of_several_epochs(epoch: int, offset: int, found: int) -> None:
    """RemoteLogSegmentLifecycleTest, with the borders of each epoch."""
    epochs = LeaderEpochs(SeenSegment(metadata=one, offset=at) for at, one in enumerate(LIFE_CYCLE))
    assert number(epochs.segment(epoch, offset)) == found
    ends = {at: epochs.highest_offset(at) for at in range(6)}
    assert ends == {0: 19, 1: 79, 2: 239, 3: 369, 4: 400, 5: None}
    assert numbers(epochs.of_epoch(2)) == [1, 2, 3]
    assert numbers(epochs.segments) == [1, 2, 3, 4]


def test_the_next_segment_with_aborted_transactions_is_searched_within_the_epoch() -> None:
    found = [
        SeenSegment(metadata=replace(one, txn_index_empty=empty), offset=at)
        for at, (one, empty) in enumerate(zip(LIFE_CYCLE, (True, True, False, False), strict=True))
    ]
    epochs = LeaderEpochs(found)
    assert number(epochs.next_segment_with_txn_index(2, 90)) == 3
    assert number(epochs.next_segment_with_txn_index(2, 205)) == 3
    assert epochs.next_segment_with_txn_index(0, 10) is None, "the next one is of another epoch"
    without_second = LeaderEpochs([found[0], found[2], found[3]])
    assert without_second.next_segment_with_txn_index(2, 90) is None, "a segment is missing"

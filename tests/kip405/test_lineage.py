"""Lineage by example: Kafka's own cases, trims (H8), unclean elections, emptied disks (H4)."""

import pytest

from kip405.lineage import (
    Lineage,
    divergence,
    highest_wins,
    merge,
    remote_lineage,
    usable_end,
)
from kip405.segments import EpochEntry, RemoteLogSegmentState
from tests.kip405.segment_builder import entries, is_within, lineage, segment


@pytest.mark.parametrize("epochs", [{5: 0, 4: 10}, {4: 10, 5: 10}, {4: 10, 5: 9}, {-1: 0}, {0: -1}])
def test_a_lineage_that_does_not_ascend_is_refused(epochs: dict[int, int]) -> None:
    with pytest.raises(ValueError, match=r"ascend|negative"):
        lineage(epochs)


def test_epochs_without_records_are_dropped() -> None:
    # The example in the comment of Kafka's buildFilteredLeaderEpochMap.
    made = Lineage.of(entries({0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 60, 6: 60, 7: 70}))
    assert made == lineage({0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 6: 60, 7: 70})


def test_dropping_empty_epochs_does_not_hide_descending_ones() -> None:
    with pytest.raises(ValueError, match="ascend"):
        Lineage.of([EpochEntry(epoch=7, start_offset=5), EpochEntry(epoch=6, start_offset=5)])


def test_epoch_for_offset() -> None:
    made = lineage({2: 10, 5: 20})
    assert [made.epoch_for_offset(offset) for offset in (0, 9, 10, 19, 20, 99)] == [
        None, None, 2, 2, 5, 5,
    ]  # fmt: skip
    assert made.latest_epoch == 5
    assert Lineage().latest_epoch is None
    assert (made.start_of(2), made.start_of(3), made.start_of(5)) == (10, None, 20)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (1, (1, 10)),  # older than all known: ends where the first begins
        (2, (2, 20)),
        (3, (2, 20)),  # in neither: the next higher start (redpanda #31060)
        (5, (5, 40)),
        (6, (5, 40)),
        (8, (8, 99)),  # the latest ends at the log's end
        (9, None),
        (-1, None),
    ],
)
def test_end_offset_for(epoch: int, expected: tuple[int, int] | None) -> None:
    assert lineage({2: 10, 5: 20, 8: 40}).end_offset_for(epoch, 99) == expected


def test_end_offset_of_an_empty_lineage_is_undefined() -> None:
    assert Lineage().end_offset_for(0, 5) is None


def test_clip_gives_segment_leader_epochs() -> None:
    made = lineage({2: 10, 5: 20, 8: 40})
    assert made.clip(15, 40) == entries({2: 15, 5: 20})
    assert made.clip(20, 41) == entries({5: 20, 8: 40})
    assert made.clip(50, 60) == entries({8: 50})
    assert made.clip(0, 15) == entries({2: 10})
    assert made.clip(0, 10) == ()
    with pytest.raises(ValueError, match="no range"):
        made.clip(5, 5)


def test_below_is_the_lineage_at_the_end_of_a_segment() -> None:
    assert lineage({2: 10, 5: 20, 8: 40}).below(40) == lineage({2: 10, 5: 20})


def test_h08_trim_rebases_the_first_local_entry_and_merge_undoes_it() -> None:
    remote = lineage({0: 0, 3: 100, 4: 250})
    assert merge(remote, lineage({4: 700, 6: 900})) == lineage({0: 0, 3: 100, 4: 250, 6: 900})


def test_h08_trim_to_an_epoch_border_keeps_all_older_epochs() -> None:
    assert merge(lineage({0: 0, 3: 100}), lineage({4: 250})) == lineage({0: 0, 3: 100, 4: 250})


def test_local_start_wins_where_the_remote_one_was_clipped() -> None:
    # First enabling in the middle of an epoch: the first segment begins at 4900.
    assert merge(lineage({3: 4900}), lineage({3: 4000, 5: 9000})) == lineage({3: 4000, 5: 9000})


def test_h04_unclean_election_drops_the_dead_branch() -> None:
    remote = lineage({5: 0, 6: 900})
    assert merge(remote, lineage({5: 0, 7: 500})) == lineage({5: 0, 7: 500})


def test_h04_emptied_disk_drops_everything_remote() -> None:
    assert merge(lineage({5: 0, 6: 500}), lineage({8: 0})) == lineage({8: 0})


def test_h04_restored_log_with_lower_epochs_drops_everything_remote() -> None:
    assert merge(lineage({5: 0, 6: 500}), lineage({1: 0})) == lineage({1: 0})


def test_merge_with_nothing() -> None:
    one = lineage({5: 0})
    assert merge(Lineage(), one) is one
    assert merge(one, Lineage()) is one


def test_remote_lineage_folds_clipped_entries_and_lets_the_higher_epoch_win() -> None:
    started = segment(1500, 1600, {9: 1500}, RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    segments = [
        segment(0, 499, {5: 0}),
        segment(500, 1000, {5: 500, 6: 900}),
        segment(450, 1200, {5: 450, 7: 500}),
        segment(1201, 1300, {7: 1201}),
        started,
    ]
    assert remote_lineage(segments) == lineage({5: 0, 7: 500})
    assert remote_lineage([started]) == Lineage()


# Examples of the comment in Kafka's isRemoteSegmentWithinLeaderEpochs.
BEFORE = {5: 10, 7: 15, 9: 100}
AFTER = {7: 51, 9: 100}
OVERLAPPING = segment(14, 150, {5: 14, 7: 15, 9: 100})


def test_overlapping_segments_of_two_leaders_are_both_within() -> None:
    assert is_within(segment(5, 50, {5: 10, 7: 15}), lineage(BEFORE), 201)
    assert is_within(OVERLAPPING, lineage(BEFORE), 201)


def test_an_overlapping_segment_stays_within_after_the_other_was_deleted() -> None:
    assert is_within(OVERLAPPING, lineage(AFTER), 201)
    assert divergence(OVERLAPPING, lineage(AFTER)) is None


# The cases of RemoteLogManagerTest.testRemoteSegmentWithinLeaderEpochs, in our words.
LEADER = {0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 7: 70}


@pytest.mark.parametrize(
    ("start", "end", "epochs", "expected"),
    [
        (15, 35, {1: 15, 2: 20, 3: 30}, True),
        (5, 35, {0: 5, 1: 10, 2: 20, 3: 30}, True),
        (10, 19, {1: 10}, True),
        (10, 20, {1: 10}, False),  # runs into the next epoch
        (9, 15, {1: 9}, False),  # begins before its epoch
        (15, 35, {1: 15, 2: 19, 3: 30}, False),  # another border inside
        (15, 35, {1: 15, 3: 20}, False),  # an epoch is missing inside
        (50, 69, {5: 50, 6: 60}, False),  # an epoch that the leader never had
        (70, 199, {7: 70}, True),
        (70, 200, {7: 70}, False),  # beyond the log's end
        (70, 100, {8: 70}, False),
        (55, 85, {5: 55, 6: 70, 7: 70}, True),  # epoch 6 has no records
    ],
)
def test_within(start: int, end: int, epochs: dict[int, int], expected: bool) -> None:
    assert is_within(segment(start, end, epochs), lineage(LEADER), 200) is expected


def test_segment_wholly_below_the_first_known_epoch_is_not_within_but_not_divergent() -> None:
    # An incomplete lineage proves nothing: no delete follows (H8).
    old = segment(0, 40, {2: 0, 3: 20})
    assert not is_within(old, lineage({7: 60}), 100)
    assert usable_end(old, lineage({7: 60})) == 0
    assert divergence(old, lineage({7: 60})) is None


def test_h04_unclean_election_with_overlap_counts_only_up_to_the_new_epoch() -> None:
    # A (epoch 5) copied 0-1000; B had 0-499 and leads from there with epoch 6.
    merged = merge(lineage({5: 0}), lineage({5: 0, 6: 500}))
    whole, cut, dead = (
        segment(0, 399, {5: 0}),
        segment(400, 700, {5: 400}),
        segment(701, 1000, {5: 701}),
    )
    assert [usable_end(one, merged) for one in (whole, cut, dead)] == [400, 500, 701]
    assert [divergence(one, merged) for one in (whole, cut, dead)] == [None, 500, 500]
    assert [is_within(one, merged, 2001) for one in (whole, cut, dead)] == [True, False, False]


def test_h04_emptied_disk_makes_every_segment_diverge_at_zero() -> None:
    merged = merge(lineage({5: 0, 6: 500}), lineage({8: 0}))
    segments = [segment(0, 499, {5: 0}), segment(500, 900, {6: 500})]
    assert [divergence(one, merged) for one in segments] == [0, 0]
    assert [usable_end(one, merged) for one in segments] == [0, 500]


def test_h08_trimmed_leader_orphans_nothing() -> None:
    segments = [
        segment(0, 99, {0: 0}),
        segment(100, 299, {3: 100, 4: 250}),
        segment(300, 799, {4: 300}),
    ]
    merged = merge(remote_lineage(segments), lineage({4: 800}))
    assert all(is_within(one, merged, 801) for one in segments)
    assert [divergence(one, merged) for one in segments] == [None, None, None]


def test_a_log_shorter_than_the_remote_end_leaves_the_segment_outside() -> None:
    assert not is_within(segment(0, 100, {5: 0}), lineage({5: 0}), 100)
    assert divergence(segment(0, 100, {5: 0}), lineage({5: 0})) is None


def test_empty_lineage_has_nothing_within() -> None:
    assert not is_within(segment(0, 9, {0: 0}), Lineage(), 10)
    assert divergence(segment(0, 9, {0: 0}), Lineage()) is None


def test_h08_what_is_left_behind_a_trim_begins_in_the_epoch_that_the_trim_reached() -> None:
    made = lineage({2: 10, 5: 20, 8: 40})
    assert made.from_start(30) == lineage({5: 30, 8: 40})
    assert made.from_start(20) == lineage({5: 20, 8: 40})
    assert made.from_start(19) == lineage({2: 19, 5: 20, 8: 40})
    assert made.from_start(9) == made
    assert made.from_start(99) == lineage({8: 99})


def test_the_lineage_up_to_an_epoch_holds_that_epoch() -> None:
    made = lineage({2: 10, 5: 20, 8: 40})
    assert made.up_to(5) == made.up_to(7) == lineage({2: 10, 5: 20})
    assert made.up_to(1) == Lineage()
    assert made.up_to(8) == made


def test_h04_of_two_epochs_with_one_start_the_higher_one_is_kept() -> None:
    assert highest_wins({1: 0, 2: 50, 3: 50}) == lineage({1: 0, 3: 50})


def test_h04_a_later_epoch_hides_no_older_one_that_is_asked_for() -> None:
    starts = {1: 0, 2: 50, 3: 10}
    assert highest_wins(starts) == lineage({1: 0, 3: 10})
    assert highest_wins(starts, 2) == lineage({1: 0, 2: 50})

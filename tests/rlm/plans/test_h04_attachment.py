"""What an attached reader serves, and what it refuses as manifests do not prove it (H4)."""

from collections.abc import Iterable

import pytest

from kip405.errors import Invalid
from kip405.ids import MAX_OFFSET, Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata
from rlm.plans.attachment import (
    Backup,
    Doubt,
    PartitionPlan,
    StoredTopic,
    UnreadSegment,
    names_used_twice,
    plan_partition,
    topics_to_serve,
)
from rlm.plans.coverage import NO_RECORDS
from rlm.remote_log.attached import ledger_of_segments
from rlmm.ledger import Hole
from rlmm.settings_records import HistoryRecord, TopicRecord
from tests.builders.ledger import PARTITION, metadata

UNREAD = UnreadSegment(start_offset=150, why="manifest m cannot be used")
OLD, NEW = Uuid(b"\x01" * 16), Uuid(b"\x02" * 16)


def plan(
    segments: Iterable[RemoteLogSegmentMetadata],
    *,
    start: int = 0,
    unread: tuple[UnreadSegment, ...] = (),
    backup: Backup = Backup(),  # noqa: B008 - a frozen value
    accepted: bool = False,
    stored: Lineage | None = None,
) -> PartitionPlan:
    return plan_partition(
        ledger_of_segments(PARTITION.key, tuple(segments)),
        manifest_start_offset=start,
        unread=unread,
        backup=backup,
        is_accepted=accepted,
        stored=stored,
    )


def ranges(doubts: Iterable[Doubt]) -> list[tuple[int, int]]:
    return [(one.start, one.next_offset) for one in doubts]


def history(*entries: tuple[int, int], frozen: str | None = None) -> HistoryRecord:
    lineage = Lineage(tuple(EpochEntry(epoch=epoch, start_offset=at) for epoch, at in entries))
    return HistoryRecord(partition=PARTITION.key, frozen=frozen, lineage=lineage)


def topic(topic_id: Uuid, state: str = "enabled", name: str = "orders") -> TopicRecord:
    return TopicRecord(
        topic_id=topic_id,
        name=name,
        mode="tier",
        state=state,
        trim=True,
        retention_ms=-1,
        retention_bytes=-1,
        local_retention_ms=-1,
        local_retention_bytes=-1,
    )


def test_segments_of_one_history_are_served_from_the_first_one_on() -> None:
    found = plan(
        [
            metadata(1, 10, 100, {1: 10, 2: 60}),
            metadata(2, 100, 200, {2: 100, 4: 150}),
            metadata(3, 140, 250, {2: 140, 4: 150}),  # another leader's copy of the same
        ]
    )
    assert found == PartitionPlan(remote_log_start_offset=10)


def test_h02_the_highest_start_of_a_manifest_counts_so_that_nothing_deleted_comes_back() -> None:
    segments = [metadata(1, 10, 100, {1: 10}), metadata(2, 100, 200, {1: 100})]
    assert plan(segments, start=70).remote_log_start_offset == 70
    assert plan(segments, start=5).remote_log_start_offset == 10
    known = Backup(remote_log_start_offset=5)
    assert plan(segments, start=70, backup=known).remote_log_start_offset == 70
    assert plan(segments, backup=Backup(remote_log_start_offset=130)).remote_log_start_offset == 130


def test_with_a_backup_what_is_missing_at_the_beginning_is_a_gap() -> None:
    found = plan([metadata(1, 10, 100, {1: 10})], backup=Backup(remote_log_start_offset=4))
    assert (found.remote_log_start_offset, found.gaps) == (4, ((4, 10),))


def test_gaps_are_named_but_for_recorded_holes() -> None:
    segments = [metadata(1, 0, 100, {1: 0}), metadata(2, 150, 200, {1: 150})]
    assert plan(segments).gaps == ((100, 150),)
    emptied = Backup(holes=(Hole(start=100, end=150, cause=NO_RECORDS),), remote_log_start_offset=0)
    assert plan(segments, backup=emptied).gaps == ()


def test_h04_offsets_of_two_histories_are_doubtful_and_all_others_are_not() -> None:
    """Leader 5 began at 150, where leader 3 had records that were copied too."""
    segments = [
        metadata(1, 0, 100, {3: 0}),
        metadata(2, 100, 200, {3: 100}),
        metadata(3, 150, 260, {5: 150}),
    ]
    found = plan(segments)
    assert ranges(found.doubts) == [(150, 200)]
    assert "leader epochs 3, 5" in found.doubts[0].why
    assert found.gaps == ()
    assert plan(segments, accepted=True).doubts == ()


def test_h04_a_segment_that_comes_back_into_the_history_is_not_left_out() -> None:
    """Its end is in no other copy, and readers use a segment up to its first contradiction only."""
    segments = [
        metadata(1, 100, 300, {3: 100, 5: 200}),
        metadata(2, 150, 180, {4: 150}),
    ]
    assert ranges(plan(segments).doubts) == [(150, 300)]
    assert plan(segments).gaps == ()


def test_h04_a_published_history_of_both_leaders_ends_the_doubt() -> None:
    segments = [metadata(1, 0, 200, {3: 0}), metadata(2, 150, 260, {5: 150})]
    proven = Backup(published=history((3, 0), (5, 150)), remote_log_start_offset=0)
    assert plan(segments, backup=proven).doubts == ()
    older = Backup(published=history((3, 0)), remote_log_start_offset=0)
    assert ranges(plan(segments, backup=older).doubts) == [(150, 200)]


def test_h04_a_published_history_is_the_one_that_counts() -> None:
    """By the segments alone epoch 4 has [150, 180); leader 5 has published that it has not."""
    segments = [
        metadata(1, 100, 200, {3: 100}),
        metadata(2, 150, 180, {4: 150}),
        metadata(3, 180, 300, {5: 180}),
    ]
    assert ranges(plan(segments).doubts) == [(150, 200)]
    known = Backup(published=history((3, 100), (5, 180)), remote_log_start_offset=100)
    expected = PartitionPlan(remote_log_start_offset=100, history=known.published)
    assert plan(segments, backup=known) == expected


def test_h04_what_the_newest_segment_has_stored_shows_an_epoch_of_which_there_is_no_copy() -> None:
    """Leader 4 began at 150 by an unclean election, and leader 5 at 200: so the copy of [100, 200)
    has records of a dead history, although no other copy contradicts it.
    """
    segments = [metadata(1, 0, 200, {3: 0}), metadata(2, 200, 300, {5: 200})]
    assert plan(segments).doubts == ()
    stored = history((3, 0), (4, 150), (5, 200)).lineage
    found = plan(segments, stored=stored)
    assert ranges(found.doubts) == [(150, 200)]
    assert "leader epochs 3, 4" in found.doubts[0].why
    assert found.history == history((3, 0), (4, 150), (5, 200))
    accepted = plan(segments, stored=stored, accepted=True)
    assert (accepted.doubts, accepted.gaps) == ((), ((150, 200),))


def test_h04_a_published_history_of_a_later_epoch_counts_before_a_stored_one() -> None:
    segments = [metadata(1, 0, 200, {3: 0}), metadata(2, 200, 300, {5: 200})]
    stored = history((3, 0), (4, 150), (5, 200)).lineage
    later = Backup(published=history((3, 0), (5, 200), (7, 250)), remote_log_start_offset=0)
    assert plan(segments, backup=later, stored=stored).history == later.published
    older = Backup(published=history((3, 0)), remote_log_start_offset=0)
    found = plan(segments, backup=older, stored=stored).history
    assert found == history((3, 0), (4, 150), (5, 200))
    same = history((3, 0), (5, 200)).lineage
    assert plan(segments, backup=older, stored=same).history == older.published


def test_h04_a_freeze_of_the_backup_stays_until_it_is_accepted() -> None:
    segments = [metadata(1, 0, 200, {3: 0}), metadata(2, 200, 300, {5: 200})]
    frozen = history((6, 0), frozen="the log is shorter than its copies")
    backup = Backup(published=frozen, remote_log_start_offset=0)
    assert plan(segments, backup=backup).history == frozen
    accepted = plan(segments, backup=backup, accepted=True)
    assert (accepted.history, accepted.doubts, accepted.gaps) == (None, (), ())


def test_everything_from_a_manifest_on_that_cannot_be_used_is_doubtful() -> None:
    segments = [metadata(1, 0, 150, {1: 0}), metadata(2, 200, 300, {1: 200})]
    found = plan(segments, unread=(UNREAD,))
    assert ranges(found.doubts) == [(150, MAX_OFFSET)]
    assert "offsets from 150 on are doubtful: manifest m" in found.doubts[0].text
    assert found.gaps == ()
    accepted = plan(segments, unread=(UNREAD,), accepted=True)
    assert (accepted.doubts, accepted.gaps) == ((), ((150, 200),))


@pytest.mark.parametrize(("next_start", "whole_to"), [(150, 300), (180, 150)])
def test_h04_what_may_be_missing_anywhere_makes_all_doubtful_from_the_first_gap_on(
    next_start: int, whole_to: int
) -> None:
    segments = [
        metadata(1, 40, 100, {1: 40}),
        metadata(2, 90, 150, {1: 90}),
        metadata(3, next_start, 300, {1: next_start}),
    ]
    unread = UnreadSegment(start_offset=None, why="imports write")
    assert ranges(plan(segments, unread=(unread,)).doubts) == [(whole_to, MAX_OFFSET)]
    assert ranges(plan([], unread=(unread,)).doubts) == [(0, MAX_OFFSET)]


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize(("start_offset", "doubtful_from"), [(0, 0), (None, 300)])
def test_h15_what_a_listing_may_have_missed_cannot_be_accepted(
    start_offset: int | None, doubtful_from: int, *, accepted: bool
) -> None:
    unread = UnreadSegment(start_offset=start_offset, why="others wrote", is_unsettled=True)
    found = plan([metadata(1, 40, 300, {1: 40})], unread=(unread,), accepted=accepted)
    assert ranges(found.doubts) == [(doubtful_from, MAX_OFFSET)]
    assert f"from {doubtful_from} on are not known yet: others wrote" in found.doubts[0].text


def test_h04_readers_are_sent_to_no_start_above_what_is_left_out() -> None:
    """Below the start a client goes to it, and what can be read later would be passed over."""
    segments, unread = [metadata(1, 100, 300, {1: 100})], UnreadSegment(start_offset=40, why="?")
    assert plan(segments, unread=(unread,)).remote_log_start_offset == 40
    assert plan(segments, unread=(unread,), start=60).remote_log_start_offset == 60
    assert plan(segments, unread=(unread,), accepted=True).remote_log_start_offset == 100
    assert plan(segments, unread=(UNREAD,)).remote_log_start_offset == 100
    backup = Backup(remote_log_start_offset=90)
    assert plan(segments, unread=(unread,), backup=backup).remote_log_start_offset == 90


def test_what_lies_below_the_start_is_no_doubt() -> None:
    segments = [
        metadata(1, 0, 200, {3: 0}),
        metadata(2, 150, 200, {5: 150}),
        metadata(3, 200, 300, {5: 200}),
    ]
    assert plan(segments, start=200).doubts == ()


def test_h39_the_topic_that_was_copied_last_has_the_name() -> None:
    stored = [
        StoredTopic(topic_id=NEW, name="orders", newest_ms=9),
        StoredTopic(topic_id=OLD, name="orders", newest_ms=5),
    ]
    served = topics_to_serve(stored, (), ())
    assert [one.topic_id for one in served] == [OLD, NEW]
    assert names_used_twice(served) == {"orders": (OLD, NEW)}
    assert [one.topic_id for one in topics_to_serve(stored, [OLD], ())] == [NEW, OLD]
    by_backup = topics_to_serve(stored, (), [topic(NEW), topic(OLD)])
    assert [one.topic_id for one in by_backup] == [NEW, OLD]
    assert {one.state for one in by_backup} == {"kept"}


def test_topics_that_were_to_be_deleted_are_served_if_they_are_chosen() -> None:
    stored = [StoredTopic(topic_id=OLD, name="orders", newest_ms=5)]
    deleting = [topic(OLD, "deleting")]
    assert topics_to_serve(stored, (), deleting) == ()
    assert [one.topic_id for one in topics_to_serve(stored, [OLD], deleting)] == [OLD]


@pytest.mark.parametrize(
    ("chosen", "words"),
    [([Uuid(b"\x09" * 16)], "no manifest of a topic"), ([OLD, NEW], "two of them are called")],
)
def test_a_choice_that_fits_nothing_is_refused(chosen: list[Uuid], words: str) -> None:
    stored = [
        StoredTopic(topic_id=NEW, name="orders", newest_ms=9),
        StoredTopic(topic_id=OLD, name="orders", newest_ms=5),
    ]
    with pytest.raises(Invalid, match=words):
        topics_to_serve(stored, chosen, ())

"""What a ledger gets back from the manifests, and what it must not get back (H6, H2)."""

from dataclasses import replace

import pytest

from kip405.segments import RemotePartitionDeleteMetadata, RemotePartitionDeleteState
from rlm.plans.ledger_rebuild import KnownPartition, PartitionRebuild, StoredSegment, plan_rebuild
from rlmm.ledger import Hole, PartitionLedger
from rlmm.records import PartitionDeleteRecord, RecordHeaders
from rlmm.replay import PartitionState
from tests.builders.ledger import OUR_WRITER, PARTITION, MemoryLedger, metadata

EMPTY = KnownPartition(
    ledger=PartitionLedger.empty(PARTITION.key),
    is_topic_known=True,
    remote_log_start_offset=0,
    remote_log_start_epoch=0,
)


def stored(
    number: int, start: int, end: int, *, epoch: int = 0, broken: str = "", log_start: int = 0
) -> StoredSegment:
    return StoredSegment(
        metadata=metadata(number, start, end, {epoch: start}),
        remote_log_start_offset=log_start,
        broken=broken,
    )


def starts(plan: PartitionRebuild) -> list[int]:
    return [one.start_offset for one in plan.added]


def test_h06_whole_segments_come_back_in_order_under_the_newest_epoch_they_show() -> None:
    plan = plan_rebuild(
        PARTITION, [stored(2, 100, 200, epoch=3), stored(1, 0, 100, epoch=1)], EMPTY
    )
    assert starts(plan) == [0, 100]
    assert (plan.leader_epoch, plan.known, plan.gaps, plan.refused) == (3, 0, (), None)


def test_h06_only_what_the_ledger_lacks_is_added_under_the_newest_epoch_it_knows() -> None:
    ledger = MemoryLedger()
    ledger.write(metadata(1, 0, 100, {0: 0}), epoch=7)
    plan = plan_rebuild(
        PARTITION,
        [stored(1, 0, 100), stored(2, 100, 200)],
        replace(EMPTY, ledger=ledger.view),
    )
    assert starts(plan) == [100]
    assert (plan.known, plan.leader_epoch) == (1, 7)


def test_h06_a_segment_without_all_its_objects_is_named_and_not_added() -> None:
    plan = plan_rebuild(
        PARTITION, [stored(1, 0, 100), stored(2, 100, 200, broken="log missing")], EMPTY
    )
    assert starts(plan) == [0]
    assert [one.broken for one in plan.broken] == ["log missing"]


def test_what_lies_below_the_start_is_added_and_counted_as_ended() -> None:
    known = replace(EMPTY, remote_log_start_offset=150)
    plan = plan_rebuild(PARTITION, [stored(1, 0, 100), stored(2, 100, 200)], known)
    assert starts(plan) == [0, 100]
    assert (plan.ended, plan.remote_log_start_offset) == (1, 150)


def test_segments_of_a_dead_history_are_added_as_they_were_and_counted() -> None:
    plan = plan_rebuild(
        PARTITION,
        [stored(1, 0, 100, epoch=1), stored(2, 100, 300, epoch=1), stored(3, 100, 200, epoch=2)],
        EMPTY,
    )
    assert starts(plan) == [0, 100, 100]
    assert (plan.diverged, plan.gaps) == (1, ())


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (replace(EMPTY, is_topic_known=False), "do not know the topic"),
        (replace(EMPTY, remote_log_start_offset=39), "have lost records too"),
    ],
)
def test_h02_nothing_is_added_where_it_might_bring_deleted_records_back(
    known: KnownPartition, words: str
) -> None:
    plan = plan_rebuild(PARTITION, [stored(1, 0, 100, log_start=40)], known)
    assert plan.added == ()
    assert words in (plan.refused or "")
    with_start = replace(EMPTY, remote_log_start_offset=40)
    assert plan_rebuild(PARTITION, [stored(1, 0, 100, log_start=40)], with_start).added


def test_h02_without_a_start_all_comes_back_unless_one_is_needed() -> None:
    """Nothing is read or deleted before an operator sets the start that the settings have lost."""
    lost, segments = replace(EMPTY, remote_log_start_offset=None), [stored(1, 40, 100)]
    plan = plan_rebuild(PARTITION, segments, lost)
    assert (starts(plan), plan.refused, plan.is_start_lost) == ([40], None, True)
    assert (plan.remote_log_start_offset, plan.gaps, plan.ended) == (40, (), 0)
    refused = plan_rebuild(PARTITION, segments, lost, needs_start=True)
    assert (refused.added, refused.is_start_lost) == ((), False)
    assert "no remote log start" in (refused.refused or "")
    assert not plan_rebuild(PARTITION, segments, EMPTY).is_start_lost


def test_nothing_is_added_of_a_partition_whose_deletion_is_recorded() -> None:
    deletion = PartitionDeleteRecord(
        partition=PARTITION.key,
        metadata=RemotePartitionDeleteMetadata(
            topic_id_partition=PARTITION,
            state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
            event_timestamp_ms=0,
            broker_id=1,
        ),
        headers=RecordHeaders(leader_epoch=0, expected_previous=-1, writer=OUR_WRITER),
        offset=5,
    )
    state = PartitionState(PARTITION.key, newest_epoch=0, version=1, deletion=deletion)
    ledger = PartitionLedger.of(PARTITION.key, state)
    plan = plan_rebuild(PARTITION, [stored(1, 0, 100)], replace(EMPTY, ledger=ledger))
    assert plan.added == ()
    assert "deletion" in (plan.refused or "")


def test_offsets_that_no_segment_has_are_named_unless_they_are_a_recorded_hole() -> None:
    segments = [stored(1, 10, 100), stored(2, 150, 200), stored(3, 300, 400)]
    known = replace(EMPTY, holes=(Hole(start=100, end=120, cause="lost"),))
    plan = plan_rebuild(PARTITION, segments, known)
    assert plan.gaps == ((0, 10), (120, 150), (200, 300))
    assert plan_rebuild(PARTITION, [], EMPTY).gaps == ()

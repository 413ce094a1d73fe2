"""Objects that the ledger does not list: adopted, registered for cleanup, or left (H6, H12)."""

from dataclasses import replace

import pytest

from kip405.segments import RemoteLogSegmentState
from rlm.plans.ledger_rebuild import KnownPartition, StoredSegment
from rlm.plans.reconcile import Age, Leftover, PartitionReconcile, plan_reconcile, registration
from rlmm.ledger import PartitionLedger
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.ledger import PARTITION, MemoryLedger, metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.store import STORE_ID

DAY_MS = 86_400_000
AGE = Age(now_ms=100 * DAY_MS, grace_ms=7 * DAY_MS)


def stored(number: int, start: int, end: int, epochs: dict[int, int]) -> StoredSegment:
    return StoredSegment(metadata=metadata(number, start, end, epochs), remote_log_start_offset=0)


def leftover(number: int, start: int, *, days: int = 8, log_size_bytes: int = 1) -> Leftover:
    return Leftover(
        store_id=STORE_ID,
        partition=PARTITION,
        segment_id=metadata(number, 0, 1, {0: 0}).segment_id.id,
        start_offset=start,
        entropy_bits=3,
        size_bytes=10,
        log_size_bytes=log_size_bytes,
        modified_ms=(100 - days) * DAY_MS,
    )


def known(*segments: StoredSegment, start: int | None = 0) -> KnownPartition:
    ledger = MemoryLedger()
    ledger.copied(*(one.metadata for one in segments))
    return KnownPartition(
        ledger=ledger.view if segments else PartitionLedger.empty(PARTITION.key),
        is_topic_known=True,
        remote_log_start_offset=start,
        remote_log_start_epoch=0,
    )


LISTED = (stored(1, 0, 100, {0: 0}), stored(2, 100, 200, {2: 100}))


def plan(
    *new: StoredSegment, left: tuple[Leftover, ...] = (), of: KnownPartition | None = None
) -> PartitionReconcile:
    return plan_reconcile(PARTITION, [*LISTED, *new], left, of or known(*LISTED), AGE)


def starts(found: PartitionReconcile) -> tuple[list[int], list[int]]:
    """What is adopted, and what contradicts."""
    return (
        [one.start_offset for one in found.found.added],
        [one.start_offset for one in found.contradicting],
    )


def test_a_segment_that_fits_is_adopted() -> None:
    found = plan(stored(3, 200, 300, {2: 200}), stored(4, 300, 400, {3: 300}))
    assert starts(found) == ([200, 300], [])
    assert found.found.leader_epoch == 3


def test_h12_another_copy_of_the_same_records_fits() -> None:
    assert starts(plan(stored(3, 50, 150, {0: 50, 2: 100}))) == ([50], [])


@pytest.mark.parametrize(
    "dead",
    [
        stored(3, 100, 300, {0: 100}),  # its epoch ended at 100
        stored(3, 50, 100, {1: 50}),  # a listed segment would lose offsets by it
    ],
)
def test_h04_a_segment_of_another_history_is_left_and_others_are_adopted(
    dead: StoredSegment,
) -> None:
    found = plan(dead, stored(4, 200, 300, {2: 200}))
    assert starts(found) == ([200], [dead.metadata.start_offset])
    assert found.found.leader_epoch == 2


def test_h04_the_epoch_of_what_is_left_is_not_written_under() -> None:
    found = plan(stored(3, 0, 50, {9: 0}))
    assert starts(found) == ([], [0])
    assert found.found.leader_epoch == 2


def test_h12_old_objects_without_a_manifest_are_registered_where_others_have_their_records() -> (
    None
):
    left = (leftover(5, 0), leftover(6, 150, days=6), leftover(7, 200), leftover(2, 100))
    found = plan(left=left)
    assert [one.start_offset for one in found.registered] == [0]
    assert [one.start_offset for one in found.young] == [150]
    assert [one.start_offset for one in found.unreplaced] == [200]


def test_the_grace_ends_with_its_last_millisecond() -> None:
    edge = replace(leftover(5, 0), modified_ms=AGE.now_ms - AGE.grace_ms)
    assert plan(left=(edge,)).registered == (edge,)
    younger = replace(edge, modified_ms=edge.modified_ms + 1)
    assert plan(left=(younger,)).young == (younger,)


def test_remains_below_the_remote_log_start_need_a_copy_of_what_is_at_the_start() -> None:
    assert plan(left=(leftover(5, 0),), of=known(*LISTED, start=50)).registered
    assert plan(left=(leftover(5, 0),), of=known(LISTED[1], start=150)).unreplaced
    assert plan(left=(leftover(5, 0),), of=known(LISTED[1], start=200)).unreplaced


@pytest.mark.parametrize(
    ("start", "log_size_bytes", "is_replaced"),
    [(0, 2, True), (0, 3, False), (50, 1, True), (50, 2, False), (150, 0, True), (150, 1, False)],
)
def test_h06_remains_of_which_only_the_first_records_are_elsewhere_are_left(
    start: int, log_size_bytes: int, is_replaced: bool
) -> None:
    one = leftover(5, start, log_size_bytes=log_size_bytes)
    assert bool(plan(left=(one,)).registered) is is_replaced


def test_h06_remains_that_go_on_over_a_gap_are_left() -> None:
    after_a_gap = known(LISTED[0], stored(3, 200, 300, {2: 200}))
    one = leftover(5, 0, log_size_bytes=2)
    assert plan(left=(one,), of=after_a_gap).unreplaced == (one,)


def test_h06_a_dead_copy_replaces_nothing() -> None:
    dead = stored(3, 100, 300, {0: 100})
    found = plan(left=(leftover(5, 250, log_size_bytes=0),), of=known(*LISTED, dead))
    assert [one.start_offset for one in found.unreplaced] == [250]


@pytest.mark.parametrize(
    "of",
    [replace(known(*LISTED), is_topic_known=False), known(*LISTED, start=None)],
)
def test_h02_nothing_is_registered_where_nothing_would_be_adopted(of: KnownPartition) -> None:
    found = plan_reconcile(PARTITION, [], [leftover(5, 0)], of, AGE)
    assert found.registered == ()
    assert found.found.refused


def test_what_is_registered_is_found_by_its_names() -> None:
    one = leftover(5, 70)
    started = registration(one, leader_epoch=-1, now_ms=9)
    assert started.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
    assert (started.broker_id, started.custom().store_id) == (-1, STORE_ID)
    name = object_name(started.locator(CLUSTER_ID), ObjectKind.LOG)
    assert len(name.split("/")[0]) == one.entropy_bits
    assert name.endswith(f"{70:020d}-{one.segment_id}.log")

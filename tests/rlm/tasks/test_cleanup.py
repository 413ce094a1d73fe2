"""The cleanup task: sweep by evidence, repairs, re-assertion (H2, H3, H6, H10)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Fenced, Invalid, Unavailable
from kip405.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    SegmentLocator,
)
from rlm.plans.call_sizes import MOST_SEGMENTS
from rlmm.replay import LedgerState
from rlmm.settings_records import FreezeRecord, StartRecord
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.ledger import OTHER_WRITER, PARTITION, metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import DEAD_AFTER_MS, GRACE_MS, Rig
from tests.builders.store import STORE_ID

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.write_log(0, 100, end=150)
    return made


async def broken_copy(rig: Rig, operation: str) -> None:
    """An attempt of ours that dies at this operation of the store."""

    def die(at: str) -> None:
        if at == operation:
            raise Unavailable(f"the store died at {at}")

    rig.store.before = die
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    rig.store.before = lambda _: None


def in_state(
    one: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
) -> RemoteLogSegmentMetadata:
    return one.in_state(state, event_timestamp_ms=0, broker_id=one.broker_id)


def lose_finished(rig: Rig) -> RemoteLogSegmentMetadata:
    """The ledger has only the COPY_SEGMENT_STARTED of the one copy; its metadata."""
    started = next(one.metadata for one in rig.ledger.log if one.metadata is not None)
    rig.ledger.log.clear()
    rig.ledger.state = LedgerState()
    rig.ledger.write(started, writer=OTHER_WRITER)
    return started


@pytest.mark.parametrize("operation", ["copy", "copied", "manifest"])
async def test_h06_a_broken_attempt_leaves_neither_entry_nor_object(
    rig: Rig, operation: str
) -> None:
    await broken_copy(rig, operation)
    assert rig.ledger.states() == [STARTED]
    await rig.cleanup.run(rig.led)
    assert not rig.store.objects
    assert not rig.ledger.view.entries
    assert rig.ledger.states() == [STARTED, DELETING, DELETED]
    assert rig.cleanup.statuses[PARTITION.key].deleted == 1


async def test_g4_where_the_partition_is_deleted_as_a_whole_nothing_is_swept(rig: Rig) -> None:
    await broken_copy(rig, "manifest")
    objects = dict(rig.store.objects)
    rig.ledger.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
    await rig.cleanup.run(rig.led)
    assert rig.store.objects == objects
    assert rig.ledger.states() == [STARTED]
    assert "deletion of the whole partition" in (rig.cleanup.statuses[PARTITION.key].refused or "")


async def test_h10_objects_go_only_after_our_own_delete_started_was_read_back(rig: Rig) -> None:
    await broken_copy(rig, "manifest")

    def check(operation: str) -> None:
        if operation == "delete":
            (entry,) = rig.ledger.view.entries.values()
            assert entry.state is DELETING

    rig.store.before = check
    await rig.cleanup.run(rig.led)
    assert len(rig.store.deleted) == 1


async def test_h10_a_lost_finished_is_adopted_from_the_manifest(rig: Rig) -> None:
    def lose(published: RemoteLogSegmentMetadata) -> None:
        if published.state is FINISHED:
            raise Unavailable("nothing was sent")

    rig.ledger.before_publish = lose
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    rig.ledger.before_publish = lambda _: None
    before = dict(rig.store.objects)
    await rig.cleanup.run(rig.led)
    assert rig.store.objects == before
    (entry,) = rig.ledger.view.entries.values()
    assert (entry.state, entry.metadata.custom().store_id) == (FINISHED, STORE_ID)
    await rig.copy.run(rig.led)
    assert rig.ledger.states() == [STARTED, FINISHED]


async def test_h06_a_lost_ledger_tail_is_adopted_not_swept(rig: Rig) -> None:
    """FINISHED vanished from the ledger after the local log was trimmed: the only copy stays."""
    await rig.copy.run(rig.led)
    (entry,) = rig.ledger.view.entries.values()
    lose_finished(rig)
    await rig.cleanup.run(rig.led)
    (again,) = rig.ledger.view.entries.values()
    assert again.metadata == entry.metadata
    assert len(rig.store.objects) == 3


async def test_h06_a_manifest_without_its_objects_is_an_alarm(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    (entry,) = rig.ledger.view.entries.values()
    del rig.store.objects[object_name(entry.metadata.locator(CLUSTER_ID), ObjectKind.LOG)]
    rig.ledger.write(in_state(entry.metadata, DELETING), previous=1)
    await rig.cleanup.run(rig.led)
    status = rig.cleanup.statuses[PARTITION.key]
    assert len(status.alarms) == 1
    assert (status.deleted, status.adopted, rig.store.deleted) == (0, 0, [])


async def test_h03_somebody_elses_delete_started_does_not_cost_the_only_copy(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    (entry,) = rig.ledger.view.entries.values()
    rig.ledger.write(in_state(entry.metadata, DELETING), previous=1, writer=OTHER_WRITER)
    await rig.cleanup.run(rig.led)
    assert rig.store.deleted == []
    assert next(iter(rig.ledger.view.entries.values())).state is FINISHED


async def test_h03_a_deletion_below_the_remote_start_is_finished(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    (entry,) = rig.ledger.view.entries.values()
    rig.remote_start(100)
    rig.ledger.write(in_state(entry.metadata, DELETING), previous=1, writer=OTHER_WRITER)
    await rig.cleanup.run(rig.led)
    assert not rig.store.objects
    assert not rig.ledger.view.entries


async def test_h04_a_deletion_of_records_that_nobody_has_ended_is_not_finished(rig: Rig) -> None:
    """The leader epoch of the decision is not known: the records may be of a later one."""
    await rig.copy.run(rig.led)
    (entry,) = rig.ledger.view.entries.values()
    rig.settings.write(
        StartRecord(
            partition=PARTITION.key,
            remote_log_start_offset=100,
            cause="enable",
            decided_epoch=None,
        ),
        epoch=rig.broker.partition.leader_epoch,
    )
    rig.ledger.write(in_state(entry.metadata, DELETING), previous=1, writer=OTHER_WRITER)
    await rig.cleanup.run(rig.led)
    assert rig.store.deleted == []
    assert next(iter(rig.ledger.view.entries.values())).state is FINISHED


async def test_h06_an_attempt_that_has_ended_goes_without_its_log_object(rig: Rig) -> None:
    """The ledger lost its FINISHED, and the store the object: nobody misses it."""
    await rig.copy.run(rig.led)
    started = lose_finished(rig)
    del rig.store.objects[object_name(started.locator(CLUSTER_ID), ObjectKind.LOG)]
    rig.remote_start(99)
    await rig.cleanup.run(rig.led)
    assert len(rig.cleanup.statuses[PARTITION.key].alarms) == 1
    assert len(rig.store.objects) == 2
    rig.remote_start(100)
    await rig.cleanup.run(rig.led)
    assert (rig.store.objects, dict(rig.ledger.view.entries)) == ({}, {})
    assert rig.cleanup.statuses[PARTITION.key].deleted == 1


async def test_h06_a_deletion_cut_short_is_finished_later(rig: Rig) -> None:
    await broken_copy(rig, "manifest")

    def die(operation: str) -> None:
        if operation == "delete":
            raise Unavailable("the store died")

    rig.store.before = die
    with pytest.raises(Unavailable):
        await rig.cleanup.run(rig.led)
    rig.store.before = lambda _: None
    assert rig.store.objects
    await rig.cleanup.run(rig.led)
    assert not rig.store.objects
    assert not rig.ledger.view.entries


async def test_h06_a_manifest_that_comes_at_the_last_moment_saves_the_copy(rig: Rig) -> None:
    await broken_copy(rig, "manifest")
    locator = next(iter(rig.ledger.view.entries.values())).metadata.locator(CLUSTER_ID)

    def write_manifest(published: RemoteLogSegmentMetadata) -> None:
        if published.state is DELETING:
            rig.store.objects[object_name(locator, ObjectKind.MANIFEST)] = b"{}"

    rig.ledger.after_publish = write_manifest
    with pytest.raises(Fenced, match="has a manifest now"):
        await rig.cleanup.run(rig.led)
    assert len(rig.store.objects) == 3


async def test_h06_other_nodes_attempts_are_swept_after_the_grace(rig: Rig) -> None:
    foreign = metadata(500, 0, 100, {0: 0}, STARTED, broker_id=2)
    rig.clock.advance(DEAD_AFTER_MS)  # by now it is known who lives (H16)
    rig.ledger.now_ms = rig.clock.now
    rig.ledger.write(foreign, writer=OTHER_WRITER)
    rig.clock.advance(GRACE_MS - 1)
    await rig.cleanup.run(rig.led)
    assert rig.ledger.view.entries
    rig.clock.advance(1)
    await rig.cleanup.run(rig.led)
    assert not rig.ledger.view.entries


async def test_h06_our_live_attempt_is_left_alone(rig: Rig) -> None:
    sweeps: list[int] = []

    async def sweep_meanwhile() -> None:
        await rig.cleanup.run(rig.led)
        sweeps.append(rig.cleanup.statuses[PARTITION.key].leftovers)

    plain = rig.store.write_manifest

    async def write_manifest(locator, manifest):  # type: ignore[no-untyped-def]
        await sweep_meanwhile()
        await plain(locator, manifest)

    rig.store.write_manifest = write_manifest  # type: ignore[method-assign]
    await rig.copy.run(rig.led)
    assert sweeps == [0]
    assert rig.ledger.states() == [STARTED, FINISHED]


def _freeze(rig: Rig) -> None:
    rig.settings.write(FreezeRecord(topic_id=None, stopped=("sweep",), by="ops", why="looking"))


def _problem(rig: Rig) -> None:
    rig.ledger.problem = "shrunk"


def _no_settings(rig: Rig) -> None:
    rig.settings.is_ready = False


@pytest.mark.parametrize("forbid", [_freeze, _problem, _no_settings])
async def test_h06_what_stops_the_sweep(rig: Rig, forbid: Callable[[Rig], None]) -> None:
    await broken_copy(rig, "manifest")
    before = dict(rig.store.objects)
    forbid(rig)
    await rig.cleanup.run(rig.led)
    assert rig.store.objects == before
    assert rig.ledger.states() == [STARTED]
    assert rig.cleanup.statuses[PARTITION.key].refused


@pytest.mark.parametrize("forbid", [_freeze, _problem])
@pytest.mark.parametrize("state", [DELETING, DELETED])
async def test_g1_a_freeze_in_the_midst_of_a_sweep_stops_it(
    rig: Rig, forbid: Callable[[Rig], None], state: RemoteLogSegmentState
) -> None:
    """More leftovers than are decided about at a time; the freeze comes after a DELETE_STARTED of
    the first ones, or after their end.
    """
    for number in range(MOST_SEGMENTS + 1):
        rig.ledger.write(metadata(500 + number, number, number + 1, {0: 0}, STARTED))

    def stop(published: RemoteLogSegmentMetadata) -> None:
        if published.state is state:
            forbid(rig)

    rig.ledger.after_publish = stop
    if state is DELETING:
        with pytest.raises(Fenced):
            await rig.cleanup.run(rig.led)
        assert rig.store.deleted == []
    else:
        await rig.cleanup.run(rig.led)
        assert len(rig.store.deleted) == MOST_SEGMENTS
        status = rig.cleanup.statuses[PARTITION.key]
        assert status.refused
        assert (status.leftovers, status.deleted) == (MOST_SEGMENTS, MOST_SEGMENTS)
    assert [entry.state for entry in rig.ledger.view.entries.values()][-1] is STARTED


@pytest.mark.parametrize("state", [STARTED, DELETING])
async def test_h06_a_manifest_that_lands_before_the_objects_go_keeps_them(
    rig: Rig, state: RemoteLogSegmentState
) -> None:
    """A deletion that somebody has begun needs its reason now, too: the next run adopts."""
    rig.store.delays_manifests = True
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    (entry,) = rig.ledger.view.entries.values()
    if state is DELETING:
        rig.ledger.write(in_state(entry.metadata, DELETING))
    rig.ledger.after_publish = lambda _: rig.store.land()
    with pytest.raises(Fenced, match="has a manifest now"):
        await rig.cleanup.run(rig.led)
    assert rig.store.deleted == []
    rig.ledger.after_publish = lambda _: None
    await rig.cleanup.run(rig.led)
    assert rig.cleanup.statuses[PARTITION.key].adopted == 1


async def test_h05_who_lost_the_leadership_meanwhile_deletes_nothing(rig: Rig) -> None:
    """The next leader may have adopted the segment and trimmed on it."""
    await broken_copy(rig, "manifest")

    def depose(published: RemoteLogSegmentMetadata) -> None:
        if published.state is DELETING:
            rig.broker.elect(2, 1)

    rig.ledger.after_publish = depose
    with pytest.raises(Fenced, match="led by 2"):
        await rig.cleanup.run(rig.led)
    assert rig.store.objects and rig.store.deleted == []


async def test_h11_a_store_that_changes_within_a_run_proves_nothing(rig: Rig) -> None:
    """The plugin came back on another store: there is no manifest there, but there was."""
    rig.ledger.before_publish = lambda one: None if one.state is STARTED else lose()

    def lose() -> None:
        raise Unavailable("nothing was sent")

    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    rig.ledger.before_publish = lambda _: None
    plain, ours = rig.store.read_manifest, rig.store.identity
    assert ours is not None

    async def swap_then_read(locator: SegmentLocator) -> bytes:
        rig.store.identity, rig.store.objects = replace(ours, store_id=OTHER_WRITER), {}
        return await plain(locator)

    rig.store.read_manifest = swap_then_read  # type: ignore[method-assign]
    with pytest.raises(Invalid, match="the plugin serves store"):
        await rig.cleanup.run(rig.led)
    assert [entry.state for entry in rig.ledger.view.entries.values()] == [STARTED]


async def test_h11_nothing_is_swept_from_another_store(rig: Rig) -> None:
    await broken_copy(rig, "manifest")
    rig.store.identity = None
    with pytest.raises(Invalid, match="no identity"):
        await rig.cleanup.run(rig.led)
    assert rig.store.objects


async def test_h03_a_zombies_record_is_repaired_before_anything_else(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    (entry,) = rig.ledger.view.entries.values()
    rig.broker.elect(1, 4)
    rig.disk.epochs({0: 0, 4: 150})
    rig.ledger.write(metadata(900, 0, 100, {0: 0}, STARTED), epoch=4)
    rig.ledger.write(in_state(entry.metadata, DELETING), previous=1, epoch=0, writer=OTHER_WRITER)
    assert rig.ledger.view.disputes
    await rig.cleanup.run(rig.led)
    assert not rig.ledger.view.disputes
    assert rig.ledger.view.entries[entry.metadata.segment_id.id].state is FINISHED
    assert len(rig.store.objects) == 3


async def test_h02_a_lower_start_that_somebody_wrote_is_put_right(rig: Rig) -> None:
    rig.remote_start(60)
    lower = StartRecord(partition=PARTITION.key, remote_log_start_offset=20, cause="command")
    rig.settings.write(lower, epoch=0)
    await rig.cleanup.run(rig.led)
    assert rig.settings.published == [
        StartRecord(
            partition=PARTITION.key,
            remote_log_start_offset=60,
            cause="delete-records",
            decided_epoch=0,
        )
    ]
    assert not rig.settings.view.reassert

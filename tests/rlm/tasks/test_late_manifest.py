"""A manifest whose write was given up lands later: it vouches for no missing objects (H12)."""

from pathlib import Path

import pytest

from kip405.errors import Fenced, Unavailable
from kip405.ids import RemoteLogSegmentId
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, SegmentLocator
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


class LateManifest:
    """The first manifest that is written to the rig's store is held back; `land` stores it."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._plain = rig.store.write_manifest
        self._held: list[tuple[SegmentLocator, bytes]] = []
        rig.store.write_manifest = self._write  # type: ignore[method-assign]

    async def _write(self, locator: SegmentLocator, manifest: bytes) -> None:
        if self._held:
            await self._plain(locator, manifest)
            return
        self._held.append((locator, manifest))
        raise Unavailable("no answer within 30000 ms")

    async def land(self) -> None:
        await self._plain(*self._held[0])


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """One closed segment."""
    made = Rig(tmp_path)
    made.write_log(0, 100, end=150)
    return made


@pytest.fixture
async def late(rig: Rig) -> LateManifest:
    """Its copy was given up while its manifest was written."""
    made = LateManifest(rig)
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    return made


async def test_h12_before_the_sweep_it_makes_the_attempt_whole(
    rig: Rig, late: LateManifest
) -> None:
    await late.land()
    await rig.cleanup.run(rig.led)
    assert len(rig.ledger.view.in_state(FINISHED)) == 1
    assert len(rig.store.objects) == 3


async def test_h12_before_the_objects_are_deleted_it_stops_the_sweep(
    rig: Rig, late: LateManifest
) -> None:
    publish = rig.ledger.publish

    async def then_it_lands(
        metadata: RemoteLogSegmentMetadata, leader_epoch: int, expected_previous: int
    ) -> None:
        await publish(metadata, leader_epoch, expected_previous)
        if rig.ledger.states()[-1] is DELETING:
            await late.land()

    rig.ledger.publish = then_it_lands  # type: ignore[method-assign]
    with pytest.raises(Fenced, match="has a manifest now"):
        await rig.cleanup.run(rig.led)
    rig.ledger.publish = publish  # type: ignore[method-assign]
    await rig.cleanup.run(rig.led)
    assert len(rig.ledger.view.in_state(FINISHED)) == 1
    assert len(rig.store.objects) == 3


async def test_h12_after_the_objects_were_deleted_it_is_deleted_too(
    rig: Rig, late: LateManifest
) -> None:
    delete = rig.store.delete_log_segment_data
    deleted: list[SegmentLocator] = []

    async def then_it_lands(locator: SegmentLocator) -> None:
        await delete(locator)
        if not deleted:
            await late.land()
        deleted.append(locator)

    rig.store.delete_log_segment_data = then_it_lands  # type: ignore[method-assign]
    await rig.cleanup.run(rig.led)
    assert rig.store.objects == {}
    assert not rig.ledger.view.entries


async def test_h12_after_a_deletion_that_was_cut_short_it_is_not_adopted(
    rig: Rig, late: LateManifest
) -> None:
    delete = rig.store.delete_log_segment_data

    async def then_it_lands(locator: SegmentLocator) -> None:
        await delete(locator)
        await late.land()
        raise Unavailable("the store went away")

    rig.store.delete_log_segment_data = then_it_lands  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await rig.cleanup.run(rig.led)
    rig.store.delete_log_segment_data = delete  # type: ignore[method-assign]
    await rig.cleanup.run(rig.led)
    assert rig.ledger.view.in_state(FINISHED) == ()
    (alarm,) = rig.cleanup.statuses[PARTITION.key].alarms
    assert "a manifest is there, but the objects are missing" in alarm
    await rig.copy.run(rig.led)
    await rig.cleanup.run(rig.led)
    assert rig.cleanup.statuses[PARTITION.key].alarms == (), "another copy has all of its records"
    assert len(rig.store.objects) == 3


async def test_h12_between_a_deletion_and_its_tombstone_it_is_deleted_once_another_copy_exists(
    rig: Rig, late: LateManifest
) -> None:
    tombstone = rig.ledger.tombstone

    async def die(segment_id: RemoteLogSegmentId, leader_epoch: int) -> None:
        raise Unavailable("the service was killed")

    rig.ledger.tombstone = die  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await rig.cleanup.run(rig.led)
    rig.ledger.tombstone = tombstone  # type: ignore[method-assign]
    await late.land()
    await rig.cleanup.run(rig.led)
    assert rig.ledger.states()[-1] is DELETED, "an operator could still restore its objects"
    (alarm,) = rig.cleanup.statuses[PARTITION.key].alarms
    assert "a manifest is there, but the objects are missing" in alarm
    await rig.copy.run(rig.led)
    await rig.cleanup.run(rig.led)
    assert [one.state for one in rig.ledger.view.entries.values()] == [FINISHED]
    assert len(rig.store.objects) == 3, "the late manifest is gone"
    assert rig.cleanup.statuses[PARTITION.key].alarms == ()


async def test_h12_after_the_tombstone_nobody_believes_it(rig: Rig, late: LateManifest) -> None:
    await rig.cleanup.run(rig.led)
    await late.land()
    await rig.copy.run(rig.led)
    await rig.cleanup.run(rig.led)
    (copied,) = rig.ledger.view.in_state(FINISHED)
    assert copied.metadata.start_offset == 0
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [100], "on the copy whose objects were seen"

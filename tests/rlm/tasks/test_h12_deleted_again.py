"""What comes to a store after its segment was recorded as deleted: a manifest, or a part of its
objects (H12). It goes only where its records are in other copies, have ended, or were given up by
an operator (H3, H15).
"""

from contextlib import suppress
from pathlib import Path

import pytest

from kip405.errors import Fenced, Unavailable
from kip405.ids import RemoteLogSegmentId
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, SegmentLocator
from rlmm.ledger import Hole
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig
from tests.rlm.tasks.test_late_manifest import LateManifest

DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


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


async def killed_before_tombstone(rig: Rig) -> dict[str, bytes]:
    """The objects that the sweep has deleted."""
    before = dict(rig.store.objects)
    tombstone = rig.ledger.tombstone

    async def die(segment_id: RemoteLogSegmentId, leader_epoch: int) -> None:
        raise Unavailable("the service was killed")

    rig.ledger.tombstone = die  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await rig.cleanup.run(rig.led)
    rig.ledger.tombstone = tombstone  # type: ignore[method-assign]
    assert rig.store.objects == {}
    assert rig.ledger.states()[-1] is DELETED
    return before


@pytest.mark.parametrize("why", ["ended", "superseded"])
async def test_h12_an_interrupted_deletion_of_it_leaves_nothing(
    rig: Rig, late: LateManifest, why: str
) -> None:
    before = await killed_before_tombstone(rig)
    await late.land()
    (log,) = [name for name in before if name.endswith(".log")]
    rig.store.objects[log] = before[log]
    if why == "ended":
        rig.remote_start(100)
    else:
        await rig.copy.run(rig.led)
    delete = rig.store.delete_log_segment_data
    stem = log.removesuffix(".log")

    async def cut_short(locator: SegmentLocator) -> None:
        for name in [one for one in rig.store.objects if one.startswith(stem) and one != log]:
            del rig.store.objects[name]
        raise Unavailable("the store went away after the manifest")

    rig.store.delete_log_segment_data = cut_short  # type: ignore[method-assign]
    with suppress(Unavailable):
        await rig.cleanup.run(rig.led)
    assert log in rig.store.objects
    rig.store.delete_log_segment_data = delete  # type: ignore[method-assign]
    for _ in range(3):
        rig.clock.advance(100_000)
        rig.heartbeat()
        with suppress(Unavailable):
            await rig.cleanup.run(rig.led)
    assert log not in rig.store.objects
    assert all(one.state is FINISHED for one in rig.ledger.view.entries.values())


async def test_h15_a_hole_that_nobody_accepted_replaces_no_copy(
    rig: Rig, late: LateManifest
) -> None:
    """Its objects may come back, as from a backup."""
    rig.enable(mode="copy", trim=False)
    rig.broker.config["retention.ms"] = "5000"
    rig.remote_start(0)
    before = await killed_before_tombstone(rig)
    await late.land()
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    rig.broker.log_start_offset = 100
    for path in rig.disk.path.glob(f"{0:020d}.*"):
        path.unlink()
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    assert [(one.start, one.end) for one in rig.settings.view.holes(PARTITION.key)] == [(0, 100)]
    await rig.cleanup.run(rig.led)
    rig.store.objects |= before
    await rig.cleanup.run(rig.led)
    assert [one.state for one in rig.ledger.view.entries.values()] == [FINISHED]


@pytest.mark.parametrize("cause", ["accepted loss: an operator", "nobody knows"])
async def test_h03_objects_that_come_back_as_the_deletion_begins_stay(
    rig: Rig, late: LateManifest, cause: str
) -> None:
    before = dict(rig.store.objects)
    await killed_before_tombstone(rig)
    await late.land()
    manifest = dict(rig.store.objects)
    await rig.hole_records.add(PARTITION.key, [Hole(start=0, end=100, cause=cause)], 0)
    publish = rig.ledger.publish
    begun: list[RemoteLogSegmentState] = []

    async def then_back(
        metadata: RemoteLogSegmentMetadata, leader_epoch: int, expected_previous: int
    ) -> None:
        await publish(metadata, leader_epoch, expected_previous)
        begun.append(metadata.state)
        rig.store.objects |= before

    rig.ledger.publish = then_back  # type: ignore[method-assign]
    with suppress(Fenced):
        await rig.cleanup.run(rig.led)
    assert bool(begun) == cause.startswith("accepted loss")
    assert rig.store.objects == manifest | (before if begun else {})

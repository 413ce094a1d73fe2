"""An operator accepts what is lost for good, and readers pass (H15, H25)."""

from pathlib import Path

import pytest

from kip405.errors import Invalid, Unavailable
from kip405.ids import PartitionKey
from kip405.segments import RemoteLogSegmentState, RemotePartitionDeleteState
from rlm.plans.coverage import SETTLED, unsettled_end
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.tasks.accept_loss import LossAcceptance
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.lost_segments import HoleRecords
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
LOST = Hole(start=100, end=200, cause="accepted loss: op")


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """[0, 300) is remote in three segments and trimmed; the objects of [100, 200) are gone."""
    made = await trimmed(tmp_path)
    lose(made)
    return made


async def trimmed(path: Path) -> Rig:
    """[0, 300) is remote in three segments and trimmed."""
    made = Rig(path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    await made.trim.run(made.led)
    for base in (0, 100, 200):
        made.disk.file(base, ".log").unlink()
    return made


def lose(rig: Rig) -> dict[str, bytes]:
    """The log object of the middle segment; what was taken, by name."""
    (segment,) = [one for one in finished(rig) if one.start_offset == 100]
    name = object_name(segment.locator(CLUSTER_ID), ObjectKind.LOG)
    return {name: rig.store.objects.pop(name)}


def finished(rig: Rig) -> list:  # type: ignore[type-arg]
    return [entry.metadata for entry in rig.ledger.view.in_state(FINISHED)]


def acceptance(rig: Rig) -> LossAcceptance:
    async def snapshot(_: PartitionKey) -> PartitionSnapshot:
        return await rig.snapshots.take(rig.led)

    return LossAcceptance(
        snapshot=snapshot,
        ledger=rig.ledger,
        settings=rig.settings,
        evidence=StoreEvidence(rig.shelf, cluster_id=CLUSTER_ID, threads=rig.threads.evidence),
        lost=rig.lost,
        holes=HoleRecords(settings=rig.settings, barrier_deadline_ms=1_000),
        unlisted=rig.unlisted(),
        held=rig.holds.missing,
    )


async def test_h15_what_another_process_deletes_is_not_accepted_as_lost(rig: Rig) -> None:
    rig.ledger.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_STARTED)
    with pytest.raises(Unavailable, match="deletion of the whole partition"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    assert rig.settings.view.holes(PARTITION.key) == ()


async def test_h15_a_dry_run_changes_nothing(rig: Rig) -> None:
    (found,) = await acceptance(rig).accept(PARTITION.key, by="op", apply=False)
    assert (found.start, found.next_offset, found.segments) == (100, 200, 1)
    assert rig.settings.view.holes(PARTITION.key) == ()
    await rig.cleanup.run(rig.led)
    assert len(finished(rig)) == 3


async def test_h15_what_is_accepted_is_on_record_and_its_entry_goes(rig: Rig) -> None:
    await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    assert rig.settings.view.holes(PARTITION.key) == (LOST,)
    await rig.cleanup.run(rig.led)
    assert [one.start_offset for one in finished(rig)] == [0, 200]
    snapshot = await rig.snapshots.take(rig.led)
    end = unsettled_end(
        snapshot.ledger,
        snapshot.lineage,
        snapshot.log_end_offset,
        start=0,
        next_offset=300,
        trusted=True,
    )
    assert end == SETTLED
    with pytest.raises(Invalid, match="nothing is proven lost"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)


async def test_h06_objects_that_come_back_after_it_was_accepted_are_kept(tmp_path: Path) -> None:
    rig = await trimmed(tmp_path)
    taken = lose(rig)
    await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    rig.store.objects |= taken
    await rig.cleanup.run(rig.led)
    assert len(finished(rig)) == 3
    assert rig.store.deleted == []


@pytest.mark.parametrize("is_listed", [True, False])
async def test_h02_without_a_remote_log_start_nothing_is_known_to_be_lost(
    tmp_path: Path, *, is_listed: bool
) -> None:
    """What a user had deleted would be recorded as lost."""
    if is_listed:
        rig = await trimmed(tmp_path)
        lose(rig)
        rig.settings.remove(f"start/{PARTITION.key}")
    else:
        rig = Rig(tmp_path)
        rig.write_log(100, 200, end=250)
        rig.broker.log_start_offset = 100
    with pytest.raises(Unavailable, match="no remote log start"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    assert not [one for one in rig.settings.published if isinstance(one, HolesRecord)]
    assert rig.settings.view.holes(PARTITION.key) == ()


async def test_h15_what_the_broker_still_has_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 200, 300, end=350)
    await rig.copy.run(rig.led)
    lose(rig)
    with pytest.raises(Invalid, match="the broker still has the records"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    assert rig.settings.view.holes(PARTITION.key) == ()
    await rig.copy.run(rig.led)  # it is suspected now
    assert len(finished(rig)) == 4


async def test_h11_a_store_that_is_another_one_proves_no_loss(rig: Rig) -> None:
    rig.store.identity = None
    with pytest.raises(Invalid, match="no identity"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)


async def test_h06_a_ledger_with_a_problem_proves_no_loss(rig: Rig) -> None:
    rig.ledger.problem = "topic was recreated"
    with pytest.raises(Unavailable, match="recreated"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)


async def test_h04_a_frozen_partition_has_no_loss_to_accept(rig: Rig) -> None:
    rig.broker.elect(1, 2)
    rig.disk.epochs({2: 0})
    rig.broker.ends_at(120)
    with pytest.raises(Invalid, match="frozen"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)


async def test_g1_a_file_that_lost_its_bytes_is_trimmed_once_that_is_accepted(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 200, 300, end=350)
    rig.disk.empty(100, 200)
    await rig.copy.run(rig.led)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [100]
    (found,) = await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    assert "has 0 bytes" in found.why
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [100, 300]
    await rig.copy.run(rig.led)
    assert rig.copy.statuses[PARTITION.key].doubtful == ()


async def test_h25_what_lacks_its_manifest_only_can_be_read_and_is_no_loss(tmp_path: Path) -> None:
    """Nobody may be led to give up, and have deleted, the only copy, which is whole."""
    rig = await trimmed(tmp_path)
    (segment,) = [one for one in finished(rig) if one.start_offset == 100]
    del rig.store.objects[object_name(segment.locator(CLUSTER_ID), ObjectKind.MANIFEST)]
    with pytest.raises(Invalid, match="nothing is proven lost"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(LOST,)))
    await rig.cleanup.run(rig.led)
    assert rig.store.deleted == []
    assert segment in finished(rig)


@pytest.mark.parametrize("kind", [ObjectKind.LOG, ObjectKind.INDEXES])
@pytest.mark.parametrize("change", [b"", b"x", None])
async def test_h25_what_lacks_more_than_its_manifest_is_lost(
    tmp_path: Path, kind: ObjectKind, change: bytes | None
) -> None:
    """Missing, cut short or longer than recorded: readers would not get it."""
    rig = await trimmed(tmp_path)
    (segment,) = [one for one in finished(rig) if one.start_offset == 100]
    del rig.store.objects[object_name(segment.locator(CLUSTER_ID), ObjectKind.MANIFEST)]
    name = object_name(segment.locator(CLUSTER_ID), kind)
    data = rig.store.objects.pop(name)
    if change is not None:
        rig.store.objects[name] = data + change if change else data[:-1]
    (found,) = await acceptance(rig).accept(PARTITION.key, by="op", apply=False)
    assert (found.start, found.next_offset) == (100, 200)


async def test_h14_what_the_service_holds_open_is_copied_not_accepted_as_lost(
    tmp_path: Path,
) -> None:
    """The broker's retention has deleted two segments, of which the service has one open."""
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 200, 300, end=350)
    rig.remote_start(0)
    assert await rig.holds.hold(await rig.snapshots.take(rig.led), {100}) == 1
    rig.broker.log_start_offset = 200
    for base in (0, 100):
        for path in rig.disk.path.glob(f"{base:020d}.*"):
            path.unlink()
    (found,) = await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    assert (found.start, found.next_offset, found.segments) == (0, 100, 0)
    await rig.copy.run(rig.led)
    assert [one.start_offset for one in finished(rig)] == [100, 200]


async def test_h15_what_was_accepted_and_is_copied_after_all_is_a_hole_no_more(
    tmp_path: Path,
) -> None:
    """Another replica had the records and leads now: its copy is as good as any other, so should
    its objects be away for a while, nobody has accepted that.
    """
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 200, 300, end=350)
    files = [rig.disk.file(100, suffix) for suffix in (".log", ".index", ".timeindex")]
    records = [file.read_bytes() for file in files]
    rig.disk.empty(100, 200)
    await rig.copy.run(rig.led)
    await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    for file, data in zip(files, records, strict=True):
        file.write_bytes(data)
    await rig.copy.run(rig.led)
    assert rig.settings.view.holes(PARTITION.key) == ()
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    for base in (0, 100, 200):
        rig.disk.file(base, ".log").unlink()
    lose(rig)
    (segment,) = [one for one in finished(rig) if one.start_offset == 100]
    rig.lost.suspect(PARTITION.key, [segment.segment_id.id])
    await rig.cleanup.run(rig.led)
    assert segment in finished(rig)
    assert rig.store.deleted == []

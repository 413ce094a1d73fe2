"""A dead copy is deleted by its leader after the grace, with every proof asked again (H8, G4)."""

from pathlib import Path

import pytest
import structlog

from kip405.errors import Fenced
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.tasks.expiration import ExpirationTask
from rlm.tasks.unreferenced import CAUSE_UNREFERENCED
from rlmm.settings_records import FreezeRecord
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.discards import discard_task
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import UNREFERENCED_MS, Rig

DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


class Site:
    """A rig under epoch 1, which began at 200; `dead` is what epoch 0 had copied from there on."""

    def __init__(self, rig: Rig, dead: RemoteLogSegmentMetadata) -> None:
        self.rig = rig
        self.dead = dead

    def objects(self) -> int:
        """How many of the dead copy's objects there are."""
        return sum(str(self.dead.segment_id.id) in name for name in self.rig.store.objects)

    def is_there(self) -> bool:
        """With all its objects, and listed."""
        return self.dead.segment_id.id in self.rig.ledger.view.entries and self.objects() == 3

    async def take(self) -> PartitionSnapshot:
        return await self.rig.snapshots.take(self.rig.led)

    async def run(self) -> bool:
        return await self.rig.unreferenced.run_on(await self.take())


@pytest.fixture
async def site(tmp_path: Path) -> Site:
    rig = Rig(tmp_path)
    for base, following, epoch in ((0, 100, 0), (100, 200, 0), (200, 300, 1)):
        rig.broker.log += rig.disk.segment(base, following, epoch=epoch)
    rig.broker.log += rig.disk.active(300, 350, epoch=1)
    rig.broker.ends_at(350)
    rig.log_dir.recovery_point(PARTITION.topic, PARTITION.partition, 350)
    rig.remote_start(0)
    dead = await rig.copied_by_another(200, 260, epochs={0: 200})
    rig.begin_epoch(1, 200)
    await rig.copied_by_another(0, 100, number=901, epochs={0: 0})
    await rig.copy.run(rig.led)
    rig.clock.advance(UNREFERENCED_MS)
    rig.heartbeat()
    return Site(rig, dead)


async def test_h08_a_dead_copy_goes_in_the_order_of_every_deletion(site: Site) -> None:
    assert await site.run()
    assert site.objects() == 0
    assert site.dead.segment_id.id not in site.rig.ledger.view.entries
    assert len(site.rig.ledger.view.entries) == 3
    states = [one for one in site.rig.ledger.states() if one >= DELETING]
    assert states == [DELETING, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED]
    assert [one.segment_id for one in site.rig.audit.deleted] == [site.dead.segment_id]
    assert site.rig.audit.causes == [CAUSE_UNREFERENCED]
    assert not await site.run()


async def test_h08_nothing_goes_before_the_grace_is_over(site: Site) -> None:
    site.rig.clock.now -= 1
    assert not await site.run()
    assert site.is_there()


@pytest.mark.parametrize("stopped", ["delete", "trim"])
async def test_g1_a_freeze_of_deletions_keeps_it(site: Site, stopped: str) -> None:
    site.rig.settings.write(FreezeRecord(topic_id=None, stopped=(stopped,), by="me", why="test"))
    assert await site.run() == (stopped == "trim")
    assert site.is_there() == (stopped == "delete")


async def test_h11_it_stays_while_what_replaced_it_is_not_whole(site: Site) -> None:
    (live,) = [
        one.metadata
        for one in site.rig.ledger.view.entries.values()
        if one.metadata.next_offset == 300
    ]
    del site.rig.store.objects[object_name(live.locator(CLUSTER_ID), ObjectKind.LOG)]
    with pytest.raises(Fenced, match="nothing is given up"):
        await site.run()
    assert site.is_there()


async def test_h08_what_the_second_snapshot_does_not_show_stays(site: Site) -> None:
    snapshot = await site.rig.snapshots.take(site.rig.led)
    site.rig.remote_start(260)
    await site.rig.unreferenced.run_on(snapshot)
    assert site.is_there()


async def test_h08_the_reason_is_asked_again_before_the_objects_go(site: Site) -> None:
    """The remote log start moves while DELETE_SEGMENT_STARTED is published: it is expiry's now."""
    site.rig.ledger.after_publish = lambda _: site.rig.remote_start(260)
    with pytest.raises(Fenced, match="not replaced any more"):
        await site.run()
    assert site.objects() == 3


async def test_h05_another_leader_ends_it_before_the_objects_go(site: Site) -> None:
    site.rig.ledger.after_publish = lambda _: site.rig.broker.elect(2, 2)
    with pytest.raises(Fenced):
        await site.run()
    assert site.objects() == 3


async def test_h08_more_than_a_few_are_named_once_and_kept(site: Site) -> None:
    assert len(site.rig.unreferenced.plan(await site.take()).segments) == 1
    for number in range(3):
        at = 210 + number
        await site.rig.copied_by_another(at, at + 40, number=910 + number, epochs={0: at})
    site.rig.ledger.catch_up()
    with structlog.testing.capture_logs() as logs:
        assert not await site.run()
        assert not await site.run()
    kept = [row for row in logs if row["event"] == "unreferenced_segments_kept"]
    assert len(kept) == 1
    site.rig.unreferenced.forget(PARTITION.key)
    with structlog.testing.capture_logs() as logs:
        await site.run()
    assert [row["event"] for row in logs] == ["unreferenced_segments_kept"]


async def test_the_expiration_task_runs_it(site: Site) -> None:
    rig = site.rig
    task = ExpirationTask(
        snapshots=rig.snapshots,
        holes=rig.hole_watch,
        trim=rig.trim,
        expiry=rig.expiry,
        unreferenced=rig.unreferenced,
        discard=discard_task(rig),
        cleanup=rig.cleanup,
        clock=rig.clock,
        good_runs=rig.good_runs,
        saw=lambda _snapshot, _began_at_ms: None,
    )
    await task.run(rig.led)
    assert not site.is_there()

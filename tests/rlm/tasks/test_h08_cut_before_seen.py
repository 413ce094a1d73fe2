"""H8: an epoch file that is cut before any service has seen it under its leader's newest epoch.

A leads under epoch 0 and copies up to 300. B, whose log ends at 200, leads uncleanly under epoch 1
and copies its own records up to 260. Then A leads again, under epoch 2 from 350 on, and its
broker's retention deletes everything below 400 while no service runs. A's epoch file begins with
epoch 2 at 400 then: nothing says any more whether the history below is that of epoch 0 or of epoch
1.
"""

from pathlib import Path

import pytest

from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tests.builders.ledger import PARTITION
from tests.builders.rig import UNREFERENCED_MS, Rig
from tests.rlm.plans.views import history, lineage

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class Site:
    """`ours`: what A had copied from 200 on; `others`: B's, of the same offsets."""

    def __init__(
        self, rig: Rig, ours: RemoteLogSegmentMetadata, others: RemoteLogSegmentMetadata
    ) -> None:
        self.rig = rig
        self.ours = ours
        self.others = others

    async def read(self) -> list[tuple[int, int, int]]:
        """What readers get: ranges, and the epoch of each."""
        snapshot = await self.rig.snapshots.take(self.rig.led)
        usable = snapshot.ledger.usable(snapshot.lineage, snapshot.log_end_offset)
        return [
            (
                one.metadata.start_offset,
                one.next_offset,
                one.metadata.segment_leader_epochs[0].epoch,
            )
            for one in usable
        ]


@pytest.fixture
async def site(tmp_path: Path) -> Site:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 200, 300, end=350)
    rig.remote_start(0)
    await rig.copy.run(rig.led)
    (ours,) = [one.metadata for one in rig.ledger.view.in_state(FINISHED)][2:]
    others = await rig.copied_by_another(200, 260, epochs={1: 200})
    rig.settings.write(history({0: 0, 1: 200}), epoch=1)
    for file in rig.disk.path.glob("0*"):
        file.unlink()
    rig.broker.log = b""
    for base, following in ((400, 500), (500, 600)):
        rig.broker.log += rig.disk.segment(base, following, epoch=2)
    rig.broker.log += rig.disk.active(600, 650, epoch=2)
    rig.broker.log_start_offset = 400
    rig.broker.ends_at(650)
    rig.log_dir.recovery_point(PARTITION.topic, PARTITION.partition, 650)
    rig.begin_epoch(2, 400)
    rig.disk.epochs({2: 400})
    return Site(rig, ours, others)


async def test_h08_nothing_of_either_history_goes_when_nobody_knows_which_is_true(
    site: Site,
) -> None:
    rig = site.rig
    await rig.copy.run(rig.led)
    rig.clock.advance(UNREFERENCED_MS)
    rig.heartbeat()
    for _ in range(3):
        snapshot = await rig.snapshots.take(rig.led)
        assert snapshot.frozen is None
        await rig.hole_watch.run_on(snapshot)
        await rig.trim.run(rig.led)
        await rig.expiry.run(rig.led)
        assert not await rig.unreferenced.run_on(await rig.snapshots.take(rig.led))
        await rig.cleanup.run(rig.led)
    assert rig.store.deleted == []
    entries = rig.ledger.view.entries
    assert [entries[one.segment_id.id].state for one in (site.ours, site.others)] == [FINISHED] * 2


async def test_h08_readers_go_by_the_history_that_was_published_last(site: Site) -> None:
    """Which is B's, though A leads. A leader that publishes its own history corrects it."""
    assert await site.read() == [(0, 100, 0), (100, 200, 0), (200, 260, 1)]
    site.rig.settings.write(history({0: 0, 2: 350}), epoch=2)
    assert await site.read() == [(0, 100, 0), (100, 200, 0), (200, 300, 0)]


async def test_h08_a_service_that_saw_the_file_before_it_was_cut_knows_it(site: Site) -> None:
    rig = site.rig
    rig.broker.config["retention.ms"] = "1000"
    rig.disk.epochs({0: 0, 2: 350})
    snapshot = await rig.cached_snapshots().take(rig.led)
    assert snapshot.lineage == lineage({0: 0, 2: 350})
    rig.disk.epochs({2: 400})
    assert await site.read() == [(0, 100, 0), (100, 200, 0), (200, 300, 0)]

"""A copy that was accepted as lost is there after all: no loss any more, and no spare (H15)."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Corrupt
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.coverage import NO_RECORDS, lost_offsets
from rlm.plans.holes import BY_RETENTION
from rlm.tasks.ledger_rebuild import publish_new
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord
from rsm_plugins.layout.keys import ObjectKind, object_name, object_names
from tests.builders.ledger import FINISHED, OTHER_WRITER, PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import NODE_ID, Rig
from tests.builders.store import STORE_ID
from tests.rlm.tasks.test_accept_loss import LOST, acceptance, finished, trimmed

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


class Site:
    """[100, 200) was accepted as lost by ledger and store, and its objects are there again."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.segment: RemoteLogSegmentMetadata
        (self.segment,) = [one for one in finished(rig) if one.start_offset == 100]

    async def lose(self) -> None:
        kept = [one for one in self.rig.ledger.log if one.key.segment_id != self.id]
        self.rig.ledger.log = [replace(one, offset=at) for at, one in enumerate(kept)]
        self.rig.ledger.restart()
        names = object_names(self.segment.locator(CLUSTER_ID)).values()
        self.taken = {name: self.rig.store.objects.pop(name) for name in names}
        await acceptance(self.rig).accept(PARTITION.key, by="op", apply=True)
        assert self.holes == (LOST,)

    def bring_back(self) -> None:
        self.rig.store.objects |= self.taken

    def spoil(self) -> None:
        """Its indexes are away for a while, and somebody has noticed."""
        del self.rig.store.objects[self.name(ObjectKind.INDEXES)]
        self.rig.lost.suspect(PARTITION.key, [self.id])

    def name(self, kind: ObjectKind) -> str:
        return object_name(self.segment.locator(CLUSTER_ID), kind)

    async def watch(self) -> None:
        await self.rig.hole_watch.run_on(await self.rig.snapshots.take(self.rig.led))

    async def check_kept(self) -> None:
        """Its log is the only copy of these records."""
        assert self.holes == ()
        assert lost_offsets(self.holes, 0) == ()
        self.spoil()
        await self.rig.cleanup.run(self.rig.led)
        assert self.name(ObjectKind.LOG) in self.rig.store.objects
        assert self.segment in finished(self.rig)

    @property
    def id(self) -> Uuid:
        return self.segment.segment_id.id

    @property
    def holes(self) -> tuple[Hole, ...]:
        return self.rig.settings.view.holes(PARTITION.key)


@pytest.fixture
async def site(tmp_path: Path) -> Site:
    made = Site(await trimmed(tmp_path))
    await made.lose()
    return made


def started(segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    return segment.in_state(STARTED, event_timestamp_ms=0, broker_id=NODE_ID)


async def test_h15_a_copy_that_is_listed_again_ends_its_accepted_loss(site: Site) -> None:
    """`rlm reconcile` and `rlm ledger rebuild` list it again."""
    site.bring_back()
    await publish_new(site.rig.ledger, [site.segment], 0)
    await site.watch()
    await site.check_kept()


async def test_h15_a_copy_that_is_adopted_ends_its_accepted_loss_at_once(site: Site) -> None:
    """Before its record says that it is finished."""
    site.bring_back()
    site.rig.ledger.write(started(site.segment), writer=OTHER_WRITER)
    seen: list[tuple[Hole, ...]] = []
    site.rig.ledger.before_publish = lambda _: seen.append(site.holes)
    await site.rig.cleanup.run(site.rig.led)
    assert site.rig.cleanup.statuses[PARTITION.key].adopted == 1
    assert seen == [()]
    site.rig.ledger.before_publish = lambda _: None
    await site.check_kept()


@pytest.mark.parametrize("why", ["missing", "store away", "damaged"])
async def test_h11_what_is_not_whole_stays_accepted_as_lost(site: Site, why: str) -> None:
    await publish_new(site.rig.ledger, [site.segment], 0)
    if why != "missing":
        site.bring_back()
    if why == "store away":
        del site.rig.shelf.stores[STORE_ID]
    if why == "damaged":
        site.rig.lost.report(PARTITION.key, site.id, Corrupt("a chunk is damaged"), [site.id])
    await site.watch()
    assert site.holes == (LOST,)


async def test_h15_only_what_a_copy_has_is_no_loss_any_more(site: Site) -> None:
    """What begins before it, and what nobody has missed records of, stays on record."""
    wider = (
        Hole(start=90, end=150, cause=BY_RETENTION),
        Hole(start=150, end=160, cause=NO_RECORDS),
        Hole(start=160, end=250, cause="accepted loss: op"),
    )
    for one in finished(site.rig):
        site.rig.ledger.write(None, segment_id=one.segment_id, previous=int(FINISHED))
    site.rig.settings.write(HolesRecord(partition=PARTITION.key, holes=wider), epoch=0)
    site.bring_back()
    await publish_new(site.rig.ledger, [site.segment], 0)
    await site.watch()
    assert [one for one in site.holes if one.cause != BY_RETENTION or one.start == 90] == [
        Hole(start=90, end=100, cause=BY_RETENTION),
        Hole(start=150, end=160, cause=NO_RECORDS),
        Hole(start=200, end=250, cause="accepted loss: op"),
    ]

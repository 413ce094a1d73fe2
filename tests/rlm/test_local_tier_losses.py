"""What the tier knows of lost copies and of ranges without records."""

from kip405.ids import Uuid
from kip405.segments import ByteRange, SegmentLocator
from rlm.plans.coverage import NO_RECORDS
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.rlm.tier_site import BY_NAME, FINISHED, Site, second_copy, site

__all__ = ["site"]


async def test_h15_ranges_without_records_are_known_at_once(site: Site) -> None:
    await site.leadership.refresh()
    before = await site.barrier()
    assert before is not None and before.empty == ()
    empty = Hole(start=250, end=260, cause=NO_RECORDS)
    site.rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(empty,)), epoch=0)
    now = site.tier.partition(BY_NAME, 0)
    assert now is not None and now.empty == ((250, 260),)


async def test_h25_a_copy_that_is_known_to_be_lost_is_asked_for_last(site: Site) -> None:
    await site.barrier()
    first, _ = site.rig.ledger.view.in_state(FINISHED)
    second_copy(site.rig, first.metadata)
    snapshot = site.snapshots.snapshots[PARTITION.key]
    best = site.rig.ledger.view.usable_segment_for(snapshot.lineage, snapshot.log_end_offset, 0)
    assert best is not None
    del site.rig.store.objects[object_name(best.metadata.locator(CLUSTER_ID), ObjectKind.LOG)]
    await site.read(0, 50)
    asked: list[Uuid] = []
    fetch = site.rig.store.fetch_log_segment

    async def noting(locator: SegmentLocator, byte_range: ByteRange) -> bytes:
        asked.append(locator.segment_id.id)
        return await fetch(locator, byte_range)

    site.rig.store.fetch_log_segment = noting  # type: ignore[method-assign]
    await site.read(0, 50)
    assert best.metadata.segment_id.id not in asked

"""What `rlm explain` collects of a partition, over real tasks; it changes nothing."""

from pathlib import Path

import pytest

from kip405.errors import Corrupt, Unavailable
from rlm.plans.explanation import Explanation, OffsetLocation
from rlm.service.explanation import Explanations
from rlm.stores.reports import StoreStatus
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord, StartRecord
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.store import STORE_ID
from tests.rlm.watched import Watched

HOT = StoreStatus(name="hot", store_id=STORE_ID)


class Explained:
    """A partition with closed segments to 250 and an active one to 300, copied and trimmed."""

    def __init__(self, path: Path) -> None:
        self.watched = Watched(path)
        self.rig = self.watched.rig
        self.rig.write_log(0, 100, 250, end=300)
        self.stores: tuple[StoreStatus, ...] = (HOT,)

    async def __call__(self, offset: int | None = None) -> Explanation:
        explanations = Explanations(
            cluster_id=CLUSTER_ID,
            snapshots=self.watched.snapshots,
            settings=self.rig.settings,
            ledger=self.rig.ledger,
            tasks=self.watched.partition_tasks,
            lost=self.rig.lost,
            stores=lambda: self.stores,
            clock=self.rig.clock,
        )
        return await explanations.explain(self.rig.led, offset)


@pytest.fixture
def explained(tmp_path: Path) -> Explained:
    return Explained(tmp_path)


async def test_before_and_after_copy_and_trim(explained: Explained) -> None:
    before = await explained(50)
    assert (before.location, before.readable) == (OffsetLocation.LOCAL, True)
    assert "it is the next one" in " ".join(before.sentences)
    await explained.watched.run_tasks()
    after = await explained(50)
    assert (after.location, after.readable) == (OffsetLocation.REMOTE, True)
    copy = after.view.copy_of_offset
    assert copy is not None
    assert (copy.entry.metadata.start_offset, copy.next_offset, copy.store) == (0, 100, "hot")
    assert f"{CLUSTER_ID}/orders-" in copy.objects_stem and copy.problem == ""
    assert (after.view.remote_log_start_cause, after.view.offset_epoch) == ("enable", 0)
    assert (await explained(260)).location is OffsetLocation.LOCAL
    assert (await explained(300)).location is OffsetLocation.BEYOND_END


async def test_it_changes_nothing(explained: Explained) -> None:
    rig = explained.rig
    await explained.watched.run_tasks()
    log, records = list(rig.ledger.log), rig.settings.view.next_offset
    copied, trimmed = dict(rig.copy.statuses), dict(rig.trim.statuses)
    rig.write_log(250, 300, end=350)

    def refused(_: str) -> None:
        raise AssertionError("a store was changed")

    rig.store.before = refused
    found = await explained(270)
    assert found.view.copy.lag.segments == 1
    assert (rig.ledger.log, rig.settings.view.next_offset) == (log, records)
    assert (dict(rig.copy.statuses), dict(rig.trim.statuses)) == (copied, trimmed)


async def test_the_trim_is_planned_as_its_task_plans_it(explained: Explained) -> None:
    explained.rig.enable(local_ms=1 << 40)
    await explained.watched.run_tasks()
    found = await explained(50)
    assert found.location is OffsetLocation.BOTH
    assert found.view.trim_reason == "all is within local retention"
    explained.rig.enable(trim=False)
    assert (await explained(50)).view.trim_reason == "trim is off"


async def test_h11_what_is_known_against_a_copy(explained: Explained) -> None:
    rig = explained.rig
    await explained.watched.run_tasks()
    explained.stores = (StoreStatus(name="hot", store_id=STORE_ID, problem="no answer"),)
    away = await explained(50)
    assert (away.readable, away.unreadable_reason) == (False, "store hot: no answer; clients wait")
    explained.stores = ()
    assert "does not know its store" in (await explained(50)).unreadable_reason
    explained.stores = (HOT,)
    copy = away.view.copy_of_offset
    assert copy is not None
    segment = copy.entry.metadata.segment_id.id
    rig.lost.suspect(PARTITION.key, {segment})
    assert "was not found in its store; clients get an" in (await explained(50)).unreadable_reason
    rig.losses.note(PARTITION.key, segment, Corrupt("crc"), {segment})
    assert "segment is damaged: crc" in (await explained(50)).unreadable_reason


async def test_h15_a_hole_on_record_and_what_the_broker_lost(explained: Explained) -> None:
    rig = explained.rig
    await explained.watched.run_tasks()
    rig.remote_start(60)
    assert (await explained(50)).location is OffsetLocation.EXPIRED
    rig.settings.write(
        HolesRecord(partition=PARTITION.key, holes=(Hole(start=100, end=110, cause="gone"),))
    )
    assert (await explained(105)).location is OffsetLocation.REMOTE, "a copy counts more"


async def test_h38_failures_of_the_last_runs_are_said(explained: Explained) -> None:
    def away(_: str) -> None:
        raise Unavailable("the store is away")

    explained.rig.store.before = away
    await explained.watched.run_tasks()
    found = await explained()
    assert found.location is None and found.readable is None
    assert "The last copy failed, and is tried again: Unavailable: " in " ".join(found.sentences)


async def test_h02_nothing_is_readable_while_the_remote_log_start_is_lost(
    explained: Explained,
) -> None:
    rig = explained.rig
    await explained.watched.run_tasks()
    rig.settings.remove(f"{StartRecord.KIND}/{PARTITION.key}")
    found = await explained(50)
    assert found.readable is False and "its remote log start is lost" in found.unreadable_reason

"""How far records go that nobody may read any more, and what is no copy (H8, H15, H19)."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Unavailable
from rlm.tasks.copy_order import Turn
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Three segments of 100 copied, the active one from 300 to 350."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    return made


async def only_the_last_copied(path: Path, *holes: Hole) -> Rig:
    """[200, 300) is remote, the log holds all from 0 on; an earlier leader's log began at 200."""
    rig = Rig(path)
    rig.write_log(0, 100, 200, 300, end=350)
    snapshot = await rig.snapshots.take(rig.led)
    await rig.copier.copy(snapshot, snapshot.log.segments[2], Turn())
    rig.remote_start(0)
    rig.settings.write(HolesRecord(partition=PARTITION.key, holes=holes), epoch=0)
    return rig


@pytest.mark.parametrize("end", [200, 150, 300])
async def test_h15_a_hole_covers_nothing_that_this_leaders_log_holds(
    tmp_path: Path, end: int
) -> None:
    rig = await only_the_last_copied(tmp_path, Hole(start=0, end=end, cause="an old leader"))
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert rig.trim.statuses[PARTITION.key].reason == "nothing more is contiguously remote"


async def test_h15_what_a_hole_named_is_copied_and_then_trimmed(tmp_path: Path) -> None:
    rig = await only_the_last_copied(tmp_path, Hole(start=0, end=200, cause="an old leader"))
    await rig.copy.run(rig.led)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h15_below_the_logs_own_start_a_hole_is_none_of_a_trims(tmp_path: Path) -> None:
    rig = await only_the_last_copied(tmp_path, Hole(start=0, end=200, cause="an old leader"))
    rig.broker.log_start_offset = 200
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


@pytest.mark.parametrize("start", [350, 400])
async def test_h08_of_what_has_ended_the_last_record_stays_until_another_follows(
    rig: Rig, start: int
) -> None:
    rig.remote_start(start)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [349]
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [349], "a log of one record is left as it is"
    rig.disk.active(300, 360)
    rig.broker.ends_at(360)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [349, min(start, 359)]


async def test_h08_of_a_log_without_records_nothing_is_deleted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.disk.active(0, 0)
    rig.disk.epochs({0: 0})
    rig.broker.ends_at(0)
    rig.remote_start(10)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h19_what_has_ended_goes_past_a_share_group(rig: Rig) -> None:
    """As a broker's own retention does, which then moves the group's start itself."""
    rig.share_groups.lowest = 10
    rig.remote_start(150)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [150]


async def test_h19_what_is_only_trimmed_does_not(rig: Rig) -> None:
    rig.share_groups.lowest = 10
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h19_what_has_ended_asks_no_share_group_before_it_goes(rig: Rig) -> None:
    async def starts_now(topic: str) -> dict[int, int]:
        raise Unavailable("a coordinator is away")

    rig.share_groups.starts_now = starts_now  # type: ignore[method-assign]
    rig.remote_start(150)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [150]


async def test_h27_what_has_ended_waits_for_no_replica(rig: Rig) -> None:
    rig.broker.partition = replace(rig.broker.partition, replicas=(1, 2), isr=(1,))
    rig.remote_start(150)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [150]

"""What a broker with a nearly full log directory asks for (H18)."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.ids import Uuid
from rlm.log_dir.scanner import LogDirs
from rlm.tasks.disk_pressure import DiskPressure
from rlm.tasks.disk_watch import DiskWatch
from rlmm.settings_records import GivenBack
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig
from tests.builders.threads import THREADS

QUOTA_BYTES = 1 << 20
FLOOR_BYTES = 256 << 10


class Pressed:
    """A rig whose log directory has a quota; local retention is 0 ms, nothing is copied."""

    def __init__(self, rig: Rig, *, gives_back: bool = True) -> None:
        self.rig = rig
        self.watch = DiskWatch(
            [rig.log_dir.path],
            quota_bytes=QUOTA_BYTES,
            floor_bytes=FLOOR_BYTES,
            threads=THREADS,
            clock=rig.clock,
        )
        self.pressure = DiskPressure(
            watch=self.watch,
            log_dirs=LogDirs([str(rig.log_dir.path)]),
            settings=rig.settings,
            threads=THREADS,
            clock=rig.clock,
            interval_ms=10_000,
            gives_back=gives_back,
        )

    def fill(self, name: str = "other.bin", size_bytes: int = QUOTA_BYTES - FLOOR_BYTES) -> Path:
        path = self.rig.log_dir.path / name
        path.write_bytes(b"1" * size_bytes)
        return path

    async def asked(self) -> dict[Uuid, int]:
        await self.pressure.check()
        return dict(self.pressure.asked)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    return made


def sizes(rig: Rig) -> list[int]:
    return [rig.disk.file(base, ".log").stat().st_size for base in (0, 100, 200, 300)]


async def test_h18_a_broker_asks_below_its_floor_until_it_is_well_above(rig: Rig) -> None:
    pressed = Pressed(rig)
    assert await pressed.asked() == {}
    filler = pressed.fill()
    assert await pressed.asked() == {PARTITION.topic_id: sizes(rig)[3]}
    filler.unlink()
    assert await pressed.asked() == {}


async def test_h18_a_disk_has_space_where_that_is_known_and_it_is_not_nearly_full(
    rig: Rig,
) -> None:
    pressed, directory = Pressed(rig), str(rig.disk.path)
    assert not pressed.watch.has_space(directory), "it was not measured yet"
    await pressed.asked()
    assert pressed.watch.has_space(directory)
    assert not pressed.watch.has_space("/another/orders-0")
    away = rig.log_dir.path.rename(rig.log_dir.path.with_name("away"))
    await pressed.watch.measure()
    assert pressed.watch.has_space(directory), "a free space that could not be read changes nothing"
    away.rename(rig.log_dir.path)
    pressed.fill()
    await pressed.asked()
    assert not pressed.watch.has_space(directory)


async def test_h18_the_default_policy_asks_for_nothing(rig: Rig) -> None:
    pressed = Pressed(rig, gives_back=False)
    pressed.fill()
    assert await pressed.asked() == {}


@pytest.mark.parametrize("mode", ["copy", "local"])
async def test_h18_only_what_lies_beyond_local_retention_counts(rig: Rig, mode: str) -> None:
    if mode == "copy":
        rig.enable(mode="copy", trim=True)
    else:
        rig.enable(local_ms=rig.clock.now_ms() + 1)
    pressed = Pressed(rig)
    pressed.fill()
    assert await pressed.asked() == {}


async def test_h18_what_the_broker_is_about_to_remove_counts_as_free(rig: Rig) -> None:
    pressed = Pressed(rig)
    going_bytes = FLOOR_BYTES * 3 // 2
    pressed.fill(size_bytes=QUOTA_BYTES - FLOOR_BYTES - going_bytes)
    deleted = rig.disk.path / "00000000000000000000.log.deleted"
    deleted.write_bytes(b"1" * going_bytes)
    assert await pressed.asked() == {}
    deleted.rename(rig.log_dir.path / "of another topic")
    assert await pressed.asked() != {}


async def test_h18_a_limit_of_before_a_restart_is_asked_for_again(rig: Rig) -> None:
    record = rig.settings.view.topic(PARTITION.topic_id)
    assert record is not None
    given = GivenBack(limits={"retention.bytes": "77"}, since_ms=1)
    rig.settings.write(replace(record, given_back=given), epoch=0)
    pressed = Pressed(rig)
    assert await pressed.asked() == {}
    pressed.fill()
    assert await pressed.asked() == {PARTITION.topic_id: 77}


async def test_a_topic_of_another_id_is_left_alone(rig: Rig) -> None:
    (rig.disk.path / "partition.metadata").write_text(
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n"
    )
    pressed = Pressed(rig)
    pressed.fill()
    assert await pressed.asked() == {}


async def test_h18_a_topic_whose_trim_is_off_keeps_its_local_log(rig: Rig) -> None:
    rig.enable(trim=False)
    pressed = Pressed(rig)
    pressed.fill()
    assert await pressed.asked() == {}


async def test_h18_what_is_held_open_on_a_nearly_full_disk_must_make_room(rig: Rig) -> None:
    """No log shows files that the broker has deleted, so nothing else would free them."""
    pressed, alarms = Pressed(rig), Pressed(rig, gives_back=False)
    snapshot = await rig.snapshots.take(rig.led)
    await pressed.asked()
    assert not pressed.pressure.needs_space_of(snapshot, rig.ledger)
    pressed.fill()
    await pressed.asked()
    await alarms.asked()
    assert pressed.pressure.needs_space_of(snapshot, rig.ledger)
    assert not alarms.pressure.needs_space_of(snapshot, rig.ledger), "nothing may be lost"
    elsewhere = replace(snapshot, log=replace(snapshot.log, directory="/elsewhere/orders-0"))
    assert not pressed.pressure.needs_space_of(elsewhere, rig.ledger)
    rig.ledger.problem = "records are missing"
    assert not pressed.pressure.needs_space_of(snapshot, rig.ledger)


async def test_h18_where_trim_is_off_what_is_held_open_stays(rig: Rig) -> None:
    rig.enable(trim=False)
    pressed = Pressed(rig)
    pressed.fill()
    await pressed.asked()
    assert not pressed.pressure.needs_space_of(await rig.snapshots.take(rig.led), rig.ledger)

"""What a broker with a nearly full log directory asks for (H18)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.ids import Uuid
from rlm.log_dir.scanner import LogDirs
from rlm.plans.problems import ProblemKind
from rlm.tasks.disk_pressure import MOST_UNREAD_CHECKS, DiskPressure
from rlm.tasks.disk_watch import DiskWatch
from rlmm.settings_records import GivenBack
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import LogDir, PartitionDir
from tests.builders.rig import Rig
from tests.builders.threads import THREADS

QUOTA_BYTES = 1 << 20
FLOOR_BYTES = 256 << 10


class Pressed:
    """A rig whose log directory has a quota; local retention is 0 ms, nothing is copied."""

    def __init__(self, rig: Rig, *, gives_back: bool = True, also: Sequence[LogDir] = ()) -> None:
        self.rig = rig
        paths = [rig.log_dir.path, *(one.path for one in also)]
        self.watch = DiskWatch(
            paths,
            quota_bytes=QUOTA_BYTES,
            floor_bytes=FLOOR_BYTES,
            threads=THREADS,
            clock=rig.clock,
        )
        self.pressure = DiskPressure(
            watch=self.watch,
            log_dirs=LogDirs([str(path) for path in paths]),
            settings=rig.settings,
            threads=THREADS,
            clock=rig.clock,
            interval_ms=lambda: 10_000,
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


OTHER = Uuid(b"\x33" * 16)


def add_other_topic(rig: Rig) -> PartitionDir:
    """A second tiered topic with three closed segments and an active one."""
    record = rig.settings.view.topic(PARTITION.topic_id)
    assert record is not None
    rig.settings.write(replace(record, topic_id=OTHER, name="clicks"), epoch=0)
    found = rig.log_dir.partition("clicks", 0, OTHER)
    for base in (0, 100, 200):
        found.segment(base, base + 100)
    found.active(300, 350)
    return found


def named(pressed: Pressed) -> list[tuple[str, str]]:
    found = pressed.pressure.findings()
    assert {one.kind for one in found} <= {ProblemKind.LOG_DIR_UNKNOWN}
    return [(one.subject, one.text) for one in found]


@pytest.mark.parametrize("damage", ["torn epoch file", "two log dirs"])
async def test_h18_a_log_that_cannot_be_read_keeps_only_its_own_topic_from_making_room(
    rig: Rig, tmp_path: Path, damage: str
) -> None:
    """Its local retention is not known; without the other topics the broker goes down."""
    add_other_topic(rig)
    other_dir = LogDir(tmp_path / "second")
    pressed = Pressed(rig, also=[other_dir])
    well = rig.log_dir.partition(partition=1)
    well.segment(0, 100)
    well.active(100, 150)
    if damage == "two log dirs":
        other_dir.partition()
    else:
        (rig.disk.path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    pressed.fill()
    assert set(await pressed.asked()) == {OTHER}
    [(subject, text)] = named(pressed)
    assert subject == str(PARTITION.topic_partition)
    assert "the topic's logs make no room there" in text
    assert ("orders-0 is in" if damage == "two log dirs" else "cannot be read") in text
    pressed.fill(size_bytes=1)
    assert await pressed.asked() == {}
    assert named(pressed) == []


async def test_h18_a_file_that_the_broker_removes_meanwhile_is_no_reason_to_wait(
    rig: Rig,
) -> None:
    """It is listed, and gone when its size is asked for: as a link to nothing is."""
    (rig.disk.path / "00000000000000000000.log.deleted").symlink_to(rig.disk.path / "gone")
    pressed = Pressed(rig)
    filler = pressed.fill()
    assert set(await pressed.asked()) == {PARTITION.topic_id}
    filler.unlink()
    assert await pressed.asked() == {}
    going_bytes = FLOOR_BYTES * 3 // 2
    pressed.fill(size_bytes=QUOTA_BYTES - FLOOR_BYTES - going_bytes)
    going = rig.disk.path / "00000000000000000100.log.deleted"
    going.write_bytes(b"1" * going_bytes)
    assert await pressed.asked() == {}, "what is about to be removed counts as free all the same"
    assert named(pressed) == []


async def test_h18_a_log_dir_that_cannot_be_listed_keeps_no_other_one_from_making_room(
    rig: Rig, tmp_path: Path
) -> None:
    gone = LogDir(tmp_path / "gone")
    pressed = Pressed(rig, also=[gone])
    pressed.fill()
    (gone.path / "other.bin").write_bytes(b"1" * QUOTA_BYTES)
    await pressed.asked()
    gone.path.rename(tmp_path / "away")
    assert set(await pressed.asked()) == {PARTITION.topic_id}
    [(subject, text)] = named(pressed)
    assert subject == f"logs in {gone.path}"
    assert "no log makes room there" in text


async def test_h18_what_cannot_be_read_for_a_moment_asks_no_other_topic(rig: Rig) -> None:
    """The broker renames files while it is scanned. What is asked of others they lose uncopied."""
    other = add_other_topic(rig)
    size_bytes = len(other.segment(0, 100, fill=b"x" * 3_000))
    pressed = Pressed(rig)
    pressed.fill(size_bytes=QUOTA_BYTES - FLOOR_BYTES - size_bytes)
    limits = await pressed.asked()
    assert set(limits) == {OTHER}
    epochs = other.path / "leader-epoch-checkpoint"
    text = epochs.read_text()
    epochs.write_text("0\n2\n0 0\n")
    assert await pressed.asked() == limits
    assert [subject for subject, _ in named(pressed)] == ["clicks-0"]
    epochs.write_text(text)
    assert await pressed.asked() == limits
    assert named(pressed) == []


async def test_h18_what_stays_unreadable_does_not_let_the_disk_fill_up(rig: Rig) -> None:
    other = add_other_topic(rig)
    size_bytes = len(other.segment(0, 100, fill=b"x" * 3_000))
    pressed = Pressed(rig)
    filler = pressed.fill(size_bytes=QUOTA_BYTES - FLOOR_BYTES - size_bytes)
    limits = await pressed.asked()
    epochs = other.path / "leader-epoch-checkpoint"
    text = epochs.read_text()
    for _ in range(2):
        epochs.write_text("0\n2\n0 0\n")
        for _ in range(MOST_UNREAD_CHECKS):
            assert await pressed.asked() == limits
        epochs.write_text(text)
        assert await pressed.asked() == limits, "and it is counted anew"
    epochs.write_text("0\n2\n0 0\n")
    for _ in range(MOST_UNREAD_CHECKS):
        assert await pressed.asked() == limits
    assert set(await pressed.asked()) == {OTHER, PARTITION.topic_id}
    filler.unlink()
    assert await pressed.asked() == {}

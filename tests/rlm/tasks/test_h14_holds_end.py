"""H14: what ends a hold, and what does not; a hold may be the only copy of its records."""

from pathlib import Path

import pytest

from kip405.contracts import IndexType
from kip405.errors import Corrupt
from kip405.indexes import AbortedTransaction, IndexesObject, encode_aborted
from rlm.log_dir.held_segments import HeldFiles
from rlm.plans.retention_contests import CONTEST_MS
from tests.builders.ledger import FINISHED, PARTITION
from tests.builders.rig import Rig
from tests.rlm.tasks.test_h14_segment_holds import (
    Watched,
    deleted,
    hold,
    links,
    open_files,
    starts,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="there is no /proc")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.remote_start(0)
    made.write_log(0, 100, 200, 300, end=350)
    return made


async def test_h14_what_lies_below_the_log_start_stays_held_although_its_file_is_there(
    rig: Rig,
) -> None:
    """A broker raises its log start before it renames the files: a snapshot in between."""
    watched = Watched(rig)
    await watched.bases("60000")
    rig.broker.log_start_offset = 200
    await watched.take(rig.led)
    assert await watched.bases() == {0, 100, 200}
    deleted(rig, 0, 100)
    await rig.copy.run(rig.led)
    assert starts(rig) == [0, 100, 200]


async def test_h15_what_lies_below_the_log_start_is_no_hole_while_its_file_is_there(
    rig: Rig,
) -> None:
    await hold(rig)
    rig.broker.log_start_offset = 200
    for _ in range(2):
        await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    assert rig.settings.view.holes(PARTITION.key) == ()


async def test_h14_an_old_snapshot_does_not_say_what_the_broker_still_has(rig: Rig) -> None:
    """Since it was taken the broker has deleted, and no other snapshot could be taken."""
    watched = Watched(rig)
    await watched.bases("60000")
    deleted(rig, 0, 100)
    await watched.bases("-1")
    rig.clock.advance(CONTEST_MS + 1)
    watched.reads = False
    assert await watched.bases() == {0, 100, 200}
    watched.reads = True
    assert await watched.bases() == {0, 100}


async def test_h09_a_later_segment_that_is_let_go_leaves_its_aborted_transactions(
    rig: Rig,
) -> None:
    """The transaction of the first segment was aborted in the second one, which the broker has."""
    aborted = AbortedTransaction(producer_id=7, first_offset=50, last_offset=120)
    rig.disk.segment(100, 200, aborted=[(aborted, 200)])
    await hold(rig)
    deleted(rig, 0)
    before = open_files()
    rig.holds.drop(PARTITION.key, {100, 200})
    await rig.holds.close_dropped()
    assert open_files() < before
    await rig.copy.run(rig.led)
    assert starts(rig) == [0, 100, 200]
    section = IndexesObject.parse(rig.store.objects[rig.names(".indexes")[0]]).section(
        IndexType.ABORTED_TRANSACTIONS
    )
    assert section is not None and bytes(section) == encode_aborted([aborted])
    rig.holds.drop(PARTITION.key, {0})
    await rig.holds.close_dropped()
    held = rig.log_dir.path.parent / "held"
    assert [path for path in held.rglob("*") if not path.is_dir()] == []


async def test_h09_the_files_of_older_segments_are_closed_first(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that began before all were let go reads the aborted transactions of later segments
    last, and looks then whether its own file is still there.
    """
    await hold(rig)
    closed: list[int] = []
    monkeypatch.setattr(HeldFiles, "close", lambda one: closed.append(one.segment.base_offset))
    rig.holds.forget(PARTITION.key)
    await rig.holds.close_dropped()
    assert closed == [0, 100, 200, 300]


@pytest.mark.parametrize("in_the_log", [False, True])
async def test_h14_a_store_that_finds_damage_does_not_end_a_hold(
    rig: Rig, in_the_log: bool
) -> None:
    """The bytes were damaged on the way, or the plugin is at fault."""
    await hold(rig)
    if not in_the_log:
        deleted(rig, 0, 100)
    fails = True

    def damage(operation: str) -> None:
        if fails and operation == "copy":
            raise Corrupt("the bytes that arrived do not have the CRC-32C of the header")

    rig.store.before = damage
    with pytest.raises(Corrupt):
        await rig.copy.run(rig.led)
    assert rig.holds.bases(PARTITION.key) == {0, 100, 200}
    fails = False
    await rig.copy.run(rig.led)
    assert starts(rig) == [0, 100, 200]


async def test_g09_a_damaged_segment_that_the_broker_has_is_not_opened_again_and_again(
    rig: Rig,
) -> None:
    with rig.disk.file(0, ".log").open("r+b") as file:
        file.seek(70)
        file.write(b"damage")
    watched = Watched(rig)
    await watched.bases("60000")
    with pytest.raises(Corrupt):
        await rig.copy.run(rig.led)
    assert await watched.bases() == {0, 100, 200}
    assert watched.requested == [rig.led], "once"


async def test_h04_a_task_of_an_earlier_leader_epoch_ends_no_later_hold(rig: Rig) -> None:
    earlier = await rig.snapshots.take(rig.led)
    rig.begin_epoch(1, 350)
    later = await rig.snapshots.take(rig.led)
    await hold(rig, later)
    deleted(rig, 0, 100)
    assert rig.holds.missing(earlier) == ()
    assert await hold(rig, earlier) == 0
    assert [one.base_offset for one in rig.holds.missing(await rig.snapshots.take(rig.led))] == [
        0,
        100,
    ]


async def test_h14_a_folder_that_cannot_be_made_holds_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", refuse)
    watched = Watched(rig)
    assert await watched.bases("60000") == set()


async def test_h11_what_was_not_found_in_its_store_is_held_and_copied_again(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    [first, *_] = (one.metadata.segment_id for one in rig.ledger.view.in_state(FINISHED))
    for name in [one for one in rig.store.objects if str(first.id) in one]:
        del rig.store.objects[name]
    rig.lost.suspect(PARTITION.key, [first.id])
    watched = Watched(rig)
    assert await watched.bases("60000") == {0}
    deleted(rig, 0, 100)
    await rig.copy.run(rig.led)
    assert starts(rig).count(0) == 2


async def test_h18_what_is_held_makes_room_on_a_disk_that_is_nearly_full(rig: Rig) -> None:
    watched = Watched(rig)
    await watched.bases("60000")
    deleted(rig, 0, 100)
    watched.gives_way = lambda snapshot: snapshot.key == PARTITION.key
    assert await watched.bases() == set()
    assert links(rig) == []

"""Finished segments whose objects are gone: copied again while the log has them (H11, H25)."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Corrupt, NotFound, Unavailable
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.problems import ProblemKind
from rlm.stores.stores import CopyTarget
from rlmm.settings_records import FreezeRecord
from rsm_plugins.layout.keys import ObjectKind, object_name, objects_of
from tests.builders.ledger import OTHER_WRITER, PARTITION, metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import PRESENCE_CHECK_MS, Rig
from tests.builders.store import MemoryStore

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
SECOND_STORE = Uuid(b"\x52" * 16)


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Segments [0, 100), [100, 200), [200, 300) are remote, and all of them local."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    return made


def finished(rig: Rig, start: int) -> list[RemoteLogSegmentMetadata]:
    """The finished segments that begin there, oldest record first."""
    found = [entry.metadata for entry in rig.ledger.view.in_state(FINISHED)]
    return [one for one in found if one.start_offset == start]


def lose(rig: Rig, segment: RemoteLogSegmentMetadata, *kinds: ObjectKind) -> dict[str, bytes]:
    """Take objects of these kinds (none = all) out of the store; what was taken, by name."""
    locator = segment.locator(CLUSTER_ID)
    names = [object_name(locator, kind) for kind in kinds or objects_of(locator)]
    return {name: rig.store.objects.pop(name) for name in names}


async def lost_and_suspected(rig: Rig, *kinds: ObjectKind) -> dict[str, bytes]:
    """The middle segment is gone, and a trim has found out."""
    (segment,) = finished(rig, 100)
    taken = lose(rig, segment, *kinds)
    with pytest.raises(NotFound):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    return taken


@pytest.mark.parametrize(
    "kinds", [(), (ObjectKind.LOG,), (ObjectKind.INDEXES,), (ObjectKind.MANIFEST,)]
)
async def test_h11_what_is_gone_from_the_store_is_copied_again_and_then_trimmed(
    rig: Rig, kinds: tuple[ObjectKind, ...]
) -> None:
    (before,) = finished(rig, 100)
    await lost_and_suspected(rig, *kinds)
    await rig.copy.run(rig.led)
    again = next(one for one in finished(rig, 100) if one != before)
    assert (again.start_offset, again.next_offset) == (100, 200)
    assert again.segment_id != before.segment_id
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    assert rig.trim.statuses[PARTITION.key].alarm is None


async def test_h25_the_lost_entry_leaves_the_ledger_in_the_order_of_every_deletion(
    rig: Rig,
) -> None:
    (before,) = finished(rig, 100)
    await lost_and_suspected(rig, ObjectKind.LOG)
    await rig.cleanup.run(rig.led)
    assert finished(rig, 100) == [before]  # nothing else has its records yet
    await rig.copy.run(rig.led)
    await rig.cleanup.run(rig.led)
    (again,) = finished(rig, 100)
    assert again.segment_id != before.segment_id
    assert rig.store.deleted == [before.locator(CLUSTER_ID)]
    assert len(rig.names(".log")) == len(rig.names(".indexes")) == 3
    assert not rig.lost.suspects(await rig.snapshots.take(rig.led))
    written = len(rig.ledger.log)
    await rig.copy.run(rig.led)
    await rig.cleanup.run(rig.led)
    assert len(rig.ledger.log) == written


async def test_h11_a_check_finds_what_nobody_has_asked_for(rig: Rig) -> None:
    """In mode copy nothing is trimmed: without it the broker's retention would come first."""
    rig.enable(mode="copy", trim=False)
    (before,) = finished(rig, 100)
    lose(rig, before)
    await rig.copy.run(rig.led)
    assert finished(rig, 100) == [before]
    rig.clock.advance(2 * PRESENCE_CHECK_MS)
    assert rig.copy.is_due(await rig.snapshots.take(rig.led))
    await rig.copy.run(rig.led)
    assert len(finished(rig, 100)) == 2


async def test_h25_what_readers_did_not_get_is_asked_for(rig: Rig) -> None:
    (before,) = finished(rig, 100)
    lose(rig, before)
    rig.losses.note(PARTITION.key, before.segment_id.id, NotFound("gone"), rig.ledger.view.entries)
    await rig.copy.run(rig.led)
    assert len(finished(rig, 100)) == 2


async def test_h25_what_readers_found_damaged_is_not_trimmed_on_and_copied_again(
    rig: Rig,
) -> None:
    """Its objects are there in their full size, so that no question about presence tells."""
    (before,) = finished(rig, 100)
    damaged = Corrupt("checksum of chunk 3")
    rig.losses.note(PARTITION.key, before.segment_id.id, damaged, rig.ledger.view.entries)
    with pytest.raises(NotFound, match="checksum of chunk 3"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    await rig.copy.run(rig.led)
    again = next(one for one in finished(rig, 100) if one != before)
    await rig.copy.run(rig.led)
    await rig.cleanup.run(rig.led)
    assert finished(rig, 100) == [before, again]  # one new copy; what is damaged is not deleted
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h25_what_was_damaged_and_is_read_again_is_trimmed_on(rig: Rig) -> None:
    (before,) = finished(rig, 100)
    damaged = Corrupt("checksum of chunk 3")
    rig.losses.note(PARTITION.key, before.segment_id.id, damaged, rig.ledger.view.entries)
    rig.losses.forget(PARTITION.key, before.segment_id.id)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h11_a_store_that_is_away_or_another_one_proves_nothing(rig: Rig) -> None:
    taken = await lost_and_suspected(rig)
    identity = rig.store.identity
    assert identity is not None
    for other in (None, replace(identity, store_id=Uuid(b"\x52" * 16))):
        rig.store.identity = other
        rig.disk.segment(350, 400)
        await rig.copy.run(rig.led)
        assert len(finished(rig, 100)) == 1
    rig.store.identity = identity
    rig.store.objects |= taken
    await rig.copy.run(rig.led)
    assert len(finished(rig, 100)) == 1
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h11_a_single_no_proves_nothing(rig: Rig) -> None:
    (segment,) = finished(rig, 100)
    taken = lose(rig, segment)
    rig.lost.suspect(PARTITION.key, [segment.segment_id.id])
    asked = 0
    stat = rig.store.stat

    async def comes_back(*args: object) -> object:
        nonlocal asked
        asked += 1
        found = await stat(*args)  # type: ignore[arg-type]
        rig.store.objects |= taken
        return found

    rig.store.stat = comes_back  # type: ignore[method-assign,assignment]
    await rig.copy.run(rig.led)
    assert asked == 2
    assert finished(rig, 100) == [segment]


async def test_h11_a_store_that_becomes_another_one_while_it_is_asked_proves_nothing(
    rig: Rig,
) -> None:
    (segment,) = finished(rig, 100)
    lose(rig, segment)
    rig.lost.suspect(PARTITION.key, [segment.segment_id.id])
    stat = rig.store.stat

    async def unmounted(*args: object) -> object:
        rig.store.identity = None
        return await stat(*args)  # type: ignore[arg-type]

    rig.store.stat = unmounted  # type: ignore[method-assign,assignment]
    snapshot = await rig.snapshots.take(rig.led)
    assert await rig.lost.gone(snapshot) == frozenset()


async def test_h06_lost_objects_that_come_back_are_kept(rig: Rig) -> None:
    taken = await lost_and_suspected(rig)
    await rig.copy.run(rig.led)
    rig.store.objects |= taken
    await rig.cleanup.run(rig.led)
    assert len(finished(rig, 100)) == 2
    assert rig.store.deleted == []


async def test_h06_objects_that_come_back_in_the_midst_of_the_deletion_are_adopted(
    rig: Rig,
) -> None:
    taken = await lost_and_suspected(rig)
    await rig.copy.run(rig.led)

    def restore(published: RemoteLogSegmentMetadata) -> None:
        if published.state is DELETING:
            rig.store.objects |= taken

    rig.ledger.after_publish = restore
    with pytest.raises(Exception, match="not superseded any more"):
        await rig.cleanup.run(rig.led)
    rig.ledger.after_publish = lambda _: None
    assert rig.store.deleted == []
    await rig.cleanup.run(rig.led)
    assert len(finished(rig, 100)) == 2
    assert taken.keys() <= rig.store.objects.keys()


@pytest.mark.parametrize("identity", ["away", "none", "another"])
async def test_h11_a_copy_in_a_store_that_cannot_be_asked_replaces_nothing(
    rig: Rig, identity: str
) -> None:
    """The copy was made to a second store, which is away now, or is not the one that was meant:
    the lost objects may come back from a backup, and only their entry says what they were.
    """
    (before,) = finished(rig, 100)
    taken = await lost_and_suspected(rig)
    second = MemoryStore(CLUSTER_ID, SECOND_STORE)
    rig.shelf.stores[SECOND_STORE] = second
    rig.shelf.to = CopyTarget(store_id=SECOND_STORE)
    await rig.copy.run(rig.led)
    assert len(finished(rig, 100)) == 2
    meant = second.identity
    assert meant is not None
    if identity == "away":
        del rig.shelf.stores[SECOND_STORE]
    else:
        other = replace(meant, store_id=Uuid(b"\x53" * 16))
        second.identity = None if identity == "none" else other
    await rig.cleanup.run(rig.led)
    assert before in finished(rig, 100)
    rig.store.objects |= taken
    second.identity = meant
    rig.shelf.stores[SECOND_STORE] = second
    await rig.cleanup.run(rig.led)
    assert len(finished(rig, 100)) == 2


async def test_h11_a_copy_that_readers_found_damaged_replaces_nothing(rig: Rig) -> None:
    (before,) = finished(rig, 100)
    await lost_and_suspected(rig)
    await rig.copy.run(rig.led)
    again = next(one for one in finished(rig, 100) if one != before)
    segments = rig.ledger.view.entries
    rig.losses.note(
        PARTITION.key, again.segment_id.id, Corrupt("a checksum does not fit"), segments
    )
    await rig.cleanup.run(rig.led)
    assert before in finished(rig, 100)


async def test_h03_a_restart_after_the_new_copy_goes_on_from_there(
    rig: Rig, tmp_path: Path
) -> None:
    """The next process knows of no suspicion: its trim stands on the new copy, and finds out."""
    await lost_and_suspected(rig, ObjectKind.LOG)
    await rig.copy.run(rig.led)
    rig.lost.forget(PARTITION.key)
    assert not rig.lost.suspects(await rig.snapshots.take(rig.led))
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    await rig.cleanup.run(rig.led)
    assert len(finished(rig, 100)) == 1


async def test_h03_a_deletion_cut_short_is_finished_by_the_next_leader(rig: Rig) -> None:
    """DELETE_SEGMENT_STARTED stands, manifest and one object are there: no alarm for ever."""
    (before,) = finished(rig, 100)
    await lost_and_suspected(rig, ObjectKind.LOG)
    await rig.copy.run(rig.led)
    deleting = before.in_state(DELETING, event_timestamp_ms=0, broker_id=2)
    rig.ledger.write(deleting, previous=1, writer=OTHER_WRITER)
    rig.lost.forget(PARTITION.key)
    rig.clock.advance(3_600_000)
    await rig.cleanup.run(rig.led)
    assert rig.cleanup.statuses[PARTITION.key].alarms == ()
    assert before.segment_id.id not in rig.ledger.view.entries
    assert len(finished(rig, 100)) == 1


async def test_h06_without_another_copy_a_deletion_that_somebody_began_is_an_alarm(
    rig: Rig,
) -> None:
    (before,) = finished(rig, 100)
    lose(rig, before, ObjectKind.LOG)
    deleting = before.in_state(DELETING, event_timestamp_ms=0, broker_id=1)
    rig.ledger.write(deleting, previous=1, writer=OTHER_WRITER)
    await rig.cleanup.run(rig.led)
    assert len(rig.cleanup.statuses[PARTITION.key].alarms) == 1
    assert rig.store.deleted == []


async def test_h06_an_entry_that_is_not_wholly_copied_again_stays(rig: Rig) -> None:
    """Another leader cut wider: [50, 200) is lost, only what is above the log start is here."""
    rig.ledger.log.clear()
    rig.ledger.state = type(rig.ledger.state)()
    wide = metadata(900, 50, 200, {0: 0})
    rig.ledger.copied(wide, writer=OTHER_WRITER)
    rig.broker.log_start_offset = 100
    rig.disk.file(0, ".log").unlink()
    rig.lost.suspect(PARTITION.key, [wide.segment_id.id])
    await rig.copy.run(rig.led)
    assert len(finished(rig, 100)) == 1
    await rig.cleanup.run(rig.led)
    assert finished(rig, 50) == [wide]


async def test_h25_what_is_not_in_the_log_any_more_is_not_copied_and_keeps_its_entry(
    rig: Rig,
) -> None:
    await rig.trim.run(rig.led)
    for base in (0, 100, 200):
        rig.disk.file(base, ".log").unlink()
    (before,) = finished(rig, 100)
    lose(rig, before)
    rig.lost.suspect(PARTITION.key, [before.segment_id.id])
    await rig.copy.run(rig.led)
    await rig.cleanup.run(rig.led)
    assert finished(rig, 100) == [before]
    (finding,) = rig.copy.statuses[PARTITION.key].findings()
    assert finding.kind is ProblemKind.SEGMENT_LOST
    assert "remote segments at 100 were not found" in finding.text


async def test_h04_a_copy_of_a_dead_history_does_not_replace_a_lost_one(rig: Rig) -> None:
    (before,) = finished(rig, 100)
    lose(rig, before)
    rig.lost.suspect(PARTITION.key, [before.segment_id.id])
    rig.ledger.copied(metadata(901, 100, 200, {3: 100}), writer=OTHER_WRITER)
    rig.broker.elect(1, 4)
    rig.disk.epochs({0: 0, 4: 350})
    await rig.cleanup.run(rig.led)
    assert before in finished(rig, 100)


async def test_g1_a_freeze_keeps_the_lost_entry_while_the_copy_is_made(rig: Rig) -> None:
    await lost_and_suspected(rig)
    rig.settings.write(FreezeRecord(topic_id=None, stopped=("trim", "sweep"), by="op", why="look"))
    await rig.copy.run(rig.led)
    await rig.cleanup.run(rig.led)
    assert len(finished(rig, 100)) == 2


async def test_g6_a_store_that_does_not_answer_does_not_keep_new_segments_from_being_copied(
    rig: Rig,
) -> None:
    await lost_and_suspected(rig)

    async def away(*_: object) -> object:
        raise Unavailable("the store is away")

    rig.store.stat = away  # type: ignore[method-assign,assignment]
    rig.disk.segment(300, 350)
    rig.broker.log += rig.disk.active(350, 400)
    rig.broker.ends_at(400)
    rig.log_dir.recovery_point(PARTITION.topic, PARTITION.partition, 400)
    await rig.copy.run(rig.led)
    assert len(finished(rig, 300)) == 1
    assert len(finished(rig, 100)) == 1

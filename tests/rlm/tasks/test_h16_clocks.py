"""H16: the grace of leftovers does not go by our clock alone, and nothing is swept or discarded
while clocks disagree. With the clocks right again, all goes on.
"""

from pathlib import Path

import pytest

from kip405.errors import Fenced
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.discards import DELAY_MS, discard_task, discards
from tests.builders.ledger import OTHER_WRITER, PARTITION, metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import DEAD_AFTER_MS, GRACE_MS, Rig

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
HOUR_MS = 3_600_000


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A service that has heard all others."""
    made = Rig(tmp_path)
    made.write_log(0, 100, end=150)
    pass_time(made, DEAD_AFTER_MS)
    return made


def pass_time(rig: Rig, ms: int) -> None:
    rig.clock.advance(ms)
    rig.ledger.now_ms = rig.clock.now
    rig.heartbeat()


def attempt_of(rig: Rig, broker_id: int) -> RemoteLogSegmentMetadata:
    """An attempt of that node's service, with its log object: it copies right now, or has died."""
    found = metadata(500, 0, 100, {0: 0}, STARTED, broker_id=broker_id)
    rig.ledger.write(found, writer=OTHER_WRITER)
    rig.store.objects[object_name(found.locator(CLUSTER_ID), ObjectKind.LOG)] = b"x"
    return found


def is_swept(rig: Rig) -> bool:
    assert bool(rig.store.objects) == bool(rig.ledger.view.entries)
    return not rig.store.objects


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
async def test_h16_a_wrong_clock_takes_no_live_copy_for_abandoned(rig: Rig, ahead_ms: int) -> None:
    attempt_of(rig, 2)
    rig.clock.wall_ahead_ms = ahead_ms
    await rig.cleanup.run(rig.led)
    assert not is_swept(rig)
    assert rig.ledger.states() == [STARTED]
    rig.clock.wall_ahead_ms = 0
    pass_time(rig, GRACE_MS - 1)
    await rig.cleanup.run(rig.led)
    assert not is_swept(rig)
    pass_time(rig, 1)
    await rig.cleanup.run(rig.led)
    assert is_swept(rig)


async def test_h16_a_clock_within_the_limit_that_is_ahead_does_not_end_the_grace(rig: Rig) -> None:
    attempt_of(rig, 2)
    rig.clock.wall_ahead_ms = GRACE_MS
    await rig.cleanup.run(rig.led)
    assert not is_swept(rig)


async def test_h16_a_service_that_has_just_started_does_not_know_what_others_abandoned(
    rig: Rig,
) -> None:
    attempt_of(rig, 2)
    rig.settings.restart()
    rig.clock.wall_ahead_ms = rig.settings.broker_ahead_ms = HOUR_MS
    rig.heartbeat()
    await rig.cleanup.run(rig.led)
    assert not is_swept(rig)


async def test_h16_clocks_that_disagree_delete_no_leftovers_of_ours(rig: Rig) -> None:
    attempt_of(rig, 1)
    rig.clock.wall_ahead_ms = HOUR_MS
    await rig.cleanup.run(rig.led)
    assert not is_swept(rig)
    assert "differ by 3600 s" in (rig.cleanup.statuses[PARTITION.key].refused or "")
    rig.clock.wall_ahead_ms = 0
    await rig.cleanup.run(rig.led)
    assert is_swept(rig)


async def test_h16_a_clock_that_jumps_within_a_sweep_stops_it(rig: Rig) -> None:
    attempt_of(rig, 1)

    def jump(published: RemoteLogSegmentMetadata) -> None:
        if published.state is DELETING:
            rig.clock.wall_ahead_ms = HOUR_MS

    rig.ledger.after_publish = jump
    with pytest.raises(Fenced, match="not certain"):
        await rig.cleanup.run(rig.led)
    assert not is_swept(rig)
    rig.ledger.after_publish = lambda _: None
    rig.clock.wall_ahead_ms = 0
    await rig.cleanup.run(rig.led)
    assert is_swept(rig)


async def test_h10_a_copy_of_ours_is_adopted_while_clocks_disagree(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    (copied,) = (one.metadata for one in rig.ledger.view.entries.values())
    rig.ledger.write(
        copied.in_state(DELETING, event_timestamp_ms=0, broker_id=1), previous=int(FINISHED)
    )
    rig.clock.wall_ahead_ms = HOUR_MS
    await rig.cleanup.run(rig.led)
    assert [one.state for one in rig.ledger.view.entries.values()] == [FINISHED]


async def test_h16_clocks_that_disagree_retire_no_lost_segment(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    await rig.copied_by_another(0, 100)
    lost = next(one.metadata for one in rig.ledger.view.entries.values())
    for kind in (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST):
        del rig.store.objects[object_name(lost.locator(CLUSTER_ID), kind)]
    rig.lost.suspect(PARTITION.key, [lost.segment_id.id])
    rig.clock.wall_ahead_ms = HOUR_MS
    await rig.cleanup.run(rig.led)
    assert len(rig.ledger.view.entries) == 2
    rig.clock.wall_ahead_ms = 0
    await rig.cleanup.run(rig.led)
    assert len(rig.ledger.view.entries) == 1


async def test_h16_clocks_that_disagree_discard_nothing(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    for file in rig.disk.path.glob("0*"):
        file.unlink()
    rig.broker.elect(1, 2)  # its log begins at 0 again
    rig.broker.log = rig.disk.active(0, 50, epoch=2)
    rig.disk.epochs({2: 0})
    rig.broker.ends_at(50)
    snapshots = rig.cached_snapshots()
    task = discard_task(rig, snapshots)
    await snapshots.take(rig.led)
    await discards(rig, task).decide(PARTITION.key, by="ada")
    pass_time(rig, DELAY_MS)
    rig.clock.wall_ahead_ms = HOUR_MS
    assert not await task.run_on(await snapshots.take(rig.led))
    assert len(rig.store.objects) == 3
    rig.clock.wall_ahead_ms = 0
    assert await task.run_on(await snapshots.take(rig.led))
    assert not rig.store.objects

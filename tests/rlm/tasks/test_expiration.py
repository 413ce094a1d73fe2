"""A run of trim and cleanup: one snapshot for both, where that is as good as one for each."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kip405.contracts import ExpectedSegment, SegmentPresence
from kip405.errors import Fenced, RemoteStorageError, Unavailable
from kip405.segments import RemoteLogSegmentState
from rlm.broker.leadership import LedPartition
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.tasks.expiration import GIVEN_ON_FOR_MS, ExpirationTask
from rlmm.publisher import OutcomeUnknown
from rlmm.settings_records import FreezeRecord
from tests.builders.discards import discard_task
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class CountedSnapshots:
    """Snapshots of the rig, kept in their order."""

    def __init__(self, rig: Rig) -> None:
        self._take = rig.snapshots.take
        self.taken: list[PartitionSnapshot] = []

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        self.taken.append(await self._take(led))
        return self.taken[-1]


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Two segments of 100 copied, the active one from 200 to 250."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, end=250)
    await made.copy.run(made.led)
    return made


@pytest.fixture
def snapshots(rig: Rig) -> CountedSnapshots:
    made = CountedSnapshots(rig)
    rig.snapshots.take = made.take  # type: ignore[method-assign]
    return made


def expiration_of(rig: Rig) -> ExpirationTask:
    return ExpirationTask(
        snapshots=rig.snapshots,
        holes=rig.hole_watch,
        trim=rig.trim,
        expiry=rig.expiry,
        unreferenced=rig.unreferenced,
        discard=discard_task(rig),
        cleanup=rig.cleanup,
        clock=rig.clock,
        good_runs=rig.good_runs,
        saw=lambda _take, _began_at_ms: None,
    )


async def test_an_idle_task_takes_one_snapshot(rig: Rig, snapshots: CountedSnapshots) -> None:
    rig.enable(trim=False)
    await expiration_of(rig).run(rig.led)
    assert len(snapshots.taken) == 1
    assert rig.trim.statuses[PARTITION.key].reason == "trim is off"
    assert rig.cleanup.statuses[PARTITION.key].leftovers == 0


async def test_a_snapshot_that_was_taken_before_is_used(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    rig.enable(trim=False)
    task = expiration_of(rig)
    seen = await task.see(rig.led)
    rig.clock.advance(GIVEN_ON_FOR_MS)
    await task.run(rig.led, seen)
    assert len(snapshots.taken) == 1
    assert rig.cleanup.statuses[PARTITION.key].leftovers == 0


async def test_one_that_is_old_is_not_used(rig: Rig, snapshots: CountedSnapshots) -> None:
    rig.enable(trim=False)
    task = expiration_of(rig)
    seen = await task.see(rig.led)
    rig.clock.advance(GIVEN_ON_FOR_MS + 1)
    await task.run(rig.led, seen)
    assert len(snapshots.taken) == 2


async def test_h05_a_trim_that_is_planned_on_it_is_checked_by_another_one(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    task = expiration_of(rig)
    seen = await task.see(rig.led)
    rig.broker.elect(2, 1)
    with pytest.raises(Fenced):
        await task.run(rig.led, seen)
    assert rig.broker.deleted == []


async def test_h05_a_trim_has_its_whole_time_where_the_task_began_late(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = expiration_of(rig)
    seen = await task.see(rig.led)
    rig.clock.advance(GIVEN_ON_FOR_MS)
    plain = rig.store.stat

    async def slow(segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        rig.clock.advance(5_000)
        return await plain(segments)

    monkeypatch.setattr(rig.store, "stat", slow)
    await task.run(rig.led, seen)
    assert rig.broker.deleted != []


async def test_h41_none_is_taken_before_while_a_trim_may_be_executed_yet(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    task = expiration_of(rig)
    rig.broker.gives_up_deletes = True
    with pytest.raises(OutcomeUnknown):
        await task.run(rig.led)
    taken = len(snapshots.taken)
    with pytest.raises(Unavailable, match="DeleteRecords below 200"):
        await task.see(rig.led)
    assert len(snapshots.taken) == taken


async def test_the_snapshot_is_reported_with_the_time_it_began(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    seen: list[tuple[PartitionSnapshot, int]] = []
    clock = rig.clock
    began_at_ms = clock.monotonic_ms()
    one = ExpirationTask(
        snapshots=rig.snapshots,
        holes=rig.hole_watch,
        trim=rig.trim,
        expiry=rig.expiry,
        unreferenced=rig.unreferenced,
        discard=discard_task(rig),
        cleanup=rig.cleanup,
        clock=clock,
        good_runs=rig.good_runs,
        saw=lambda snapshot, began: seen.append((snapshot, began)),
    )
    await one.run(rig.led)
    assert seen == [(snapshots.taken[0], began_at_ms)]


async def test_after_a_trim_the_cleanup_takes_a_snapshot_of_its_own(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    await expiration_of(rig).run(rig.led)
    assert rig.broker.deleted == [200]
    starts = [one.watermarks.log_start_offset for one in snapshots.taken]
    assert starts == [0, 0, 200], "the plan's, the last check's, and the cleanup's own"


async def test_after_a_trim_that_failed_too_and_its_error_is_reported(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    rig.settings.after_publish = lambda: rig.broker.elect(2, 1)
    with pytest.raises(Fenced, match="led by 2 under epoch 1"):
        await expiration_of(rig).run(rig.led)
    assert rig.broker.deleted == []
    assert len(snapshots.taken) == 1, "the cleanup asked again, and does not lead either"


async def test_h41_nothing_is_planned_while_a_trim_may_be_executed_yet(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    rig.broker.gives_up_deletes = True
    with pytest.raises(OutcomeUnknown):
        await expiration_of(rig).run(rig.led)
    assert len(snapshots.taken) == 2, "the plan's and the last check's; the cleanup has not looked"
    with pytest.raises(Unavailable, match="DeleteRecords below 200"):
        await expiration_of(rig).run(rig.led)
    assert len(snapshots.taken) == 2, "neither trim nor cleanup looked"


async def test_the_cleanup_has_its_turn_when_the_trim_fails(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    rig.store.objects.pop(rig.names(".log")[0])
    with pytest.raises(RemoteStorageError):
        await expiration_of(rig).run(rig.led)
    assert rig.broker.deleted == []
    assert len(snapshots.taken) == 2
    assert rig.cleanup.statuses[PARTITION.key].leftovers == 0


async def test_a_snapshot_that_grew_old_is_not_given_on(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    """The share groups took their time; what the cleanup stands on was seen after that."""
    rig.enable(trim=False)
    plain = rig.share_groups.start_offset

    async def slow(topic: str, partition: int) -> int | None:
        rig.clock.advance(GIVEN_ON_FOR_MS + 1)
        return await plain(topic, partition)

    rig.share_groups.start_offset = slow  # type: ignore[method-assign]
    await expiration_of(rig).run(rig.led)
    assert len(snapshots.taken) == 2


async def test_a_snapshot_that_fails_ends_the_task(rig: Rig) -> None:
    rig.broker.elect(2, 1)
    led = LedPartition(
        topic_id_partition=PARTITION, leader=1, leader_epoch=0, replicas=(1,), isr=(1,)
    )
    with pytest.raises(Fenced, match="led by 2"):
        await expiration_of(rig).run(led)
    assert PARTITION.key not in rig.cleanup.statuses


async def broken_copy(rig: Rig) -> None:
    """A third segment is closed; its attempt dies before the manifest."""

    def die(at: str) -> None:
        if at == "manifest":
            raise Unavailable("the store died")

    rig.broker.log = b""
    rig.write_log(0, 100, 200, 300, end=350)
    rig.store.before = die
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    rig.store.before = lambda _: None


async def test_what_a_broken_attempt_left_goes_with_the_trims_snapshot(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    rig.enable(trim=False)
    await broken_copy(rig)
    before = len(snapshots.taken)
    await expiration_of(rig).run(rig.led)
    assert len(snapshots.taken) == before + 1
    assert rig.cleanup.statuses[PARTITION.key].deleted == 1
    assert [one.state for one in rig.ledger.view.entries.values()] == [FINISHED, FINISHED]


async def test_h05_a_leader_that_changed_since_the_shared_snapshot_deletes_nothing(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    rig.enable(trim=False)
    await broken_copy(rig)
    objects = dict(rig.store.objects)
    led = rig.led

    async def deposed(topic: str, partition: int) -> int | None:
        rig.broker.elect(2, 1)
        return None

    rig.share_groups.start_offset = deposed  # type: ignore[method-assign]
    with pytest.raises(Fenced, match="led by 2"):
        await expiration_of(rig).run(led)
    assert rig.store.objects == objects


async def test_g1_a_freeze_since_the_shared_snapshot_stops_the_sweep(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    rig.enable(trim=False)
    await broken_copy(rig)
    objects = dict(rig.store.objects)

    async def frozen(topic: str, partition: int) -> int | None:
        stopped = ("trim", "delete", "sweep")
        rig.settings.write(FreezeRecord(topic_id=None, stopped=stopped, by="ops", why="looking"))
        return None

    rig.share_groups.start_offset = frozen  # type: ignore[method-assign]
    await expiration_of(rig).run(rig.led)
    assert rig.store.objects == objects
    assert rig.cleanup.statuses[PARTITION.key].refused


async def test_h06_an_attempt_that_lives_since_before_the_shared_snapshot_is_left_alone(
    rig: Rig, snapshots: CountedSnapshots
) -> None:
    """The task runs in the midst of a copy, which ends while the trim plans."""
    rig.enable(trim=False)
    swept: list[int] = []
    plain = rig.store.write_manifest

    async def write_manifest(locator, manifest):  # type: ignore[no-untyped-def]
        await expiration_of(rig).run(rig.led)
        swept.append(rig.cleanup.statuses[PARTITION.key].leftovers)
        await plain(locator, manifest)

    rig.store.write_manifest = write_manifest  # type: ignore[method-assign]
    rig.broker.log = b""
    rig.write_log(0, 100, 200, 300, end=350)
    await rig.copy.run(rig.led)
    assert swept == [0]
    assert [one.state for one in rig.ledger.view.entries.values()] == [FINISHED] * 3


async def test_h15_what_was_copied_after_the_snapshot_is_no_hole(tmp_path: Path) -> None:
    """The broker's own retention has deleted a segment that is held open. The snapshot was taken
    before it was copied and let go; the task begins afterwards.
    """
    rig = Rig(tmp_path)
    rig.enable(mode="copy", trim=False)
    rig.broker.config["retention.ms"] = "5000"
    rig.write_log(0, 100, end=150)
    rig.remote_start(0)
    task = expiration_of(rig)
    await task.run(rig.led)
    assert await rig.holds.hold(await rig.snapshots.take(rig.led), {0}) == 1
    rig.broker.log_start_offset = 100
    for path in rig.disk.path.glob(f"{0:020d}.*"):
        path.unlink()
    seen = await task.see(rig.led)
    await rig.copy.run(rig.led)
    rig.holds.drop(PARTITION.key, {0})
    (copied,) = rig.ledger.view.in_state(FINISHED)
    assert (copied.metadata.start_offset, copied.metadata.next_offset) == (0, 100)
    await task.run(rig.led, seen)
    assert rig.settings.view.holes(PARTITION.key) == ()

"""Several copies of a partition at a time: what waits for what, and what a failure stops (G3)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kip405.errors import Corrupt, Fenced, Unavailable
from kip405.segments import (
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SegmentLocator,
)
from rlm.plans.copy import WhyNot
from rlm.tasks.copy_order import Step, Turn, run_in_order
from rlm.tasks.copy_slots import CopyLimit
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID, MemoryStore
from tests.waiting import until

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
WHOLE_2, WHOLE_3 = (CopyLimit(slots=slots, whole_slot_bytes=0) for slots in (2, 3))
BASES = (0, 100, 200, 300, 400, 500)


class SlowStore(MemoryStore):
    """An upload of [start, ...) ends once its gate is open; `uploading` are those that wait."""

    def __init__(self) -> None:
        super().__init__(CLUSTER_ID)
        self.gates = {start: asyncio.Event() for start in BASES}
        self.uploading: list[int] = []
        self.fails: dict[int, Exception] = {}
        self.manifests: list[int] = []
        self.before_manifest: Callable[[int], None] = lambda _: None
        self._starts: dict[object, int] = {}

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        start = int(Path(data.log.path).stem)
        self._starts[locator.segment_id] = start
        self.uploading.append(start)
        await self.gates[start].wait()
        if start in self.fails:
            raise self.fails[start]
        return await super().copy_log_segment_data(locator, data)

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        self.before_manifest(self._starts[locator.segment_id])
        await super().write_manifest(locator, manifest)
        self.manifests.append(self._starts[locator.segment_id])

    def open(self, *starts: int) -> None:
        for start in starts:
            self.gates[start].set()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.shelf.stores[STORE_ID] = SlowStore()
    made.write_log(*BASES, 600, end=650)
    return made


def slow(rig: Rig) -> SlowStore:
    store = rig.shelf.stores[STORE_ID]
    assert isinstance(store, SlowStore)
    return store


def starts_in(rig: Rig, *states: RemoteLogSegmentState) -> list[int]:
    return [one.metadata.start_offset for one in rig.ledger.view.in_state(*states)]


def finished_in_order(rig: Rig) -> list[int]:
    """Start offsets of the FINISHED records, as they were written."""
    metadata = (one.metadata for one in rig.ledger.log)
    return [one.start_offset for one in metadata if one is not None and one.state is FINISHED]


async def test_g03_copies_are_finished_in_order_whatever_is_uploaded_first(rig: Rig) -> None:
    store = slow(rig)
    run = asyncio.ensure_future(rig.copy.run(rig.led))
    await until(lambda: len(store.uploading) == 4)
    assert sorted(store.uploading) == [0, 100, 200, 300]
    store.open(100, 200, 300)
    await until(lambda: len(store.objects) == 6)
    await asyncio.sleep(0.01)
    assert store.manifests == []
    assert len(store.uploading) == 4
    store.open(*BASES)
    await run
    assert store.manifests == finished_in_order(rig) == list(BASES)
    status = rig.copy.statuses[PARTITION.key]
    assert (status.copied_next_offset, status.lag_segments) == (600, 0)
    assert status.reason == WhyNot.CAUGHT_UP.value


async def test_g03_an_upload_that_fails_leaves_no_later_manifest(rig: Rig) -> None:
    store = slow(rig)
    store.fails[100] = Unavailable("the store is full")
    store.open(*BASES)
    with pytest.raises(Unavailable, match="the store is full"):
        await rig.copy.run(rig.led)
    assert store.manifests == finished_in_order(rig) == [0]
    assert len(rig.live) == 0
    store.fails.clear()
    await rig.cleanup.run(rig.led)
    assert starts_in(rig, STARTED) == []
    await rig.copy.run(rig.led)
    assert finished_in_order(rig) == list(BASES)
    assert starts_in(rig, FINISHED) == list(BASES)


async def test_what_comes_before_a_failed_copy_is_finished_in_the_same_run(rig: Rig) -> None:
    """A copy that can never succeed keeps none before it from being made."""
    store = slow(rig)
    store.fails[200] = Unavailable("refused")
    run = asyncio.ensure_future(rig.copy.run(rig.led))
    await until(lambda: len(store.uploading) == 4)
    store.open(200)
    await until(lambda: not store.gates[300].is_set() and 200 in store.uploading)
    store.open(0, 100, 300)
    with pytest.raises(Unavailable, match="refused"):
        await run
    assert finished_in_order(rig) == [0, 100]
    assert set(store.uploading) == {0, 100, 200, 300}


async def test_nothing_is_uploaded_after_a_segment_that_cannot_be_read(rig: Rig) -> None:
    store = slow(rig)
    store.open(*BASES)
    path = rig.disk.file(100, ".log")
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(Corrupt, match=r"100\.log"):
        await rig.copy.run(rig.led)
    assert store.uploading == [0]
    assert starts_in(rig, STARTED, FINISHED) == [0]


async def test_h15_a_manifest_that_fails_stops_the_later_ones(rig: Rig) -> None:
    store = slow(rig)
    store.open(*BASES)

    def refuse(start: int) -> None:
        if start == 100:
            raise Unavailable("no manifest")

    store.before_manifest = refuse
    with pytest.raises(Unavailable, match="no manifest"):
        await rig.copy.run(rig.led)
    assert store.manifests == finished_in_order(rig) == [0]


async def test_h13_checks_that_became_old_are_made_again(rig: Rig) -> None:
    """The manifest before took its time, and the leader changed meanwhile."""
    store, led = slow(rig), rig.led
    store.open(*BASES)

    def take_long(start: int) -> None:
        if start == 0:
            rig.clock.advance(2_001)
            rig.broker.elect(2, 1)

    store.before_manifest = take_long
    with pytest.raises(Fenced, match="led by 2 under epoch 1"):
        await rig.copy.run(led)
    assert store.manifests == [0]


async def test_g10_the_attempts_of_all_partitions_are_bounded(tmp_path: Path) -> None:
    rig = Rig(tmp_path, attempts_at_once=2)
    store = rig.shelf.stores[STORE_ID] = SlowStore()
    rig.write_log(*BASES, 600, end=650)
    run = asyncio.ensure_future(rig.copy.run(rig.led))
    await until(lambda: len(store.uploading) == 2)
    await asyncio.sleep(0.01)
    assert (store.uploading, len(rig.live)) == ([0, 100], 2)
    store.open(*BASES)
    await run
    assert finished_in_order(rig) == list(BASES)


async def test_g10_a_later_copy_does_not_take_the_last_slot_from_the_one_it_waits_for(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, attempts_at_once=1)
    rig.write_log(0, 100, 200, end=250)
    snapshot = await rig.snapshots.take(rig.led)
    first, second, _ = snapshot.log.segments
    turn = Turn()
    later = asyncio.ensure_future(rig.copier.copy(snapshot, second, Turn(turn)))
    await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        await rig.copier.copy(snapshot, first, turn)
        turn.end(failed=False)
        await later
    assert finished_in_order(rig) == [0, 100]


async def test_at_most_so_many_run_at_a_time_and_all_of_them_in_the_end() -> None:
    running, most, done = 0, 0, []

    async def run(item: int, turn: Turn) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        done.append(item)

    await run_in_order(range(7), WHOLE_3, run, lambda _: 1)
    assert (most, sorted(done)) == (3, list(range(7)))


@pytest.mark.parametrize("step", list(Step))
async def test_a_step_is_taken_after_the_one_before_has_taken_it(step: Step) -> None:
    first = Turn()
    second = Turn(first)
    waiting = asyncio.ensure_future(second.take(step))
    await asyncio.sleep(0)
    others = [one for one in Step if one is not step]
    for other in others:
        first.taken(other)
    await asyncio.sleep(0)
    assert not waiting.done()
    first.taken(step)
    await waiting
    third = Turn(second)
    await third.take(step)


async def test_the_error_is_that_of_the_first_item_not_of_the_first_in_time() -> None:
    second_failed = asyncio.Event()

    async def run(item: int, turn: Turn) -> None:
        if item == 0:
            await second_failed.wait()
            raise Fenced("first")
        second_failed.set()
        raise Corrupt("second")

    with pytest.raises(Fenced, match="first"):
        await run_in_order(range(9), WHOLE_2, run, lambda _: 1)


async def test_nothing_begins_after_a_failure() -> None:
    begun = []

    async def run(item: int, turn: Turn) -> None:
        begun.append(item)
        if item == 1:
            raise Unavailable("away")

    with pytest.raises(Unavailable, match="away"):
        await run_in_order(range(9), WHOLE_2, run, lambda _: 1)
    assert begun[:2] == [0, 1]
    assert len(begun) <= 3


async def test_a_run_that_is_cancelled_cancels_every_copy(rig: Rig) -> None:
    store = slow(rig)
    run = asyncio.ensure_future(rig.copy.run(rig.led))
    await until(lambda: len(store.uploading) == 4)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert len(rig.live) == 0
    store.open(*BASES)
    await rig.cleanup.run(rig.led)
    await rig.copy.run(rig.led)
    assert starts_in(rig, FINISHED) == list(BASES)


async def test_g03_a_copy_that_is_cancelled_alone_stops_those_after_it(rig: Rig) -> None:
    """As by a pool of threads or a connection that is closed: nobody cancelled the run."""
    store = slow(rig)
    store.open(*BASES)

    def cancel(start: int) -> None:
        if start == 100:
            raise asyncio.CancelledError

    store.before_manifest = cancel
    with pytest.raises(Unavailable, match="the copy was cancelled"):
        await rig.copy.run(rig.led)
    assert store.manifests == finished_in_order(rig) == [0]


async def test_a_backlog_gives_way_to_others_after_its_turn(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(*range(0, 300, 10), end=295)
    waiting = True

    def pass_time(published: RemoteLogSegmentMetadata) -> None:
        rig.clock.advance(1_000)

    rig.ledger.after_publish = pass_time
    await rig.copy.run(rig.led, others_wait=lambda: waiting)
    done = finished_in_order(rig)
    assert done == list(range(0, 10 * len(done), 10)), "in order, and no gap"
    assert 4 < len(done) < 13
    assert rig.copy.has_backlog(PARTITION.key)
    waiting = False
    await rig.copy.run(rig.led, others_wait=lambda: waiting)
    assert len(finished_in_order(rig)) == 29
    assert not rig.copy.has_backlog(PARTITION.key)


async def test_nobody_gives_way_to_nobody(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(*range(0, 300, 10), end=295)
    rig.ledger.after_publish = lambda _: rig.clock.advance(1_000)
    await rig.copy.run(rig.led)
    assert len(finished_in_order(rig)) == 29


async def test_the_progress_of_a_backlog_is_logged(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(*range(0, 300, 10), end=295)
    rig.ledger.after_publish = lambda _: rig.clock.advance(2_000)
    with capture_logs() as logs:
        await rig.copy.run(rig.led)
    found = [one for one in logs if one["event"] == "copy_progress"]
    assert found
    left = [one["segments_left"] for one in found]
    assert left == sorted(left, reverse=True)
    assert all(one["bytes_per_second"] > 0 and one["left_ms"] > 0 for one in found)

"""A freeze stops deletions within seconds, however slow the store is (G1), in virtual time."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kip405.errors import Fenced, RemoteStorageError
from kip405.segments import RemoteLogSegmentState, SegmentLocator
from rlm.plans.call_sizes import MOST_SEGMENTS
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.segment_deletion import SegmentDeleter
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import NODE_ID, Rig
from tests.builders.store import STORE_ID, MemoryStore, Shelf
from tests.builders.threads import THREADS
from tests.rlm.tasks.test_segment_deletion import Permit, copied, stored
from tests.simulation.clock import SimulatedClock
from tests.simulation.loop import VirtualTimeLoop

DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
SEGMENT_MS = 500
COUNT = MOST_SEGMENTS + 6


class SlowStore(MemoryStore):
    """Deletes one segment after the other, `segment_ms` each. `calls`: their sizes. `cancelled`:
    how many of them were.
    """

    def __init__(self, inner: MemoryStore, clock: SimulatedClock) -> None:
        super().__init__("", STORE_ID)
        self.identity, self.objects, self.deleted = inner.identity, inner.objects, inner.deleted
        self.segment_ms = SEGMENT_MS
        self.calls: list[int] = []
        self.cancelled = 0
        self._clock = clock

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        self.calls.append(len(locators))
        try:
            for locator in locators:
                await self._clock.sleep_ms(self.segment_ms)
                await self.delete_log_segment_data(locator)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return (None,) * len(locators)


class World:
    """So many segments in a slow store, and the deleter, in virtual time."""

    def __init__(self, path: Path, loop: VirtualTimeLoop, *, count: int = COUNT) -> None:
        self.rig, self.loop = Rig(path), loop
        self.segments = asyncio.run(copied(self.rig, count))
        clock = SimulatedClock(loop)
        self.store = SlowStore(self.rig.store, clock)
        shelf = Shelf({STORE_ID: self.store})
        self.deleter = SegmentDeleter(
            ledger=self.rig.ledger,
            evidence=StoreEvidence(shelf, cluster_id=CLUSTER_ID, threads=THREADS),
            clock=clock,
            node_id=NODE_ID,
        )
        self.allowed = Permit(self.rig)

    def states(self) -> list[RemoteLogSegmentState]:
        return sorted(one.state for one in self.rig.ledger.view.entries.values())

    def freeze(self) -> None:
        self.allowed.frozen = "frozen by command"


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    made = VirtualTimeLoop(random.Random(1))
    yield made
    made.close()


@pytest.mark.parametrize("late", [False, True], ids=["settled", "may be written"])
def test_g1_a_freeze_cancels_the_call_that_deletes_and_the_rest_is_continued_later(
    tmp_path: Path, loop: VirtualTimeLoop, late: bool
) -> None:
    """The call would have taken half a minute. What it has deleted is not known afterwards, so none
    of its segments is recorded as deleted; each is deleted again.
    """
    world = World(tmp_path, loop)
    loop.call_later(3.1, world.freeze)
    result = loop.run_until_complete(
        world.deleter.delete(world.segments, world.allowed.permit(late=late))
    )
    assert isinstance(result.stopped, Fenced)
    assert "frozen by command" in str(result.stopped)
    assert loop.time() <= 3.6
    assert world.store.cancelled == 1
    gone = COUNT - stored(world.rig)
    assert 6 <= gone <= 7
    loop.run_until_complete(_pass_time(world, 60_000))
    assert stored(world.rig) == COUNT - gone, "nothing goes afterwards"
    assert result.deleted == []
    assert world.rig.audit.deleted == []
    assert world.states() == [FINISHED] * 6 + [DELETING] * 64
    world.allowed.frozen = None
    left = [one.metadata for one in world.rig.ledger.view.entries.values()]
    again = loop.run_until_complete(world.deleter.delete(left, world.allowed.permit(late=late)))
    assert (again.stopped, len(again.deleted)) == (None, COUNT)
    assert not world.rig.store.objects
    assert len(world.rig.audit.deleted) == COUNT


def test_g1_what_was_answered_before_the_freeze_is_recorded(
    tmp_path: Path, loop: VirtualTimeLoop
) -> None:
    """Of the second group, which a slow store deletes by several calls: the freeze comes in the
    second of them.
    """
    world = World(tmp_path, loop, count=2 * MOST_SEGMENTS)
    answered = MOST_SEGMENTS + MOST_SEGMENTS // 2
    loop.call_later(answered * SEGMENT_MS / 1000 + 2.1, world.freeze)
    result = loop.run_until_complete(world.deleter.delete(world.segments, world.allowed.permit()))
    assert isinstance(result.stopped, Fenced)
    assert world.store.calls == [64, 32, 16]
    assert result.deleted == world.segments[:answered]
    assert world.rig.audit.deleted == world.segments[:answered]
    assert world.states() == [DELETING] * 32


def test_g1_calls_of_a_slow_store_are_smaller(tmp_path: Path, loop: VirtualTimeLoop) -> None:
    """A plugin that does not stop when its call is cancelled deletes a few segments more only."""
    world = World(tmp_path, loop, count=2 * MOST_SEGMENTS + 8)
    result = loop.run_until_complete(world.deleter.delete(world.segments, world.allowed.permit()))
    assert result.deleted == world.segments
    assert world.store.calls == [64, 32, 16, 8, 8, 8]


def test_a_fast_store_is_given_whole_groups(tmp_path: Path, loop: VirtualTimeLoop) -> None:
    world = World(tmp_path, loop, count=2 * MOST_SEGMENTS + 8)
    world.store.segment_ms = 10
    result = loop.run_until_complete(world.deleter.delete(world.segments, world.allowed.permit()))
    assert result.deleted == world.segments
    assert world.store.calls == [64, 64, 8]


async def _pass_time(world: World, duration_ms: int) -> None:
    await SimulatedClock(world.loop).sleep_ms(duration_ms)

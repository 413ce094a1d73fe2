"""Coalesced snapshots: each caller gets one that began after its call, under its leadership."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kip405.errors import Fenced, Unavailable
from kip405.ids import TopicIdPartition
from kip405.lineage import Lineage
from rlm.broker.leadership import LedPartition
from rlm.remote_log.snapshot_cache import CoalescedSnapshots
from rlm.remote_log.snapshots import PartitionSnapshot
from rlmm.ledger import PartitionLedger
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig
from tests.builders.snapshots import snapshot_of


def led(epoch: int = 0, partition: int = 0) -> LedPartition:
    partition_id = TopicIdPartition(
        topic_id=PARTITION.topic_id, topic=PARTITION.topic, partition=partition
    )
    return LedPartition(
        topic_id_partition=partition_id, leader=1, leader_epoch=epoch, replicas=(1,), isr=(1,)
    )


@dataclass
class Begun:
    led: LedPartition
    result: asyncio.Future[PartitionSnapshot]


class ManualSnapshots:
    """Snapshots that begin when requested and end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[Begun] = []

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        one = Begun(led, asyncio.get_running_loop().create_future())
        self.begun.append(one)
        return await one.result


LEDGER, LINEAGE = PartitionLedger.empty(PARTITION.key), Lineage()
SNAPSHOT = snapshot_of(PARTITION, ledger=LEDGER, lineage=LINEAGE)
OTHER_SNAPSHOT = snapshot_of(PARTITION, ledger=LEDGER, lineage=LINEAGE)


async def steps() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        yield group


def shared(snapshots: ManualSnapshots, tasks: asyncio.TaskGroup) -> CoalescedSnapshots:
    return CoalescedSnapshots(snapshots, tasks)


async def test_a_caller_that_asks_while_a_snapshot_is_taken_gets_the_next_one(
    tasks: asyncio.TaskGroup,
) -> None:
    snapshots = ManualSnapshots()
    sharing = shared(snapshots, tasks)
    first = asyncio.ensure_future(sharing.take(led()))
    await steps()
    late = [asyncio.ensure_future(sharing.take(led())) for _ in range(5)]
    await steps()
    assert len(snapshots.begun) == 1
    snapshots.begun[0].result.set_result(SNAPSHOT)
    await steps()
    assert await first is SNAPSHOT and not any(one.done() for one in late)
    assert len(snapshots.begun) == 2
    snapshots.begun[1].result.set_result(OTHER_SNAPSHOT)
    assert set(map(id, await asyncio.gather(*late))) == {id(OTHER_SNAPSHOT)}
    await steps()
    assert len(snapshots.begun) == 2


async def test_partitions_do_not_wait_for_each_other(tasks: asyncio.TaskGroup) -> None:
    snapshots = ManualSnapshots()
    sharing = shared(snapshots, tasks)
    asking = [asyncio.ensure_future(sharing.take(led(partition=number))) for number in range(3)]
    await steps()
    assert len(snapshots.begun) == 3
    for one in snapshots.begun:
        one.result.set_result(SNAPSHOT)
    await asyncio.gather(*asking)


async def test_a_failure_goes_to_all_of_that_snapshot_and_to_no_later_one(
    tasks: asyncio.TaskGroup,
) -> None:
    snapshots = ManualSnapshots()
    sharing = shared(snapshots, tasks)
    first = asyncio.ensure_future(sharing.take(led()))
    await steps()
    late = [asyncio.ensure_future(sharing.take(led())) for _ in range(3)]
    await steps()
    snapshots.begun[0].result.set_result(SNAPSHOT)
    await steps()
    snapshots.begun[1].result.set_exception(Unavailable("no broker"))
    results = await asyncio.gather(first, *late, return_exceptions=True)
    assert results[0] is SNAPSHOT
    assert [type(one) for one in results[1:]] == [Unavailable] * 3
    after = asyncio.ensure_future(sharing.take(led()))
    await steps()
    snapshots.begun[2].result.set_result(SNAPSHOT)
    assert await after is SNAPSHOT


async def test_a_cancelled_asker_leaves_the_snapshot_to_the_others(
    tasks: asyncio.TaskGroup,
) -> None:
    snapshots = ManualSnapshots()
    sharing = shared(snapshots, tasks)
    first = asyncio.ensure_future(sharing.take(led()))
    await steps()
    leaving = asyncio.ensure_future(sharing.take(led()))
    staying = asyncio.ensure_future(sharing.take(led()))
    await steps()
    first.cancel()
    leaving.cancel()
    snapshots.begun[0].result.set_result(SNAPSHOT)
    await steps()
    snapshots.begun[1].result.set_result(OTHER_SNAPSHOT)
    assert await staying is OTHER_SNAPSHOT
    assert first.cancelled() and leaving.cancelled()


async def test_g10_callers_that_left_while_a_snapshot_hangs_leave_nothing_behind(
    tasks: asyncio.TaskGroup,
) -> None:
    """Each fetch of each consumer asks for one, and gives up after its max_wait."""
    snapshots = ManualSnapshots()
    sharing = shared(snapshots, tasks)
    others = len(asyncio.all_tasks())
    for _ in range(50):
        leaving = [asyncio.ensure_future(sharing.take(led())) for _ in range(4)]
        await steps()
        for one in leaving:
            one.cancel()
        await asyncio.wait(leaving)
    left_behind = len(asyncio.all_tasks()) - others
    snapshots.begun[0].result.set_result(SNAPSHOT)
    await steps()
    snapshots.begun[1].result.set_exception(Unavailable("no broker"))
    await steps()
    assert left_behind <= 2, "more than the snapshot that hangs, and the next one"
    assert len(asyncio.all_tasks()) == others
    after = asyncio.ensure_future(sharing.take(led()))
    await steps()
    snapshots.begun[2].result.set_result(OTHER_SNAPSHOT)
    assert await after is OTHER_SNAPSHOT


async def test_the_next_snapshot_is_taken_under_the_newest_leadership_asked_for(
    tasks: asyncio.TaskGroup,
) -> None:
    """Else a snapshot under the epoch that just ended would fence the barriers of the new one."""
    snapshots = ManualSnapshots()
    sharing = shared(snapshots, tasks)
    asking = [asyncio.ensure_future(sharing.take(led(epoch=4)))]
    await steps()
    asking += [asyncio.ensure_future(sharing.take(led(epoch=epoch))) for epoch in (4, 5, 4)]
    await steps()
    snapshots.begun[0].result.set_result(SNAPSHOT)
    await steps()
    assert [one.led.leader_epoch for one in snapshots.begun] == [4, 5]
    asking.append(asyncio.ensure_future(sharing.take(led(epoch=6))))
    await steps()
    snapshots.begun[1].result.set_result(SNAPSHOT)
    await steps()
    assert [one.led.leader_epoch for one in snapshots.begun] == [4, 5, 6]
    snapshots.begun[2].result.set_result(SNAPSHOT)
    await asyncio.gather(*asking)


@pytest.mark.parametrize("begun", [True, False])
async def test_when_the_owner_ends_nobody_waits_for_ever(begun: bool) -> None:
    snapshots = ManualSnapshots()
    outside: list[asyncio.Task[PartitionSnapshot]] = []

    async def owner() -> None:
        async with asyncio.TaskGroup() as tasks:
            sharing = shared(snapshots, tasks)
            outside.append(asyncio.create_task(sharing.take(led())))
            await asyncio.sleep(0)
            if begun:
                await steps()
            outside.append(asyncio.create_task(sharing.take(led())))
            await asyncio.sleep(0)
            raise RuntimeError("the service ends")

    with pytest.raises(ExceptionGroup):
        await owner()
    done, _ = await asyncio.wait(outside, timeout=60)
    assert len(done) == 2 and all(one.cancelled() for one in outside)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.disk.active(0, 20)
    return made


async def test_a_snapshot_is_remembered_for_its_leader_epoch_only(rig: Rig) -> None:
    snapshots = rig.cached_snapshots()
    assert snapshots.of(led()) is None
    snapshot = await snapshots.take(led())
    assert snapshots.of(led()) is snapshot
    assert snapshots.of(led(epoch=1)) is None


async def test_a_partition_led_elsewhere_is_forgotten(rig: Rig) -> None:
    snapshots = rig.cached_snapshots()
    await snapshots.take(led())
    rig.broker.elect(2, 1)
    with pytest.raises(Fenced):
        await snapshots.take(led())
    assert snapshots.snapshots == {}


async def test_a_stale_asker_does_not_forget_the_newer_snapshot(rig: Rig) -> None:
    snapshots = rig.cached_snapshots()
    rig.disk.epochs({0: 0, 5: 10})
    rig.broker.elect(1, 5)
    snapshot = await snapshots.take(led(epoch=5))
    with pytest.raises(Fenced):
        await snapshots.take(led(epoch=4))
    assert snapshots.of(led(epoch=5)) is snapshot

"""A copy task is requested when a partition rolls, and again until the segment is eligible."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from kip405.ids import PartitionKey
from rlm.broker.leadership import LedPartition
from rlm.log_dir.rolls import Rolls
from rlm.tasks.copy_watch import CopyWatch
from rlm.tasks.pool import TaskPool
from rlm.tasks.roll_watch import RollWatch
from rsm_plugins.threads import Threads
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig
from tests.builders.threads import THREADS
from tests.waiting import until

INTERVAL_MS = 500
ROW = LedPartition(
    topic_id_partition=PARTITION, leader=1, leader_epoch=0, replicas=(1, 2), isr=(1, 2)
)


class Site:
    """`rolled`: whether the next poll finds a new segment; `asked`: when tasks were requested."""

    def __init__(self, threads: Threads = THREADS) -> None:
        self.clock = ManualClock(0)
        self.led: tuple[LedPartition, ...] = (ROW,)
        self.rolled = False
        self.is_open = False
        self.asked: list[int] = []
        self.rows: list[LedPartition] = []
        self.watch = RollWatch(
            rolls=self,
            led=lambda: self.led,
            request=self._request,
            is_open=self._is_open,
            threads=threads,
            clock=self.clock,
            interval_ms=lambda: INTERVAL_MS,
            most_wait_ms=lambda: 4_000,
        )

    def new(self, partitions: Collection[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        found, self.rolled = self.rolled, False
        return tuple(partitions) if found else ()

    def _request(self, row: LedPartition) -> None:
        self.asked.append(self.clock.now)
        self.rows.append(row)

    def _is_open(self, key: PartitionKey) -> bool:
        assert key == PARTITION.key
        return self.is_open

    async def poll_until(self, now_ms: int) -> None:
        while self.clock.now <= now_ms:
            await self.watch.poll()
            self.clock.advance(INTERVAL_MS)


async def test_a_roll_requests_a_task_at_once_and_only_one() -> None:
    site = Site()
    await site.poll_until(1_000)
    site.rolled = True
    await site.poll_until(30_000)
    assert site.asked == [1_500]


async def test_it_is_requested_again_with_growing_waits_until_the_schedule_takes_over() -> None:
    site = Site()
    site.rolled = site.is_open = True
    await site.poll_until(60_000)
    assert site.asked == [0, 500, 1_500, 3_500, 7_500]


async def test_requests_end_when_the_partition_waits_for_nothing() -> None:
    site = Site()
    site.rolled = site.is_open = True
    await site.poll_until(1_000)
    site.is_open = False
    await site.poll_until(60_000)
    assert site.asked == [0, 500]


async def test_a_partition_that_is_led_elsewhere_is_forgotten() -> None:
    site = Site()
    site.rolled = site.is_open = True
    await site.poll_until(400)
    site.led = ()
    await site.poll_until(2_000)
    site.led = (ROW,)
    await site.poll_until(60_000)
    assert site.asked == [0]


async def test_partitions_that_are_led_since_the_last_poll_are_watched() -> None:
    site = Site()
    await site.watch.poll()
    other = replace(ROW, topic_id_partition=replace(PARTITION, partition=7))
    site.led = (ROW, other)
    site.rolled = True
    await site.watch.poll()
    assert [row.topic_partition.partition for row in site.rows] == [PARTITION.partition, 7]


async def test_a_disk_that_cannot_be_asked_does_not_end_the_watch() -> None:
    threads = Threads("closed", 1)
    threads.close()
    site = Site(threads)
    await site.watch.poll()
    await site.watch.poll()
    assert site.asked == []


async def test_a_segment_that_is_closed_now_is_copied_without_the_schedule(tmp_path: Path) -> None:
    """With a real directory, pool and task; at first the last stable offset is not there yet."""
    rig = Rig(tmp_path)
    rig.write_log(0, 100, end=150)
    await rig.copy.run(rig.led)
    pool = TaskPool("copy", rig.clock, size=1, queue_limit=9)
    copy_watch = CopyWatch(
        task=rig.copy, pool=pool, copy=rig.copy.run, clock=rig.clock, interval_ms=lambda: 30_000
    )
    watch = RollWatch(
        rolls=Rolls([str(rig.log_dir.path)]),
        led=lambda: (rig.led,),
        request=copy_watch.request,
        is_open=rig.copy.waits_for_broker,
        threads=THREADS,
        clock=rig.clock,
        interval_ms=lambda: INTERVAL_MS,
        most_wait_ms=lambda: 30_000,
    )
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(pool.run())
        await watch.poll()
        rig.broker.log = b""
        rig.write_log(0, 100, 200, end=250)
        rig.broker.last_stable_offset = 150
        await watch.poll()
        await until(lambda: rig.copy.waits_for_broker(PARTITION.key) and not pool.running)
        rig.broker.last_stable_offset = 250
        rig.clock.advance(INTERVAL_MS)
        await watch.poll()
        await until(lambda: rig.copy.statuses[PARTITION.key].copied_next_offset == 200)
        working.cancel()

"""Schedules: every led partition gets its job, and what jobs need is asked for in groups (G6)."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kip405.errors import Unavailable
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from rlm.broker.leadership import LedPartition, Snapshot
from rlm.tasks.pool import TaskPool
from rlm.tasks.schedule import GROUP_SIZE, Groups, Schedule
from rlmm.records import ledger_partition
from tests.builders.clock import ManualClock

ENABLED, OTHER = Uuid(bytes(16)), Uuid(bytes(15) + b"\1")
NODE, INTERVAL_MS = 1, 1_000
UNTIL_MS = 10_000_000


def row(partition: int, *, topic_id: Uuid = ENABLED, leader: int = NODE) -> LedPartition:
    found = TopicIdPartition(topic_id=topic_id, topic="orders", partition=partition)
    return LedPartition(
        topic_id_partition=found, leader=leader, leader_epoch=0, replicas=(NODE,), isr=(NODE,)
    )


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@dataclass
class Site:
    """Groups over a pool; `seen` is what each job was given, in their order."""

    pool: TaskPool = field(
        default_factory=lambda: TaskPool("cleanup", ManualClock(), size=2, queue_limit=1_000)
    )
    led: set[PartitionKey] = field(default_factory=set)
    seeing: list[int] = field(default_factory=list)
    most_at_once: int = 0
    hang: dict[int, asyncio.Event] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    seen: list[tuple[int, str | None]] = field(default_factory=list)
    now: int = 0
    clock: ManualClock = field(default_factory=ManualClock)

    async def see(self, led: LedPartition) -> str:
        partition = led.key.partition
        self.seeing.append(partition)
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        await asyncio.sleep(0)
        if partition in self.hang:
            await self.hang[partition].wait()
        self.now -= 1
        if partition in self.broken:
            raise Unavailable("no snapshot")
        return f"snapshot {partition}"

    async def task(self, led: LedPartition, seen: str | None) -> None:
        self.seen.append((led.key.partition, seen))

    @asynccontextmanager
    async def groups(
        self, rows: Iterable[LedPartition], *, next_after_ms: int = 0
    ) -> AsyncIterator[Groups[str]]:
        """All of `rows` are led; a group waits so long for the jobs of the one before."""
        self.led |= {one.key for one in rows}
        async with asyncio.TaskGroup() as tasks:
            yield Groups(
                pool=self.pool,
                see=self.see,
                task=self.task,
                is_led=self.led.__contains__,
                tasks=tasks,
                clock=self.clock,
                next_after_ms=next_after_ms,
            )

    async def work(self) -> None:
        """Run all jobs that wait."""
        working = asyncio.create_task(self.pool.run())
        for _ in range(self.pool.waiting_count + 2):
            await asyncio.sleep(0)
        working.cancel()
        await asyncio.wait([working])


async def test_a_group_is_seen_at_once_and_each_job_gets_what_was_seen_of_it() -> None:
    site, rows = Site(), [row(number) for number in range(2 * GROUP_SIZE + 1)]
    async with site.groups(rows, next_after_ms=600_000) as groups:
        working = asyncio.create_task(site.pool.run())
        await groups.submit(rows, until_ms=UNTIL_MS)
        working.cancel()
    assert site.most_at_once == GROUP_SIZE
    assert sorted(site.seen) == [(one, f"snapshot {one}") for one in range(len(rows))]


async def test_a_group_is_seen_when_the_jobs_of_the_one_before_have_ended() -> None:
    """So what was seen is fresh when its job begins."""
    site, rows = Site(), [row(number) for number in range(GROUP_SIZE + 1)]
    async with site.groups(rows, next_after_ms=600_000) as groups:
        submitting = asyncio.create_task(groups.submit(rows, until_ms=UNTIL_MS))
        await settle()
        assert len(site.seeing) == GROUP_SIZE
        working = asyncio.create_task(site.pool.run())
        await submitting
        working.cancel()
    assert len(site.seeing) == len(site.seen) == GROUP_SIZE + 1


async def test_partitions_of_one_ledger_partition_are_in_one_group() -> None:
    """They share a barrier."""
    site, rows = Site(), [row(number) for number in range(GROUP_SIZE)]
    async with site.groups(rows) as groups:
        await groups.submit(rows[::-1], until_ms=UNTIL_MS)
        await settle()
    order = [ledger_partition(row(number).key) for number in site.seeing]
    assert order == sorted(order)
    assert len(set(order)) > 1


async def test_g6_what_cannot_be_seen_is_left_to_its_own_job() -> None:
    site, rows = Site(broken={1}), [row(0), row(1), row(2)]
    async with site.groups(rows) as groups:
        await groups.submit(rows, until_ms=UNTIL_MS)
        await settle()
        await site.work()
    assert sorted(site.seen, key=lambda one: one[0]) == [
        (0, "snapshot 0"),
        (1, None),
        (2, "snapshot 2"),
    ]


async def test_g6_one_that_hangs_delays_no_other_group_and_is_not_seen_twice() -> None:
    rows = [row(number) for number in range(GROUP_SIZE + 1)]
    first = min(rows, key=lambda one: (ledger_partition(one.key), one.key.partition))
    number = first.key.partition
    site = Site(hang={number: asyncio.Event()})
    async with site.groups(rows) as groups:
        await groups.submit(rows, until_ms=UNTIL_MS)
        await settle()
        await site.work()
        assert len(site.seen) == GROUP_SIZE
        await groups.submit([first], until_ms=UNTIL_MS)
        assert site.seeing.count(number) == 1
        site.hang[number].set()
        await settle()
        await site.work()
    assert site.seen[-1] == (number, f"snapshot {number}")


async def test_what_is_led_elsewhere_meanwhile_gets_no_job() -> None:
    site, rows = Site(hang={0: asyncio.Event()}), [row(0)]
    async with site.groups(rows) as groups:
        await groups.submit(rows, until_ms=UNTIL_MS)
        site.led.clear()
        site.hang[0].set()
        await settle()
        assert site.pool.waiting_count == 0


async def test_a_group_waits_while_many_jobs_wait() -> None:
    """What it saw would be old when its jobs begin."""
    site, rows = Site(), [row(number) for number in range(GROUP_SIZE + 1)]
    began_ms = site.clock.monotonic_ms()

    class WorkedOff(ManualClock):
        async def sleep_ms(self, duration_ms: float) -> None:
            await super().sleep_ms(duration_ms)
            assert len(site.seeing) == GROUP_SIZE
            await site.work()

    site.clock = WorkedOff()
    async with site.groups(rows) as groups:
        await groups.submit(rows[:GROUP_SIZE], until_ms=UNTIL_MS)
        await settle()
        assert site.pool.waiting_count == GROUP_SIZE
        await groups.submit(rows[-1:], until_ms=UNTIL_MS)
        await settle()
        await site.work()
    assert len(site.seeing) == len(site.seen) == GROUP_SIZE + 1
    assert site.clock.monotonic_ms() > began_ms


async def test_what_is_left_after_the_interval_is_submitted_unseen() -> None:
    """A pool that is busy for long delays no job for longer than its queue does."""
    site, rows = Site(), [row(number) for number in range(GROUP_SIZE + 1)]
    async with site.groups(rows) as groups:
        await groups.submit(rows[:GROUP_SIZE], until_ms=UNTIL_MS)
        await settle()
        await groups.submit(rows[GROUP_SIZE:], until_ms=site.clock.monotonic_ms() + INTERVAL_MS)
        assert site.pool.waiting_count == GROUP_SIZE + 1
        await site.work()
    assert len(site.seeing) == GROUP_SIZE
    assert site.seen[-1] == (GROUP_SIZE, None)


async def test_g10_while_a_whole_group_hangs_no_other_one_is_begun() -> None:
    """They may all wait for one thing, as for the outcome of what a predecessor has sent."""
    rows = [row(number) for number in range(GROUP_SIZE + 1)]
    site = Site(hang={number: asyncio.Event() for number in range(GROUP_SIZE)})
    async with site.groups(rows) as groups:
        await groups.submit(rows[:GROUP_SIZE], until_ms=UNTIL_MS)
        await settle()
        await groups.submit(rows[GROUP_SIZE:], until_ms=site.clock.monotonic_ms() + INTERVAL_MS)
        await site.work()
        assert site.seen == [(GROUP_SIZE, None)]
        for gate in site.hang.values():
            gate.set()


async def test_what_waits_or_backs_off_is_not_seen() -> None:
    site, rows = Site(), [row(0), row(1)]

    async def fail() -> None:
        raise Unavailable("away")

    site.pool.submit(rows[0].key, fail)
    await site.work()
    site.pool.submit(rows[1].key, fail)
    async with site.groups(rows) as groups:
        await groups.submit(rows, until_ms=UNTIL_MS)
    assert site.seeing == []


async def test_a_job_behind_a_running_one_takes_its_own_snapshot() -> None:
    site, rows, gate = Site(), [row(0)], asyncio.Event()

    async def long() -> None:
        await gate.wait()

    site.pool.submit(rows[0].key, long)
    working = asyncio.create_task(site.pool.run())
    await settle()
    async with site.groups(rows) as groups:
        await groups.submit(rows, until_ms=UNTIL_MS)
        await settle()
    gate.set()
    await settle()
    working.cancel()
    assert site.seen == [(0, None)]


class Ended(Exception):
    """The clock was asked for one wait too many."""


class Steps(ManualClock):
    """Between two rounds another partition may be led."""

    def __init__(self, leadership: "_Leadership", rounds: Sequence[Sequence[LedPartition]]) -> None:
        super().__init__()
        self._leadership = leadership
        self._rounds = list(rounds)
        self.waits_ms: list[float] = []

    async def sleep_ms(self, duration_ms: float) -> None:
        await settle()
        self.waits_ms.append(duration_ms)
        if not self._rounds:
            raise Ended
        self._leadership.lead(self._rounds.pop(0))


class _Leadership:
    def __init__(self, rows: Sequence[LedPartition]) -> None:
        self.lead(rows)

    def lead(self, rows: Sequence[LedPartition]) -> None:
        self.snapshot = replace(Snapshot(taken_at_ms=0), partitions={one.key: one for one in rows})

    def led_of(self, node_id: int, topic_ids: Iterable[Uuid]) -> tuple[LedPartition, ...]:
        return tuple(self.snapshot.led_of(node_id, frozenset(topic_ids)))


class _Settings:
    """One topic is enabled."""

    @property
    def view(self) -> "_Settings":
        return self

    def topics(self) -> list[Any]:
        return [type("Record", (), {"topic_id": ENABLED})]


async def test_what_a_run_leaves_after_its_partition_was_forgotten_is_forgotten_too() -> None:
    """Otherwise its age is of long ago when the partition is led here again."""
    pool = TaskPool("copy", ManualClock(), size=2, queue_limit=10)
    leadership, gate = _Leadership([row(0), row(1)]), asyncio.Event()
    left, seen = set[PartitionKey](), list[set[int]]()

    class Rounds(ManualClock):
        async def sleep_ms(self, duration_ms: float) -> None:
            await settle()
            seen.append({key.partition for key in left})
            if len(seen) == 1:
                leadership.lead([row(0)])
            elif len(seen) == 2:
                gate.set()
                await settle()
                assert row(1).key in left, "its run has ended after all"
            elif len(seen) == 4:
                raise Ended

    async def task(led: LedPartition) -> None:
        if led.key == row(1).key:
            await gate.wait()
        left.add(led.key)

    fields: Any = {"leadership": leadership, "settings": _Settings()}
    schedule = Schedule(
        **fields,
        pool=pool,
        node_id=NODE,
        clock=Rounds(),
        interval_ms=lambda: INTERVAL_MS,
        forget=left.discard,
    )
    working = asyncio.create_task(pool.run())
    with suppress(Ended):
        await schedule.run(task)
    working.cancel()
    await asyncio.wait([working])
    assert seen == [{0}, {0}, {0}, {0}]


async def test_h14_what_is_not_taken_has_no_task_and_is_not_forgotten_while_it_is_led() -> None:
    """The files that are held open for its records may be the last of them."""
    site = Site()
    leadership = _Leadership([row(0), row(1)])
    forgotten: list[PartitionKey] = []
    fields: Any = {"pool": site.pool, "leadership": leadership, "settings": _Settings()}
    schedule = Schedule(
        **fields,
        node_id=NODE,
        clock=Steps(leadership, [[row(0), row(1)]]),
        interval_ms=lambda: INTERVAL_MS,
        forget=forgotten.append,
        takes=lambda led: led.key != row(1).key,
    )

    async def task(led: LedPartition) -> None:
        await site.task(led, "")

    with suppress(Ended):
        await schedule.run(task)
    await site.work()
    assert [partition for partition, _ in site.seen] == [0]
    assert forgotten == []
    leadership.lead([row(0)])
    with suppress(Ended):
        await schedule.run(task)
    assert forgotten == [row(1).key], "another broker leads it now"


@pytest.mark.parametrize("is_grouped", [False, True])
async def test_led_partitions_of_enabled_topics_are_submitted_and_others_forgotten(
    is_grouped: bool,
) -> None:
    site = Site()
    first = [row(0), row(1), row(2, leader=2), row(3, topic_id=OTHER)]
    leadership = _Leadership(first)
    clock = Steps(leadership, [[row(0)]])
    forgotten: list[PartitionKey] = []
    fields: Any = {"pool": site.pool, "leadership": leadership, "settings": _Settings()}
    schedule = Schedule(
        **fields,
        node_id=NODE,
        clock=clock,
        interval_ms=lambda: INTERVAL_MS,
        forget=forgotten.append,
    )

    async def task(led: LedPartition) -> None:
        await site.task(led, "")

    with suppress(Ended, ExceptionGroup):
        if is_grouped:
            await schedule.run_in_groups(site.see, site.task)
        else:
            await schedule.run(task)
    assert forgotten == [row(1).key]
    await site.work()
    assert [partition for partition, _ in site.seen] == [0], "the job of 1 was dropped"
    assert all(0.8 * INTERVAL_MS <= wait <= 1.2 * INTERVAL_MS for wait in clock.waits_ms)

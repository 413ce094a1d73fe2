"""Snapshots of the cleanup task let copy runs be skipped, or request them at once."""

import asyncio
from pathlib import Path

import pytest

from rlm.broker.leadership import LedPartition
from rlm.tasks.copy_watch import CopyWatch
from rlm.tasks.pool import TaskPool
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig

INTERVAL_MS = 500
JITTERED_MS = INTERVAL_MS + INTERVAL_MS // 5
"""The longest wait of a schedule."""


class Site:
    """A rig whose copy runs are counted, behind a pool and a watch."""

    def __init__(self, path: Path) -> None:
        self.rig = Rig(path)
        self.rig.write_log(0, 100, 200, end=250)
        self.pool = TaskPool("copy", self.rig.clock, size=1, queue_limit=10)
        self.runs: list[int] = []
        self._copied = asyncio.Event()
        self.watch = CopyWatch(
            task=self.rig.copy,
            pool=self.pool,
            copy=self.copy,
            clock=self.rig.clock,
            interval_ms=lambda: INTERVAL_MS,
        )

    async def copy(self, led: LedPartition) -> None:
        self.runs.append(led.leader_epoch)
        await self.rig.copy.run(led)
        self._copied.set()

    async def saw(self) -> None:
        """The cleanup's snapshot."""
        began_at_ms = self.rig.clock.monotonic_ms()
        self.watch.saw(await self.rig.snapshots.take(self.rig.led), began_at_ms)

    async def scheduled(self) -> None:
        await self.watch.scheduled(self.rig.led)

    async def settle(self) -> None:
        """Run the run that waits in the pool."""
        assert self.pool.waiting_count == 1
        running = asyncio.create_task(self.pool.run())
        await asyncio.wait_for(self._copied.wait(), 60)
        running.cancel()
        await asyncio.wait([running])

    def grow(self) -> None:
        self.rig.broker.log = b""
        self.rig.write_log(0, 100, 200, 300, end=350)

    def ends(self) -> list[int]:
        entries = self.rig.ledger.view.entries.values()
        return sorted(one.metadata.end_offset for one in entries)


@pytest.fixture
async def site(tmp_path: Path) -> Site:
    """All that is closed was copied."""
    made = Site(tmp_path)
    await made.rig.copy.run(made.rig.led)
    assert made.ends() == [99, 199]
    return made


async def test_a_snapshot_with_nothing_to_copy_saves_the_tasks_of_an_interval(site: Site) -> None:
    """Schedules are jittered: two copy tasks may be due between two snapshots of the cleanup."""
    await site.saw()
    await site.scheduled()
    site.rig.clock.advance(JITTERED_MS)
    await site.scheduled()
    assert site.runs == [], "the next snapshot may come a fifth later than the interval"


async def test_an_old_snapshot_saves_none(site: Site) -> None:
    await site.saw()
    site.rig.clock.advance(INTERVAL_MS + INTERVAL_MS // 4)
    await site.scheduled()
    assert site.runs == [0]
    await site.scheduled()
    assert site.runs == [0, 0]


async def test_without_snapshots_a_task_runs_within_three_intervals(site: Site) -> None:
    """What time alone makes due (a copy lag) waits no longer than that, with the widest jitter."""
    began_ms = site.rig.clock.monotonic_ms()
    await site.saw()
    for _ in range(3):
        site.rig.clock.advance(JITTERED_MS)
        await site.scheduled()
        if site.runs:
            break
    assert site.runs == [0]
    assert site.rig.clock.monotonic_ms() - began_ms <= 3 * INTERVAL_MS


async def test_a_snapshot_under_another_epoch_saves_none(site: Site) -> None:
    await site.saw()
    site.rig.disk.epochs({0: 0, 1: 250})
    site.rig.broker.elect(1, 1)
    await site.scheduled()
    assert site.runs == [1]


async def test_what_is_led_elsewhere_is_forgotten(site: Site) -> None:
    await site.saw()
    site.watch.forget(PARTITION.key)
    await site.scheduled()
    assert site.runs == [0]


async def test_something_to_copy_is_copied_at_once_with_a_snapshot_of_its_own(site: Site) -> None:
    site.grow()
    await site.saw()
    assert site.ends() == [99, 199], "a borrowed snapshot copies nothing"
    assert site.runs == []
    await site.settle()
    assert site.runs == [0]
    assert site.ends() == [99, 199, 299]


async def test_a_start_that_was_never_written_is_work(tmp_path: Path) -> None:
    """H2: the remote log start is written by the run, before any object."""
    site = Site(tmp_path)
    await site.saw()
    await site.settle()
    assert site.runs == [0]
    assert site.rig.settings.view.remote_log_start(PARTITION.key) == 0


async def test_what_waits_for_the_last_stable_offset_saves_no_run(site: Site) -> None:
    site.grow()
    site.rig.broker.last_stable_offset = 250
    await site.saw()
    await site.settle()
    await site.scheduled()
    assert site.ends() == [99, 199]
    site.rig.broker.last_stable_offset = 350
    await site.scheduled()
    assert site.ends() == [99, 199, 299]


async def test_settings_that_are_not_read_yet_save_no_run(site: Site) -> None:
    snapshot = await site.rig.snapshots.take(site.rig.led)
    site.rig.settings.is_ready = False
    site.watch.saw(snapshot, site.rig.clock.monotonic_ms())
    assert site.pool.waiting_count == 1


async def test_status_is_that_of_the_snapshot(site: Site) -> None:
    site.rig.broker.ends_at(260)
    await site.saw()
    assert site.rig.copy.statuses[PARTITION.key].high_watermark == 260


async def test_while_a_task_runs_snapshots_of_others_change_nothing(site: Site) -> None:
    site.grow()
    began, go_on = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        began.set()
        await go_on.wait()

    site.pool.submit(PARTITION.key, held)
    running = asyncio.create_task(site.pool.run())
    await began.wait()
    await site.saw()
    assert site.pool.waiting_count == 0
    go_on.set()
    running.cancel()
    await asyncio.wait([running])


async def test_a_full_pool_is_nobodys_failure(site: Site) -> None:
    full = TaskPool("copy", site.rig.clock, size=1, queue_limit=0)
    watch = CopyWatch(
        task=site.rig.copy,
        pool=full,
        copy=site.copy,
        clock=site.rig.clock,
        interval_ms=lambda: INTERVAL_MS,
    )
    site.grow()
    watch.saw(await site.rig.snapshots.take(site.rig.led), site.rig.clock.monotonic_ms())
    await watch.scheduled(site.rig.led)
    assert site.ends() == [99, 199, 299]

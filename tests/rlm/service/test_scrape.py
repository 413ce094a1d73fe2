"""What a scrape shows of numbers that have a component behind them, with values that are not 0."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kip405.errors import OffsetOutOfRange
from rlm.proxy.purgatory import Outcome, RemoteFetch
from rlm.service.broker_service import BrokerService
from rlm.service.clients import OwnProxy
from tests.builders.clock import ManualClock
from tests.builders.rig import Rig
from tests.builders.service import built_service
from tests.rlm.tasks.test_hole_watch import delete_up_to, take_store_away
from tests.rlm.watched import Watched

RATE = 2_000_000
MINUTES_MS = 600_000


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """By name: the labels' values, ordered by the names of the labels, and the number."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            labels = tuple(value for _, value in sorted(one.labels.items()))
            found.setdefault(one.name, {})[labels] = one.value
    return found


def scraped(service: BrokerService) -> dict[str, dict[tuple[str, ...], float]]:
    """As its HTTP server would answer."""
    return samples(service._listening._http._metrics().decode())


async def test_waits_of_copies_and_deletions_are_scraped(tmp_path: Path) -> None:
    given = {"remote.log.manager.copy.max.bytes.per.second": RATE}
    async with built_service(tmp_path, ManualClock(), given) as service:
        tasks = service._tasks.partition_tasks
        await tasks.copy._copier._quota.take(4 * RATE)
        await tasks.copy._copier._quota.take(1)
        tasks.expiry._deleted("orders", segments=3, size_bytes=500)
        tasks.expiry._deleted("orders", segments=1, size_bytes=20)
        found = scraped(service)
    assert found["rlm_remote_copy_throttled_seconds_total"] == {(): 3.0}
    assert found["rlm_remote_delete_segments_total"] == {("orders",): 4.0}
    assert found["rlm_remote_delete_bytes_total"] == {("orders",): 520.0}


async def test_remote_fetches_are_scraped_while_they_wait_and_by_how_they_end(
    tmp_path: Path,
) -> None:
    clock, is_read, ends = ManualClock(), asyncio.Event(), asyncio.Event()

    async def read() -> Outcome:
        is_read.set()
        await ends.wait()
        return OffsetOutOfRange("it has ended")

    async with built_service(tmp_path, clock) as service, asyncio.TaskGroup() as tasks:
        deadline_ms = clock.monotonic_ms() + MINUTES_MS
        assert isinstance(service._clients, OwnProxy)
        purgatory = service._clients.proxy.purgatory
        fetch = RemoteFetch(purgatory, read, deadline_ms, asyncio.Event())
        waiting = tasks.create_task(fetch.complete())
        await is_read.wait()
        clock.advance(700)
        assert scraped(service)["rlm_remote_fetch_purgatory_size"] == {(): 1.0}
        ends.set()
        await waiting
        found = scraped(service)
    assert found["rlm_remote_fetch_purgatory_size"] == {(): 0.0}
    assert found["rlm_remote_fetch_wait_seconds_count"] == {("ended",): 1.0, ("failed",): 0.0}
    assert found["rlm_remote_fetch_wait_seconds_sum"] == {("ended",): 0.7, ("failed",): 0.0}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="there is no /proc")
async def test_h14_segments_that_are_held_open_are_scraped(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "rig")
    rig.write_log(0, 100, 200, end=250)
    async with built_service(tmp_path, ManualClock()) as service:
        watch = service._tasks.bounded_retention
        await watch._holds.hold(await rig.snapshots.take(rig.led), {0, 100})
        watch._without_room = 5
        found = scraped(service)
        watch._holds.forget(rig.led.key)
        await watch._holds.close_dropped()
    assert found["rlm_segments_held_open"] == {(): 2.0}
    assert found["rlm_segments_not_held_open"] == {(): 5.0}


async def test_h15_holes_are_scraped(tmp_path: Path) -> None:
    service = Watched(tmp_path)
    rig = service.rig
    rig.enable(mode="copy", trim=False)
    rig.broker.config["retention.ms"] = "5000"
    rig.write_log(0, 100, 200, 300, end=350)
    rig.remote_start(0)
    take_store_away(rig)
    await service.run_tasks()
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    delete_up_to(rig, 200)
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    found = samples((await service.shown()).metrics)
    assert found["rlm_partition_holes"] == {("0", "orders"): 1.0}
    assert found["rlm_partition_lost_offsets"] == {("0", "orders"): 200.0}


async def test_h18_growth_and_what_no_trim_may_delete_are_scraped(tmp_path: Path) -> None:
    service = Watched(tmp_path, quota_bytes=1 << 30)
    rig = service.rig
    rig.write_log(0, 100, end=150)
    take_store_away(rig)
    await service.run_tasks()
    await service.disks.measure()
    grown = rig.disk.path.parent / "other.log"
    grown.write_bytes(b"1" * (1 << 20))
    await service.pass_time(MINUTES_MS)
    await service.disks.measure()
    log = (await service.snapshots.take(rig.led)).log
    found = samples((await service.shown()).metrics)
    log_dir = (str(grown.parent),)
    assert log.size_bytes > 0
    assert found["rlm_log_dir_untrimmable_bytes"] == {log_dir: log.size_bytes}
    growth = pytest.approx(grown.stat().st_blocks * 512 * 1000 / MINUTES_MS, rel=0.1)
    assert found["rlm_log_dir_growth_bytes_per_second"] == {log_dir: growth}

"""What is pending is listed, and undone as long as it is not in force."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from kip405.errors import Fenced, NotFound, RemoteStorageError
from kip405.ids import PartitionKey
from rlm.topics.ports import NotLeader
from rlmm.settings_records import CAUSE_RETENTION, StartRecord
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.hooks import Crash, CrashAt, PauseAt
from tests.rlm.topics.retentions import (
    DAY_MS,
    UNLIMITED,
    WEEK_MS,
    enabled,
    in_force,
    keeping,
    other_record,
    pass_delay,
    total,
)
from tests.rlm.topics.world import DELAY_MS, ServiceUnderTest


async def shortened(cluster: Cluster) -> ServiceUnderTest:
    service = await enabled(cluster)
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    return service


async def test_what_is_pending_is_listed_with_its_due_time_at_every_service() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    assert await service.deletions.listed() == ()
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    service.clock.advance(DELAY_MS // 4)
    other = ServiceUnderTest(cluster, node_id=2, clock=service.clock)
    for one in (service, other):
        (pending,) = await one.deletions.listed()
        assert pending.announced is not None and pending.announced.by == "ada"
        assert pending.record.total == total(DAY_MS)
    (pending,) = await service.deletions.listed()
    assert pending.due_in_ms == DELAY_MS - DELAY_MS // 4
    await pass_delay(service)
    assert await service.deletions.listed() == ()


async def test_an_undo_restores_the_retention_for_good() -> None:
    cluster = Cluster()
    service = await shortened(cluster)
    record = await service.deletions.undo(TOPIC)
    assert record.total == total(WEEK_MS)
    assert cluster.view().deletion(TOPIC_ID) is None
    assert await service.deletions.listed() == ()
    await pass_delay(service)
    await pass_delay(service)
    assert in_force(cluster) == total(WEEK_MS)
    assert cluster.record() == record


async def test_an_undo_of_two_changes_restores_the_laxest() -> None:
    cluster = Cluster()
    service = await shortened(cluster)
    await service.verbs.enable(TOPIC, keeping(2 * DAY_MS, 10))
    record = await service.deletions.undo(TOPIC)
    assert record.total == total(WEEK_MS)


async def test_an_undo_of_a_retention_that_was_never_enforced_keeps_everything() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    record = cluster.record()
    assert record is not None
    await service.settings.publish(replace(record, enforced=None), cluster.epoch)
    assert (await service.deletions.undo(TOPIC)).total == UNLIMITED
    await pass_delay(service)
    assert in_force(cluster) == UNLIMITED


async def test_an_undo_is_possible_until_the_keeper_acts() -> None:
    cluster = Cluster()
    service = await shortened(cluster)
    service.clock.advance(10 * DELAY_MS)
    (pending,) = await service.deletions.listed()
    assert pending.due_in_ms == 0
    assert (await service.deletions.undo(TOPIC)).total == total(WEEK_MS)


async def test_what_is_in_force_cannot_be_undone() -> None:
    cluster = Cluster()
    service = await shortened(cluster)
    await pass_delay(service)
    before = len(cluster.records)
    with pytest.raises(NotFound, match=r"cannot come back$"):
        await service.deletions.undo(TOPIC)
    start = StartRecord(
        partition=PartitionKey(TOPIC_ID, 1),
        remote_log_start_offset=700,
        cause=CAUSE_RETENTION,
        decided_epoch=cluster.epoch,
    )
    await service.settings.publish(start, cluster.epoch)
    with pytest.raises(NotFound, match=r"cannot come back: .*\(partition 1 at 700\) is gone"):
        await service.deletions.undo(TOPIC)
    assert len(cluster.records) == before + 1


async def test_undo_needs_an_enabled_topic_at_its_leader() -> None:
    cluster = Cluster()
    service = ServiceUnderTest(cluster)
    with pytest.raises(NotFound, match="not enabled"):
        await service.deletions.undo(TOPIC)
    await shortened(cluster)
    cluster.elect(2)
    with pytest.raises(NotLeader):
        await service.deletions.undo(TOPIC)
    await service.settings.barrier(1)
    cluster.elect(1)
    await service.settings.publish(other_record(TOPIC_ID), cluster.epoch)
    with pytest.raises(Fenced, match="other"):
        await service.deletions.undo(TOPIC)


async def test_after_a_crash_of_an_undo_it_is_undone_or_still_pending() -> None:
    for number in range(1, 100):
        cluster = Cluster()
        service = await shortened(cluster)
        crash = CrashAt(number)
        crashing = ServiceUnderTest(cluster, hook=crash, clock=service.clock)
        with contextlib.suppress(Crash):
            await crashing.deletions.undo(TOPIC)
        assert in_force(cluster) == total(WEEK_MS)
        record = cluster.record()
        assert record is not None
        restarted = ServiceUnderTest(cluster, clock=service.clock)
        await restarted.repair()
        await pass_delay(restarted)
        assert in_force(cluster) == record.total
        assert cluster.view().deletion(TOPIC_ID) is None
        if not crash.reached:
            assert record.total == total(WEEK_MS) and number > 5
            return


async def test_h10_a_keeper_that_wakes_up_late_does_not_enforce_what_was_undone() -> None:
    for number in range(1, 50):
        cluster = Cluster()
        service = await shortened(cluster)
        service.clock.advance(DELAY_MS)
        pause = PauseAt(number)
        zombie = ServiceUnderTest(cluster, hook=pause, clock=service.clock)
        await_barrier = asyncio.ensure_future(_checked(zombie))
        waiting = asyncio.ensure_future(pause.paused.wait())
        await asyncio.wait([await_barrier, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not pause.paused.is_set():
            await await_barrier
            assert number > 2
            return
        cluster.elect(2)
        successor = ServiceUnderTest(cluster, node_id=2, clock=service.clock)
        was_in_force = in_force(cluster) != total(WEEK_MS)
        with contextlib.suppress(NotFound):
            await successor.deletions.undo(TOPIC)
        pause.resume.set()
        await await_barrier
        assert in_force(cluster) == total(DAY_MS if was_in_force else WEEK_MS), f"at {number}"


async def _checked(service: ServiceUnderTest) -> None:
    with contextlib.suppress(RemoteStorageError):
        await service.settings.barrier(1_000)
        await service.deletions.check()

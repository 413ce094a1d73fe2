"""A shorter total retention is announced first and enforced later, through crashes and races."""

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import Fenced, RemoteStorageError
from rlm.plans.retention import retention_in_force
from rlm.topics.verbs import EnableOptions
from rlmm.settings_records import DeletionRecord, TopicRecord, TotalRetention
from tests.builders.clock import ManualClock
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.hooks import Crash, CrashAt, PauseAt
from tests.rlm.topics.retentions import (
    ANOTHER_ID,
    DAY_MS,
    STORED,
    UNLIMITED,
    WEEK_MS,
    enabled,
    freeze,
    in_force,
    keeping,
    other_record,
    pass_delay,
    total,
)
from tests.rlm.topics.world import DELAY_MS, ServiceUnderTest


async def test_the_retention_that_a_topic_has_is_in_force_at_once() -> None:
    cluster = Cluster()
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, EnableOptions(trim=True))
    assert in_force(cluster) == total(WEEK_MS)
    assert cluster.view().deletion(TOPIC_ID) is None


async def test_a_shorter_retention_is_in_force_after_the_delay_only() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    assert in_force(cluster) == total(WEEK_MS)
    assert cluster.view().deletion(TOPIC_ID) == DeletionRecord(
        topic_id=TOPIC_ID,
        what="retention",
        by="ada",
        delay_ms=DELAY_MS,
        decided_ms=service.clock.now_ms(),
    )
    service.clock.advance(DELAY_MS - 1)
    await service.deletions.check()
    assert in_force(cluster) == total(WEEK_MS)
    service.clock.advance(1)
    await service.deletions.check()
    assert in_force(cluster) == total(DAY_MS)
    await service.deletions.check()
    assert cluster.view().deletion(TOPIC_ID) is None


async def test_the_first_retention_of_a_topic_waits_where_it_is_shorter_than_the_brokers() -> None:
    cluster = Cluster()
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    assert in_force(cluster) == total(WEEK_MS)
    await pass_delay(service)
    assert in_force(cluster) == total(DAY_MS)


async def test_what_is_stored_already_is_kept_for_the_delay_when_a_topic_is_enabled_again() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    service.ledger.copied(STORED)
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    record = cluster.record()
    assert record is not None and record.enforced is None
    await service.verbs.enable(TOPIC, EnableOptions(by="ada"))
    assert in_force(cluster) == UNLIMITED
    await pass_delay(service)
    assert in_force(cluster) == total(WEEK_MS)


async def test_a_longer_retention_is_in_force_at_once_and_ends_what_was_pending() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    await service.verbs.enable(TOPIC, keeping(WEEK_MS + 1))
    assert in_force(cluster) == total(WEEK_MS + 1)
    await service.deletions.check()
    assert cluster.view().deletion(TOPIC_ID) is None
    await pass_delay(service)
    assert in_force(cluster) == total(WEEK_MS + 1)


async def test_of_two_changes_within_the_delay_the_laxest_stays_in_force() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    await service.verbs.enable(TOPIC, keeping(DAY_MS, 5_000))
    assert in_force(cluster) == total(WEEK_MS)
    service.clock.advance(DELAY_MS - 1)
    await service.verbs.enable(TOPIC, keeping(2 * DAY_MS, 4_000))
    assert in_force(cluster) == total(WEEK_MS)
    service.clock.advance(DELAY_MS - 1)
    await service.deletions.check()
    assert in_force(cluster) == total(WEEK_MS)
    service.clock.advance(1)
    await service.deletions.check()
    assert in_force(cluster) == total(2 * DAY_MS, 4_000)


async def test_any_change_of_the_topic_begins_the_delay_again() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    service.clock.advance(DELAY_MS)
    await service.verbs.trim_off(TOPIC, giveback=False)
    await service.deletions.check()
    assert in_force(cluster) == total(WEEK_MS)
    await pass_delay(service)
    assert in_force(cluster) == total(DAY_MS)


async def test_the_announcement_is_read_back_before_the_topics_record_is_written() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    before = len(cluster.records)
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    keys = [key.decode().split("/")[0] for key, _, _ in cluster.records[before:]]
    assert keys == ["deletion", "topic"]


async def test_a_crash_at_any_await_makes_nothing_deletable_early() -> None:
    for number in range(1, 200):
        cluster = Cluster()
        first = await enabled(cluster)
        crash = CrashAt(number)
        service = ServiceUnderTest(cluster, hook=crash, clock=first.clock)
        with contextlib.suppress(Crash):
            await service.verbs.enable(TOPIC, keeping(DAY_MS))
        for count in range(len(cluster.records) + 1):
            seen = cluster.view(count).topic(TOPIC_ID)
            assert seen is None or retention_in_force(seen).retention_ms >= WEEK_MS
        restarted = ServiceUnderTest(cluster, clock=service.clock)
        await restarted.repair()
        await pass_delay(restarted)
        assert cluster.view().deletion(TOPIC_ID) is None
        record = cluster.record()
        assert record is not None and retention_in_force(record) == record.total
        if not crash.reached:
            assert record.total == total(DAY_MS) and number > 5
            return


async def test_a_crash_of_the_keeper_is_made_good_by_the_next_one() -> None:
    for number in range(1, 200):
        cluster = Cluster()
        service = await enabled(cluster)
        await service.verbs.enable(TOPIC, keeping(DAY_MS))
        service.clock.advance(DELAY_MS)
        crash = CrashAt(number)
        keeper = ServiceUnderTest(cluster, hook=crash, clock=service.clock)
        with contextlib.suppress(Crash):
            await keeper.repair()
            await pass_delay(keeper)
        restarted = ServiceUnderTest(cluster, clock=service.clock)
        await restarted.repair()
        await pass_delay(restarted)
        assert in_force(cluster) == total(DAY_MS)
        assert cluster.view().deletion(TOPIC_ID) is None
        if not crash.reached:
            assert number > 5
            return


@pytest.mark.parametrize("after_ms", [0, DELAY_MS, 10 * DELAY_MS])
async def test_h10_a_paused_old_leader_enforces_nothing_early(after_ms: int) -> None:
    """It stops at each of its awaits; meanwhile another service keeps the topic for longer, or the
    delay passes. What it writes when it wakes up counts from then on only.
    """
    for number in range(1, 200):
        cluster = Cluster()
        first = await enabled(cluster)
        pause = PauseAt(number)
        zombie = ServiceUnderTest(cluster, hook=pause, clock=first.clock)
        work = asyncio.ensure_future(zombie.verbs.enable(TOPIC, keeping(DAY_MS)))
        waiting = asyncio.ensure_future(pause.paused.wait())
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not pause.paused.is_set():
            await work
            assert number > 5
            return
        cluster.elect(2)
        successor = ServiceUnderTest(cluster, node_id=2, clock=first.clock)
        await successor.settings.barrier(1_000)
        first.clock.advance(after_ms)
        await successor.deletions.check()
        await successor.deletions.check()
        decided = cluster.record()
        assert decided is not None
        pause.resume.set()
        with contextlib.suppress(RemoteStorageError):
            await work
        await successor.settings.barrier(1_000)
        await successor.deletions.check()
        if decided.total != total(DAY_MS):
            assert in_force(cluster) == total(WEEK_MS), f"paused at await {number}"


async def test_h10_a_longer_retention_is_not_undone_by_a_late_keeper() -> None:
    for number in range(1, 50):
        cluster = Cluster()
        service = await enabled(cluster)
        await service.verbs.enable(TOPIC, keeping(DAY_MS))
        service.clock.advance(DELAY_MS)
        pause = PauseAt(number)
        zombie = ServiceUnderTest(cluster, hook=pause, clock=service.clock)
        work = asyncio.ensure_future(_checked(zombie))
        waiting = asyncio.ensure_future(pause.paused.wait())
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not pause.paused.is_set():
            await work
            assert number > 2
            return
        cluster.elect(2)
        successor = ServiceUnderTest(cluster, node_id=2, clock=service.clock)
        await successor.verbs.enable(TOPIC, keeping(WEEK_MS))
        pause.resume.set()
        await work
        assert in_force(cluster).laxer(total(WEEK_MS)) == in_force(cluster), f"await {number}"
        record = cluster.record()
        assert record is not None and record.total == total(WEEK_MS)


async def _checked(service: ServiceUnderTest) -> None:
    with contextlib.suppress(RemoteStorageError):
        await service.settings.barrier(1_000)
        await service.deletions.check()


async def test_a_restarted_service_knows_how_old_an_announcement_is() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    service.clock.advance(DELAY_MS)
    await service.settings.publish(other_record())
    restarted = ServiceUnderTest(cluster, clock=service.clock)
    await restarted.settings.barrier(1_000)
    await restarted.deletions.check()
    assert in_force(cluster) == total(DAY_MS)


async def test_a_retention_of_a_version_that_enforced_none_is_announced_first() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    record = cluster.record()
    assert record is not None
    await service.settings.publish(replace(record, enforced=None), cluster.epoch)
    assert in_force(cluster) == UNLIMITED
    await service.deletions.check()
    found = cluster.view().deletion(TOPIC_ID)
    assert found is not None and "never enforced" in found.by
    assert in_force(cluster) == UNLIMITED
    await pass_delay(service)
    assert in_force(cluster) == total(WEEK_MS)


async def test_what_an_older_version_shortens_is_announced_first() -> None:
    """It keeps the field that it does not know."""
    cluster = Cluster()
    service = await enabled(cluster)
    record = cluster.record()
    assert record is not None
    await service.settings.publish(replace(record, retention_ms=DAY_MS), cluster.epoch)
    await service.deletions.check()
    service.clock.advance(DELAY_MS - 1)
    await service.deletions.check()
    assert in_force(cluster) == total(WEEK_MS)
    await pass_delay(service)
    assert in_force(cluster) == total(DAY_MS)


@pytest.mark.parametrize("why", ["problem", "not ready", "freeze", "not leader"])
async def test_the_keeper_enforces_nothing_while_something_is_wrong(why: str) -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    restarted = ServiceUnderTest(cluster, clock=service.clock)
    await restarted.settings.barrier(1_000)
    if why == "problem":
        restarted.settings.problem = "a record that cannot be read"
    elif why == "not ready":
        restarted.settings.is_ready = False
    elif why == "not leader":
        cluster.elect(2)
    else:
        await freeze(restarted)
    await pass_delay(restarted)
    assert in_force(cluster) == total(WEEK_MS)


async def test_h17_a_freeze_that_was_just_written_stops_the_keeper() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    other = ServiceUnderTest(cluster, node_id=2, clock=service.clock)
    await other.settings.barrier(1_000)
    service.clock.advance(DELAY_MS)
    await freeze(other)
    await service.deletions.check()
    assert in_force(cluster) == total(WEEK_MS)


async def test_h39_nothing_is_enforced_for_another_topic_of_the_name() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    await service.verbs.enable(TOPIC, keeping(DAY_MS))
    cluster.recreate(ANOTHER_ID)
    cluster.epoch = 99
    await pass_delay(service)
    assert in_force(cluster) == total(WEEK_MS)


async def test_a_topic_whose_deletion_of_another_kind_is_pending_is_not_changed() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    other = other_record(TOPIC_ID)
    await service.settings.publish(other, cluster.epoch)
    with pytest.raises(Fenced, match="other"):
        await service.verbs.enable(TOPIC, keeping(DAY_MS))
    await pass_delay(service)
    assert cluster.view().deletion(TOPIC_ID) == other


Step = tuple[str, Any]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("enable"), st.sampled_from([DAY_MS, 2 * DAY_MS, WEEK_MS, -1])),
        st.tuples(st.just("older version"), st.sampled_from([DAY_MS, WEEK_MS, -1])),
        st.tuples(st.just("advance"), st.sampled_from([1, DELAY_MS // 2, DELAY_MS])),
        st.tuples(st.just("check"), st.none()),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("elect"), st.none()),
        st.tuples(st.just("crash"), st.integers(1, 30)),
        st.tuples(st.just("disable"), st.none()),
    ),
    max_size=14,
)


@given(steps=steps)
async def test_a_retention_is_in_force_only_when_it_was_decided_for_the_whole_delay(
    steps: list[Step],
) -> None:
    """Whatever happens: when a stricter retention comes into force, no laxer one was decided within
    the delay before.
    """
    cluster, clock = Cluster(), ManualClock()
    service = ServiceUnderTest(cluster, clock=clock)
    await service.verbs.enable(TOPIC, keeping(WEEK_MS))
    service.ledger.copied(STORED)
    for what, value in steps:
        service = await _act(cluster, service, what, value)
    _assert_never_early(cluster)


async def _act(
    cluster: Cluster, service: ServiceUnderTest, what: str, value: Any
) -> ServiceUnderTest:
    with contextlib.suppress(RemoteStorageError, Crash):
        if what == "enable":
            await service.verbs.enable(TOPIC, keeping(value))
        elif what == "older version":
            record = cluster.record()
            assert record is not None
            await service.settings.barrier(1)
            await service.settings.publish(replace(record, retention_ms=value), cluster.epoch)
            await service.deletions.check()
        elif what == "advance":
            service.clock.advance(value)
        elif what == "check":
            await service.deletions.check()
        elif what == "disable":
            await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
        elif what == "crash":
            crashing = _another(cluster, service, hook=CrashAt(value))
            await crashing.verbs.enable(TOPIC, keeping(DAY_MS))
    if what == "elect":
        cluster.elect(3 - cluster.leader)
    if what in ("elect", "restart"):
        return _another(cluster, service)
    return service


def _another(cluster: Cluster, service: ServiceUnderTest, **options: Any) -> ServiceUnderTest:
    found = ServiceUnderTest(cluster, node_id=cluster.leader, clock=service.clock, **options)
    found.ledger.copied(STORED)
    return found


def _assert_never_early(cluster: Cluster) -> None:
    decided: list[tuple[int, TopicRecord]] = []
    before: TotalRetention | None = None
    for count in range(1, len(cluster.records) + 1):
        record = cluster.view(count).topic(TOPIC_ID)
        if record is None:
            continue
        now_ms = cluster.appended_ms[count - 1]
        now = retention_in_force(record)
        if before is not None and now.laxer(before) != now:
            recent = [one for at_ms, one in decided if at_ms > now_ms - DELAY_MS]
            assert all(now.laxer(one.total) == now for one in recent if one.state == "enabled")
            assert decided[-1][0] <= now_ms - DELAY_MS
        if not decided or decided[-1][1].total != record.total:
            decided.append((now_ms, record))
        before = now

"""A shorter retention that makes data deletable needs a confirmation; what it ends is shown."""

import asyncio
from dataclasses import replace

import pytest

from kip405.errors import Fenced, Invalid
from kip405.lineage import Lineage
from kip405.segments import RemoteLogSegmentMetadata
from rlm.log_dir.scanner import Closed, LocalSegment, PartitionLog
from rlm.plans.deletable import DeletableRecords
from rlm.topics.rules import RetentionOptions
from rlm.topics.shortening import RetentionPlan
from rlm.topics.verbs import EnableOptions
from tests.builders.ledger import metadata
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.retentions import WEEK_MS, enabled, keeping
from tests.rlm.topics.world import ServiceUnderTest

SIZE = 100


def stored(number: int, start: int, end: int, *, at_ms: int) -> RemoteLogSegmentMetadata:
    """[start, end), whose newest record has that timestamp."""
    return replace(
        metadata(number, start, end, {0: 0}), max_timestamp_ms=at_ms, segment_size_bytes=SIZE
    )


async def with_three_segments(cluster: Cluster) -> ServiceUnderTest:
    """Segments of 100 offsets, 300, 200 and 100 s old."""
    service = await enabled(cluster)
    now_ms = service.clock.now_ms()
    for number in range(3):
        start = number * 100
        at_ms = now_ms - (300 - start) * 1_000
        service.ledger.copied(stored(number + 1, start, start + 100, at_ms=at_ms))
    return service


def by_size(retention_bytes: int, *, yes: bool = False) -> EnableOptions:
    return EnableOptions(retention=RetentionOptions(retention_bytes=retention_bytes), yes=yes)


def records(start: int, end: int, *, segments: int, oldest_ms: int, newest_ms: int) -> object:
    return DeletableRecords(
        partition=0,
        start_offset=start,
        next_offset=end,
        size_bytes=segments * SIZE,
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
    )


async def planned(service: ServiceUnderTest, options: EnableOptions) -> RetentionPlan:
    return await service.verbs.plan_retention(TOPIC, options)


async def test_what_becomes_deletable_is_named_and_needs_yes() -> None:
    cluster = Cluster()
    service = await with_three_segments(cluster)
    now_ms = service.clock.now_ms()
    written = len(cluster.records)
    plan = await planned(service, keeping(150_000))
    assert plan.deletable == (
        records(0, 200, segments=2, oldest_ms=now_ms - 300_000, newest_ms=now_ms - 200_000),
    )
    with pytest.raises(Fenced, match=r"200 records \(200 B\) of orders deletable.*--yes"):
        await service.verbs.enable(TOPIC, keeping(150_000))
    assert len(cluster.records) == written
    await service.verbs.enable(TOPIC, replace(keeping(150_000), yes=True))
    record = cluster.record()
    assert record is not None and record.retention_ms == 150_000
    assert cluster.view().deletion(TOPIC_ID) is not None


async def test_g6_a_plan_and_the_verbs_do_not_wait_for_one_another() -> None:
    service = await with_three_segments(Cluster())
    async with asyncio.timeout(30), service.verbs.lock:
        plan = await planned(service, keeping(150_000))
    assert len(plan.deletable) == 1


async def test_a_shorter_retention_that_ends_nothing_now_needs_no_yes() -> None:
    cluster = Cluster()
    service = await with_three_segments(cluster)
    assert (await planned(service, keeping(400_000))).deletable == ()
    await service.verbs.enable(TOPIC, keeping(400_000))
    assert cluster.view().deletion(TOPIC_ID) is not None


async def test_what_the_retention_in_force_ends_already_is_not_named() -> None:
    cluster = Cluster()
    service = await with_three_segments(cluster)
    await service.verbs.enable(TOPIC, replace(keeping(250_000), yes=True))
    now_ms = service.clock.now_ms()
    pending = await planned(service, keeping(150_000))
    assert [(one.start_offset, one.next_offset) for one in pending.deletable] == [(0, 200)]
    record = cluster.record()
    assert record is not None
    in_force = replace(record, enforced=record.total)
    await service.settings.publish(in_force, cluster.epoch)
    plan = await planned(service, keeping(150_000))
    at_ms = now_ms - 200_000
    assert plan.deletable == (records(100, 200, segments=1, oldest_ms=at_ms, newest_ms=at_ms),)


async def test_by_size_local_segments_that_no_store_has_count() -> None:
    cluster = Cluster()
    service = await with_three_segments(cluster)
    assert (await planned(service, by_size(3 * SIZE))).deletable == ()
    active = LocalSegment(
        base_offset=300,
        next_offset=None,
        closed=Closed.ACTIVE,
        size_bytes=SIZE,
        inode=1,
        path="",
        max_timestamp_ms=0,
    )
    cluster.logs[0] = PartitionLog(
        topic=TOPIC,
        partition=0,
        topic_id=TOPIC_ID,
        directory="",
        segments=(active,),
        lineage=Lineage(()),
        recovery_point=None,
    )
    plan = await planned(service, by_size(3 * SIZE))
    assert [(one.start_offset, one.next_offset) for one in plan.deletable] == [(0, 100)]
    with pytest.raises(Fenced, match="100 records"):
        await service.verbs.enable(TOPIC, by_size(3 * SIZE))


async def test_enabling_again_names_what_is_stored() -> None:
    cluster = Cluster()
    service = await with_three_segments(cluster)
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    cluster.configs[TOPIC]["retention.ms"] = "250000"
    await service.verbs.enable(TOPIC, EnableOptions(retention=RetentionOptions(retention_ms=-1)))
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    with pytest.raises(Fenced, match="100 records"):
        await service.verbs.enable(
            TOPIC, EnableOptions(retention=RetentionOptions(retention_ms=250_000))
        )


async def test_a_longer_retention_and_a_change_of_other_options_name_nothing() -> None:
    cluster = Cluster()
    service = await with_three_segments(cluster)
    for options in (keeping(WEEK_MS + 1), keeping(-1), EnableOptions()):
        assert (await planned(service, options)).deletable == ()
    await service.verbs.enable(TOPIC, replace(keeping(150_000), yes=True))
    assert (await planned(service, EnableOptions())).deletable == ()
    await service.verbs.enable(TOPIC, EnableOptions())
    await service.verbs.trim_on(TOPIC, force=False)


async def test_a_plan_is_refused_as_the_change_would_be_and_writes_nothing() -> None:
    cluster = Cluster(configs={TOPIC: {"cleanup.policy": "compact"}})
    service = ServiceUnderTest(cluster)
    with pytest.raises(Invalid, match="compact"):
        await planned(service, keeping(5))
    cluster.configs[TOPIC] = {}
    assert (await planned(service, keeping(5))).deletable == ()
    assert (cluster.records, cluster.alters) == ([], [])

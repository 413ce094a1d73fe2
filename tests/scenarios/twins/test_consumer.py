"""The Tiered Storage Consumer gives of a trimmed topic what aiokafka gives of its full twin."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from rlm_client import TieredStorageConsumer
from tests.builders.opened import opened
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.objects import store_settings
from tests.scenarios.twins.topics import PARTITIONS, TwinTopics
from tiered_reads.values import ReadMode

pytestmark = pytest.mark.integration

_LIMIT_S = 120
_BOTH = (ReadMode.KAFKA_PREFERRED, ReadMode.REMOTE_PREFERRED)
_ISOLATIONS = ("read_uncommitted", "read_committed")
_SESSION_MS = 60_000
"""A group of one keeps its member, and takes its commits, where the machine stands still."""


def _endpoint(cluster: Cluster) -> str:
    return str(cluster.sandbox.json["brokers"][0]["grpc"])


def _tiered(cluster: Cluster, mode: ReadMode, **options: Any) -> TieredStorageConsumer:
    return TieredStorageConsumer(
        bootstrap_servers=cluster.direct,
        tiered_storage_mode=mode,
        rlm_endpoints=_endpoint(cluster),
        **options,
    )


async def _read(
    consumer: AIOKafkaConsumer, topic: str, ends: dict[int, int], most: int | None = None
) -> dict[int, list[ConsumerRecord]]:
    """All records by partition, until every position is at its end."""
    found: dict[int, list[ConsumerRecord]] = {one: [] for one in ends}
    async with asyncio.timeout(_LIMIT_S):
        while True:
            given = await consumer.getmany(timeout_ms=200, max_records=most)
            for partition, records in given.items():
                assert partition.topic == topic
                found[partition.partition] += records
            positions = [
                await consumer.position(TopicPartition(topic, one)) >= end
                for one, end in ends.items()
            ]
            if all(positions):
                return found


def _plain(records: Iterable[ConsumerRecord]) -> list[tuple[Any, ...]]:
    return [
        (one.offset, one.timestamp, one.timestamp_type, one.key, one.value, one.headers)
        for one in records
    ]


async def test_h37_every_mode_gives_what_aiokafka_gives_on_the_twin(twins: TwinTopics) -> None:
    cluster = twins.cluster
    for isolation in _ISOLATIONS:
        options: dict[str, Any] = {
            "isolation_level": isolation,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": _SESSION_MS,
        }
        group = fresh("twin")
        theirs = AIOKafkaConsumer(
            twins.plain, bootstrap_servers=cluster.direct, group_id=group, **options
        )
        async with opened(theirs):
            wanted, ends = await _all_of(theirs, twins.plain)
            await theirs.commit()
            committed = await _committed(theirs, twins.plain)
            starts = await theirs.beginning_offsets(_partitions(twins.plain))
            at = [row.timestamp for row in wanted[0][:: len(wanted[0]) // 5]]
            dated = [await theirs.offsets_for_times(_times(twins.plain, one)) for one in at]
        assert all(len(records) > 50 for records in wanted.values())
        for mode in _BOTH:
            ours = _tiered(cluster, mode, group_id=fresh("twin"), **options)
            ours.subscribe([twins.tiered])
            async with opened(ours):
                found, our_ends = await _all_of(ours, twins.tiered, most=97)
                await ours.commit()
                assert our_ends == ends
                for one in range(PARTITIONS):
                    assert _plain(found[one]) == _plain(wanted[one])
                assert await _committed(ours, twins.tiered) == committed
                assert _values(await ours.beginning_offsets(_partitions(twins.tiered))) == (
                    _values(starts)
                )
                for stamp, answer in zip(at, dated, strict=True):
                    our_answer = await ours.offsets_for_times(_times(twins.tiered, stamp))
                    assert _values(our_answer) == _values(answer)
                counters = ours.counters()
                assert counters.remote.records > 0 and counters.kafka.records > 0
                assert counters.offsets_missed == 0
        await _check_remote_only(twins, wanted, options)


async def test_h37_what_the_store_has_is_the_same(twins: TwinTopics) -> None:
    """Read by the consumer itself: every tier and epoch, transactions, and the border of tiers."""
    cluster = twins.cluster
    stores = store_settings(cluster)
    for isolation in _ISOLATIONS:
        options = {"isolation_level": isolation, "auto_offset_reset": "earliest"}
        theirs = AIOKafkaConsumer(twins.plain, bootstrap_servers=cluster.direct, **options)
        async with opened(theirs):
            wanted, ends = await _all_of(theirs, twins.plain)
        for mode in _BOTH:
            ours = _tiered(cluster, mode, remote_reads="store", rlm_stores=stores, **options)
            ours.assign(_partitions(twins.tiered))
            async with opened(ours):
                found, our_ends = await _all_of(ours, twins.tiered, most=97)
                assert our_ends == ends
                for one in range(PARTITIONS):
                    assert _plain(found[one]) == _plain(wanted[one])
                counters = ours.counters()
                assert counters.store.records > counters.remote.records
                assert counters.kafka.records > 0 and counters.offsets_missed == 0


async def _check_remote_only(
    twins: TwinTopics, wanted: dict[int, list[ConsumerRecord]], options: dict[str, Any]
) -> None:
    ours = _tiered(twins.cluster, ReadMode.REMOTE_ONLY, **options)
    ours.assign(_partitions(twins.tiered))
    async with opened(ours):
        ends = _values(await ours.end_offsets(_partitions(twins.tiered)))
        assert ends == {one: offsets.remote_end for one, offsets in enumerate(twins.offsets)}
        found = await _read(ours, twins.tiered, ends)
        for one, end in ends.items():
            remote = [record for record in wanted[one] if record.offset < end]
            assert _plain(found[one]) == _plain(remote)
        assert ours.counters().kafka.records == 0


async def _all_of(
    consumer: AIOKafkaConsumer, topic: str, most: int | None = None
) -> tuple[dict[int, list[ConsumerRecord]], dict[int, int]]:
    ends = _values(await consumer.end_offsets(_partitions(topic)))
    return await _read(consumer, topic, ends, most), ends


async def _committed(consumer: AIOKafkaConsumer, topic: str) -> dict[int, int | None]:
    return {one.partition: await consumer.committed(one) for one in _partitions(topic)}


def _partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, one) for one in range(PARTITIONS)]


def _times(topic: str, timestamp_ms: int) -> dict[TopicPartition, int]:
    return dict.fromkeys(_partitions(topic), timestamp_ms)


def _values(found: dict[TopicPartition, Any]) -> dict[int, Any]:
    return {one.partition: value for one, value in found.items()}

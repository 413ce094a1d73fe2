"""The proxy before a real Kafka broker: trimmed data comes from captured bytes of that very broker.

The tier here is made of what the broker itself answered before its log start moved, so that
unmodified clients (Java, librdkafka, aiokafka) check every byte and position.
"""

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from kafka_protocol.apis import FETCH, LIST_OFFSETS, METADATA
from kip405.batches import cut_batches
from kip405.ids import Uuid
from rlm.clock import SystemClock, new_uuid
from rlm.proxy.server import ProxyServer
from rlm.proxy.settings import ProxySettings
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.tier import TierPartition, TopicRef, Watermarks
from tests.builders.opened import opened
from tests.builders.snapshots import epochs_from
from tests.rlm.proxy.border import reach, settled
from tests.rlm.proxy.fake_deletions import FakeDeletions
from tests.rlm.proxy.fakes import FakeTier, Value, asked, tier_partition
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.uncounted import Counting, NoQuota
from tests.sandbox_fixtures import KafkaCluster

pytestmark = pytest.mark.integration

COUNT = 3_000
REMOTE_NEXT = 2_000
LOCAL_START = 1_500
FIRST_TIMESTAMP = 1_700_000_000_000
Record = tuple[int, int, bytes | None, bytes | None]


def expected(offset: int) -> Record:
    value = None if offset % 50 == 7 else b"value-%d-" % offset + b"x" * (offset % 400)
    return offset, FIRST_TIMESTAMP + offset, b"key-%d" % offset, value


ALL = [expected(offset) for offset in range(COUNT)]


class CapturedTier(FakeTier):
    """The bytes of [0, REMOTE_NEXT) as the broker answered them once."""

    stored: memoryview = memoryview(b"")
    topic_name = ""

    def _find(self, topic: TopicRef, partition: int) -> TierPartition | None:
        view = self.partitions.get(partition)
        if view is None or (topic.name != self.topic_name and topic.topic_id != view.topic_id):
            return None
        return view

    async def read(self, request: RemoteRead) -> RemoteRecords:
        await self.gate.wait()
        start, end, next_offset = cut_batches(
            self.stored,
            request.offset,
            request.max_bytes,
            request.at_least_one,
            request.upper_offset,
        )
        records = self.stored[start:end]
        return RemoteRecords(
            records=(records,), size_bytes=len(records), next_offset=next_offset, aborted=()
        )

    async def offset_for_timestamp(
        self, topic_id: Uuid, partition: int, timestamp_ms: int, start_offset: int = 0
    ) -> TimestampedOffset | None:
        offset = max(0, timestamp_ms - FIRST_TIMESTAMP)
        if offset >= REMOTE_NEXT:
            return None
        return TimestampedOffset(
            offset=offset, timestamp_ms=FIRST_TIMESTAMP + offset, leader_epoch=0
        )


@dataclass
class Archive:
    """A topic with trimmed data, and the proxy before it."""

    cluster: KafkaCluster
    topic: str
    topic_id: Uuid
    tier: CapturedTier
    metrics: Counting
    bootstrap: str
    tiered_port: int


async def _produce(bootstrap: str, topic: str, compression: str = "producer") -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    async with opened(admin):
        keep = {"retention.ms": "-1", "compression.type": compression}  # the records are old
        await admin.create_topics([NewTopic(topic, 2, 1, topic_configs=keep)])
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    async with opened(producer):
        for offset, timestamp_ms, key, value in ALL:
            await producer.send(topic, value, key, 0, timestamp_ms)
            if offset % 50 == 49:  # batches end here: so may the remote data
                await producer.flush()
        await producer.flush()


async def capture(port: int, topic: str, count: int = COUNT) -> tuple[Uuid, bytes]:
    client = RawClient(*await asyncio.open_connection("127.0.0.1", port))
    answer = await client.call(METADATA, 12, {"topics": [{"name": topic}]})
    topic_id = answer["topics"][0]["topic_id"]
    stored, offset = b"", 0
    while offset < count:
        request = {
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 50_000_000,
            "topics": [{"topic_id": topic_id, "partitions": [asked(offset, 0, 50_000_000)]}],
        }
        answer = await client.call(FETCH, 15, request)
        [partition] = answer["responses"][0]["partitions"]
        assert partition["error_code"] == 0
        stored += partition["records"]
        offset = _end(stored)
    client.writer.close()
    return Uuid(topic_id), stored


def _end(stored: bytes) -> int:
    """Offset after the last batch."""
    position, end = 0, 0
    while position < len(stored):
        base, size = struct.unpack_from(">qi", stored, position)
        (delta,) = struct.unpack_from(">i", stored, position + 23)
        position, end = position + 12 + size, base + delta + 1
    return end


async def _trim(tier: CapturedTier, cluster: KafkaCluster, topic: str, port: int) -> Uuid:
    """Keep what the broker holds, trim it there, and let the tier say so."""
    topic_id, stored = await capture(port, topic)
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    async with opened(admin):
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(LOCAL_START)})
    tier.stored, tier.topic_name = memoryview(stored), topic
    tier.epochs = epochs_from((0, 0))
    tier.broker_watermarks = Watermarks(
        high_watermark=COUNT, last_stable_offset=COUNT, log_start_offset=LOCAL_START
    )
    tier.partitions[0] = tier_partition(
        topic_id=topic_id,
        topic=topic,
        remote_next_offset=REMOTE_NEXT,
        watermarks=tier.broker_watermarks,
        leader_epoch=0,
    )
    return topic_id


@pytest.fixture
async def archive(kafka_cluster: KafkaCluster) -> AsyncIterator[Archive]:
    topic = f"proxied-{new_uuid()}"
    [ports] = kafka_cluster.sandbox.state.ports.values()
    tier, metrics = CapturedTier(), Counting()
    settings = ProxySettings(
        listen_host="127.0.0.1",
        listen_port=ports.proxy,
        upstream_host="127.0.0.1",
        upstream_port=ports.tiered,
    )
    async with reach(tier, FakeDeletions()) as near:
        proxy = ProxyServer(settings, near.tier, near.deletions, SystemClock(), metrics, NoQuota())
        await proxy.start()
        bootstrap = f"127.0.0.1:{ports.proxy}"
        try:
            await _produce(bootstrap, topic)  # through the proxy
            topic_id = await _trim(tier, kafka_cluster, topic, ports.tiered)
            await settled()
            yield Archive(kafka_cluster, topic, topic_id, tier, metrics, bootstrap, ports.tiered)
        finally:
            await proxy.close()


async def _aiokafka(archive: Archive, isolation: str) -> list[Record]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=archive.bootstrap,
        auto_offset_reset="earliest",
        isolation_level=isolation,
        max_partition_fetch_bytes=20_000,
    )
    async with opened(consumer):
        partition = TopicPartition(archive.topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        found: list[Record] = []
        async with asyncio.timeout(120):
            while len(found) < COUNT:
                batch = await consumer.getmany(timeout_ms=500)
                for records in batch.values():
                    found += [(r.offset, r.timestamp, r.key, r.value) for r in records]
        return found


def _librdkafka(archive: Archive) -> list[Record]:
    consumer = Consumer(
        {
            "bootstrap.servers": archive.bootstrap,
            "group.id": archive.topic,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.message.max.bytes": 20_000,
        }
    )
    consumer.assign([ConfluentPartition(archive.topic, 0, 0)])
    found: list[Record] = []
    while len(found) < COUNT:
        messages = consumer.consume(500, timeout=120)
        assert messages, f"{len(found)} records, then nothing for two minutes"
        for message in messages:
            assert message.error() is None
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.timestamp()[1], message.key(), message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("view_hidden", [False, True], ids=["known", "reactive"])
async def test_unmodified_clients_read_every_record_once(
    archive: Archive, view_hidden: bool
) -> None:
    archive.tier.view_hidden = view_hidden
    assert await _aiokafka(archive, "read_uncommitted") == ALL
    assert await _aiokafka(archive, "read_committed") == ALL
    assert await asyncio.to_thread(_librdkafka, archive) == ALL
    assert archive.metrics.spliced_bytes > 3 * len(archive.tier.stored) * LOCAL_START // COUNT // 2


async def test_java_reads_every_record_once(archive: Archive) -> None:
    result = await asyncio.to_thread(
        archive.cluster.sandbox.dist.run_tool,
        "console-consumer",
        *("--bootstrap-server", archive.bootstrap, "--topic", archive.topic),
        *("--from-beginning", "--max-messages", str(COUNT), "--timeout-ms", "60000"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
    )
    lines = result.stdout.splitlines()
    wanted = [
        f"Offset:{offset}\t{(key or b'').decode()}\t{(value or b'null').decode()}"
        for offset, _, key, value in ALL
    ]
    assert lines == wanted


@pytest.mark.parametrize("version", [1, 4, 7, 11])
async def test_positions_against_the_real_broker(archive: Archive, version: int) -> None:
    port = int(archive.bootstrap.rpartition(":")[2])

    async def ask(at: int, timestamp: int) -> tuple[int, int, int]:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", at))
        partitions = [{"partition_index": 0, "timestamp": timestamp}]
        request: Value = {
            "replica_id": -1,
            "topics": [{"name": archive.topic, "partitions": partitions}],
        }
        answer = await client.call(LIST_OFFSETS, version, request)
        client.writer.close()
        [partition] = answer["topics"][0]["partitions"]
        return partition["error_code"], partition["offset"], partition["leader_epoch"]

    epoch = 0 if version >= 4 else -1
    assert await ask(port, -1) == (0, COUNT, epoch)
    assert await ask(port, -2) == (0, 0, epoch)
    assert await ask(archive.tiered_port, -2) == (0, LOCAL_START, epoch)
    assert (await ask(port, FIRST_TIMESTAMP + 10))[:2] == (0, 10)
    assert (await ask(port, FIRST_TIMESTAMP + 2_500))[:2] == (0, 2_500)
    if version == 11:
        assert await ask(archive.tiered_port, -5) == (0, -1, -1)
        assert await ask(archive.tiered_port, -6) == (0, -1, -1)
        assert await ask(port, -4) == (0, LOCAL_START, epoch)
        assert await ask(port, -5) == (0, REMOTE_NEXT - 1, epoch)
        assert await ask(port, -6) == (0, REMOTE_NEXT, epoch)
    else:
        for timestamp in (-4, -5, -6):
            if timestamp < -4 or version < 8:
                direct = await ask(archive.tiered_port, timestamp)
                assert direct[0] != 0
                assert await ask(port, timestamp) == direct


async def test_h15_a_hole_against_the_real_broker(archive: Archive) -> None:
    archive.tier.partitions[0] = replace(archive.tier.partitions[0], remote_next_offset=1_000)
    found = await _some(archive, 900)
    assert [offset for offset in found if offset < 1_000] == list(range(900, 1_000))
    assert [offset for offset in found if offset >= 1_000][:5] == list(
        range(LOCAL_START, LOCAL_START + 5)
    )


async def _some(archive: Archive, first: int) -> list[int]:
    consumer = AIOKafkaConsumer(bootstrap_servers=archive.bootstrap, auto_offset_reset="none")
    async with opened(consumer):
        partition = TopicPartition(archive.topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, first)
        found: list[int] = []
        async with asyncio.timeout(120):
            while len(found) < 500:
                batch = await consumer.getmany(timeout_ms=500)
                found += [record.offset for records in batch.values() for record in records]
        return found


@pytest.mark.usefixtures("short_first_moment")
async def test_h20_long_polling_beside_remote_data_that_is_not_ready(archive: Archive) -> None:
    archive.tier.gate.clear()
    port = int(archive.bootstrap.rpartition(":")[2])
    client = RawClient(*await asyncio.open_connection("127.0.0.1", port))
    request = {
        "max_wait_ms": 400,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "topics": [{"topic_id": archive.topic_id.raw, "partitions": [asked(0, 0), asked(0, 1)]}],
    }
    began = time.monotonic()
    for _ in range(2):
        answer = await client.call(FETCH, 18, request)
        first, second = answer["responses"][0]["partitions"]
        assert (first["error_code"], first["records"], first["high_watermark"]) == (0, b"", COUNT)
        assert (second["error_code"], second["records"]) == (0, b"")
    assert 0.7 < time.monotonic() - began < 30
    calling = asyncio.ensure_future(client.call(FETCH, 18, {**request, "max_wait_ms": 60_000}))
    producer = AIOKafkaProducer(bootstrap_servers=archive.bootstrap)
    async with opened(producer):
        await producer.send_and_wait(archive.topic, b"tail", partition=1)
        sent = time.monotonic()
        answer = await calling
        assert time.monotonic() - sent < 30
    assert b"tail" in answer["responses"][0]["partitions"][1]["records"]
    client.writer.close()


@pytest.mark.parametrize("compression", ["producer", "zstd"])
async def test_old_clients_are_given_zstd_as_by_the_broker(
    archive: Archive, compression: str
) -> None:
    """A 4.x broker refuses no version, whatever the topic's compression.type and the batches'."""
    topic = f"{compression}-{archive.topic}"
    await _produce(archive.bootstrap, topic, compression)
    await _trim(archive.tier, archive.cluster, topic, archive.tiered_port)
    codec = archive.tier.stored[22] & 7
    assert codec == (4 if compression == "zstd" else 1)
    for version in (4, 9, 10):
        given = []
        for port in (archive.tiered_port, int(archive.bootstrap.rpartition(":")[2])):
            client = RawClient(*await asyncio.open_connection("127.0.0.1", port))
            for offset in (0, LOCAL_START):
                request = {
                    "replica_id": -1,
                    "max_wait_ms": 30_000,
                    "min_bytes": 1,
                    "max_bytes": 1_000_000,
                    "topics": [{"topic": topic, "partitions": [asked(offset, 0, 20_000)]}],
                }
                answer = await client.call(FETCH, version, request)
                [partition] = answer["responses"][0]["partitions"]
                given.append((partition["error_code"], partition["records"][22:23]))
            client.writer.close()
        attributes = bytes([codec])
        assert given == [(1, b""), (0, attributes), (0, attributes), (0, attributes)]

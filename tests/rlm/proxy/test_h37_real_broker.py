"""H37 before a real broker: its epochs are cut by a trim, and clients say which one they read last.

kafka-python 3.x sends `last_fetched_epoch`; a broker that knows nothing below its log start calls
that a divergence for every remote position, and the client asks again for ever.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from kafka_protocol.apis import FETCH, LIST_OFFSETS
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.clock import SystemClock, new_uuid
from rlm.proxy.server import ProxyServer
from rlm.proxy.settings import ProxySettings
from rlm.remote_log.mirrored import LeaderEpochs
from rlm.remote_log.tier import Watermarks
from tests.builders.opened import opened
from tests.rlm.proxy.border import ONE_PROCESS, WORKER, reach, settled
from tests.rlm.proxy.fake_deletions import FakeDeletions
from tests.rlm.proxy.fakes import Value, asked, tier_partition
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.test_real_broker import CapturedTier, capture
from tests.rlm.proxy.uncounted import Counting, NoQuota
from tests.sandbox_fixtures import KafkaCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize(  # each restarts the broker three times
        "border", [ONE_PROCESS, pytest.param(WORKER, marks=pytest.mark.long)], indirect=True
    ),
]

EPOCH_RECORDS = 400  # records under one leader epoch
EPOCHS = 4
COUNT = EPOCH_RECORDS * EPOCHS
REMOTE_NEXT = 1_400
LOCAL_START = 1_300  # in the last epoch
BATCH = 50


@dataclass
class Trimmed:
    """A topic of several leader epochs, trimmed up to the last one, behind a proxy."""

    topic: str
    tier: CapturedTier
    metrics: Counting
    bootstrap: str
    lineage: Lineage
    topic_id: bytes
    broker_port: int


async def _produce(bootstrap: str, topic: str, start: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    async with opened(producer):
        for offset in range(start, start + EPOCH_RECORDS):
            await producer.send(topic, b"value-%d" % offset, None, 0)
            if offset % BATCH == BATCH - 1:
                await producer.flush()


def _epochs(log_dir: Path, topic: str) -> Lineage:
    lines = (log_dir / f"{topic}-0" / "leader-epoch-checkpoint").read_text().split("\n")
    pairs = [tuple(map(int, line.split())) for line in lines[2:] if line]
    return Lineage.of(EpochEntry(epoch=epoch, start_offset=start) for epoch, start in pairs)


async def _latest(port: int, topic: str) -> tuple[int, int]:
    """(end offset, leader epoch), once the broker answers."""
    request: Value = {
        "replica_id": -1,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    }
    client = RawClient(*await asyncio.open_connection("127.0.0.1", port))
    try:
        answer = await client.call(LIST_OFFSETS, 7, request)
    finally:
        client.writer.close()
    [partition] = answer["topics"][0]["partitions"]
    assert partition["error_code"] == 0
    return partition["offset"], partition["leader_epoch"]


@pytest.fixture
async def trimmed(kafka_cluster: KafkaCluster) -> AsyncIterator[Trimmed]:
    topic = f"epochs-{new_uuid()}"
    sandbox, direct = kafka_cluster.sandbox, kafka_cluster.bootstrap_servers
    [ports] = sandbox.state.ports.values()
    admin = AIOKafkaAdminClient(bootstrap_servers=direct)
    async with opened(admin):
        await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "-1"})])
    for number in range(EPOCHS):
        if number:
            await asyncio.to_thread(sandbox.stop, "broker:1")
            await asyncio.to_thread(sandbox.start, "broker:1")
        await _produce(direct, topic, number * EPOCH_RECORDS)
    topic_id, stored = await capture(ports.tiered, topic, COUNT)
    lineage = _epochs(kafka_cluster.log_dirs[0], topic)
    end, leader_epoch = await _latest(ports.tiered, topic)
    assert (end, len(lineage.entries), lineage.latest_epoch) == (COUNT, EPOCHS, leader_epoch)
    admin = AIOKafkaAdminClient(bootstrap_servers=direct)
    async with opened(admin):
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(LOCAL_START)})
    tier = CapturedTier()
    tier.stored, tier.topic_name = memoryview(stored), topic
    tier.broker_watermarks = Watermarks(
        high_watermark=COUNT, last_stable_offset=COUNT, log_start_offset=LOCAL_START
    )
    tier.partitions[0] = tier_partition(
        topic_id=topic_id,
        topic=topic,
        remote_next_offset=REMOTE_NEXT,
        watermarks=tier.broker_watermarks,
        leader_epoch=leader_epoch,
    )
    tier.epochs = LeaderEpochs(lineage=lineage, log_end_offset=COUNT, remote_log_start_offset=0)
    metrics = Counting()
    settings = ProxySettings(
        listen_host="127.0.0.1",
        listen_port=ports.proxy,
        upstream_host="127.0.0.1",
        upstream_port=ports.tiered,
    )
    async with reach(tier, FakeDeletions()) as near:
        proxy = ProxyServer(settings, near.tier, near.deletions, SystemClock(), metrics, NoQuota())
        await proxy.start()
        try:
            await settled()
            yield Trimmed(
                topic,
                tier,
                metrics,
                f"127.0.0.1:{ports.proxy}",
                lineage,
                topic_id.raw,
                ports.tiered,
            )
        finally:
            await proxy.close()


def _kafka_python(trimmed: Trimmed) -> list[tuple[int, bytes]]:
    consumer = KafkaConsumer(
        bootstrap_servers=trimmed.bootstrap,
        auto_offset_reset="none",
        enable_auto_commit=False,
        max_partition_fetch_bytes=2_000,
    )
    partition = PythonPartition(trimmed.topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found: list[tuple[int, bytes]] = []
    try:
        while len(found) < COUNT:
            batches = consumer.poll(timeout_ms=120_000)
            assert batches, f"{len(found)} records, then nothing for two minutes"
            found += [(r.offset, r.value) for records in batches.values() for r in records]
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("view_hidden", [False, True], ids=["known", "reactive"])
async def test_h37_kafka_python_reads_over_leader_changes(
    trimmed: Trimmed, view_hidden: bool
) -> None:
    trimmed.tier.view_hidden = view_hidden
    found = await asyncio.to_thread(_kafka_python, trimmed)
    assert found == [(offset, b"value-%d" % offset) for offset in range(COUNT)]


async def _fetch(port: int, trimmed: Trimmed, offset: int, epoch: int) -> Value:
    client = RawClient(*await asyncio.open_connection("127.0.0.1", port))
    one = asked(offset, 0, 100_000, last_fetched_epoch=epoch)
    request = {
        "max_wait_ms": 30_000 if offset < COUNT else 1,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "topics": [{"topic_id": trimmed.topic_id, "partitions": [one]}],
    }
    answer = await client.call(FETCH, 17, request)
    client.writer.close()
    [partition] = answer["responses"][0]["partitions"]
    assert isinstance(partition, dict)
    return partition


async def test_h37_epochs_are_compared_with_the_whole_history(trimmed: Trimmed) -> None:
    port = int(trimmed.bootstrap.rpartition(":")[2])
    first, second, *_, last = trimmed.lineage.entries
    for offset, epoch, error_code, diverging, has_records in (
        (EPOCH_RECORDS, first.epoch, 0, (-1, -1), True),
        (EPOCH_RECORDS + 1, first.epoch, 0, (first.epoch, EPOCH_RECORDS), False),
        (EPOCH_RECORDS + 1, second.epoch, 0, (-1, -1), True),
        (100, last.epoch, 0, (-1, -1), True),
        (LOCAL_START + 1, first.epoch, 0, (first.epoch, EPOCH_RECORDS), False),
        (LOCAL_START, first.epoch, 0, (first.epoch, EPOCH_RECORDS), False),
        (LOCAL_START, last.epoch, 0, (-1, -1), True),
        (COUNT, last.epoch, 0, (-1, -1), False),
        (COUNT + 1, last.epoch, 0, (last.epoch, COUNT), False),
        (100, last.epoch + 1, 1, (-1, -1), False),
        (LOCAL_START, last.epoch + 1, 1, (-1, -1), False),
        (COUNT, last.epoch + 1, 1, (-1, -1), False),
    ):
        found = await _fetch(port, trimmed, offset, epoch)
        found_end = found["diverging_epoch"]
        assert (
            found["error_code"],
            (found_end["epoch"], found_end["end_offset"]),
            bool(found["records"]),
        ) == (error_code, diverging, has_records), (offset, epoch)
    direct = await _fetch(trimmed.broker_port, trimmed, COUNT, last.epoch + 1)
    assert (direct["error_code"], direct["high_watermark"]) == (1, -1)

"""Ledger and settings on a real broker: publish and read back, barrier, zombies, lost topics."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

import pytest
from aiokafka import AIOKafkaProducer, structs
from aiokafka.admin import AIOKafkaAdminClient

from kip405.errors import Fenced, Unavailable
from kip405.ids import TopicPartition
from rlm.clock import SystemClock, new_uuid
from rlmm.clients import ConnectionSettings, make_consumer, make_producer
from rlmm.publisher import Record
from rlmm.records import LedgerKey, RecordHeaders, encode_record_value, ledger_partition
from rlmm.settings import ClusterRecord, FreezeRecord, StartRecord
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.opened import opened
from tests.rlmm.builders import DELETED, DELETING, FINISHED, KEY, STARTED, segment
from tests.rlmm.running import RunningMetadata, running
from tests.sandbox_fixtures import SandboxFactory
from tests.waiting import until

pytestmark = pytest.mark.integration

BARRIER_MS = 60_000
"""A barrier that is passed takes a moment, or what a busy machine needs."""


class Cluster(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...


@pytest.fixture
async def bootstrap(kafka_cluster: Cluster) -> AsyncIterator[str]:
    """The cluster without our topics, before and after."""
    await _delete_topics(kafka_cluster.bootstrap_servers)
    yield kafka_cluster.bootstrap_servers
    await _delete_topics(kafka_cluster.bootstrap_servers)


async def _delete_topics(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    async with opened(admin):
        present = set(await admin.list_topics()) & {LEDGER_TOPIC, SETTINGS_TOPIC}
        if present:
            await admin.delete_topics(sorted(present))
        async with asyncio.timeout(60):
            while present & set(await admin.list_topics()):  # noqa: ASYNC110 - Kafka has no event
                await asyncio.sleep(0.1)


async def _topics(bootstrap: str) -> set[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    async with opened(admin):
        return set(await admin.list_topics())


async def test_a_segment_lives_and_dies_in_every_readers_view(bootstrap: str) -> None:
    async with running(bootstrap) as mine, running(bootstrap) as other:
        assert mine.manager.problem is None
        assert set(mine.log.topic_ids) == {LEDGER_TOPIC, SETTINGS_TOPIC}
        await mine.manager.publish(segment(1, STARTED), 5, -1)
        await mine.manager.publish(segment(1, FINISHED), 5, STARTED)
        assert mine.manager.ledger(KEY).entries[segment(1).segment_id.id].state is FINISHED
        await other.manager.barrier(KEY, BARRIER_MS)
        assert other.manager.ledger(KEY).entries[segment(1).segment_id.id].state is FINISHED
        await other.manager.publish(segment(1, DELETING), 6, FINISHED)
        await other.manager.publish(segment(1, DELETED), 6, DELETING)
        await other.manager.tombstone(segment(1).segment_id, 6)
        await mine.manager.barrier(KEY, BARRIER_MS)
        assert not mine.manager.ledger(KEY).entries
        with pytest.raises(Fenced):
            await mine.manager.publish(segment(2, STARTED), 5, -1)
    async with running(bootstrap) as later:
        assert not later.manager.ledger(KEY).entries
        assert not later.manager.ledger(KEY).disputes


async def test_h03_a_zombies_finished_is_disputed_and_repaired(bootstrap: str) -> None:
    async with running(bootstrap) as leader:
        await leader.manager.publish(segment(1, STARTED), 5, -1)
        await leader.manager.publish(segment(1, DELETING), 6, STARTED)
        await leader.manager.publish(segment(1, DELETED), 6, DELETING)
        await leader.manager.tombstone(segment(1).segment_id, 6)
        headers = RecordHeaders(leader_epoch=5, expected_previous=STARTED, writer=new_uuid())
        producer = make_producer(
            ConnectionSettings(bootstrap_servers=(bootstrap,), client_id="zombie")
        )
        async with opened(producer):
            await producer.send_and_wait(
                LEDGER_TOPIC,
                key=LedgerKey.of(segment(1).segment_id).encode(),
                value=encode_record_value(segment(1, FINISHED)),
                partition=ledger_partition(KEY),
                headers=headers.encode(),
            )
        await leader.manager.barrier(KEY, BARRIER_MS)
        assert segment(1).segment_id.id in leader.manager.ledger(KEY).disputes
        assert await leader.manager.repair(KEY, 6) == 1
        assert not leader.manager.ledger(KEY).entries
        assert not leader.manager.ledger(KEY).disputes


async def test_settings_are_read_back_and_the_start_never_goes_back(bootstrap: str) -> None:
    record = StartRecord(partition=KEY, remote_log_start_offset=100, cause="enable")
    lower = StartRecord(partition=KEY, remote_log_start_offset=50, cause="enable")
    async with running(bootstrap) as mine, running(bootstrap) as other:
        await mine.settings.publish(record, leader_epoch=3)
        assert mine.settings.view.remote_log_start(KEY) == 100
        await other.settings.barrier(BARRIER_MS)
        assert other.settings.view.remote_log_start(KEY) == 100
        with pytest.raises(Fenced):
            await other.settings.publish(lower, leader_epoch=4)
        with pytest.raises(Fenced):
            await other.settings.tombstone(record.key, 2)
        await other.settings.tombstone(record.key, 3)
        await mine.settings.barrier(BARRIER_MS)
        assert mine.settings.view.remote_log_start(KEY) is None


async def test_h17_a_barrier_is_behind_what_others_published_before(bootstrap: str) -> None:
    async with running(bootstrap) as writer, running(bootstrap) as reader:
        for number in range(20):
            await writer.manager.publish(segment(number, STARTED), 5, -1)
            async with asyncio.TaskGroup() as group:
                for _ in range(10):
                    group.create_task(reader.manager.barrier(KEY, BARRIER_MS))
            assert len(reader.manager.ledger(KEY).entries) == number + 1


@pytest.fixture
def creating_bootstrap(sandbox_factory: SandboxFactory) -> str:
    """A cluster of its own that creates every topic somebody asks for."""
    overrides = ("broker.auto.create.topics.enable=true",)
    return str(sandbox_factory(services=False, overrides=overrides).direct_bootstrap)


async def test_h06_a_deleted_ledger_stays_absent_and_stops_everything(
    creating_bootstrap: str,
) -> None:
    bootstrap = creating_bootstrap
    async with running(bootstrap) as records:
        await records.manager.publish(segment(1, STARTED), 5, -1)
        await _remember(records)
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        async with opened(admin):
            await admin.delete_topics([LEDGER_TOPIC])
        await until(lambda: records.manager.problem)
        with pytest.raises(Unavailable, match="missing"):
            await records.manager.publish(segment(2, STARTED), 5, -1)
        with pytest.raises(Unavailable, match="missing"):
            await records.manager.barrier(KEY, 60_000)
        await records.settings.publish(
            FreezeRecord(topic_id=None, stopped=("trim",), by="test", why="no ledger")
        )
        assert LEDGER_TOPIC not in await _topics(bootstrap)
    async with running(bootstrap, wait=False) as restarted:
        await asyncio.sleep(2)
        assert not restarted.manager.is_ready
        assert LEDGER_TOPIC not in await _topics(bootstrap)
    async with running(bootstrap, remembered={SETTINGS_TOPIC: new_uuid()}, wait=False) as foreign:
        await until(lambda: "recreated" in (foreign.log.problem or ""))
    await _asking_creates_nothing(bootstrap)


async def _asking_creates_nothing(bootstrap: str) -> None:
    """Ours asks and nothing happens; aiokafka's own asks and the broker creates it."""
    connection = ConnectionSettings(bootstrap_servers=(bootstrap,), client_id="asks")
    await _ask(make_producer(connection), "asked-by-us")
    consumer = make_consumer(connection)
    async with opened(consumer):
        consumer.assign([structs.TopicPartition("asked-by-us", 0)])
        await consumer.getmany(timeout_ms=500)
    async with asyncio.timeout(60):
        while "asked-by-aiokafka" not in (topics := await _topics(bootstrap)):
            # Where the machine stalls it may not have asked in time.
            await _ask(AIOKafkaProducer(bootstrap_servers=bootstrap), "asked-by-aiokafka")
    assert "asked-by-us" not in topics


async def _ask(producer: AIOKafkaProducer, topic: str) -> None:
    async with opened(producer):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await producer.send_and_wait(topic, b"value")


async def _remember(records: RunningMetadata) -> None:
    ids = records.log.topic_ids
    cluster = ClusterRecord(
        cluster_id="c", ledger_topic_id=ids[LEDGER_TOPIC], settings_topic_id=ids[SETTINGS_TOPIC]
    )
    await records.settings.publish(cluster)


async def test_h10_no_answer_in_time_is_an_unknown_outcome_until_a_barrier(
    bootstrap: str,
) -> None:
    async with running(bootstrap) as records:
        clock = SystemClock()
        topic_partition = TopicPartition(SETTINGS_TOPIC, 0)
        record = Record(topic_partition=topic_partition, key=b"x", value=None)
        outcomes = await asyncio.gather(
            *(records.log.publish(record, timeout_ms) for timeout_ms in (1, 5_000)),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], Unavailable)
        await clock.sleep_ms(10)
        await records.log.barrier(topic_partition, BARRIER_MS)
        assert records.settings.view.version >= 0
        await records.log.publish(record, BARRIER_MS)

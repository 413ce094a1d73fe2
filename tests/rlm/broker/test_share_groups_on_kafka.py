"""Share groups of a real broker, as Kafka's own console share consumer leaves them (H19)."""

import asyncio
import contextlib

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from kip405.addresses import Address
from kip405.errors import Unavailable
from rlm.broker.share_groups import BrokerShareGroups
from rlm_sandbox.kafka_dist import resolve_kafka
from tests.builders.clock import ManualClock
from tests.builders.opened import opened
from tests.sandbox_fixtures import KafkaCluster

pytestmark = pytest.mark.integration

TOPIC = "share-groups-read-this"
CONFIGS = "kafka.admin.ConfigCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"


async def tool(cluster: KafkaCluster, main_class: str, *args: str) -> str:
    """Output of one of Kafka's tools."""
    done = await asyncio.to_thread(
        resolve_kafka().run_tool, main_class, "--bootstrap-server", cluster.bootstrap_servers, *args
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def produce(cluster: KafkaCluster, count: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    async with opened(admin):
        await admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    async with opened(producer):
        for number in range(count):
            await producer.send_and_wait(TOPIC, b"%d" % number, partition=0)


async def begin_at_the_oldest(cluster: KafkaCluster, group: str) -> None:
    await tool(
        cluster,
        CONFIGS,
        *("--entity-type", "groups", "--entity-name", group),
        *("--alter", "--add-config", "share.auto.offset.reset=earliest"),
    )


async def consume(cluster: KafkaCluster, group: str, count: int) -> None:
    await tool(
        cluster,
        CONSUMER,
        *("--topic", TOPIC, "--group", group),
        *("--max-messages", str(count), "--timeout-ms", "60000"),
    )


async def _start(groups: BrokerShareGroups, clock: ManualClock) -> int | None:
    """Asked anew. The coordinator may write what a member that left has read a moment later."""
    clock.advance(60_000)
    with contextlib.suppress(Unavailable):
        return await groups.start_offset(TOPIC, 0)
    return None


async def test_h19_where_real_share_groups_stand(
    kafka_cluster: KafkaCluster,
) -> None:
    clock = ManualClock()
    groups = BrokerShareGroups(
        Address.parse(kafka_cluster.bootstrap_servers), clock=clock, client_id="test"
    )
    await produce(kafka_cluster, 50)
    assert await groups.start_offset(TOPIC, 0) is None
    await begin_at_the_oldest(kafka_cluster, "readers")
    await consume(kafka_cluster, "readers", 20)
    async with asyncio.timeout(120):
        while not (start := await _start(groups, clock)):  # noqa: ASYNC110 - Kafka has no event
            await asyncio.sleep(0.2)
    assert 0 < start <= 50
    # Partition 1 is empty: subscribed to, not begun, and to be begun at its oldest record.
    assert await groups.start_offset(TOPIC, 1) == 0
    assert await groups.start_offset("another-topic", 0) is None

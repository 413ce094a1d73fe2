"""A leader of our topics that stood still passes no barrier with what it knew before (H17)."""

import asyncio

import pytest

from kip405.addresses import Address
from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlm.broker.own_broker import OwnBroker
from rlm.clock import SystemClock
from rlmm.clients import ConnectionSettings
from rlmm.end_offsets import EndOffsetClient
from rlmm.settings import FreezeRecord
from rlmm.topic import SETTINGS_TOPIC
from tests.rlmm.running import RunningMetadata, running
from tests.sandbox_fixtures import SandboxFactory

pytestmark = pytest.mark.integration

PARTITION = TopicPartition(SETTINGS_TOPIC, 0)


async def test_h17_an_old_leaders_high_watermark_is_no_end(sandbox_factory: SandboxFactory) -> None:
    """It is asked while it stands still, by who has not heard of the election, and wakes up."""
    sandbox = sandbox_factory(brokers=3, services=False, jvm="quick", heap_mib=256)
    servers = tuple(str(sandbox.direct_bootstrap).split(","))
    asker = EndOffsetClient(
        ConnectionSettings(bootstrap_servers=servers, client_id="asker"), SystemClock().sleep_ms
    )
    async with running(servers[0], replication_factor=3) as records:
        before = await _freeze_at_last(records, "first")
        assert await asker.end_offset(PARTITION, 2) > before
    leader, other = await _leader_and_another(servers)
    async with running(other, replication_factor=3) as records:
        await asyncio.to_thread(sandbox.pause, f"broker:{leader}")
        try:
            offset = await _freeze_at_last(records, "second")
            asking = asyncio.ensure_future(asker.end_offset(PARTITION, 2))
            await asyncio.sleep(0.5)
        finally:
            await asyncio.to_thread(sandbox.resume, f"broker:{leader}")
        assert await asking > offset > before
    await asker.close()


async def _freeze(records: RunningMetadata, why: str) -> int:
    await records.settings.publish(FreezeRecord(topic_id=None, stopped=("trim",), by="a", why=why))
    adopted = records.settings.view.get("freeze")
    assert adopted is not None
    return adopted.offset


async def _freeze_at_last(records: RunningMetadata, why: str) -> int:
    async with asyncio.timeout(180):
        while True:
            try:
                return await _freeze(records, why)
            except Unavailable:
                await asyncio.sleep(0.2)


async def _leader_and_another(servers: tuple[str, ...]) -> tuple[int, str]:
    """Who leads the settings, and the address of a broker that does not."""
    broker = OwnBroker(Address.parse(servers[0]), client_id="test")
    try:
        leader = (await broker.topic(SETTINGS_TOPIC)).partitions[0].leader
        nodes = (await broker.describe_cluster()).nodes
    finally:
        await broker.close()
    others = (f"{node.host}:{node.port}" for node in nodes if node.node_id != leader)
    return leader, next(others)

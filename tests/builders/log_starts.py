"""Moves a partition's remote log start up in a running cluster, by the call that retention uses."""

import asyncio

from kip405.addresses import Address
from kip405.ids import TopicIdPartition
from rlm.broker.own_broker import OwnBroker
from rlm.remote_log.log_starts import LogStarts
from rlmm.settings_records import CAUSE_RETENTION
from tests.builders.audit import MemoryAudit, nothing_to_check
from tests.rlmm.running import running


def raise_log_start(direct_address: str, topic: str, partition: int, offset: int) -> int:
    """The start that holds then. `direct_address`: any broker's own listener, host:port."""
    return asyncio.run(_raise(direct_address, topic, partition, offset))


async def _raise(direct_address: str, topic: str, partition: int, offset: int) -> int:
    broker = OwnBroker(Address.parse(direct_address), client_id="test")
    try:
        described = await broker.topic(topic)
    finally:
        await broker.close()
    async with running(direct_address) as records:
        starts = LogStarts(
            settings=records.settings, audit=MemoryAudit(), barrier_deadline_ms=10_000
        )
        return await starts.raise_to(
            TopicIdPartition(topic_id=described.topic_id, topic=topic, partition=partition),
            offset,
            leader_epoch=described.partitions[partition].leader_epoch,
            cause=CAUSE_RETENTION,
            check=nothing_to_check,
        )

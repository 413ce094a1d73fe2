"""Moves a partition's remote log start up in a running cluster, by a settings record."""

import asyncio

from kip405.addresses import Address
from kip405.ids import PartitionKey
from rlm.broker.own_broker import OwnBroker
from rlmm.settings_records import StartRecord
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
    epoch = described.partitions[partition].leader_epoch
    key = PartitionKey(described.topic_id, partition)
    async with running(direct_address) as records:
        record = StartRecord(
            partition=key, remote_log_start_offset=offset, cause="retention", decided_epoch=epoch
        )
        await records.settings.publish(record, epoch)
        start = records.settings.view.remote_log_start(key)
    assert start is not None
    return start

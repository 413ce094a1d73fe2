"""A consumer that leaves its group ends, also where the group cannot be left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError

from kafka_protocol.apis import OFFSET_COMMIT
from rlm_client import TieredStorageConsumer
from tests.builders.two_brokers import TOPIC, TwoBrokers
from tests.waiting import pass_time, until

PARTITION = TopicPartition(TOPIC, 0)


@asynccontextmanager
async def stopping(cluster: TwoBrokers) -> AsyncIterator[tuple[Any, asyncio.Task[None]]]:
    """A consumer with something to commit, and its stop, which commits in vain again and again."""
    consumer: Any = TieredStorageConsumer(
        tiered_storage_mode="kafka_only",
        bootstrap_servers=cluster.bootstrap,
        group_id="g",
        auto_offset_reset="none",
        retry_backoff_ms=10,
    )
    consumer.assign([PARTITION])
    await consumer.start()
    consumer.seek(PARTITION, 5)
    await until(lambda: consumer._coordinator.coordinator_id == 1)
    task = asyncio.ensure_future(consumer.stop())
    await until(lambda: cluster.brokers[1].asked(OFFSET_COMMIT))
    try:
        yield consumer, task
    finally:
        await until(lambda: not task.cancel())


def _goes_on() -> list[str]:
    """What aiokafka has begun and has not ended."""
    names = (str(one.get_coro()) for one in asyncio.all_tasks())
    return [name for name in names if "Coordinator" in name or "Fetcher" in name]


async def test_a_stop_whose_last_commit_has_no_coordinator_ends_with_an_error() -> None:
    """aiokafka's own tries for ever."""
    async with TwoBrokers().running() as cluster, stopping(cluster) as (consumer, task):
        assert not task.done()
        pass_time(100)
        with pytest.raises(KafkaTimeoutError, match="the group was not left within 30 s"):
            await asyncio.wait_for(task, 30)
        assert not _goes_on()
        assert not any(one.connected() for one in consumer._client._conns.values())
        await until(lambda: not cluster.open_connections)


async def test_a_stop_that_commits_in_vain_ends_as_cancelled_when_it_is_cancelled() -> None:
    async with TwoBrokers().running() as cluster, stopping(cluster) as (_, task):
        task.cancel()
        await asyncio.sleep(0)
        pass_time(10)
        await asyncio.wait({task}, timeout=60)
        assert task.cancelled()
        assert not _goes_on()
        await until(lambda: not cluster.open_connections)


async def test_a_stop_that_is_cancelled_twice_waits_no_longer() -> None:
    async with TwoBrokers().running() as cluster, stopping(cluster) as (_, task):
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=60)
        assert task.cancelled()
        assert not _goes_on()
        await until(lambda: not cluster.open_connections)

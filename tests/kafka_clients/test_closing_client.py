"""No connection to a broker outlives the client that has opened it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from kafka_clients.closing_client import ClosingConsumer
from kafka_protocol.apis import METADATA
from rlm_client import TieredStorageConsumer
from rlmm.clients import ConnectionSettings, make_consumer
from tests.builders.two_brokers import FAILED_FETCH, TOPIC, TwoBrokers
from tests.waiting import until

_LONG_MS = 100_000
_MORE_THAN_SOCKETS_TAKE = bytes(32 << 20)
PARTITIONS = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
Make = Callable[[TwoBrokers], Any]


def _closing(cluster: TwoBrokers) -> Any:
    return ClosingConsumer(**_options(cluster))


def _of_the_service(cluster: TwoBrokers) -> Any:
    return make_consumer(
        ConnectionSettings(
            bootstrap_servers=(cluster.bootstrap,), client_id="test", retry_backoff_ms=_LONG_MS
        )
    )


def _tiered(cluster: TwoBrokers) -> Any:
    return TieredStorageConsumer(tiered_storage_mode="kafka_only", **_options(cluster))


def _options(cluster: TwoBrokers) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "retry_backoff_ms": _LONG_MS,
    }


KINDS = pytest.mark.parametrize("make", [_closing, _of_the_service, _tiered])


def _ends(consumer: Any) -> list[bool]:
    return [one.connected() for one in consumer._client._conns.values()]


@KINDS
async def test_a_connection_that_opens_while_its_client_closes_is_closed(make: Make) -> None:
    async with TwoBrokers().running() as cluster:
        consumer = make(cluster)
        await consumer.start()
        before = cluster.connections
        cluster.gate.clear()
        opening = asyncio.ensure_future(consumer._client.ready(1))
        await until(lambda: cluster.connections > before)
        await consumer.stop()
        cluster.open_gates()
        assert not await opening
        assert not any(_ends(consumer))
        await until(lambda: not cluster.open_connections)


@KINDS
async def test_a_closed_client_opens_none_and_wakes_who_waits_for_metadata(make: Make) -> None:
    async with TwoBrokers().running() as cluster:
        consumer = make(cluster)
        await consumer.start()
        await consumer._client.force_metadata_update()
        cluster.metadata_gate.clear()
        waiting = asyncio.ensure_future(consumer._client.force_metadata_update())
        await asyncio.sleep(0)
        await consumer.stop()
        before = cluster.connections
        async with asyncio.timeout(60):
            assert not await waiting
        assert not await consumer._client.ready(0)
        assert not await consumer._client.ready(1)
        assert cluster.connections == before
        cluster.open_gates()
        await until(lambda: not cluster.open_connections)


@KINDS
async def test_a_failed_fetch_that_waits_does_not_end_the_stop(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """aiokafka's own `stop` ends as cancelled here, before it closes a connection."""
    async with TwoBrokers().running() as cluster:
        consumer = make(cluster)
        await consumer.start()
        consumer.assign(PARTITIONS)
        for one in PARTITIONS:
            consumer.seek(one, 0)
        await until(lambda: caplog.text.count(FAILED_FETCH) == len(PARTITIONS))
        assert await consumer._client.ready(1)  # as metadata are asked for meanwhile
        await consumer.stop()
        assert not any(_ends(consumer))
        await until(lambda: not cluster.open_connections)


@KINDS
async def test_a_consumer_that_is_stopped_as_soon_as_it_has_begun(make: Make) -> None:
    async with TwoBrokers().running() as cluster:
        consumer = make(cluster)
        await consumer.start()
        await consumer.stop()
        await until(lambda: not cluster.open_connections)


@KINDS
async def test_a_start_that_is_given_up_leaves_no_connection(make: Make) -> None:
    async with TwoBrokers().running() as cluster:
        consumer = make(cluster)
        cluster.metadata_gate.clear()
        starting = asyncio.ensure_future(consumer.start())
        await until(lambda: cluster.brokers[0].asked(METADATA))
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()
        cluster.open_gates()
        await until(lambda: not cluster.open_connections)
        await consumer.stop()


@KINDS
async def test_a_start_that_its_stop_overtakes_goes_to_no_further_server(make: Make) -> None:
    async with TwoBrokers().running() as cluster:
        consumer = make(cluster)
        consumer._client._bootstrap_servers = [str(one.address) for one in cluster.brokers]
        cluster.metadata_gate.clear()
        starting = asyncio.ensure_future(consumer.start())
        await until(lambda: any(one.asked(METADATA) for one in cluster.brokers))
        await consumer.stop()
        cluster.open_gates()
        with pytest.raises(KafkaConnectionError, match="the client is closed"):
            await starting
        assert cluster.connections == 1


@KINDS
async def test_all_is_closed_by_a_stop_that_is_cancelled(make: Make) -> None:
    """At each of its awaits. aiokafka's own `stop` goes on at some of them as if nothing was."""
    async with TwoBrokers().running() as cluster:
        for turns in range(24):
            consumer = make(cluster)
            await consumer.start()
            consumer.assign(PARTITIONS)
            await consumer._client.ready(1)
            stopping = asyncio.ensure_future(consumer.stop())
            for _ in range(turns):
                await asyncio.sleep(0)
            is_early = not stopping.done()
            stopping.cancel()
            await asyncio.wait({stopping})
            assert stopping.cancelled() == is_early
            if turns:  # else it has not begun
                assert not any(_ends(consumer))
                await until(lambda: not cluster.open_connections)
            else:
                await consumer.stop()


async def _with_unsent_bytes(consumer: Any, cluster: TwoBrokers) -> asyncio.WriteTransport:
    await consumer.start()
    assert await consumer._client.ready(1)
    [connection] = consumer._client._conns.values()
    cluster.brokers[1].stop_reading()
    transport: asyncio.WriteTransport = connection._writer.transport
    transport.write(b"\x7f" + _MORE_THAN_SOCKETS_TAKE)  # the begin of one request
    assert transport.get_write_buffer_size()
    return transport


@KINDS
async def test_h10_a_client_that_is_cut_drops_what_waits_to_be_sent(make: Make) -> None:
    """It would be sent once the broker goes on, whenever that is."""
    async with TwoBrokers().running() as cluster:
        consumer = make(cluster)
        transport = await _with_unsent_bytes(consumer, cluster)
        consumer._client.cut()
        assert not transport.get_write_buffer_size()
        async with asyncio.timeout(60):
            await consumer.stop()
        assert not any(_ends(consumer))


@KINDS
async def test_a_close_that_is_cancelled_waits_for_no_broker(make: Make) -> None:
    async with TwoBrokers().running() as cluster:
        consumer = make(cluster)
        transport = await _with_unsent_bytes(consumer, cluster)
        closing = asyncio.ensure_future(consumer._client.close())
        await asyncio.sleep(0)
        assert transport.get_write_buffer_size()
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        assert not transport.get_write_buffer_size()
        await consumer.stop()

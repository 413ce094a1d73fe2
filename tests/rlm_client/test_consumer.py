"""The consumer over real sockets: a broker and a service in memory, asyncio and threads."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from rlm_client import BlockingTieredStorageConsumer, RemoteTierTimeout, TieredStorageConsumer
from tests.tiered_reads.fake_kafka import FakeKafka
from tests.tiered_reads.fake_service import FakeService

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    with FakeKafka(log_start=12, end=30).running() as kafka:
        yield kafka


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService(start=0, end=30, remote_end=21).running() as service:
        yield service


def _options(kafka: FakeKafka, service: FakeService, mode: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap,
        "rlm_endpoints": service.address,
        "tiered_storage_mode": mode,
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 5,
        "consumer_timeout_ms": 10,
    }


@pytest.mark.parametrize("mode", ["kafka_preferred", "remote_preferred"])
async def test_records_come_from_both_tiers(
    kafka: FakeKafka, service: FakeService, mode: str
) -> None:
    consumer = TieredStorageConsumer(
        **_options(kafka, service, mode), value_deserializer=lambda value: value.decode()
    )
    consumer.assign([PARTITION])
    async with consumer:
        got = [await consumer.getone() for _ in range(30)]
        assert [record.offset for record in got] == list(range(30))
        assert {record.value for record in got} == {"value"}
        assert await consumer.position(PARTITION) == 30
        assert await consumer.beginning_offsets([PARTITION]) == {PARTITION: 0}
        await consumer.seek_to_beginning(PARTITION)
        assert await consumer.position(PARTITION) == 0
        counters = consumer.counters()
        assert counters.remote.records + counters.kafka.records == 30
        assert counters.remote.records == {"kafka_preferred": 12, "remote_preferred": 21}[mode]


async def test_a_service_that_is_away_is_an_error_after_the_time_given(kafka: FakeKafka) -> None:
    with FakeService(start=0, end=30, remote_end=21).running() as service:
        away = service.address
    consumer = TieredStorageConsumer(
        bootstrap_servers=kafka.bootstrap, rlm_endpoints=away, remote_retry_timeout_ms=1
    )
    consumer.assign([PARTITION])
    async with consumer:
        consumer.seek(PARTITION, 0)
        async with asyncio.timeout(120):
            with pytest.raises(RemoteTierTimeout, match="could not be read"):
                await anext(consumer)


async def test_kafka_only_is_aiokafka(kafka: FakeKafka, service: FakeService) -> None:
    consumer = TieredStorageConsumer(**_options(kafka, service, "kafka_only"))
    consumer.assign([PARTITION])
    async with consumer:
        assert (await consumer.getone()).offset == 12
        assert service.calls == []


def test_the_blocking_form_has_the_same_records(kafka: FakeKafka, service: FakeService) -> None:
    with BlockingTieredStorageConsumer(**_options(kafka, service, "kafka_preferred")) as consumer:
        consumer.assign([PARTITION])
        offsets = []
        for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 30:
                break
        assert offsets == list(range(30))
        assert consumer.position(PARTITION) == 30
        consumer.seek(PARTITION, 11)
        taken: list[int] = []
        while len(taken) < 4:
            found = consumer.getmany(timeout_ms=1_000, max_records=4 - len(taken))
            taken += [record.offset for record in found.get(PARTITION, [])]
        assert taken == [11, 12, 13, 14]
        assert consumer.assignment() == {PARTITION}


def test_arguments_that_cannot_be_used_are_refused() -> None:
    for options in (
        {"tiered_storage_mode": "both", "rlm_endpoints": "a:1"},
        {"rlm_endpoints": ""},
        {"rlm_endpoints": "nowhere"},
        {"rlm_endpoints": "a:1", "auto_offset_reset": "first"},
        {"rlm_endpoints": "a:1", "remote_reads": "bucket"},
        {"rlm_endpoints": "a:1", "remote_retry_timeout_ms": 0},
        {"rlm_endpoints": "a:1", "remote_reads": "store"},
        {"rlm_endpoints": "a:1", "rlm_stores": {"plugin": "local"}},
    ):
        with pytest.raises(ValueError, match=r"."):
            BlockingTieredStorageConsumer(**options)

"""A remote tier that is away is tried again: what the user learns of it, and nothing is lost."""

import asyncio
import logging

import pytest
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from rlm_client.errors import RemoteTierTimeout
from rlm_client.failures import LOG_EVERY_MS, Failures
from rlm_client.partition_read import PartitionRead
from tests.rlm_client.test_border import TIERED, written
from tests.rlm_client.world import PARTITION, Reader, reading
from tiered_reads.errors import ServiceError
from tiered_reads.values import ReadMode

_FOR_EVER = 1 << 40
_END = 21
_AWAY = ServiceError("UNAVAILABLE", "away")


async def _until_timeout(reader: Reader) -> RemoteTierTimeout:
    async with asyncio.timeout(60):
        while True:
            try:
                await reader.take()
            except RemoteTierTimeout as error:
                return error


@pytest.mark.parametrize("mode", TIERED)
async def test_what_fails_for_long_is_raised_again_and_again_and_loses_nothing(
    mode: ReadMode,
) -> None:
    world = written(kafka_start=_END, remote_end=_END)
    async with reading(world, mode, retry_timeout_ms=1) as reader:
        await reader.take_until(6)
        world.away = _FOR_EVER
        reader.fetcher.seek_to(PARTITION, 3)
        reader.got.clear()
        for _ in range(2):
            error = await _until_timeout(reader)
            assert isinstance(error, KafkaError) and error.retriable
            assert "the service is away" in str(error) and "t-0" in str(error)
            assert isinstance(error.__cause__, ServiceError)
        world.away = 0
        await reader.take_until(_END)
        assert reader.got == [offset for offset in world.given if 3 <= offset <= reader.got[-1]]
        assert reader.counters.offsets_missed == 0


@pytest.mark.parametrize("mode", TIERED)
async def test_without_a_limit_nothing_is_raised(mode: ReadMode) -> None:
    world = written(kafka_start=_END, remote_end=_END)
    world.away = _FOR_EVER
    async with reading(world, mode) as reader:
        async with asyncio.timeout(60):
            while reader.counters.failed_reads < 3:
                assert await reader.take() == []
        world.away = 0
        await reader.take_until(_END)
        assert reader.got == [offset for offset in world.given if offset <= reader.got[-1]]


@pytest.mark.parametrize("policy", ["earliest", "latest"])
async def test_a_position_that_nobody_says_is_raised_too(policy: str) -> None:
    world = written(kafka_start=15, remote_end=_END)
    world.away = _FOR_EVER
    async with reading(
        world, ReadMode.REMOTE_ONLY, committed=None, policy=policy, retry_timeout_ms=1
    ) as reader:
        for _ in range(2):
            await _until_timeout(reader)
        world.away = 0
        await reader.take_until(_END)
        assert reader.got == ([one for one in world.given if one < _END] * (policy == "earliest"))


async def test_remote_preferred_reads_kafka_instead_without_an_error() -> None:
    world = written(remote_end=_END)
    world.away = _FOR_EVER
    async with reading(world, ReadMode.REMOTE_PREFERRED, retry_timeout_ms=1) as reader:
        await reader.take_until(world.end)
        assert reader.got == world.given
        assert reader.counters.failed_reads == 1


async def test_to_wait_for_copies_is_no_failure() -> None:
    world = written()
    async with reading(world, ReadMode.REMOTE_ONLY, retry_timeout_ms=1) as reader:
        assert await reader.take(0.1) == []
        world.copy(_END)
        world.learn()
        await reader.take_until(_END)
    async with reading(
        written(), ReadMode.REMOTE_ONLY, committed=None, policy="earliest", retry_timeout_ms=1
    ) as reader:
        assert await reader.take(0.1) == []


async def test_what_a_user_skips_is_not_counted_as_missed() -> None:
    """The user goes elsewhere while nobody says where a lost position is to go on."""
    world = written()
    world.leader_away = _FOR_EVER
    begun = world.end + 5
    async with reading(
        world, ReadMode.KAFKA_PREFERRED, committed=begun, policy="earliest"
    ) as reader:
        read = None
        async with asyncio.timeout(60):
            while read is None or read.lost_at is None or read.asking is None:
                await reader.take(0.01)
                read = reader.fetcher._reads.get(PARTITION)
            world.append(10)
            reader.fetcher.seek_to(PARTITION, begun + 2)
            await asyncio.wait([read.asking])
        await reader.take_until(world.end)
        assert reader.got == list(range(begun + 2, world.end))
        assert reader.counters.offsets_missed == 0


def test_failures_of_many_partitions_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures(None)
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            failures.log("remote_read_failed", TopicPartition("t", number), _AWAY, number)
        assert [one.getMessage() for one in caplog.records] == [
            "event=remote_read_failed partition=t-0 error=away (UNAVAILABLE) failures_not_logged=0"
        ]
        failures.log("remote_read_failed", PARTITION, _AWAY, LOG_EVERY_MS)
        assert "failures_not_logged=99" in caplog.records[-1].getMessage()


def test_a_limit_counts_from_the_first_failure_after_an_answer() -> None:
    failures, read = Failures(100), PartitionRead(ReadMode.REMOTE_ONLY)
    read.failed(1_000)
    assert failures.overdue(PARTITION, read, _AWAY, 1_099) is None
    read.answered()
    read.failed(1_100)
    assert failures.overdue(PARTITION, read, _AWAY, 1_199) is None
    read.failed(1_200)
    assert failures.overdue(PARTITION, read, _AWAY, 1_200) is not None
    assert failures.overdue(PARTITION, read, _AWAY, 1_299) is None, "it needs as long again"
    assert failures.overdue(PARTITION, read, _AWAY, 1_300) is not None

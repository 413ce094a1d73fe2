"""Tails of the metadata log over two brokers of the test's own."""

import asyncio
from collections.abc import Callable, Mapping

from kip405.ids import TopicPartition
from rlmm.clients import ConnectionSettings
from rlmm.leader_answers import EpochEnd, EpochQuestion
from rlmm.log_reader import LogReader
from rlmm.tail import Tail
from tests.builders.two_brokers import TOPIC, TwoBrokers

TOPIC_PARTITIONS = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]


def settings_of(cluster: TwoBrokers) -> ConnectionSettings:
    return ConnectionSettings(bootstrap_servers=(cluster.bootstrap,), client_id="test")


async def at_once(_: int) -> None:
    """A pause that takes no time."""
    await asyncio.sleep(0)


async def _nobody(
    questions: Mapping[TopicPartition, EpochQuestion],
) -> dict[TopicPartition, EpochEnd]:
    return {}


def tail_of(connect: Callable[[], LogReader]) -> Tail:
    """It asks no leader for epochs, and connects again at once."""
    return Tail(
        connect=connect,
        topic_partitions=TOPIC_PARTITIONS,
        deliver=lambda _: None,
        start_over=lambda _: None,
        epoch_ends=_nobody,
        now_ms=lambda: 0,
        sleep_ms=at_once,
        remembered={},
    )

"""What is asked about a partition beside its records: bounds, offsets, and whether it is tiered.

Each question has a thread while it is asked, and a limit. This module must not know how records are
read.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from aiokafka import errors
from aiokafka.consumer.fetcher import OffsetResetStrategy
from aiokafka.structs import TopicPartition

from rlm_client.errors import RemoteTierError, RemoteTierUnavailable, offsets_error
from rlm_client.kafka_log import KafkaLog
from rlm_client.read_threads import ReadThreads
from rlm_client.remote_log import RemoteBounds, RemoteLog
from tiered_reads import clock, values
from tiered_reads.errors import ServiceError
from tiered_reads.stopping import Stop, Stopped
from tiered_reads.values import ReadMode

_FRESH_MS: Final = 1_000
"""How long the bounds of a topic count, so that its partitions do not ask one by one."""

T = TypeVar("T")


class Lookups:
    """Questions of one consumer, asked of services and, where they do not suffice, of brokers."""

    def __init__(
        self,
        remote_log: RemoteLog,
        kafka_log: KafkaLog,
        mode: ReadMode,
        pool: ReadThreads,
        stop: Stop,
    ) -> None:
        self._remote_log = remote_log
        self._kafka_log = kafka_log
        self._is_alone = mode is ReadMode.REMOTE_ONLY
        self._pool = pool
        self._stop = stop
        self._bounds: dict[str, tuple[int, dict[int, RemoteBounds] | None]] = {}

    async def bounds(
        self, topic_partition: TopicPartition, *, is_topic_enough: bool = False
    ) -> RemoteBounds | None:
        """None: the topic is not tiered, or nothing of the partition is remote. With
        `is_topic_enough` those of any partition, for the topic's id.
        """
        topic = topic_partition.topic
        at_ms, found = self._bounds.get(topic, (None, None))
        if at_ms is None or clock.monotonic_ms() - at_ms >= _FRESH_MS:
            found = await self._blocking(lambda: self._remote_log.bounds(topic, self._stop))
            self._bounds[topic] = (clock.monotonic_ms(), found)
        if found is None:
            return None
        own = found.get(topic_partition.partition)
        return next(iter(found.values()), None) if own is None and is_topic_enough else own

    async def dated(
        self, topic_partition: TopicPartition, timestamp: int
    ) -> tuple[int, int] | None:
        """See RemoteLog.dated_offset. KafkaError, retriable where a service may answer later."""
        asked = values.TopicPartition(topic_partition.topic, topic_partition.partition)
        try:
            return await self._blocking(
                lambda: self._remote_log.dated_offset(
                    asked, timestamp, remote_only=self._is_alone, stop=self._stop
                )
            )
        except ServiceError as error:
            raise offsets_error(error) from error
        except Stopped as stopped:
            raise errors.ConsumerStoppedError from stopped

    async def earliest(self, topic_partition: TopicPartition) -> int:
        """Where the log begins over the tiers of the mode."""
        found = await self.dated(topic_partition, OffsetResetStrategy.EARLIEST)
        if found is not None and found[0] >= 0:
            return found[0]
        if self._is_alone:
            raise RemoteTierUnavailable(f"nothing of {topic_partition} is remote yet")
        if found is None:
            await self.check_untiered(topic_partition)
        return (await self._kafka_log.bounds(topic_partition)).start_offset

    async def check_untiered(self, topic_partition: TopicPartition) -> None:
        """RemoteTierError where services do not know a topic that seems to be tiered: Kafka keeps
        its records for ever, and yet the log does not begin at 0.

        A position at Kafka's log start would pass what only the remote tier has. Where brokers do
        not say how long they keep the topic, nothing is known, and it counts as not tiered.
        """
        start = (await self._kafka_log.bounds(topic_partition)).start_offset
        if start > 0 and await self._kafka_log.is_kept_for_ever(topic_partition.topic):
            raise RemoteTierError(
                f"topic {topic_partition.topic} is not tiered, its services say; but Kafka keeps "
                f"its records for ever (retention.ms=-1), and partition "
                f"{topic_partition.partition} begins at {start} all the same. Are rlm_endpoints "
                "services of this cluster, and has rlm_principal the right to describe the topic? "
                "If clients have deleted the records, read it with kafka_only or from a position "
                "of its log"
            )

    async def _blocking(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

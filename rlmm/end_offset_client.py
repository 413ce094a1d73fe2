"""Asks leaders where partitions and epochs end, on connections of its own.

So no long poll of the tail delays the question. This module must not know why somebody asks.
"""

import asyncio
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, structs
from aiokafka.errors import KafkaError

from kip405.acls import topic_acl
from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.clients import (
    ConnectionSettings,
    ask_epoch_ends,
    ask_log_end,
    make_consumer,
    refresh_metadata,
    told,
)
from rlmm.divergence import EpochEnd
from rlmm.settings_records import ClusterRecord
from rlmm.topic import SETTINGS_TOPIC, SleepMs

_POLL_MS = 500
_RETRY_MS = 100


class EndOffsetClient:
    """A consumer without any assignment; it connects at the first question."""

    def __init__(self, connection: ConnectionSettings, sleep_ms: SleepMs) -> None:
        self._connection = connection
        self._sleep_ms = sleep_ms
        self._consumer: AIOKafkaConsumer | None = None
        self._starting = asyncio.Lock()

    async def end_offset(self, place: TopicPartition, min_insync_replicas: int) -> int:
        """End offset (high watermark) of one partition, behind all that was written before this
        call, which a deposed leader cannot pretend (`replica_votes`).

        Unavailable where it is not known within the request timeout.
        """
        refusal = Unavailable(f"end offset of {place}: nobody answers")
        try:
            async with asyncio.timeout(self._connection.request_timeout_ms / 1000):
                consumer = await self._started()
                while True:
                    try:
                        return await ask_log_end(consumer, place, min_insync_replicas)
                    except Unavailable as error:
                        refusal = error
                    await refresh_metadata(consumer)
                    await self._sleep_ms(_RETRY_MS)
        except TimeoutError:
            raise refusal from None
        except (KafkaError, OSError) as error:
            needs = topic_acl("Describe", place.topic)
            raise Unavailable(f"end offset of {place}: {told(error, needs)}") from error

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd]:
        """Where leader epochs end now, of the partitions whose leader knows; Unavailable where no
        broker answers at all.
        """
        try:
            return await ask_epoch_ends(await self._started(), epochs)
        except (KafkaError, OSError, TimeoutError) as error:
            raise Unavailable(f"ends of leader epochs: {error!r}") from error

    async def holds_cluster_record(self) -> bool:
        """Whether the settings topic tells of a cluster record: then there was a ledger before
        (H6).
        """
        consumer = make_consumer(self._connection)
        partition = structs.TopicPartition(SETTINGS_TOPIC, 0)
        try:
            await consumer.start()
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            begin = (await consumer.beginning_offsets([partition]))[partition]
            consumer.seek(partition, begin)
            while await consumer.position(partition) < end:
                batches = await consumer.getmany(timeout_ms=_POLL_MS)
                keys = [record.key for records in batches.values() for record in records]
                if ClusterRecord.KIND.encode() in keys:
                    return True
            return False
        except (KafkaError, OSError, TimeoutError) as error:
            needs = topic_acl("Read", SETTINGS_TOPIC)
            raise Unavailable(f"read {SETTINGS_TOPIC}: {told(error, needs)}") from error
        finally:
            await consumer.stop()

    async def close(self) -> None:
        """Connections are closed; a later question connects again."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    async def _started(self) -> AIOKafkaConsumer:
        async with self._starting:
            if self._consumer is None:
                consumer = make_consumer(self._connection)
                try:
                    await consumer.start()
                except BaseException:
                    await consumer.stop()
                    raise
                self._consumer = consumer
            return self._consumer

"""Asks leaders where partitions and epochs end, on connections of its own, so that no long poll of
the tail is ahead of the question.

Must not know why somebody asks.
"""

import asyncio
from collections.abc import Iterable, Mapping

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from kip405.acls import topic_acl
from kip405.errors import Unavailable
from rlmm.barrier import Place
from rlmm.clients import ConnectionSettings, ask_epoch_ends, make_consumer, told
from rlmm.divergence import EpochEnd
from rlmm.facts import ClusterFact
from rlmm.topic import SETTINGS_TOPIC

_POLL_MS = 500


class EndOffsetClient:
    """A consumer that is never assigned anything; connected at the first question."""

    def __init__(self, connection: ConnectionSettings) -> None:
        self._connection = connection
        self._consumer: AIOKafkaConsumer | None = None
        self._starting = asyncio.Lock()

    async def end_offset(self, place: Place) -> int:
        """End offset (high watermark) of one partition now; Unavailable where nobody answers."""
        return (await self.end_offsets([place]))[place]

    async def end_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        """End offsets of partitions now; all or Unavailable."""
        partitions = [TopicPartition(*place) for place in places]
        try:
            consumer = await self._started()
            ends = await consumer.end_offsets(partitions)
        except (KafkaError, OSError, TimeoutError) as error:
            needs = topic_acl("Describe", partitions[0].topic)
            raise Unavailable(f"end offsets of {partitions[0]}: {told(error, needs)}") from error
        return {Place(*partition): end for partition, end in ends.items()}

    async def epoch_ends(self, epochs: Mapping[Place, int]) -> dict[Place, EpochEnd]:
        """Where leader epochs end now, of the partitions whose leader knows; Unavailable where no
        broker answers at all.
        """
        try:
            return await ask_epoch_ends(await self._started(), epochs)
        except (KafkaError, OSError, TimeoutError) as error:
            raise Unavailable(f"ends of leader epochs: {error!r}") from error

    async def holds_cluster_fact(self) -> bool:
        """Whether the settings topic tells of a cluster fact: then there was a ledger before
        (H6).
        """
        consumer = make_consumer(self._connection)
        partition = TopicPartition(SETTINGS_TOPIC, 0)
        try:
            await consumer.start()
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            begin = (await consumer.beginning_offsets([partition]))[partition]
            consumer.seek(partition, begin)
            while await consumer.position(partition) < end:
                batches = await consumer.getmany(timeout_ms=_POLL_MS)
                keys = [record.key for records in batches.values() for record in records]
                if ClusterFact.KIND.encode() in keys:
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

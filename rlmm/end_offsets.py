"""Asks leaders where partitions and epochs end, on connections of its own.

No long poll of the tail delays these requests. Barriers are served with end offsets that were
requested after the barrier was taken (H17): one request is in flight per partition, and one answer
serves many callers (`coalesced`). Requests are tasks of `EndOffsets.run`, so that a caller with a
short deadline does not end the request of the others. This module must not know who reads the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from aiokafka import AIOKafkaConsumer, structs
from aiokafka.errors import KafkaError

from kip405.acls import topic_acl
from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import TopicPartition, Uuid
from rlmm.clients import (
    ConnectionSettings,
    ask_epoch_ends,
    ask_log_end,
    end_consumer,
    error_text,
    make_consumer,
    refresh_metadata,
)
from rlmm.coalesced import Coalesced
from rlmm.leader_answers import EpochEnd, EpochQuestion
from rlmm.settings_codec import decode_settings_record
from rlmm.settings_records import ClusterRecord
from rlmm.topic import SETTINGS_TOPIC, SleepMs
from rlmm.waiting import unless_broken_off

_POLL_MS = 500
_RETRY_MS = 100


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    partition: TopicPartition
    answer: asyncio.Future[int]

    def fail(self, error: RemoteStorageError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class EndOffsets:
    """Coalesces `fetch(partition) -> end offset` by partition; `run` must be running."""

    def __init__(self, fetch: Callable[[TopicPartition], Awaitable[int]]) -> None:
        self._fetch = fetch
        self._coalesced: Coalesced[TopicPartition, int] = Coalesced(
            self._ask, group_of=lambda partition: partition
        )
        self._open: set[_Question] = set()
        self._next: dict[TopicPartition, _Question] = {}
        """Questions whose request is not sent yet: one for all callers, who may come and go."""
        self._early: list[_Question] = []
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Serve until cancelled; may be run again after it ended."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                while self._early:
                    tasks.create_task(self._serve(self._early.pop(0)))
                try:
                    await asyncio.Event().wait()
                finally:
                    self._tasks = None
        finally:
            self._abandon()

    async def end_offset(self, partition: TopicPartition) -> int:
        """End offset of the partition from a request that was sent after this call.

        Errors are those of `fetch`. Unavailable: `run` ended meanwhile.
        """
        question = self._next.get(partition)
        if question is None:
            question = _Question(partition, asyncio.get_running_loop().create_future())
            question.answer.add_done_callback(partial(self._answered, question))
            self._open.add(question)
            self._next[partition] = question
            if self._tasks is None:
                self._early.append(question)
            else:
                self._tasks.create_task(self._serve(question))
        return await asyncio.shield(question.answer)

    def _answered(self, question: _Question, answer: asyncio.Future[int]) -> None:
        self._open.discard(question)
        if self._next.get(question.partition) is question:
            del self._next[question.partition]
        _ = answer.cancelled() or answer.exception()  # retrieved, also where all callers have left

    async def _ask(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        for partition in partitions:
            self._next.pop(partition, None)  # later callers need a later request
        return {partition: await self._fetch(partition) for partition in partitions}

    async def _serve(self, question: _Question) -> None:
        try:
            asked = partial(self._coalesced.answer, question.partition)
            end = await unless_broken_off(asked, f"end offset of {question.partition}")
        except RemoteStorageError as error:
            question.fail(error)
        except BaseException:  # the TaskGroup ends: it takes no further task
            self._tasks = None
            raise
        else:
            if not question.answer.done():
                question.answer.set_result(end)

    def _abandon(self) -> None:
        """No request is sent any more: callers get an error, and later callers start again."""
        self._early.clear()
        self._next.clear()
        for question in tuple(self._open):
            question.fail(Unavailable(f"end offset of {question.partition}: the metadata log ends"))


class EndOffsetClient:
    """A consumer without any assignment; it connects at the first question."""

    def __init__(self, connection: ConnectionSettings, sleep_ms: SleepMs) -> None:
        self._connection = connection
        self._sleep_ms = sleep_ms
        self._consumer: AIOKafkaConsumer | None = None
        self._connecting: AIOKafkaConsumer | None = None
        self._starting = asyncio.Lock()

    async def end_offset(self, topic_partition: TopicPartition, min_insync_replicas: int) -> int:
        """End offset (high watermark) of one partition, behind all that was written before this
        call, which a deposed leader cannot pretend (`leader_answers`).

        Unavailable where it is not known within the request timeout.
        """
        refusal = Unavailable(f"end offset of {topic_partition}: no broker answers")
        try:
            async with asyncio.timeout(self._connection.request_timeout_ms / 1000):
                consumer = await self._started()
                while True:
                    try:
                        return await ask_log_end(consumer, topic_partition, min_insync_replicas)
                    except Unavailable as error:
                        refusal = error
                    await refresh_metadata(consumer)
                    await self._sleep_ms(_RETRY_MS)
        except TimeoutError:
            raise refusal from None
        except (KafkaError, OSError) as error:
            needs = topic_acl("Describe", topic_partition.topic)
            raise Unavailable(
                f"end offset of {topic_partition}: {error_text(error, needs)}"
            ) from error

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]:
        """Where leader epochs end now, of the partitions whose leader knows; Unavailable where no
        broker answers at all.
        """
        try:
            return await ask_epoch_ends(await self._started(), questions)
        except (KafkaError, OSError, TimeoutError) as error:
            raise Unavailable(f"ends of leader epochs: {error!r}") from error

    async def recorded_ledger_id(self) -> Uuid | None:
        """The topic id of the ledger by the newest cluster record of the settings topic (H6).

        None: there is no such record, so there was no ledger before. Corrupt: it cannot be read.
        """
        found: Uuid | None = None
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
                for record in (one for records in batches.values() for one in records):
                    found = _ledger_id(record.key, record.value) or found
            return found
        except (KafkaError, OSError, TimeoutError) as error:
            needs = topic_acl("Read", SETTINGS_TOPIC)
            raise Unavailable(f"read {SETTINGS_TOPIC}: {error_text(error, needs)}") from error
        finally:
            await end_consumer(consumer)

    async def close(self) -> None:
        """Connections are closed, and one that is being opened is given up; a later question
        connects again.
        """
        both = self._consumer, self._connecting
        self._consumer = self._connecting = None
        for consumer in both:
            if consumer is not None:
                await end_consumer(consumer)

    async def _started(self) -> AIOKafkaConsumer:
        async with self._starting:
            if self._consumer is None:
                consumer = self._connecting = make_consumer(self._connection)
                try:
                    await consumer.start()
                except BaseException:
                    await end_consumer(consumer)
                    raise
                self._consumer, self._connecting = consumer, None
            return self._consumer


def _ledger_id(key: bytes | None, value: bytes | None) -> Uuid | None:
    """What one settings record says about it, None for any other record."""
    if key != ClusterRecord.KIND.encode() or value is None:
        return None
    decoded = decode_settings_record(key, value)
    record = decoded[0] if decoded else None
    return record.ledger_topic_id if isinstance(record, ClusterRecord) else None

"""Appends records with acks=all, idempotently; separates "not written" from "unknown" (H10).

After an unknown outcome the producer is dropped with everything that it has not sent, so that no
client-side retry can deliver it later. Deadlines become kip405's errors. This module must not know
what the records mean.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from kip405.acls import missing_acls, topic_acl
from kip405.errors import Invalid, Unavailable
from kip405.ids import TopicPartition
from rlmm.clients import (
    NOT_AUTHORIZED,
    ConnectionSettings,
    abort_producer,
    cluster_layout,
    cut_producer,
    error_text,
    make_producer,
)
from rlmm.topic import NowMs


class OutcomeUnknown(Unavailable):
    """The record may or may not be in the log: pass a barrier, then check the state, and do nothing
    before.
    """


@contextlib.asynccontextmanager
async def deadline(limit_ms: int, what: str) -> AsyncIterator[None]:
    """Unavailable where the block takes longer than `limit_ms`."""
    try:
        async with asyncio.timeout(limit_ms / 1000):
            yield
    except TimeoutError as error:
        raise Unavailable(f"{what} took more than {limit_ms} ms") from error


_VERIFIED_FOR_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record to append; value None is a tombstone."""

    topic_partition: TopicPartition
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(slots=True)
class _Attempt:
    """Progress of one publish; a producer that received a record and never acknowledged it is
    dropped.
    """

    producer: AIOKafkaProducer | None = None
    is_written: bool = False


class Publisher:
    """One producer at a time; `run` must be running, it closes producers that were dropped."""

    def __init__(
        self,
        connection: ConnectionSettings,
        *,
        now_ms: NowMs,
        verify: Callable[[str], Awaitable[None]],
        make: Callable[[ConnectionSettings], AIOKafkaProducer] = make_producer,
    ) -> None:
        """`verify(topic)` raises where the topic takes no records now; `make` is for tests."""
        self._connection = connection
        self._make = make
        self._now_ms = now_ms
        self._verify = verify
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()
        self._verifying = asyncio.Lock()
        self._verified: dict[str, tuple[int, object]] = {}
        self._dropped: asyncio.Queue[AIOKafkaProducer] = asyncio.Queue()

    async def run(self) -> None:
        """Close dropped producers until cancelled."""
        while True:
            await abort_producer(await self._dropped.get())

    async def close(self) -> None:
        """Drop what was not sent and close the connections; a later publish connects again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await abort_producer(producer)
        while not self._dropped.empty():
            await abort_producer(self._dropped.get_nowait())

    async def publish(
        self,
        record: Record,
        timeout_ms: int,
        read_back: Callable[[TopicPartition, int], Awaitable[None]],
    ) -> int:
        """Offset of the record once `read_back(topic_partition, offset + 1)` returned; `timeout_ms`
        limits all of it.
        """
        attempt = _Attempt()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                producer = await self._started()
                await self._verify_once(record.topic_partition.topic, producer)
                if producer is not self._producer:  # it would take the record, and never send it
                    raise Unavailable(
                        f"publish to {record.topic_partition}: the producer was dropped meanwhile, "
                        "nothing was sent"
                    )
                attempt.producer = producer
                offset = await self._append(producer, record)
                attempt.is_written = True
                await read_back(record.topic_partition, offset + 1)
                return offset
        except TimeoutError as error:
            what = f"publish to {record.topic_partition}: no word within {timeout_ms} ms"
            if attempt.producer is None:
                raise Unavailable(f"{what}, nothing was sent") from error
            raise OutcomeUnknown(what) from error
        finally:
            if attempt.producer is not None and not attempt.is_written:
                self._drop(attempt.producer)

    async def _append(self, producer: AIOKafkaProducer, record: Record) -> int:
        topic_partition, needs = (
            record.topic_partition,
            topic_acl("Write", record.topic_partition.topic),
        )
        try:
            delivery = await producer.send(
                topic_partition.topic,
                key=record.key,
                value=record.value,
                partition=topic_partition.partition,
                headers=list(record.headers),
            )
        except MessageSizeTooLargeError as error:
            raise Invalid(f"publish to {topic_partition}: {error}") from error
        except NOT_AUTHORIZED as error:
            what = f"publish to {topic_partition}, nothing was sent: {error!r}"
            raise missing_acls(what, [needs]) from error
        except KafkaError as error:
            raise Unavailable(
                f"publish to {topic_partition}, nothing was sent: {error!r}"
            ) from error
        try:
            metadata = await delivery
        except KafkaError as error:
            # Also after a refusal: an earlier attempt of the client may have arrived.
            raise OutcomeUnknown(
                f"publish to {topic_partition}: {error_text(error, needs)}"
            ) from error
        offset: int = metadata.offset
        return offset

    async def _verify_once(self, topic: str, producer: AIOKafkaProducer) -> None:
        """The topic was checked since the last change of metadata, and recently."""
        async with self._verifying:
            layout = cluster_layout(producer)
            verified_ms, verified_layout = self._verified.get(topic, (0, None))
            if layout == verified_layout and 0 <= self._now_ms() - verified_ms < _VERIFIED_FOR_MS:
                return
            await self._verify(topic)
            self._verified[topic] = self._now_ms(), layout

    async def _started(self) -> AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                producer = self._make(self._connection)
                try:
                    await producer.start()
                except (KafkaError, OSError) as error:
                    await abort_producer(producer)
                    raise Unavailable(f"producer cannot start: {error!r}") from error
                except BaseException:
                    cut_producer(producer)
                    self._dropped.put_nowait(producer)
                    raise
                self._producer = producer
            return self._producer

    def _drop(self, producer: AIOKafkaProducer) -> None:
        if producer is self._producer:
            self._producer = None
            cut_producer(producer)  # before anybody passes a barrier (H10)
            self._dropped.put_nowait(producer)

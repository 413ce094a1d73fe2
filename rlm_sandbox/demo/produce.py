"""Produces the demo's records with librdkafka: a producer per codec, and a transactional one.

All go to the proxy's address. Only what a broker acknowledged enters the manifest.
"""

from collections.abc import Callable
from functools import partial
from logging import Logger
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rlm_sandbox.demo.comparison import Acknowledged, Manifest
from rlm_sandbox.demo.content import (
    CODECS,
    PARTITIONS,
    Chunk,
    Content,
    Cycle,
    Outcome,
    content_digest,
    cycles,
)
from rlm_sandbox.demo.report import DemoError

_TIMEOUT_S = 60.0
_QUEUE_KIB = 32 * 1024
_POLL_EVERY = 64


class _Sent(NamedTuple):
    """The values of a record that are kept until its acknowledgement."""

    serial: int
    digest: bytes
    aborted: bool
    value_bytes: int


def create_topic(bootstrap: str, topic: str, *, segment_bytes: int) -> None:
    """Create the demo's topic with small segments; DemoError with Kafka's words if it refuses."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(
        topic,
        num_partitions=PARTITIONS,
        replication_factor=1,
        config={"segment.bytes": str(segment_bytes)},
    )
    for future in admin.create_topics([wanted], operation_timeout=_TIMEOUT_S).values():
        error = future.exception(timeout=_TIMEOUT_S)
        if error is not None:
            raise DemoError(f"creating topic {topic}: {error}") from error


class Load:
    """All producers of the demo and the manifest they fill."""

    def __init__(self, bootstrap: str, topic: str, content: Content, log: Logger) -> None:
        self.manifest = Manifest()
        self._topic = topic
        self._content = content
        self._plain = {codec: _producer(bootstrap, codec, log) for codec in CODECS}
        self._transactional = {
            codec: _producer(bootstrap, codec, log, transactional_id=f"{topic}-{codec}")
            for codec in CODECS
        }

    def run(self, size_bytes: int, progress: Callable[[int], None]) -> Manifest:
        """Produce until `size_bytes` of values (aborted ones not counted) are acknowledged."""
        for producer in self._transactional.values():
            producer.init_transactions(_TIMEOUT_S)
        script = cycles()
        for one in script:
            self._cycle(one)
            progress(self.manifest.value_bytes)
            if self.manifest.value_bytes >= size_bytes:
                break
        self._flush_plain()
        # What is sent to each partition last is a plain record. A marker may be written behind it
        # all the same: brokers write them after they answered the end of a transaction.
        self._send(self._plain["none"], next(script).plain)
        self._flush_plain()
        progress(self.manifest.value_bytes)
        return self.manifest

    def _cycle(self, one: Cycle) -> None:
        if one.transaction is None:
            self._send(self._plain[one.plain.codec], one.plain)
            return
        transaction, serials = one.transaction, one.transaction.serials
        producer = self._transactional[transaction.codec]
        producer.begin_transaction()
        self._send(producer, transaction, serials[: len(serials) // 2])
        self._send(self._plain[one.plain.codec], one.plain)
        self._send(producer, transaction, serials[len(serials) // 2 :])
        _flush(producer)
        if transaction.outcome is Outcome.ABORTED:
            producer.abort_transaction(_TIMEOUT_S)
        else:
            producer.commit_transaction(_TIMEOUT_S)

    def _send(self, producer: Producer, chunk: Chunk, serials: range | None = None) -> None:
        aborted = chunk.outcome is Outcome.ABORTED
        for serial in chunk.serials if serials is None else serials:
            record = self._content.record(serial)
            digest = content_digest(record.key, record.value, record.headers)
            sent = _Sent(serial, digest, aborted, len(record.value or b""))
            fields: dict[str, Any] = {
                "key": record.key,
                "value": record.value,
                "partition": record.partition,
                "timestamp": record.timestamp_ms,
                "headers": list(record.headers),
                "on_delivery": partial(self._acknowledged, sent),
            }
            _produce(producer, self._topic, fields)
            if serial % _POLL_EVERY == 0:
                producer.poll(0)
        for one in self._plain.values():
            one.poll(0)

    def _acknowledged(self, sent: _Sent, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            raise DemoError(f"producing record {sent.serial}: {error}")
        row = Acknowledged(
            offset=offset,
            timestamp_ms=message.timestamp()[1],
            serial=sent.serial,
            digest=sent.digest,
            aborted=sent.aborted,
        )
        self.manifest.add(partition, row, value_bytes=sent.value_bytes)

    def _flush_plain(self) -> None:
        for producer in self._plain.values():
            _flush(producer)


def _producer(
    bootstrap: str, codec: str, log: Logger, *, transactional_id: str | None = None
) -> Producer:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": f"demo-{codec}",
        "compression.type": codec,
        "enable.idempotence": True,
        "linger.ms": 5 if transactional_id else 20,
        "queue.buffering.max.kbytes": _QUEUE_KIB,
    }
    if transactional_id:
        settings["transactional.id"] = transactional_id
    return Producer(settings, logger=log)


def _produce(producer: Producer, topic: str, fields: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(topic, **fields)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _flush(producer: Producer) -> None:
    if left := producer.flush(_TIMEOUT_S):
        raise DemoError(f"{left} records were not acknowledged within {_TIMEOUT_S:.0f} s")

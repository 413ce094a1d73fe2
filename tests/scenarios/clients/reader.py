"""Reads a topic with a client in Python and prints each record as a line of JSON: partition,
offset, milliseconds, key and value in base64 (null where there is none).

Run as a program, in any environment that has the client; it imports nothing of ours. The first line
of its input is a JSON object: client, bootstrap, topic, count, security, and either `starts`
(partition -> offset, -2 = the earliest) or `group`, with its `protocol`. A member of a group goes
on until it is killed. A client that begins again where it has committed last says so of each commit
that was acknowledged: {"committed": [[partition, offset], ...]}.
"""

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

_SMALL_FETCH_BYTES = 65_536
_COMMIT_MS = 500
_IDLE_MS = 60_000
_EARLIEST = -2
_TIMEOUTS = ("consumer_timeout_ms", "api_version_auto_timeout_ms", "bootstrap_timeout_ms")
"""Of kafka-python: the second is known before 3.0 only, the third since then."""

Spec = dict[str, Any]
Record = tuple[int, int, int, bytes | None, bytes | None]


async def main() -> None:
    spec: Spec = json.loads(sys.stdin.readline())
    left = int(spec["count"]) if spec["starts"] else -1
    async for partition, offset, timestamp_ms, key, value in _records(spec):
        row = [partition, offset, timestamp_ms, _text(key), _text(value)]
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        left -= 1
        if left == 0:
            return
    raise SystemExit("nothing came for a long time")


async def _records(spec: Spec) -> AsyncIterator[Record]:
    if spec["client"] == "aiokafka":
        async for record in _aiokafka(spec):
            yield record
        return
    for record in _librdkafka(spec) if spec["client"] == "librdkafka" else _kafka_python(spec):
        yield record


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _python_config(spec: Spec) -> dict[str, Any]:
    """Of aiokafka and kafka-python, which name most things alike."""
    security = spec["security"]
    config = {
        "bootstrap_servers": spec["bootstrap"].split(","),
        "security_protocol": security["protocol"],
        "max_partition_fetch_bytes": _SMALL_FETCH_BYTES,
        "auto_offset_reset": "none" if spec["starts"] else "earliest",
        "enable_auto_commit": not spec["starts"],
        "auto_commit_interval_ms": _COMMIT_MS,
        "group_id": spec["group"],
    }
    if "mechanism" in security:
        config["sasl_mechanism"] = security["mechanism"]
        config["sasl_plain_username"] = security["username"]
        config["sasl_plain_password"] = security["password"]
    if "ca" in security:
        config["ssl_context"] = ssl.create_default_context(cafile=security["ca"])
    return config


def _starts(spec: Spec) -> dict[int, int]:
    return {int(partition): at for partition, at in (spec["starts"] or {}).items()}


def _kafka_python(spec: Spec) -> Iterator[Record]:
    from kafka import KafkaConsumer, TopicPartition

    timeouts = {one: _IDLE_MS for one in _TIMEOUTS if one in KafkaConsumer.DEFAULT_CONFIG}
    consumer = KafkaConsumer(**_python_config(spec), **timeouts)
    starts = {TopicPartition(spec["topic"], one): at for one, at in _starts(spec).items()}
    if starts:
        consumer.assign(list(starts))
    else:
        consumer.subscribe([spec["topic"]])
    for topic_partition, at in starts.items():
        if at == _EARLIEST:
            consumer.seek_to_beginning(topic_partition)
        else:
            consumer.seek(topic_partition, at)
    for one in consumer:
        yield one.partition, one.offset, one.timestamp, one.key, one.value


async def _aiokafka(spec: Spec) -> AsyncIterator[Record]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    starts = {TopicPartition(spec["topic"], one): at for one, at in _starts(spec).items()}
    topics = () if starts else (spec["topic"],)
    consumer = AIOKafkaConsumer(*topics, **_python_config(spec))
    await consumer.start()
    try:
        if starts:
            consumer.assign(list(starts))
        for topic_partition, at in starts.items():
            if at == _EARLIEST:
                await consumer.seek_to_beginning(topic_partition)
            else:
                consumer.seek(topic_partition, at)
        while True:
            one = await asyncio.wait_for(consumer.getone(), _IDLE_MS / 1000)
            yield one.partition, one.offset, one.timestamp, one.key, one.value
    finally:
        await consumer.stop()


def _librdkafka(spec: Spec) -> Iterator[Record]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(_librdkafka_config(spec))
    starts = [
        TopicPartition(spec["topic"], one, OFFSET_BEGINNING if at == _EARLIEST else at)
        for one, at in _starts(spec).items()
    ]
    if starts:
        consumer.assign(starts)
    else:
        consumer.subscribe([spec["topic"]])
    while True:
        message: Any = consumer.poll(_IDLE_MS / 1000)
        if message is None:
            return
        error = message.error()
        if error is None:
            _, timestamp_ms = message.timestamp()
            yield (
                message.partition(),
                message.offset(),
                timestamp_ms,
                message.key(),
                message.value(),
            )
        elif not error.retriable():
            raise SystemExit(str(error))


def _librdkafka_config(spec: Spec) -> dict[str, Any]:
    security = spec["security"]
    config = {
        "bootstrap.servers": spec["bootstrap"],
        "security.protocol": security["protocol"],
        "group.id": spec["group"] or "none",
        "group.protocol": spec["protocol"],
        "enable.auto.commit": not spec["starts"],
        "auto.commit.interval.ms": _COMMIT_MS,
        "auto.offset.reset": "error" if spec["starts"] else "earliest",
        "fetch.message.max.bytes": _SMALL_FETCH_BYTES,
        "queued.max.messages.kbytes": 64,
        "fetch.queue.backoff.ms": 10,
        "check.crcs": True,
    }
    if "mechanism" in security:
        config["sasl.mechanism"] = security["mechanism"]
        config["sasl.username"] = security["username"]
        config["sasl.password"] = security["password"]
    if "ca" in security:
        config["ssl.ca.location"] = security["ca"]
    return config


if __name__ == "__main__":
    asyncio.run(main())

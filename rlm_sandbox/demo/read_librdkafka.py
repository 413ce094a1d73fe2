"""Reads the whole topic with librdkafka, in order, to the end of every partition.

auto.offset.reset=error: any reset of a position ends the read as an error. librdkafka's own log
lines go to a file beside the other logs: a service that is restarted means many refused
connections.
"""

import logging
from logging import Logger
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from rlm.clock import Clock
from rlm_sandbox.demo.comparison import Comparison, Progress, RecordCheck, Yardstick
from rlm_sandbox.demo.report import DemoError

_STALLED_MS = 60_000
_POLL_S = 0.5
_BATCH = 2_000
# Broken connections are the client's to mend; it reports them and goes on.
_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
}


def read_librdkafka(
    bootstrap: str,
    topic: str,
    yardstick: Yardstick,
    *,
    isolation: str,
    clock: Clock,
    progress: Progress,
    log: Logger,
) -> Comparison:
    """One full read with isolation.level `isolation`; DemoError if it fails or hangs."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": f"demo-{isolation}",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "check.crcs": True,
        # A short queue of fetched records, so that a restart in the middle hits a fetch.
        "queued.max.messages.kbytes": 4 * 1024,
        "fetch.queue.backoff.ms": 10,
        "reconnect.backoff.max.ms": 1_000,
    }
    consumer = Consumer(settings, logger=log)
    try:
        starts = [TopicPartition(topic, one, OFFSET_BEGINNING) for one in yardstick.expected]
        consumer.assign(starts)
        return _read_all(consumer, yardstick, clock, progress)
    finally:
        consumer.close()


def _read_all(
    consumer: Consumer, yardstick: Yardstick, clock: Clock, progress: Progress
) -> Comparison:
    check = RecordCheck(yardstick)
    open_partitions = set(yardstick.expected)
    last_ms = clock.monotonic_ms()
    while open_partitions:
        messages = consumer.consume(_BATCH, _POLL_S)
        now_ms = clock.monotonic_ms()
        for message in messages:
            error = message.error()
            if error is None:
                _see(check, message)
                last_ms = now_ms
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition() or 0)
            elif error.code() not in _PASSING:
                raise DemoError(f"librdkafka, partition {message.partition()}: {error.str()}")
        if now_ms - last_ms > _STALLED_MS:
            raise DemoError(
                f"librdkafka got no record for {_STALLED_MS // 1000} s after"
                f" {check.comparison.read_records} of {yardstick.records}"
            )
        progress(check.comparison.read_records)
    check.comparison.finish()
    return check.comparison


def _see(check: RecordCheck, message: Message) -> None:
    partition, offset = message.partition(), message.offset()
    kind, timestamp_ms = message.timestamp()
    if partition is None or offset is None or kind != TIMESTAMP_CREATE_TIME:
        raise DemoError(f"librdkafka gave a record without offset or time: {partition}, {offset}")
    headers: Any = message.headers()
    check.see(partition, offset, timestamp_ms, message.key(), message.value(), tuple(headers or ()))


def client_log(path: Path) -> logging.Logger:
    """A logger of its own that writes to `path`, which is made at the first line."""
    logger = logging.Logger("librdkafka")
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return logger

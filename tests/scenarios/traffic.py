"""Clients that go on while things break: a steady producer and a consumer at the tail."""

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.scenarios.cluster import Acknowledged, Cluster, Row, fresh, text_value

_FLUSH_S = 240
"""What is not acknowledged by then would be in the log, and in no list."""
_FAILED_S = 15
"""A test that has failed ends sooner than its watchdog ends the process with all other tests."""


class SteadyProducer:
    """Sends to partitions in turn at a rate; `stop` flushes, `failures` must stay empty. `client`:
    what says where brokers are and who asks, by default that of the cluster's clients.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: list[int],
        *,
        kib_per_s: int,
        bootstrap: str | None = None,
        client: Mapping[str, Any] | None = None,
    ) -> None:
        self.failures: list[KafkaError] = []
        self._acked = Acknowledged()
        self._topic, self._partitions, self._rate = topic, partitions, kib_per_s
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap or cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **(cluster.client if client is None else client),
            }
        )
        self._ending, self._flush_s = threading.Event(), float(_FLUSH_S)
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)

    @property
    def rows(self) -> list[Row]:
        """What was acknowledged so far."""
        return self._acked.rows

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        self.stop(_FLUSH_S if failure is None else _FAILED_S)

    def stop(self, flush_s: float = _FLUSH_S) -> None:
        """Everything sent is acknowledged, or failed, when this returns."""
        self._flush_s = flush_s
        self._ending.set()
        self._thread.join(flush_s + 30)
        assert not self._thread.is_alive(), "the producer hangs"

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._ending.is_set():
            due = int((time.monotonic() - began) * self._rate)
            for _ in range(min(due - sent, 256)):
                self._send(sent)
                sent += 1
            self._producer.poll(0.01)
        self._producer.flush(self._flush_s)

    def _send(self, serial: int) -> None:
        timestamp_ms = int(time.time() * 1000)
        try:
            self._producer.produce(
                self._topic,
                key=b"serial-%d" % serial,
                value=text_value(),
                partition=self._partitions[serial % len(self._partitions)],
                timestamp=timestamp_ms,
                on_delivery=partial(self._delivered, timestamp_ms),
            )
        except BufferError:
            self._producer.poll(0.05)

    def _delivered(self, timestamp_ms: int, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._acked.add(message, timestamp_ms)
        else:
            self.failures.append(error)


class TailConsumer:
    """Follows one partition from its end; a reset or a gap of its position is in `problems`.
    `client` is as that of a SteadyProducer.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        *,
        client: Mapping[str, Any] | None = None,
    ) -> None:
        self.offsets: list[int] = []
        self.problems: list[str] = []
        self._next = cluster.log_end(topic, partition)
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": fresh("tail"),
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **(cluster.client if client is None else client),
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, self._next)])
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        self._ending.set()
        self._thread.join(120 if failure is None else _FAILED_S)
        assert not self._thread.is_alive(), "the consumer hangs"

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                message: Any = self._consumer.poll(0.1)
                if message is not None:
                    self._see(message)
        finally:
            self._consumer.close()

    def _see(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._TRANSPORT:
                self.problems.append(str(error))
            return
        if message.offset() != self._next:
            self.problems.append(f"offset {message.offset()} after {self._next - 1}")
        self._next = message.offset() + 1
        self.offsets.append(message.offset())

"""A producer that sends one record after the other, and how long each acknowledgement took."""

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Self

from confluent_kafka import KafkaError, Producer

from bench.plan import RECORD_BYTES

_EVERY_S = 0.005
_STOP_S = 90


@dataclass(slots=True)
class TimedProducer:
    """Sends to partition 0 while it is entered, each record by itself, acks=all.

    `acks`: when each record was acknowledged, in seconds since the epoch, and how long it took, in
    seconds. It sends no more once a record has failed.
    """

    bootstrap: str
    topic: str
    acks: list[tuple[float, float]] = field(default_factory=list)
    failures: list[KafkaError] = field(default_factory=list)
    sent: int = 0
    _answered: int = 0
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        assert self._thread is not None
        self._thread.join(_STOP_S)

    def between(self, start_s: float, end_s: float) -> list[tuple[float, float]]:
        """The acknowledgements of that time."""
        return [one for one in tuple(self.acks) if start_s <= one[0] < end_s]

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        value = os.urandom(RECORD_BYTES // 2).hex().encode()
        while not self.failures and not self._end.wait(_EVERY_S):
            began_s = time.monotonic()
            producer.produce(self.topic, value=value, partition=0, on_delivery=self._delivered)
            self.sent += 1
            while self._answered < self.sent:
                producer.poll(1)
            if not self.failures:
                self.acks.append((time.time(), time.monotonic() - began_s))

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        self._answered += 1
        if error is not None:
            self.failures.append(error)

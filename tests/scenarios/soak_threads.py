"""The clients of the soak with everything: each in a thread, over an hour, with little memory."""

import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kip405.errors import RemoteStorageError
from tests.scenarios.cluster import Cluster, Row, fresh
from tests.scenarios.traffic import SteadyProducer

Seen = tuple[int, int]
"""Offset of a record, and the checksum of its value."""
BySum = dict[int, list[Seen]]
"""By partition, in the order in which they came."""


class LightProducer(SteadyProducer):
    """Keeps the checksums of values instead of them."""

    def _delivered(self, timestamp_ms: int, error: KafkaError | None, message: Any) -> None:
        super()._delivered(timestamp_ms, error, message)
        if error is None:
            row = self._acked.rows[-1]
            self._acked.rows[-1] = replace(row, key=None, value=_sum(row.value).to_bytes(4))

    def seen(self) -> BySum:
        """What was acknowledged."""
        found: BySum = {}
        for row in self.rows:
            value = row.value or b""
            found.setdefault(row.partition, []).append((row.offset, int.from_bytes(value)))
        return found


class Repeated(threading.Thread):
    """Does something again and again until `end`; what it raises is in `problems`."""

    def __init__(self, name: str, work: Callable[[], None], *, pause_s: float = 5.0) -> None:
        super().__init__(name=name, daemon=True)
        self.passes = 0
        self.problems: list[str] = []
        self.ending = threading.Event()
        self._work, self._pause_s = work, pause_s

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.join(300)
        assert not self.is_alive(), f"{self.name} hangs"

    def run(self) -> None:
        while not self.ending.is_set():
            try:
                self._work()
                self.passes += 1
            except Exception as error:  # noqa: BLE001 - whatever a client says is a finding
                self.problems.append(f"{self.name}: {error!r}"[:500])
            self.ending.wait(self._pause_s)


class Follower(Repeated):
    """Reads all partitions at the tail, from offset 0 on."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__("follower", self._poll, pause_s=0)
        self.seen: BySum = {one: [] for one in range(partitions)}
        self.passing: list[str] = []
        """Errors by which clients of Kafka say that they connect again."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": fresh("follower"),
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._consumer.close()

    def _poll(self) -> None:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            for message in self._consumer.consume(500, 0.2):
                self._see(message)

    def _see(self, message: Any) -> None:
        error = message.error()
        if error is None:
            self.seen[message.partition()].append((message.offset(), _sum(message.value())))
        elif error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            self.passing.append(str(error))
        else:
            self.problems.append(str(error))


def rereader(cluster: Cluster, topic: str, rows: list[Row]) -> Repeated:
    """All of an old topic through the proxies, by a new consumer each time."""
    ends: dict[int, int] = {}
    for row in rows:
        ends[row.partition] = max(ends.get(row.partition, 0), row.offset + 1)
    wanted = sorted((row.partition, row.offset, row.value) for row in rows)

    def read() -> None:
        found = cluster.read_all(topic, end=ends, timeout_s=240, log_level=0)
        assert sorted((row.partition, row.offset, row.value) for row in found) == wanted

    return Repeated("rereader", read)


class Caller:
    """Reads what is remote of an old topic by gRPC, from each endpoint in turn; those that do not
    answer are counted.
    """

    def __init__(self, reads: Mapping[str, Callable[[], int]], wanted: int) -> None:
        """`reads`: by address, how many records there are."""
        self._reads, self._wanted = list(reads.items()), wanted
        self._turn = 0
        self.unanswered = 0

    def __call__(self) -> None:
        address, read = self._reads[self._turn % len(self._reads)]
        self._turn += 1
        try:
            found = read()
        except RemoteStorageError as error:
            if not error.retriable:
                raise
            self.unanswered += 1
            return
        assert found == self._wanted, f"{found} of {self._wanted} records at {address}"


def streamed(folder: Path) -> BySum:
    """What a soak_stream has written, by offsets; an offset twice stays twice."""
    found: BySum = {}
    for file in sorted((folder / "batches").glob("[0-9]*")):
        for line in file.read_text().splitlines():
            partition, offset, value = map(int, line.split())
            found.setdefault(partition, []).append((offset, value))
    return {one: sorted(rows) for one, rows in found.items()}


def is_running(process: "subprocess.Popen[str]") -> bool:
    return process.poll() is None


def _sum(value: bytes | None) -> int:
    return zlib.crc32(value or b"")

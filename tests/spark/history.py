"""A topic with all that a log can hold, written the same way twice: once to tier, once to compare.

Three partitions; all five codecs; plain records with committed, aborted and, at the end of
partition 0, an open transaction between them; null keys and values; headers that are absent, null
or twice there; timestamps that are given. Both copies get every record at the same offset, because
one step at a time is written and waited for.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

from tests.scenarios.cluster import Cluster

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP_MS = 4_102_444_800_123
"""In the year 2100: later than the markers of transactions, which Kafka stamps and finds too."""
STEP_MS = 977
PASSES = 31
_CHUNK = 30
_LARGE_BYTES = 8_192
_NEVER_RETENTION = {"retention.ms": "-1", "message.timestamp.after.max.ms": "9223372036854775807"}
_HEADERS: tuple[Any, ...] = (
    None,
    [],
    [("a", b"1")],
    [("a", b"1"), ("a", b"2")],
    [("nothing", None), ("empty", b""), ("", b"no name")],
)


@dataclass(slots=True)
class _Writing:
    """One copy while it is written: its producers, and where each partition must end by now."""

    cluster: Cluster
    topic: str
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    producers: dict[str, Producer] = field(default_factory=dict)

    def plain(self, codec: str) -> Producer:
        return self._producer(codec, {})

    def transactional(self, codec: str) -> Producer:
        name = f"{self.topic}-{codec}"
        settings = {"transactional.id": name, "transaction.timeout.ms": 14_400_000}
        known = name in self.producers
        producer = self._producer(name, {"compression.type": codec, **settings})
        if not known:
            producer.init_transactions(30)
        return producer

    def _producer(self, name: str, settings: dict[str, Any]) -> Producer:
        if name not in self.producers:
            basis = {"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True}
            codec = {} if "compression.type" in settings else {"compression.type": name}
            self.producers[name] = Producer({**basis, "linger.ms": 2, **codec, **settings})
        return self.producers[name]

    def send(self, producer: Producer, records: list[dict[str, Any]]) -> set[int]:
        """Write in order and wait; the partitions that got some."""
        for record in records:
            producer.produce(self.topic, **record)
        assert producer.flush(30) == 0, "not everything was delivered"
        for record in records:
            self.ends[record["partition"]] += 1
        return {record["partition"] for record in records}

    def end_transaction(self, producer: Producer, partitions: set[int], *, commit: bool) -> None:
        """With the markers in the log: Kafka writes them after it has answered."""
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        for partition in partitions:
            self.ends[partition] += 1
            self.cluster.wait_for(
                lambda p=partition: self.cluster.log_end(self.topic, p) == self.ends[p],  # type: ignore[misc]
                f"marker in {self.topic}-{partition}",
            )


def create(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS, configs=_NEVER_RETENTION)


def write(cluster: Cluster, topic: str, *, seed: int = 405, passes: int = PASSES) -> None:
    """Write the history; what is written depends on seed and passes only."""
    writing = _Writing(cluster, topic)
    records = _records(random.Random(seed))
    for number in range(passes):
        codec = CODECS[number % len(CODECS)]
        writing.send(writing.plain(codec), _take(records, _CHUNK))
        if number % 3 == 0:
            _transaction(writing, records, codec, commit=number % 2 == 0)
    open_one = writing.transactional("zstd")
    writing.send(writing.plain("none"), _take(records, _CHUNK))
    open_one.begin_transaction()
    writing.send(open_one, [{**one, "partition": 0} for one in _take(records, 5)])
    writing.send(writing.plain("lz4"), _take(records, 12))
    # Left open: it ends with its time limit, long after the tests.


def _transaction(
    writing: _Writing, records: Iterator[dict[str, Any]], codec: str, *, commit: bool
) -> None:
    """With plain records between its own."""
    producer = writing.transactional(codec)
    producer.begin_transaction()
    partitions = writing.send(producer, _take(records, 6))
    writing.send(writing.plain(codec), _take(records, 4))
    partitions |= writing.send(producer, _take(records, 5))
    writing.end_transaction(producer, partitions, commit=commit)


def _take(records: Iterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    return [next(records) for _ in range(count)]


def _records(chance: random.Random) -> Iterator[dict[str, Any]]:
    serial = 0
    while True:
        yield {
            "partition": serial % PARTITIONS,
            "key": None if serial % 7 == 3 else b"key-%d" % serial,
            "value": _value(chance, serial),
            "headers": _HEADERS[serial % len(_HEADERS)],
            "timestamp": FIRST_TIMESTAMP_MS + serial * STEP_MS,
        }
        serial += 1


def _value(chance: random.Random, serial: int) -> bytes | None:
    """Mostly large and hard to compress, so that a few thousand records fill many segments."""
    if serial % 11 == 5:
        return None
    if serial % 5 == 1:
        return b"" if serial % 2 else b"small %d" % serial * (serial % 40)
    return chance.randbytes(chance.randrange(_LARGE_BYTES, 4 * _LARGE_BYTES))

"""Two topics to which producers write the same records at the same offsets: five codecs, headers,
transactions, some aborted, some beside each other; one of the topics is tiered then.
"""

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.scenarios.cluster import Cluster, fresh

PARTITIONS = 6
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ROUNDS = 32
_RECORDS = 80
"""Of one partition in one round."""
_FIRST_MS = 1_700_000_000_000
_SETTINGS = {"retention.ms": "-1", "compression.type": "producer", "min.insync.replicas": "1"}
_LIMIT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedTwins:
    """`tiered` is trimmed in the course of a test, `plain` never."""

    cluster: Cluster
    tiered: str
    plain: str

    def local_starts(self) -> dict[int, int]:
        """Where the brokers' own logs of the tiered topic begin."""
        return {one: self.cluster.log_start(self.tiered, one) for one in range(PARTITIONS)}

    def ends(self) -> dict[int, int]:
        return {one: self.cluster.log_end(self.tiered, one) for one in range(PARTITIONS)}

    def remote_ends(self) -> dict[int, int]:
        """Where the remote logs end, once all closed segments are copied."""
        found = {}
        for one in range(PARTITIONS):
            self.cluster.wait_copied(self.tiered, one)
            found[one] = int(self.cluster.status(self.tiered, one)["remote_next_offset"])
        return found

    def trim(self, mib: int) -> dict[int, int]:
        """Keep so much of each partition on the brokers; returns when all have been trimmed
        further, with where their logs begin now.
        """
        before = self.local_starts()
        kept = str(mib << 20)
        self.cluster.enable(self.tiered, "--trim", "--local-retention-bytes", kept)
        for one, start in before.items():
            self.cluster.wait_trimmed(self.tiered, one, beyond=start)
        return self.local_starts()


def produced_twins(cluster: Cluster, seed: int) -> ProducedTwins:
    """Made, written, and not tiered yet."""
    tiered, plain = fresh("tiered"), fresh("plain")
    for topic in (tiered, plain):
        cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3, configs=_SETTINGS)
    writer = _Writer(cluster, (tiered, plain), random.Random(seed))
    for number in range(_ROUNDS):
        writer.write(number)
    return ProducedTwins(cluster=cluster, tiered=tiered, plain=plain)


class _Writer:
    """Each step is in both topics before the next one begins: markers of transactions come when
    brokers see to it, and would lie elsewhere in each topic.
    """

    def __init__(self, cluster: Cluster, topics: Sequence[str], chance: random.Random) -> None:
        self._cluster = cluster
        self._topics = topics
        self._chance = chance
        self._end = 0
        """Of every partition."""
        self._admin = self._new_admin()
        self._producers = [_producer(cluster, codec, topics[0]) for codec in _CODECS]
        for one in self._producers:
            one.init_transactions(_LIMIT_S)
        settings = {"bootstrap.servers": cluster.direct, "compression.type": "lz4", "acks": "all"}
        self._plain = Producer(settings)

    def write(self, number: int) -> None:
        """One round."""
        one, other = self._chance.sample(self._producers, 2)
        match number % 8:
            case 0:
                self._add(self._plain, number)
            case 2 | 5:
                with self._transaction(one, is_kept=False):
                    self._add(one, number)
            case 3:
                with (
                    self._transaction(one, is_kept=True),
                    self._transaction(other, is_kept=False),
                ):
                    self._add(one, number)
                    self._add(other, number)
            case _:
                with self._transaction(one, is_kept=True):
                    self._add(one, number)

    @contextlib.contextmanager
    def _transaction(self, producer: Producer, *, is_kept: bool) -> Iterator[None]:
        producer.begin_transaction()
        yield
        (producer.commit_transaction if is_kept else producer.abort_transaction)(_LIMIT_S)
        self._wait_grown(1)

    def _add(self, producer: Producer, number: int) -> None:
        for partition in range(PARTITIONS):
            for at in range(_RECORDS):
                value, key = self._value(), b"key-%d-%d" % (number, at)
                for topic in self._topics:
                    producer.produce(
                        topic,
                        value,
                        None if at % 9 == 7 else key,
                        partition,
                        timestamp=_FIRST_MS + number * 1_000 + at,
                        headers=[("round", b"%d" % number), ("empty", b"")],
                    )
            producer.poll(0)
        assert producer.flush(_LIMIT_S) == 0
        self._wait_grown(_RECORDS)

    def _value(self) -> bytes | None:
        """Some is worth compressing, and some records have none."""
        if self._chance.random() < 0.02:
            return None
        word = self._chance.randbytes(16).hex().encode()
        return word * self._chance.randint(2, 40) + self._chance.randbytes(2_100)

    def _wait_grown(self, count: int) -> None:
        self._end += count
        asked = {
            TopicPartition(topic, partition): OffsetSpec.latest()
            for topic in self._topics
            for partition in range(PARTITIONS)
        }

        def is_there() -> bool:
            try:
                answers = self._admin.list_offsets(asked).values()
                return {one.result(_LIMIT_S).offset for one in answers} == {self._end}
            except KafkaException:  # leaders have moved; the client keeps stale ones
                self._admin = self._new_admin()
                return False

        self._cluster.wait_for(is_there, f"all partitions end at {self._end}")

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._cluster.direct})


def _producer(cluster: Cluster, codec: str, name: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.direct,
            "transactional.id": f"{name}-{codec}",
            "compression.type": codec,
            "linger.ms": 2,
            "batch.size": 20_000,
        }
    )

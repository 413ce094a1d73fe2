"""Three brokers, replication factor 3: leaders die and move while clients read trimmed data."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.scenarios.cluster import Cluster, Row, assert_same, fresh, text_value
from tests.scenarios.java import java_read, printable
from tests.scenarios.replicas import disk, lead, reassign, trimmed_topic

pytestmark = pytest.mark.integration

# Small fetches and a short queue: the read is still under way when the leader dies.
_SLOW_LIBRDKAFKA: dict[str, Any] = {
    "fetch.message.max.bytes": 65_536,
    "queued.max.messages.kbytes": 64,
    "fetch.queue.backoff.ms": 10,
}
_TRIMS, _MISSED_AFTER_S = 4, 8
_LIMIT_S = 200
"""A JVM that reads starts first."""
_SLOW_JAVA = {"max.partition.fetch.bytes": "65536"}


class Once:
    """Does something when a reader has got so far; `done` informs others."""

    def __init__(self, work: Callable[[], None], at: int) -> None:
        self._work, self._at = work, at
        self.done = threading.Event()

    def __call__(self, count: int) -> None:
        if count == self._at:
            self._work()
            self.done.set()


def _held_at(count: int, event: threading.Event) -> Callable[[int], None]:
    """Holds a reader up at so many rows until the event."""

    def hold(rows: int) -> None:
        if rows == count:
            assert event.wait(_LIMIT_S)

    return hold


@pytest.mark.timeout(600)
@pytest.mark.parametrize("killed", [("broker",), ("broker", "rlm")], ids="+".join)
def test_leader_is_killed_while_trimmed_data_is_read(
    three: Cluster, killed: tuple[str, ...]
) -> None:
    topic = fresh("killed")
    rows = trimmed_topic(three, topic, [2, 1, 3])
    start = three.log_start(topic)

    def kill() -> None:
        for part in killed:
            three.sandbox.kill(f"{part}:2")

    kill_once = Once(kill, at=200)
    printed: list[tuple[int, int, bytes]] = []
    java = threading.Thread(
        target=lambda: printed.extend(
            java_read(three, topic, len(rows), config=_SLOW_JAVA, on_row=kill_once)[0]
        )
    )
    java.start()
    read = three.read_all(
        topic,
        end={0: len(rows)},
        on_row=_held_at(1000, kill_once.done),
        timeout_s=_LIMIT_S + 60,
        **_SLOW_LIBRDKAFKA,
    )
    java.join()
    assert start > 2048
    assert_same(read, rows)
    assert printed == printable(rows)


class SteadyReader(threading.Thread):
    """Reads on from an old offset, slowly, whatever happens; remembers the offsets it was given."""

    def __init__(self, cluster: Cluster, topic: str, reset: str, *, start: int, end: int) -> None:
        super().__init__(daemon=True)
        self.offsets: list[int] = []
        self.failure: str | None = None
        self._end = end
        self._topic = topic
        self._start_offset = start
        self._config = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"steady-{topic}-{reset}",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            **_SLOW_LIBRDKAFKA,
        }

    def run(self) -> None:
        consumer: Any = Consumer(self._config)
        consumer.assign([TopicPartition(self._topic, 0, self._start_offset)])
        deadline = time.monotonic() + _LIMIT_S
        try:
            while len(self.offsets) < self._end - self._start_offset:
                message = consumer.poll(0.5)
                if message is not None and message.error() is not None:
                    self.failure = str(message.error())
                    return
                if message is not None:
                    self.offsets.append(message.offset())
                if time.monotonic() > deadline:
                    self.failure = f"does not advance behind {self.offsets[-1:]}"
                    return
        finally:
            consumer.close()

    def check(self) -> None:
        self.join()
        assert self.failure is None
        assert self.offsets == list(range(self._start_offset, self._end))


@pytest.mark.timeout(600)
def test_h17_leadership_moves_right_after_a_trim(three: Cluster) -> None:
    topic = fresh("h17")
    rows = trimmed_topic(three, topic, [1, 2, 3])
    for node in (2, 3):
        try:
            rows += _trimmed_without(three, topic, node)
            lead(three, topic, node)
            readers = [
                SteadyReader(three, topic, reset, start=7, end=len(rows))
                for reset in ("latest", "earliest", "error")
            ]
            for reader in readers:
                reader.start()
            earliest = Consumer(
                {
                    "bootstrap.servers": three.bootstrap,
                    "group.id": f"h17-{topic}-{node}",
                    "auto.offset.reset": "earliest",
                }
            )
            earliest.subscribe([topic])
        finally:
            three.sandbox.resume(f"rlm:{node}")
        first = earliest.poll(_LIMIT_S)
        earliest.close()
        assert first is not None
        assert first.error() is None
        assert first.offset() == 0
        for reader in readers:
            reader.check()
    assert_same(three.read_all(topic), rows)


def _trimmed_without(cluster: Cluster, topic: str, node: int) -> list[Row]:
    """Pauses a service, whose view ends before a trim of the topic that is made then; answers what
    was written for it.

    Nothing is trimmed while a service is missed (three heartbeats): on a machine that is too busy
    for a trim before that, it is made after the service was seen again, and another one begun.
    """
    rows: list[Row] = []
    for _ in range(_TRIMS):
        before = cluster.wait_settled(topic)
        cluster.sandbox.pause(f"rlm:{node}")
        rows += cluster.produce(topic, ((0, b"k", text_value()) for _ in range(2048)))
        with contextlib.suppress(AssertionError):
            cluster.wait_trimmed(topic, beyond=before, timeout_s=_MISSED_AFTER_S)
            return rows
        cluster.sandbox.resume(f"rlm:{node}")
    raise AssertionError(f"nothing of {topic} was trimmed before rlm:{node} was missed")


@pytest.mark.kafka_scenario("ReassignReplicaMoveAndExpand")
def test_h21_new_replica_replicates_past_the_proxy(three: Cluster) -> None:
    topic = fresh("h21")
    rows = trimmed_topic(three, topic, [1])
    start = three.log_start(topic)
    reassign(three, topic, [1, 2])
    held = disk(three, topic, 2)
    assert held.segments[0].base_offset >= start
    lead(three, topic, 2)
    assert three.log_start(topic) >= start
    assert_same(three.read_all(topic), rows)

"""Three brokers, replication factor 3: leaders die and move while clients read trimmed data."""

import threading
import time

import pytest

from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.java import java_read, printable
from tests.scenarios.replicas import disk, isr, lead, reassign, wait_isr

pytestmark = pytest.mark.integration

# Small fetches and a short queue: the read is still under way when the leader dies.
_SLOW_LIBRDKAFKA = {
    "fetch.message.max.bytes": 65_536,
    "queued.max.messages.kbytes": 64,
    "fetch.queue.backoff.ms": 10,
}
_SLOW_JAVA = {"max.partition.fetch.bytes": "65536"}


def trimmed_topic(
    cluster: Cluster, topic: str, assignment: list[int], *, mib: int = 5
) -> list[Row]:
    """A topic of one partition, enabled, whose oldest records only the remote store has."""
    cluster.create_topic(topic, assignment=[assignment])
    cluster.enable(topic)
    rows = cluster.fill(topic, mib=mib)
    cluster.wait_trimmed(topic, beyond=(mib - 3) * 1024)
    return rows


class Once:
    """Runs something when the first of two readers has got so far."""

    def __init__(self, work: object, at: int) -> None:
        self._work, self._at, self._lock = work, at, threading.Lock()
        self.happened_at_s: float | None = None

    def __call__(self, count: int) -> None:
        with self._lock:
            if self.happened_at_s is None and count >= self._at:
                self._work()  # type: ignore[operator]
                self.happened_at_s = time.monotonic()


@pytest.mark.parametrize("parts", [("broker",), ("broker", "rlm")], ids="+".join)
def test_leader_is_killed_while_trimmed_data_is_read(
    three: Cluster, parts: tuple[str, ...]
) -> None:
    topic = fresh("killed")
    rows = trimmed_topic(three, topic, [2, 1, 3])
    start = three.log_start(topic)

    def kill() -> None:
        for part in parts:
            three.sandbox.kill(f"{part}:2")

    kill_once = Once(kill, at=200)
    printed: list[tuple[int, int, bytes]] = []
    java = threading.Thread(
        target=lambda: printed.extend(
            java_read(three, topic, len(rows), config=_SLOW_JAVA, on_row=kill_once)[0]
        )
    )
    java.start()
    while java.is_alive() and kill_once.happened_at_s is None:
        time.sleep(0.05)
    read = three.read_all(topic, end={0: len(rows)}, **_SLOW_LIBRDKAFKA)
    java.join()
    assert start > 2048
    assert_same(read, rows)
    assert printed == printable(rows)

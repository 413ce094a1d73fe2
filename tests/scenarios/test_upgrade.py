"""Three services are restarted one after the other while clients produce, follow the tail and read
old records: nothing is lost or comes twice, and clients see reconnects alone (H24). So it is with
this version alone, and where services of an older one are rolled to this one, and back.

Which older version, `older_services.py` says. What each version writes, the other reads: old
records are read from the store after each step, through services of both.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from rlm.config.service import settings
from tests.busy import busy_factor
from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.ladder import wait_health
from tests.scenarios.older_services import OlderServices, older_tree
from tests.scenarios.traffic import SteadyProducer, TailConsumer
from tests.service_log import events_of

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1_800)]

NODES = (1, 2, 3)
_DRAIN_MS = settings()["shutdown_timeout_ms"].default
_LATE_MS = 250
"""A machine with other work does what is due later than one without, which has no allowance."""
_EXIT_MS = 2_000
"""The process ends after its work has: so long on a machine with free cores."""
_OLD_MIB = 3
_KIB_PER_S = 150
_MIX_S = 120.0


@dataclass
class Roll:
    """The cluster under load, and what its services have done."""

    cluster: Cluster
    topic: str
    older: OlderServices | None = None
    ends_ms: list[tuple[str, int]] = field(default_factory=list)
    """From SIGTERM until the process is gone."""
    drains_ms: list[tuple[str, int]] = field(default_factory=list)
    """From SIGTERM until no client was served any more, as the service says in its log."""

    def restart(self, node: int) -> None:
        """One service is stopped and started; then old records are read."""
        sandbox, name = self.cluster.sandbox, f"rlm:{node}"
        says_drains = not self.is_older(node)
        before, began = len(self.drained(name)), time.monotonic()
        sandbox.stop(name)
        self.ends_ms.append((name, int((time.monotonic() - began) * 1_000)))
        if says_drains:
            (drained_ms,) = self.drained(name)[before:]
            self.drains_ms.append((name, drained_ms))
        sandbox.start(name)
        self.read_everything()

    def change(self, node: int, *, is_older: bool) -> None:
        """Restart a service in the other version."""
        assert self.older is not None
        with self.older.older() if is_older else contextlib.nullcontext():
            self.restart(node)
        assert self.is_older(node) == is_older, f"rlm:{node} has the other code"

    def drained(self, name: str) -> list[int]:
        """What the service has said so far of its drains."""
        events = events_of(self.cluster.sandbox.layout.log(name))
        return [one["drained_ms"] for one in events if one["event"] == "drained"]

    def is_older(self, node: int) -> bool:
        """Whether it runs the older version, which says nothing of its drain."""
        return self.older is not None and self.older.is_older(self.pid(node))

    def pid(self, node: int) -> int:
        return int(self.cluster.sandbox.json["brokers"][node - 1]["rlm_pid"])

    def read_everything(self) -> None:
        """From the first offset on, by the store and the brokers: no position is reset, and each
        offset comes once.
        """
        rows = self.cluster.read_all(self.topic, timeout_s=_MIX_S)
        for partition in range(len(NODES)):
            offsets = [row.offset for row in rows if row.partition == partition]
            assert offsets == list(range(len(offsets)))

    def trim_all(self) -> None:
        """Copies and trims go on in every partition."""
        for partition in range(len(NODES)):
            start = self.cluster.log_start(self.topic, partition)
            self.cluster.wait_trimmed(self.topic, partition, beyond=start)

    @contextlib.contextmanager
    def under_load(self) -> Iterator[None]:
        """The topic's beginning is in the store alone. Clients work meanwhile; then all records are
        there once, no client has seen an error, and each service has ended in time.
        """
        cluster, topic, partitions = self.cluster, self.topic, list(range(len(NODES)))
        cluster.create_topic(topic, assignment=[[node] for node in NODES])
        old = [
            row for one in partitions for row in cluster.fill(topic, mib=_OLD_MIB, partition=one)
        ]
        cluster.enable(topic)
        for one in partitions:
            cluster.wait_trimmed(topic, one)
        with ExitStack() as load:
            tails = [load.enter_context(TailConsumer(cluster, topic, one)) for one in partitions]
            reader = load.enter_context(OldReader(cluster, topic))
            producer = load.enter_context(
                SteadyProducer(cluster, topic, partitions, kib_per_s=_KIB_PER_S)
            )
            yield
            producer.stop()
            assert producer.failures == []
            acked = producer.rows
            for tail in tails:
                cluster.wait_for(partial(_has_followed, tail, len(acked)), "the tail was followed")
        assert [problem for tail in tails for problem in tail.problems] == []
        assert reader.failures == []
        assert reader.passes > 0
        read = sorted(cluster.read_all(topic), key=_position)
        assert_same(read, sorted([*old, *acked], key=_position))
        print(f"drains in ms: {self.drains_ms}, whole ends: {self.ends_ms}")
        print(f"old records were read {reader.passes} times")
        allowance_ms = _EXIT_MS * busy_factor()
        slowest_ms = max(ms for _, ms in self.drains_ms)
        assert slowest_ms <= _DRAIN_MS + _LATE_MS * (busy_factor() - 1), self.drains_ms
        assert max(ms for _, ms in self.ends_ms) <= _DRAIN_MS + allowance_ms, self.ends_ms


class OldReader(threading.Thread):
    """Reads the oldest records, most of which only the store has, again and again; `failures` must
    stay empty.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(name="old", daemon=True)
        self.passes = 0
        self.failures: list[str] = []
        self._cluster, self._topic = cluster, topic
        self._ending = threading.Event()

    def __enter__(self) -> "OldReader":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join(2 * _MIX_S)
        assert not self.is_alive(), "the reader hangs"

    def run(self) -> None:
        end = _OLD_MIB << 10
        while not self._ending.is_set():
            try:
                rows = self._cluster.read_all(
                    self._topic, end=dict.fromkeys(range(len(NODES)), end), timeout_s=_MIX_S
                )
                positions = sorted((row.partition, row.offset) for row in rows)
                assert positions == [(one, at) for one in range(len(NODES)) for at in range(end)]
            except AssertionError as error:
                self.failures.append(str(error))
                return
            self.passes += 1


def _position(row: Row) -> tuple[int, int]:
    return row.partition, row.offset


def _has_followed(tail: TailConsumer, acked: int) -> bool:
    """Whether it has its share of what was acknowledged, which went to partitions in turn."""
    return len(tail.offsets) >= acked // len(NODES)


def test_h24_services_are_restarted_under_load(sandbox_factory: SandboxFactory) -> None:
    with Cluster(sandbox_factory(brokers=len(NODES), heap_mib=256)) as cluster:
        roll = Roll(cluster, fresh("restarted"))
        with roll.under_load():
            for node in 2 * NODES:
                roll.restart(node)
                wait_health(cluster)
            roll.trim_all()


def test_h24_services_are_rolled_forward_and_back_under_load(
    sandbox_factory: SandboxFactory, tmp_path: Path
) -> None:
    older = OlderServices(older_tree(tmp_path), tmp_path / "start")
    with older.older():
        made = sandbox_factory(brokers=len(NODES), heap_mib=256)
    with Cluster(made) as cluster:
        roll = Roll(cluster, fresh("rolled"), older)
        assert all(roll.is_older(node) for node in NODES)
        with roll.under_load():
            for is_older in (False, True):
                for node in NODES:
                    roll.change(node, is_older=is_older)
                roll.trim_all()  # this version copies and trims what the other one began

"""Proxy workers apart from the core: replaced by what is installed now, and without the core (H24).

tests/scenarios/test_h24_kill_rounds.py kills and stops them under load.
"""

import signal
import time
from contextlib import ExitStack

import pytest
import yaml

from tests.scenarios.cluster import WORKERS, Cluster, assert_same, fresh
from tests.scenarios.service_processes import ServiceProcesses
from tests.scenarios.traffic import SteadyProducer, TailConsumer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("one_broker", [WORKERS], indirect=True),
]

_CLIENTS = 8
"""Of each kind: so many produce, and so many consume."""
_KIB_PER_S = 64


@pytest.fixture
def service(one: Cluster) -> ServiceProcesses:
    return ServiceProcesses(one)


class Load:
    """Clients of one topic that produce and consume while something happens."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._stack = ExitStack()

    def __enter__(self) -> "Load":
        cluster, topic = self._cluster, self._topic
        self.producers = [
            self._stack.enter_context(
                SteadyProducer(cluster, topic, [number], kib_per_s=_KIB_PER_S)
            )
            for number in range(_CLIENTS)
        ]
        self.consumers = [
            self._stack.enter_context(TailConsumer(cluster, topic, number))
            for number in range(_CLIENTS)
        ]
        time.sleep(2)  # all are connected
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def count(self) -> int:
        return sum(len(one.rows) for one in self.producers)

    def check(self) -> None:
        """After the end: all that was acknowledged can be read once."""
        failures = [one for producer in self.producers for one in producer.failures]
        assert not failures, failures[:3]
        assert [one.problems for one in self.consumers] == [[]] * _CLIENTS
        rows = [row for producer in self.producers for row in producer.rows]
        acked = sorted(rows, key=lambda row: (row.partition, row.offset))
        assert_same(self._cluster.read_all(self._topic, timeout_s=120), acked)


def _topic(one: Cluster) -> str:
    topic = fresh("workers")
    one.create_topic(topic, partitions=_CLIENTS)
    one.enable(topic)
    return topic


def _answers(one: Cluster) -> bool:
    return one.rlm("topics", "list", check=False).returncode == 0


def test_h24_a_replacement_of_all_processes_loses_nothing(
    one: Cluster, service: ServiceProcesses
) -> None:
    topic = _topic(one)
    former = service.pids

    def is_replaced() -> bool:
        now = service.pids
        return len(now) == len(former) and not now & former

    with Load(one, topic) as load:
        service.supervisor.send_signal(signal.SIGUSR2)
        one.wait_for(is_replaced, "three new processes")
        one.wait_for(lambda: _answers(one), "the new core answers")
    load.check()


def test_sighup_gives_core_and_workers_changed_settings_without_a_restart(
    one: Cluster, service: ServiceProcesses
) -> None:
    path, former = one.sandbox.layout.rlm_config(1), service.pids
    log = one.sandbox.layout.log("rlm:1")
    before = path.read_text()
    one.wait_for(service.is_ready, "the core serves")
    try:
        path.write_text(yaml.safe_dump(yaml.safe_load(before) | {"trim.interval.ms": 4_321}))
        service.supervisor.send_signal(signal.SIGHUP)
        one.wait_for(lambda: "->4321" in log.read_text(), "a line of the log says so")
    finally:
        path.write_text(before)
        undone = one.rlm("config", "reload").stdout
    assert undone.startswith("trim.interval.ms: 4321 -> ")
    assert service.pids == former


def test_h17_what_is_remote_is_not_ready_without_the_core_and_comes_back(
    one: Cluster, service: ServiceProcesses
) -> None:
    topic = fresh("behind")
    one.create_topic(topic)
    one.enable(topic)
    rows = one.fill(topic, mib=6)
    assert one.wait_trimmed(topic) > 0
    core = service.core
    core.suspend()
    try:
        with pytest.raises(AssertionError):
            one.read_all(topic, end={0: len(rows)}, timeout_s=5)
        local = one.log_start(topic)
        assert_same(one.read_all(topic, end={0: len(rows)}, start={0: local}), rows[local:])
    finally:
        core.resume()
    assert_same(one.read_all(topic, end={0: len(rows)}), rows)

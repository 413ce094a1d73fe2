"""Proxy workers apart from the core: whoever dies behind them, clients go on (H24, G6).

Connections are those that the kernel shows at the workers, by their ports: a client that had to
reconnect has another one.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from tests.endings import ended_early
from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.faults import whole
from tests.scenarios.test_h38_problems import Operator
from tests.scenarios.traffic import SteadyProducer, TailConsumer

pytestmark = pytest.mark.integration

_WORKERS = 2
_CLIENTS = 8
"""Of each kind: so many produce, and so many consume."""
_KIB_PER_S = 64
_FAULT_S = 4.0
_ENDED = re.compile(r'rlm_proxy_connections_closed_total\{cause="(?P<cause>\w+)"\} (?P<count>\S+)')


@pytest.fixture(scope="module")
def with_workers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    """One broker, whose service has two workers, until the last test of this file.

    RLM_WORKERS_SANDBOX=DIR: a running one instead.
    """
    if running := os.environ.get("RLM_WORKERS_SANDBOX"):
        yield Sandbox.open(Path(running))
        return
    workers = Override(scope="rlm", key="proxy.workers", value=str(_WORKERS))
    spec = SandboxSpec(jvm="quick", overrides=(workers,))
    made = Sandbox.up(tmp_path_factory.mktemp("workers"), spec)
    with ended_early(request, lambda: made.down(delete=True)):
        yield made


@pytest.fixture
def one(with_workers: Sandbox) -> Iterator[Cluster]:
    with Cluster(with_workers) as cluster:
        try:
            yield cluster
        finally:
            whole(cluster)
            cluster.delete_topics()


class Service:
    """The processes of the sandbox's service."""

    def __init__(self, cluster: Cluster) -> None:
        self.sandbox = cluster.sandbox
        self._operator = Operator(cluster)
        self._port = int(self.sandbox.bootstrap.rpartition(":")[2])

    @property
    def supervisor(self) -> psutil.Process:
        return psutil.Process(self.sandbox.json["brokers"][0]["rlm_pid"])

    @property
    def core(self) -> psutil.Process:
        return self._children("--as-core")[0]

    @property
    def workers(self) -> list[psutil.Process]:
        return self._children("rlm.workers.worker")

    def pids(self) -> set[int]:
        """Of core and workers, as far as they run just now."""
        return {one.pid for one in (*self._children("--as-core"), *self.workers)}

    def _children(self, word: str) -> list[psutil.Process]:
        return sorted(
            (one for one in self.supervisor.children() if word in _command(one)),
            key=lambda one: one.pid,
        )

    def ended_connections(self) -> dict[str, float]:
        """Of workers that did not die, by cause."""
        lines = self._operator.get("/metrics").splitlines()
        found = (_ENDED.fullmatch(line) for line in lines)
        return {one["cause"]: float(one["count"]) for one in found if one is not None}

    def clients(self) -> dict[int, frozenset[int]]:
        """The ports of all clients, by the pid of their worker."""
        return {
            worker.pid: frozenset(
                one.raddr.port
                for one in worker.net_connections(kind="tcp")
                if one.status == psutil.CONN_ESTABLISHED and one.laddr.port == self._port
            )
            for worker in self.workers
        }


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


@pytest.fixture
def service(one: Cluster) -> Service:
    return Service(one)


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


def _kill_core(service: Service) -> Callable[[], None]:
    service.core.kill()
    return lambda: None


def _stop_core(service: Service) -> Callable[[], None]:
    core = service.core
    core.suspend()
    return core.resume


def _kill_plugin(service: Service) -> Callable[[], None]:
    service.sandbox.kill("plugin:1")
    return lambda: service.sandbox.start("plugin:1")


@pytest.mark.parametrize("fault", [_kill_core, _stop_core, _kill_plugin])
def test_h24_no_client_reconnects_whatever_happens_behind_the_workers(
    one: Cluster, service: Service, fault: Callable[[Service], Callable[[], None]]
) -> None:
    topic = _topic(one)
    with Load(one, topic) as load:
        before, count = service.clients(), load.count()
        heal = fault(service)
        try:
            time.sleep(_FAULT_S)
            during, later = service.clients(), load.count()
        finally:
            heal()
            one.wait_for(lambda: _answers(one), "the core is back")
    assert all(before.values()), "a worker has no client"
    for pid, ports in before.items():
        assert ports <= during[pid], "a client had to reconnect"
    expected = _CLIENTS * _KIB_PER_S * _FAULT_S  # records of 1 KiB
    assert later - count > expected / 2, "clients waited"
    load.check()


def test_h24_only_the_clients_of_a_killed_worker_reconnect(one: Cluster, service: Service) -> None:
    topic = _topic(one)
    with Load(one, topic) as load:
        before = service.clients()
        ended = service.ended_connections()
        service.workers[0].kill()
        began_s = time.monotonic()
        one.wait_for(lambda: len(service.workers) == _WORKERS, "the next worker", 10)
        everybody = sum(map(len, before.values()))
        one.wait_for(
            lambda: sum(map(len, service.clients().values())) >= everybody - 2, "all are back", 20
        )
        print(f"all clients connected again after {time.monotonic() - began_s:.2f} s")
        time.sleep(1.5)  # the workers' counts are in the core
        now = service.ended_connections()
        caused = {cause for cause, count in now.items() if count > ended.get(cause, 0)}
        assert caused <= {"client_closed"}, "the other worker has ended a connection"
    load.check()


def test_h24_a_replacement_of_all_processes_loses_nothing(one: Cluster, service: Service) -> None:
    topic = _topic(one)
    former = service.pids()

    def is_replaced() -> bool:
        now = service.pids()
        return len(now) == len(former) and not now & former

    with Load(one, topic) as load:
        service.supervisor.send_signal(signal.SIGHUP)
        one.wait_for(is_replaced, "three new processes", 90)
        one.wait_for(lambda: _answers(one), "the new core answers")
    load.check()


def test_h17_what_is_remote_is_not_ready_without_the_core_and_comes_back(
    one: Cluster, service: Service
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

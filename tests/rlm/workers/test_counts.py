"""What workers count arrives once, and what the core answers holds reads back (H23, H24)."""

import inspect
import logging
import random
from collections import Counter
from pathlib import Path

from rlm.clock import SystemClock
from rlm.plans.client_activity import ClientName, ClientTable, TierBytes
from rlm.proxy.settings import ProxyMetrics, ProxySettings
from rlm.workers.counts import CountTaker, WorkerCounts
from rlm.workers.messages import client_message
from rlm.workers.quotas import WorkerQuota
from rlm.workers.v1 import core_pb2 as pb
from rlm.workers.worker import Worker, WorkerSettings
from rsm_plugins.process.logs import _LOWEST, change_log_level
from tests.builders.clock import ManualClock
from tests.rlm.proxy.uncounted import Counting
from tests.rlm.workers.core_site import FakeThrottle, site

ARGUMENTS = {"cause": "idle", "api": "fetch", "outcome": "ok", "size_bytes": 7, "duration_ms": 9}


class Calls:
    """Metrics that keep every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> object:
        return lambda *args, **more: self.calls.append((name, *args, *more.items()))


class Sums(Calls):
    """The same of metrics to which several events are added at once."""

    def connections_opened(self, count: int) -> None:
        self.calls += [("connection_opened",)] * count

    def connections_closed(self, cause: str, count: int) -> None:
        self.calls += [("connection_closed", cause)] * count

    def answers(self, api: str, outcome: str, count: int) -> None:
        self.calls += [("answered", api, outcome)] * count


def taken(counts: WorkerCounts) -> pb.Counts:
    return pb.Counts.FromString(counts.taken().SerializeToString())


def test_every_metric_of_the_proxy_reaches_the_core() -> None:
    """Found by reflection: a new one that is not carried fails here."""
    counts, direct, calls = WorkerCounts(), Calls(), Sums()
    for name, method in inspect.getmembers(ProxyMetrics, inspect.isfunction):
        if not name.startswith("_"):
            known = [one for one in inspect.signature(method).parameters if one != "self"]
            given = {one: ARGUMENTS[one] for one in known if one != "passed"}
            if "passed" in known:
                given["passed"] = True
            for metrics in (counts, direct):
                args = [value for one, value in given.items() if one != "passed"]
                more = {"passed": True} if "passed" in known else {}
                getattr(metrics, name)(*args, **more)
    taker = CountTaker(calls, FakeThrottle(), ClientTable())  # type: ignore[arg-type]
    taker.take(0, taken(counts))
    assert len(direct.calls) >= 6
    assert Counter(calls.calls) == Counter(direct.calls)


def test_h24_nothing_is_lost_or_counted_twice_whenever_it_is_taken() -> None:
    chance = random.Random(3)
    throttle, metrics = FakeThrottle(), Counting()
    taker = CountTaker(metrics, throttle, ClientTable())
    workers = [WorkerCounts() for _ in range(3)]
    quotas = [WorkerQuota(one, ManualClock(), lambda: None) for one in workers]
    gave, passed, held, spliced = Counter[str](), 0, Counter[str](), 0
    for _ in range(2_000):
        number, size = chance.randrange(3), chance.randrange(1_000)
        client = f"client-{chance.randrange(5)}"
        act = chance.randrange(5)
        if act == 0:
            quotas[number].gave(client, size)
            gave[client] += size
        elif act == 1:
            quotas[number].passed(size)
            passed += size
        elif act == 2:
            quotas[number].held("client", size)
            held["client"] += size
        elif act == 3:
            workers[number].spliced(size)
            spliced += size
        else:
            taker.take(number, taken(workers[number]))
    for number, counts in enumerate(workers):
        taker.take(number, taken(counts))
        assert taken(counts) == pb.Counts()
    assert throttle.spliced_bytes == gave
    assert (throttle.passed_bytes, metrics.spliced_bytes) == (passed, spliced)
    assert throttle.held_ms == held


def test_an_event_that_only_a_later_version_knows_is_left_out() -> None:
    throttle = FakeThrottle()
    event = pb.CountedEvent(name="later", labels=["a"], count=3)
    taker = CountTaker(Counting(), throttle, ClientTable())
    taker.take(0, pb.Counts(events=[event], passed_bytes=5))
    assert throttle.passed_bytes == 5


def test_remote_reads_of_all_workers_are_summed_and_go_with_their_worker() -> None:
    taker = CountTaker(Counting(), FakeThrottle(), ClientTable())
    taker.take(0, pb.Counts(purgatory_size=4))
    taker.take(1, pb.Counts(purgatory_size=3))
    taker.take(1, pb.Counts(purgatory_size=5))
    assert taker.purgatory_size == 9
    taker.left(1)
    assert taker.purgatory_size == 4


def test_clients_of_all_workers_are_known_in_the_core_until_their_worker_goes() -> None:
    clients = ClientTable()
    taker = CountTaker(Counting(), FakeThrottle(), clients)
    name = ClientName("alice", "c-1", "10.0.0.1")
    for worker in range(2):
        table = ClientTable(is_taken=True)
        table.connected(name)
        table.read(name, "orders", 10, worker)
        taker.take(worker, pb.Counts(clients=map(client_message, table.taken())))
    [row] = clients.rows()
    assert (row.name, row.connections, row.topics) == (name, 2, {"orders": TierBytes(20, 1)})
    taker.left(0)
    assert clients.rows()[0].connections == 1


async def test_g10_a_worker_without_its_core_forgets_clients_that_are_gone(
    tmp_path: Path,
) -> None:
    """It shows a new core those of then; a core that was never there heard of none."""
    worker = made_worker(tmp_path)
    for number in range(3):
        name = ClientName("", f"c{number}", "10.0.0.1")
        worker._clients.connected(name)
        worker._clients.connected(name, -number)
    worker._report()
    assert [row.name.client_id for row in worker._clients.taken()] == ["c0"]


async def test_a_worker_goes_by_the_terms_of_the_newest_greeting(tmp_path: Path) -> None:
    worker = made_worker(tmp_path)
    try:
        worker._greeted(pb.CoreHello(client_bytes_per_second=5, log_level="error"))
        assert (worker._quota.client_bytes_per_second, _LOWEST.level) == (5, logging.ERROR)
        worker._greeted(pb.CoreHello(client_bytes_per_second=6))  # a core of an earlier version
        assert (worker._quota.client_bytes_per_second, _LOWEST.level) == (6, logging.ERROR)
    finally:
        change_log_level("info")


def made_worker(folder: Path) -> Worker:
    """Of a core that is not there."""
    proxy = ProxySettings(
        listen_host="127.0.0.1", listen_port=0, upstream_host="127.0.0.1", upstream_port=9
    )
    settings = WorkerSettings(
        worker=0,
        core_socket=str(folder / "core"),
        records_memory_bytes=1 << 20,
        log_level="info",
        log_format="json",
        proxy=proxy,
    )
    return Worker(settings, [], SystemClock())


async def test_h24_a_connection_that_has_ended_takes_no_counts(tmp_path: Path) -> None:
    """Until the task of the connection has noticed the end, too."""
    async with site(tmp_path / "core.sock") as s:
        assert s.worker.is_connected
        link = s.worker._link
        assert link is not None
        link.close()
        assert not s.worker.is_connected


def test_h23_the_core_says_how_long_a_client_waits() -> None:
    clock, throttle = ManualClock(), FakeThrottle(wait_ms=700)
    counts, reports = WorkerCounts(), list[int]()
    quota = WorkerQuota(counts, clock, lambda: reports.append(1))
    taker = CountTaker(Counting(), throttle, ClientTable())
    quota.gave("a", 100)
    assert reports == [1]  # at once
    quota.answered(taker.take(0, taken(counts)))
    assert quota.wait("a") == (700, "client")
    assert quota.wait("b")[0] == 0
    clock.advance(500)
    assert quota.wait("a")[0] == 200
    clock.advance(500)
    assert quota.wait("a")[0] == 0
    quota.answered(pb.ClientWaits(waits=[pb.ClientWait(client_id="a", duration_ms=90, kind="x")]))
    assert quota.wait("a") == (90, "x")
    quota.answered(pb.ClientWaits(waits=[pb.ClientWait(client_id="a")]))
    assert quota.wait("a")[0] == 0


def test_g10_names_that_nothing_takes_are_bounded_and_no_byte_of_the_service_is_lost() -> None:
    counts, throttle = WorkerCounts(), FakeThrottle(wait_ms=0)
    for number in range(10_050):
        counts.gave(f"c-{number}", 1, f"p-{number}")
        counts.gave("c-0", 1, "p-0")
    assert (len(counts.spliced_by_client), len(counts.spliced_by_principal)) == (10_001, 10_000)
    CountTaker(Counting(), throttle, ClientTable()).take(0, taken(counts))
    assert sum(throttle.spliced_bytes.values()) == 20_100
    assert throttle.spliced_bytes["c-0"] == throttle.principal_bytes["p-0"] == 10_051
    assert not counts.spliced_by_client


def test_h23_a_connection_has_its_own_rate_whatever_clients_it_names() -> None:
    clock = ManualClock()
    quota = WorkerQuota(WorkerCounts(), clock, lambda: None)
    one, other = quota.connection(), quota.connection()
    one.spliced("a", 10_000)
    assert one.wait_ms("a") == 0  # the core has not said a rate
    quota.client_bytes_per_second = 1_000
    one.spliced("a", 3_000)
    assert one.wait_ms("b") == 2_000
    assert other.wait_ms("a") == 0
    clock.advance(2_000)
    assert one.wait_ms("b") == 0


def test_h23_time_is_held_by_the_quota_that_is_longest() -> None:
    counts, clock = WorkerCounts(), SystemClock()
    quota = WorkerQuota(counts, clock, lambda: None)
    connection = quota.connection()
    waits = [pb.ClientWait(client_id="a", duration_ms=60_000, kind="service")]
    quota.answered(pb.ClientWaits(waits=waits))
    assert connection.wait_ms("a") > 50_000
    connection.held(5)
    assert counts.held_ms == {"service": 5}


def test_h23_a_principal_waits_for_what_all_its_client_ids_took_in_all_workers() -> None:
    clock, throttle = ManualClock(), FakeThrottle(wait_ms=700)
    taker = CountTaker(Counting(), throttle, ClientTable())
    quotas = []
    for worker in range(2):
        counts = WorkerCounts()
        quota = WorkerQuota(counts, clock, lambda: None)
        quotas.append(quota)
        connection = quota.connection()
        connection.known_as("alice")
        connection.spliced(f"client-{worker}", 100)
        quota.answered(taker.take(worker, taken(counts)))
        assert connection.wait_ms(f"another-{worker}") == 1_400
        assert quota.connection().wait_ms(f"another-{worker}") == 0
        assert quota.connection().wait_ms(f"client-{worker}") == 700
    assert throttle.principal_bytes == {"alice": 200}
    assert throttle.spliced_bytes == {"client-0": 100, "client-1": 100}
    clock.advance(1_401)
    assert quotas[0].wait("", "alice") == (0, "principal")

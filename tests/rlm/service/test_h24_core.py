"""A service with proxy workers: what its core and its workers get, and when the core is ready."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from kafka_protocol.apis import API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_CONFIGS
from rlm.clock import SystemClock
from rlm.config.machine import worker_count
from rlm.service.broker_service import BrokerService
from rlm.service.clients import OwnProxy, Workers, core_socket
from rlm.service.supervised import worker_settings
from rlm.workers.ending import Ending
from rlm.workers.inherited import READY, CoreSettings
from rlm.workers.v1 import core_pb2 as pb
from rlm_sandbox.ports import PortReservation
from tests.builders.clock import ManualClock
from tests.builders.fake_broker import FakeBroker
from tests.builders.service import NODE_ID, built_service
from tests.rlm.service.test_scrape import scraped
from tests.rlm.test_startup import SAFE, kafka_3_3
from tests.rlm.workers.core_site import RawWorker
from tests.waiting import until

CORE = CoreSettings(workers=2, recent_ends=0)


def sockets(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.sock")}


WORKER_HELLO = pb.WorkerHello(oldest_protocol=1, newest_protocol=1, worker=1, recent_ends=2)


def process_problems(service: BrokerService) -> set[tuple[str, str]]:
    found = service._problems.current()
    return {(one.kind.value, one.subject) for one in found if one.kind.value.startswith("process")}


async def test_h24_a_core_has_workers_whatever_its_settings_say_by_now(tmp_path: Path) -> None:
    """The settings were changed, and the supervisor still has its workers."""
    for given in ({}, {"proxy.workers": 0}, {"proxy.workers": 2}):
        async with built_service(tmp_path, ManualClock(), given, core=CORE) as service:
            assert isinstance(service._clients, Workers)
    async with built_service(tmp_path, ManualClock()) as service:
        assert isinstance(service._clients, OwnProxy)


async def test_h13_services_with_one_state_dir_have_sockets_of_their_own(tmp_path: Path) -> None:
    found = set()
    for node, cluster in ((1, "a"), (2, "a"), (1, "b")):
        given = {"node.id": node, "cluster.id": cluster, "proxy.workers": 2}
        async with built_service(tmp_path, ManualClock(), given, core=CORE) as service:
            await service._clients.start()
            found |= sockets(tmp_path)
            settings = worker_settings(service._config, 0, 2)
            assert Path(settings.core_socket) == core_socket(service._config)
    assert len(found) == 3


@pytest.mark.parametrize(
    ("wanted", "processors", "workers"),
    [(0, 8, 0), (5, 2, 5), ("auto", 1, 1), ("auto", 2, 1), ("auto", 6, 3), ("auto", 64, 4)],
)
def test_workers_are_as_many_as_are_wanted_or_by_the_processors(
    wanted: int | str, processors: int, workers: int
) -> None:
    assert worker_count(wanted, processors) == workers


async def test_workers_share_what_the_settings_allow(tmp_path: Path) -> None:
    given = {"proxy.workers": 3, "proxy.max.connections": 100, "proxy.memory.max.bytes": 3 << 24}
    async with built_service(tmp_path, ManualClock(), given, core=CORE) as service:
        found = [worker_settings(service._config, number, 3).proxy for number in range(3)]
    assert [one.max_connections for one in found] == [33, 33, 34]
    assert {one.memory_max_bytes for one in found} == {1 << 24}


async def test_h23_a_core_is_ready_once_it_has_seen_that_its_broker_is_safe(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def is_ready() -> bool:
        said.append(capfd.readouterr().out)
        return READY.decode() in "".join(said).splitlines(keepends=True)

    ports = PortReservation()
    given = {f"{name}.listen": f"127.0.0.1:{ports.take()}" for name in ("grpc", "http")}
    ports.lend_all()
    rows = [{"name": name, "value": value} for name, value in SAFE.items()]
    async with FakeBroker().running() as broker:
        broker.on(API_VERSIONS, {"error_code": 35, "api_keys": []})
        broker.on(DESCRIBE_CLUSTER, {"cluster_id": "ours"})
        broker.on(DESCRIBE_CONFIGS, {"results": [{"configs": rows}]})
        address = broker.address
        async with built_service(tmp_path, SystemClock(), given, address, CORE) as service:
            running = asyncio.ensure_future(service.run(Ending(SystemClock())))
            await until(lambda: bool(broker.asked(API_VERSIONS)))
            await asyncio.sleep(0.2)
            assert not is_ready()
            broker.on(API_VERSIONS, kafka_3_3())
            await until(is_ready)
            assert (
                broker.asked(DESCRIBE_CONFIGS)[0]["resources"][0]["resource_name"] == f"{NODE_ID}"
            )
            running.cancel()
            await asyncio.wait([running])
    ports.release_all()


async def test_h38_a_worker_that_is_away_and_a_core_that_keeps_ending_are_seen(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    core = CoreSettings(workers=3, recent_ends=4)
    async with built_service(tmp_path, clock, core=core) as service:
        await service._clients.start()
        raw = await RawWorker().connect(core_socket(service._config))
        raw.send(pb.ToCore(hello=WORKER_HELLO))
        await until(lambda: len(raw.said) == 2)
        clock.advance(10_000)
        assert process_problems(service) == {("process-ends", "core")}
        raw.send(pb.ToCore(counts=pb.Counts(spliced=[pb.ClientBytes(client_id="a")])))
        await until(lambda: len(raw.said) == 3)
        clock.advance(10_000)
        missing = {("process-missing", "worker 0"), ("process-missing", "worker 2")}
        assert process_problems(service) == {("process-ends", "core"), *missing}
        found = scraped(service)
        assert found["rlm_workers_connected"] == {(): 1.0}
        assert found["rlm_process_recent_ends"] == {("core",): 4.0, ("worker 1",): 2.0}
        clock.advance(10_000)
        assert ("process-missing", "worker 1") in process_problems(service)
        raw.send(pb.ToCore(hello=WORKER_HELLO))  # its successor, by now up for ten minutes
        await until(lambda: len(raw.said) == 5)
        assert ("process-missing", "worker 1") not in process_problems(service)
        clock.advance(600_000)
        assert ("process-ends", "core") not in process_problems(service)
        raw.link.close()
    async with built_service(tmp_path, clock) as service:
        assert scraped(service).get("rlm_workers_connected", {}) == {}


STOPPED_TWICE = """
import asyncio
from rlm.clock import SystemClock
from rlm.service.lifetime import run_until_stopped
async def serve(ending):
    try:
        print("serves", flush=True)
        await asyncio.sleep(60)
    finally:
        print("ends", flush=True)
        await asyncio.sleep(0.5)
        print("ended", flush=True)
run_until_stopped(serve, SystemClock())
"""


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
async def test_h24_a_second_signal_does_not_cut_the_end_short(second: signal.Signals) -> None:
    """Ctrl-C reaches the core twice: from the terminal, and from the supervisor as SIGTERM."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STOPPED_TWICE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while b"serves" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        while b"ends" not in await process.stdout.readline():
            pass
        process.send_signal(second)
        said = await process.stdout.read()
        assert await process.wait() == 0
    assert b"ended\n" in said

"""The addresses that a service gives to clients: followed, remembered, handed to its workers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafka_protocol.node_addresses import NodeAddress, NodeAddresses
from rlm.config import ServiceConfig
from rlm.service.broker_service import BrokerService
from rlm.service.node_addresses import ProxiesFile, ProxyAddresses, remembered_proxies
from rlm.service.supervised import _worker_line
from rlm.workers.inherited import CoreSettings
from rlm.workers.worker import WorkerSettings
from rlmm.settings_records import ServiceRecord
from tests.builders.clock import ManualClock
from tests.builders.ledger import MemorySettings
from tests.builders.service import NODE_ID, broker_config, built_service
from tests.builders.threads import all_of, some_threads
from tests.waiting import until

OWN = NodeAddress(host="broker-3", port=9_092)
PEER = NodeAddress(host="proxy-1", port=19_092)
REWRITE = {"proxy.attach": "rewrite", "broker.tiered.listener.name": "CLIENTS"}


class ChangingSettings(MemorySettings):
    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()
        self.is_awaited = False
        """Nobody has to take anything in."""

    async def wait_changed(self) -> None:
        self.changed.clear()
        self.is_awaited = True
        await self.changed.wait()

    def beat(self, node_id: int, proxy: str) -> None:
        record = ServiceRecord(node_id=node_id, listen={}, advertised={"proxy": proxy}, version="1")
        self.write(record, node_id=node_id)
        self.is_awaited = False
        self.changed.set()


def configured(path: Path, **settings: Any) -> ServiceConfig:
    return broker_config(path, {**REWRITE, **settings})


@dataclass
class Site:
    settings: ChangingSettings
    clock: ManualClock
    addresses: ProxyAddresses
    config: ServiceConfig

    async def settle(self) -> None:
        """Until what was written is followed, and remembered."""
        await until(lambda: self.settings.is_awaited)
        assert remembered_proxies(self.config) == dict(self.addresses._known.proxies)


@asynccontextmanager
async def site(path: Path, *, is_ready: bool = True) -> AsyncIterator[Site]:
    settings, clock, config = ChangingSettings(), ManualClock(), configured(path)
    settings.clock, settings.is_ready = clock, is_ready
    with some_threads(1) as threads:
        addresses = ProxyAddresses(
            config,
            settings=settings,
            clock=clock,
            threads=all_of(threads).other,
            max_age_ms=30_000,
        )
        running = asyncio.ensure_future(addresses.run())
        try:
            await asyncio.sleep(0)
            yield Site(settings, clock, addresses, config)
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_h17_a_restart_sends_nobody_past_a_proxy_that_was_known(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        s.settings.beat(1, "proxy-1:19092")
        await s.settle()
        known = {1: PEER, NODE_ID: OWN}
        assert s.addresses.current() == NodeAddresses(replaced=known, keeps_others=True)
        assert s.addresses.settled() == s.addresses.current()
    async with site(tmp_path, is_ready=False) as s:
        s.settings.beat(1, "older:1")  # a replay passes by what was
        remembered = NodeAddresses(replaced=known, keeps_others=False)
        await until(lambda: s.addresses.current() == remembered)
        for _ in range(20):
            await asyncio.sleep(0)
        assert s.addresses.current() == remembered
        assert s.addresses.settled() is None


async def test_a_first_start_knows_its_own_proxy_alone(tmp_path: Path) -> None:
    async with site(tmp_path, is_ready=False) as s:
        own = NodeAddresses(replaced={NODE_ID: OWN}, keeps_others=False)
        assert s.addresses.current() == own
        assert not ProxiesFile(s.config).path.exists()


async def test_h06_settings_that_cannot_be_relied_on_take_nothing_away(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        s.settings.beat(1, "proxy-1:19092")
        await s.settle()
        s.settings.problem = "recreated"
        s.settings.remove("service/1")
        s.settings.beat(2, "proxy-2:19092")
        await s.settle()
        assert s.addresses.current().replaced.keys() == {1, 2, NODE_ID}
        s.settings.problem = None
        s.settings.beat(2, "proxy-2:19092")
        await s.settle()
        assert s.addresses.current().replaced.keys() == {2, NODE_ID}


@pytest.mark.parametrize("content", ["", "{}", '{"cluster_id": "ours", "proxies": 5}'])
async def test_h24_a_file_that_is_not_ours_keeps_no_service_from_serving(
    tmp_path: Path, content: str
) -> None:
    config = configured(tmp_path)
    ProxiesFile(config).path.write_text(content)
    with capture_logs() as logs:
        assert remembered_proxies(config) == {NODE_ID: OWN}
    assert [one["event"] for one in logs] == ["proxy_addresses_not_read"]


async def test_h18_a_full_disk_keeps_no_service_from_following(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        file = ProxiesFile(s.config).path
        file.mkdir()
        with capture_logs() as logs:
            for port in (1, 2):
                s.settings.beat(1, f"proxy-1:{port}")
                await until(lambda: s.settings.is_awaited)
                assert s.addresses.current().replaced[1].port == port
        assert "proxy_addresses_not_written" in {one["event"] for one in logs}
        file.rmdir()
        s.settings.beat(1, "proxy-1:2")
        await s.settle()
        assert json.loads(file.read_text())["proxies"]["1"] == "proxy-1:2"


def test_several_services_may_share_a_state_dir(tmp_path: Path) -> None:
    one, other = configured(tmp_path), configured(tmp_path, **{"node.id": 4})
    ProxiesFile(one).write({1: PEER})
    assert ProxiesFile(other).read() == {}


def _lookup(service: BrokerService) -> object:
    """What the service's own proxy, or its core, asks for addresses."""
    proxy = getattr(service._clients, "proxy", None)
    return proxy._shared.node_addresses if proxy else service._clients._views._node_addresses  # type: ignore[attr-defined]


async def test_a_service_rewrites_addresses_only_where_that_is_set(tmp_path: Path) -> None:
    core = CoreSettings(workers=1, recent_ends=0)
    for given in (None, core):
        async with built_service(tmp_path, ManualClock(), {}, core=given) as service:
            assert _lookup(service)() is None  # type: ignore[operator]
            assert service._dependencies.node_addresses is None
            assert "addresses" not in service._background_tasks()
    async with built_service(tmp_path, ManualClock(), REWRITE) as service:
        found = _lookup(service)()  # type: ignore[operator]
        assert found == NodeAddresses(replaced={NODE_ID: OWN}, keeps_others=False)
        assert "addresses" in service._background_tasks()
        assert service._tasks.partition_tasks.trim._namers() == frozenset()
    async with built_service(tmp_path, ManualClock(), REWRITE, core=core) as service:
        assert _lookup(service)() is None  # type: ignore[operator] # nothing is settled yet


def test_h24_a_worker_is_started_with_what_is_remembered_by_then(tmp_path: Path) -> None:
    config = configured(tmp_path)
    for known in ({}, {1: PEER}):
        ProxiesFile(config).write(known)
        found = WorkerSettings.of(_worker_line(config, 0, 2, 5))
        replaced = {**known, NODE_ID: OWN}
        assert found.addresses() == NodeAddresses(replaced=replaced, keeps_others=False)
        assert found.recent_ends == 5
    plain = configured(tmp_path, **{"proxy.attach": "listener"})
    assert WorkerSettings.of(_worker_line(plain, 0, 2, 0)).addresses() is None

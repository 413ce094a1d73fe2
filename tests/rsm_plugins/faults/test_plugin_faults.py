"""A plugin behind a network that delays, stalls and cuts: the gRPC client's errors and recovery."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from kip405.addresses import Address
from kip405.contracts import Presence
from kip405.errors import Unavailable
from rsm_plugins.conformance.subject import MIB, StoredSegment, Subject
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.layout.keys import IDENTITY_NAME
from rsm_plugins.process.config import settings_of
from rsm_plugins.process.plugin import running_server
from tests.builders.cutting_tcp import CuttingTcp
from tests.rsm_plugins.faults.cut_store import settle
from tests.rsm_plugins.harness import new_uuid
from tests.rsm_plugins.stores import StoreRig, local_rig

T = TypeVar("T")
LARGE_BYTES = 8 * MIB
SHORT_MS = 2_000
RECOVERED_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlugin:
    proxy: CuttingTcp
    subject: Subject
    rig: StoreRig

    async def again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Its answer, also where a call takes longer than its deadline now and then."""
        deadline = time.monotonic() + RECOVERED_SECONDS
        while True:
            try:
                return await call()
            except Unavailable:
                assert time.monotonic() < deadline, "it does not recover"
                await asyncio.sleep(0.05)

    async def works_again(self, segment: StoredSegment) -> None:
        """Usable soon after the network is, with nothing but whole objects in the store."""
        subject, locator = self.subject, segment.locator
        await self.again(lambda: subject.complete(segment))
        assert await self.again(lambda: subject.fetch(locator, 0, 1 << 40)) == segment.log
        found = await self.again(lambda: subject.presence(segment))
        assert found.presence is Presence.COMPLETE
        await self.again(lambda: subject.manager.delete_log_segment_data(locator))
        names = self.rig.hands.names
        await settle(lambda: names() == [IDENTITY_NAME], "files of broken copies stay")


@asynccontextmanager
async def cut_plugin(folder: Path, *, deadline_ms: int = 60_000) -> AsyncIterator[CutPlugin]:
    """A local store's plugin, whose client dials through a TCP proxy; files go as bytes."""
    rig = local_rig(folder)
    async with running_server(settings_of(rig.content())) as (address, _):
        port = Address.parse(str(address)).port
        async with CuttingTcp(port) as proxy:
            client = GrpcRemoteStorageManager.connect(
                f"127.0.0.1:{proxy.port}",
                principal="test",
                deadlines=Deadlines(call_ms=deadline_ms, copy_ms=deadline_ms),
                share=False,
            )
            subject = Subject(
                manager=client,
                folder=folder,
                new_uuid=new_uuid,
                cluster_id="test-cluster",
                faults=rig.faults,
            )
            plugin = CutPlugin(proxy=proxy, subject=subject, rig=rig)
            await plugin.again(subject.ensure_identity)
            yield plugin
            await client.close()
            await settle(lambda: proxy.open_connections == 0, "connections stay open")


@pytest.mark.parametrize("after_bytes", [100_000, 3_000_000])
async def test_cut_in_the_middle_of_a_copy(after_bytes: int, tmp_path: Path) -> None:
    """Unavailable, nothing visible, and the same copy works afterwards."""
    async with cut_plugin(tmp_path) as plugin:
        segment = plugin.subject.segment(log_size_bytes=LARGE_BYTES)
        plugin.proxy.cut_requests_after = after_bytes
        plugin.proxy.cut()
        with pytest.raises(Unavailable):
            await plugin.subject.copy(segment)
        plugin.proxy.cut_requests_after = None
        names = [name for name in plugin.rig.hands.names() if not name.endswith(".rlm-tmp")]
        assert names == [IDENTITY_NAME]
        await plugin.works_again(segment)


@pytest.mark.parametrize("after_bytes", [100_000, 3_000_000])
async def test_cut_in_the_middle_of_a_fetch(after_bytes: int, tmp_path: Path) -> None:
    """Unavailable rather than a part of the range."""
    async with cut_plugin(tmp_path) as plugin:
        segment = plugin.subject.segment(log_size_bytes=LARGE_BYTES)
        await plugin.subject.complete(segment)
        plugin.proxy.cut_answers_after = after_bytes
        plugin.proxy.cut()
        with pytest.raises(Unavailable):
            await plugin.subject.fetch(segment.locator, 0, LARGE_BYTES)
        plugin.proxy.cut_answers_after = None
        await plugin.works_again(segment)


async def test_cut_between_calls_is_not_noticed_for_long(tmp_path: Path) -> None:
    async with cut_plugin(tmp_path) as plugin:
        for _ in range(3):
            plugin.proxy.cut()
            await plugin.works_again(plugin.subject.segment())


async def test_stalled_calls_end_at_their_deadline(tmp_path: Path) -> None:
    async with cut_plugin(tmp_path, deadline_ms=SHORT_MS) as plugin:
        segment = plugin.subject.segment()
        await plugin.again(lambda: plugin.subject.complete(segment))
        async with plugin.proxy.stalled():
            with pytest.raises(Unavailable):
                await plugin.subject.presence(segment)
            with pytest.raises(Unavailable):
                await plugin.subject.fetch(segment.locator, 0, 10)
            with pytest.raises(Unavailable):
                await plugin.subject.copy(segment)
            with pytest.raises(Unavailable):
                await plugin.subject.names()
            with pytest.raises(Unavailable):
                await plugin.subject.manager.delete_log_segments([segment.locator])
        await plugin.works_again(segment)


async def test_latency_is_no_fault(tmp_path: Path) -> None:
    async with cut_plugin(tmp_path) as plugin:
        plugin.proxy.delay_seconds = 0.01
        await plugin.works_again(plugin.subject.segment(log_size_bytes=MIB))


async def test_many_cuts_leave_no_descriptors(tmp_path: Path) -> None:
    """Neither sockets nor files: the process holds as many as before."""
    async with cut_plugin(tmp_path) as plugin:
        segment = plugin.subject.segment(log_size_bytes=MIB)
        await plugin.works_again(segment)
        before = len(os.listdir("/dev/fd"))
        for _ in range(20):
            plugin.proxy.cut_requests_after = 200_000
            plugin.proxy.cut()
            with pytest.raises(Unavailable):
                await plugin.subject.copy(segment)
            plugin.proxy.cut_requests_after = None
            await plugin.works_again(segment)
        await settle(lambda: len(os.listdir("/dev/fd")) <= before + 4, "descriptors stay open")

"""Data nodes and name nodes killed and paused in mid-write and mid-read: the right error within the
deadline, no corrupt byte, nothing visible under final names, nothing left, and it works again.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from kip405.contracts import Presence
from kip405.errors import RemoteStorageError, Unavailable
from rsm_plugins.conformance.subject import StoredSegment, Subject
from rsm_plugins.hdfs.connection import CLIENTS_MAX
from tests.rsm_plugins.hdfs.stores import (
    hdfs_subject,
    manager_of,
    patient_and_hasty,
    replaced_clients,
    temporary_files,
)
from tests.store_servers_hdfs import DATANODE, HdfsServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MIB = 1 << 20
CALL_MS = 3_000
WAIT_MUCH_LONGER_S = 60.0
"""The library itself waits so long for a paused DataNode, and without limit for a NameNode."""

Fault = Callable[[HdfsServer], None]


def _killed(name: str) -> Fault:
    return lambda server: server.kill(name)


def _paused(name: str) -> Fault:
    return lambda server: server.pause(name)


FAULTS = {
    "datanode_killed": (DATANODE, _killed(DATANODE)),
    "datanode_paused": (DATANODE, _paused(DATANODE)),
    "namenode_killed": ("nn1", _killed("nn1")),
    "namenode_paused": ("nn1", _paused("nn1")),
}


def each_fault(*quick: str) -> pytest.MarkDecorator:
    """All of them; those not named are part of the long run."""
    return pytest.mark.parametrize(
        "fault",
        [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in FAULTS],
    )


@pytest.fixture
def server(hdfs_ha_server: HdfsServer) -> HdfsServer:
    """One DataNode; `nn1` is active before and after each test."""
    return hdfs_ha_server


def heal(server: HdfsServer, name: str) -> None:
    server.resume(name)
    if server.processes[name].find() is None:
        server.start(name)
        if name == "nn1":
            server.wait_for(lambda: server.answers(0), "nn1")
            server.activate(0)
    server.wait_ready()


async def in_the_middle(work: Awaitable[None], seconds: float, fault: Callable[[], None]) -> None:
    """Begin, let so much time pass, make the fault in a thread, and end the work."""
    async with asyncio.TaskGroup() as tasks:

        async def then() -> None:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(fault)

        tasks.create_task(then())
        await work


async def nothing_visible(subject: Subject, segment: StoredSegment) -> None:
    found = await subject.presence(segment)
    assert (found.presence, found.manifest_present) == (Presence.MISSING, False)
    assert await subject.names(segment.locator.segment_id.topic_id_partition) == []


@each_fault("datanode_killed", "namenode_paused")
async def test_fault_in_mid_write(server: HdfsServer, tmp_path: Path, fault: str) -> None:
    name, make = FAULTS[fault]
    async with patient_and_hasty(server, tmp_path, call__timeout__ms=CALL_MS) as (patient, hasty):
        segments: list[StoredSegment] = []
        outcomes: list[RemoteStorageError | None] = []
        began = time.monotonic()

        async def copies() -> None:
            while len(segments) < 3 or (
                outcomes[-1] is None and time.monotonic() - began < WAIT_MUCH_LONGER_S
            ):
                segments.append(segment := hasty.segment(log_size_bytes=48 * MIB))
                try:
                    await hasty.copy(segment)
                    outcomes.append(None)
                except Unavailable as error:
                    outcomes.append(error)

        await in_the_middle(copies(), 0.15, lambda: make(server))
        assert time.monotonic() - began < WAIT_MUCH_LONGER_S
        assert outcomes[-1] is not None, "the fault came too late to be seen"
        await asyncio.to_thread(heal, server, name)
        for segment, error in zip(segments, outcomes, strict=True):
            if error is not None:
                await nothing_visible(patient, segment)
        await patient.complete(segments[-1])
        assert await patient.fetch(segments[-1].locator, 0, 1 << 40) == segments[-1].log
        await until_swept(hasty)
        assert temporary_files(server, patient) == []


@each_fault("datanode_paused", "namenode_killed")
async def test_fault_in_mid_read(server: HdfsServer, tmp_path: Path, fault: str) -> None:
    name, make = FAULTS[fault]
    async with patient_and_hasty(server, tmp_path, call__timeout__ms=CALL_MS) as (patient, hasty):
        segment = patient.segment(log_size_bytes=64 * MIB)
        await patient.complete(segment)
        failed = 0
        began = time.monotonic()

        async def reads() -> None:
            nonlocal failed
            while not failed and time.monotonic() - began < WAIT_MUCH_LONGER_S:
                try:
                    found = await hasty.fetch(segment.locator, 5, 48 * MIB)
                except Unavailable:
                    failed += 1
                else:
                    assert found == segment.log[5 : 48 * MIB]

        await in_the_middle(reads(), 0.1, lambda: make(server))
        assert failed, "the fault was not seen, or the call waited for it to pass"
        await asyncio.to_thread(heal, server, name)
        assert await patient.fetch(segment.locator, 0, 1 << 40) == segment.log
        assert (await patient.presence(segment)).presence is Presence.COMPLETE
        assert await until_answered(hasty, segment) == segment.log


async def until_answered(subject: Subject, segment: StoredSegment) -> bytes:
    """The whole log, asked for until there is an answer."""
    ends_at = time.monotonic() + WAIT_MUCH_LONGER_S
    while True:
        try:
            return await subject.fetch(segment.locator, 0, 1 << 40)
        except Unavailable:
            assert time.monotonic() < ends_at


async def until_swept(subject: Subject) -> None:
    """Nothing is spared; asked for until there is an answer."""
    assert subject.sweep is not None
    ends_at = time.monotonic() + WAIT_MUCH_LONGER_S
    while True:
        try:
            await subject.sweep(0)
        except Unavailable:
            assert time.monotonic() < ends_at
        else:
            return


async def test_every_call_ends_while_a_namenode_is_paused(
    server: HdfsServer, tmp_path: Path
) -> None:
    async with patient_and_hasty(server, tmp_path, call__timeout__ms=1_000) as (patient, hasty):
        segment = patient.segment()
        await patient.complete(segment)
        server.pause("nn1")
        try:
            began = time.monotonic()
            calls = (
                hasty.manager.read_identity(),
                hasty.ensure_identity(),
                hasty.presence(segment),
                hasty.names(),
                hasty.fetch(segment.locator, 0, 10),
                hasty.manager.read_manifest(segment.locator),
                hasty.copy(segment),
                hasty.manager.write_manifest(segment.locator, b"{}"),
                hasty.manager.delete_log_segment_data(segment.locator),
            )
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(one) for one in answers] == [Unavailable] * len(calls)
            findings = await hasty.manager.inspect()
            assert findings[0].state.startswith("unknown: ")
            assert time.monotonic() - began < WAIT_MUCH_LONGER_S
        finally:
            server.resume("nn1")
        await asyncio.to_thread(server.wait_ready)
        assert await patient.fetch(segment.locator, 0, 1 << 40) == segment.log


async def test_failures_leak_no_threads_and_no_sockets(server: HdfsServer, tmp_path: Path) -> None:
    """After every client was used, no failure takes more of either."""
    process = psutil.Process(os.getpid())
    async with patient_and_hasty(server, tmp_path, call__timeout__ms=1_000) as (patient, hasty):
        segment = patient.segment()
        await patient.complete(segment)
        server.pause("nn1")
        try:
            with capture_logs() as logs:
                for _ in range(CLIENTS_MAX):
                    await _fails(hasty, segment)
                threads, sockets = process.num_threads(), len(process.net_connections())
                for _ in range(CLIENTS_MAX):
                    await _fails(hasty, segment)
            assert replaced_clients(logs) >= 2 * CLIENTS_MAX
            assert process.num_threads() <= threads + 2
            assert len(process.net_connections()) <= sockets + 2
        finally:
            server.resume("nn1")
        await asyncio.to_thread(server.wait_ready)
        assert await until_answered(hasty, segment) == segment.log


async def _fails(subject: Subject, segment: StoredSegment) -> None:
    with pytest.raises(Unavailable):
        await subject.presence(segment)


class Traffic:
    """Copies and reads that go on through Unavailable until some succeeded after the switch."""

    def __init__(self, subject: Subject, kept: StoredSegment) -> None:
        self._subject = subject
        self._kept = kept
        self.switched = asyncio.Event()
        self.copied: list[StoredSegment] = []

    async def copies(self) -> None:
        after = 0
        while after < 3:
            segment = self._subject.segment(log_size_bytes=4 * MIB)
            await self._through(lambda: self._subject.complete(segment))  # noqa: B023 - awaited
            after += self.switched.is_set()
            self.copied.append(segment)

    async def reads(self) -> None:
        after = 0
        while after < 3:
            await self._through(self._read)
            after += self.switched.is_set()

    async def _read(self) -> None:
        assert await self._subject.fetch(self._kept.locator, 0, 1 << 40) == self._kept.log

    async def _through(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await work()
            except Unavailable:
                await asyncio.sleep(0.05)


async def test_failover_while_copying_and_reading(server: HdfsServer, tmp_path: Path) -> None:
    """The active NameNode is killed, the other made active: what is under way fails at most with
    Unavailable, and goes on with the other.
    """
    async with hdfs_subject(server, tmp_path, call__timeout__ms=20_000) as subject:
        kept = subject.segment(log_size_bytes=8 * MIB)
        await subject.complete(kept)
        traffic = Traffic(subject, kept)

        async def switch() -> None:
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.kill, "nn1")
            await asyncio.to_thread(server.activate, 1)
            traffic.switched.set()

        try:
            async with asyncio.timeout(200), asyncio.TaskGroup() as tasks:
                for work in (traffic.copies(), traffic.reads(), switch()):
                    tasks.create_task(work)
            for segment in traffic.copied:
                assert await subject.fetch(segment.locator, 0, 1 << 40) == segment.log
                assert (await subject.presence(segment)).presence is Presence.COMPLETE
            assert subject.sweep is not None
            await subject.sweep(0)
            assert temporary_files(server, subject) == []
        finally:
            await asyncio.to_thread(back_to_first, server)
        assert await subject.fetch(kept.locator, 0, 1 << 40) == kept.log


def back_to_first(server: HdfsServer) -> None:
    """`nn1` is there and active again."""
    if server.processes["nn1"].find() is None:
        server.start("nn1")
    server.wait_for(lambda: server.answers(0), "nn1")
    server.deactivate(1)
    server.activate(0)
    server.wait_ready()


@pytest.mark.long
async def test_failover_from_a_paused_namenode(server: HdfsServer, tmp_path: Path) -> None:
    """The library alone would always ask the silent one: a fresh client begins with the other."""
    async with patient_and_hasty(server, tmp_path, call__timeout__ms=3_000) as (patient, hasty):
        segment, another = patient.segment(), patient.segment()
        await patient.complete(segment)
        server.pause("nn1")
        try:
            await asyncio.to_thread(server.activate, 1)
            assert await until_answered(hasty, segment) == segment.log
            await hasty.complete(another)
        finally:
            # It still takes itself for the active one, as it was not fenced.
            server.kill("nn1")
            await asyncio.to_thread(back_to_first, server)
        assert await patient.fetch(another.locator, 0, 1 << 40) == another.log


@pytest.mark.long
async def test_standby_only_is_unavailable(server: HdfsServer, tmp_path: Path) -> None:
    async with patient_and_hasty(server, tmp_path, call__timeout__ms=3_000) as (patient, hasty):
        segment = patient.segment()
        await patient.complete(segment)
        await asyncio.to_thread(server.deactivate, 0)
        try:
            for call in (hasty.fetch(segment.locator, 0, 10), hasty.copy(segment)):
                with pytest.raises(Unavailable, match="no name node is active"):
                    await call
        finally:
            await asyncio.to_thread(server.activate, 0)
        await asyncio.to_thread(server.wait_ready)
        assert await patient.fetch(segment.locator, 0, 1 << 40) == segment.log


@pytest.mark.long
async def test_safe_mode_takes_no_writes_and_gives_reads(
    server: HdfsServer, tmp_path: Path
) -> None:
    async with hdfs_subject(server, tmp_path) as subject:
        segment, another = subject.segment(), subject.segment()
        await subject.complete(segment)
        await asyncio.to_thread(server.admin, "-safemode", "enter")
        try:
            with pytest.raises(Unavailable, match="safe mode"):
                await subject.copy(another)
            with pytest.raises(Unavailable, match="safe mode"):
                await subject.manager.delete_log_segment_data(segment.locator)
            assert await subject.fetch(segment.locator, 0, 1 << 40) == segment.log
        finally:
            await asyncio.to_thread(server.admin, "-safemode", "leave")
        await subject.complete(another)


@pytest.mark.long
async def test_a_full_quota_is_unavailable(server: HdfsServer, tmp_path: Path) -> None:
    async with hdfs_subject(server, tmp_path) as subject:
        base = manager_of(subject).uri.removeprefix(server.url)
        await asyncio.to_thread(server.admin, "-setSpaceQuota", str(80 * MIB), base)
        segment = subject.segment(log_size_bytes=96 * MIB)
        with pytest.raises(Unavailable, match="quota"):
            await subject.copy(segment)
        await nothing_visible(subject, segment)
        free = (await subject.manager.inspect())[1]
        assert free.value is not None and 0 < free.value <= 80 * MIB
        assert temporary_files(server, subject) == []
        await asyncio.to_thread(server.admin, "-clrSpaceQuota", base)
        await subject.complete(segment)

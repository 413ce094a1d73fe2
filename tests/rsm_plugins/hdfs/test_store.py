"""What the conformance kit does not ask: the library's panics, findings, users, sweeps, blocks."""

import asyncio
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hdfs_native import Client, WriteOptions
from structlog.testing import capture_logs

from kip405.contracts import FindingKind
from kip405.errors import Invalid, Unavailable
from kip405.segments import ByteRange, Layout
from rsm_plugins.conformance.subject import Subject
from rsm_plugins.hdfs.connection import CALLS_AT_ONCE, CLIENTS_MAX, Connection, Session
from rsm_plugins.hdfs.manager import KIND
from rsm_plugins.hdfs.settings import HdfsSettings
from rsm_plugins.layout.keys import ObjectKind, object_name
from rsm_plugins.threads import FileThreads
from tests.rsm_plugins.hdfs.stores import (
    hdfs_subject,
    manager_of,
    opened_store,
    replaced_clients,
    rows,
    temporary_files,
)
from tests.store_servers_hdfs import HdfsServer, end_hdfs, start_hdfs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
MIB = 1 << 20


def base_of(server: HdfsServer, subject: Subject) -> str:
    return manager_of(subject).uri.removeprefix(server.url)


async def test_a_panic_of_the_library_is_unavailable_and_the_next_client_is_used(
    hdfs_server: HdfsServer,
) -> None:
    connection = Connection(HdfsSettings(url=hdfs_server.url, root="/"))
    path = f"/panic-{os.urandom(4).hex()}"

    async def read(session: Session, end: int) -> bytes:
        reader = await session.call("open", path, lambda: session.client.read(path))
        return await session.call("read", path, lambda: reader.read_range(0, end))

    session = connection.session()
    writer = await session.call("create", path, lambda: session.client.create(path, WriteOptions()))
    await session.call("write", path, lambda: writer.write(b"abc"))
    await session.call("close", path, writer.close)
    used = {id(session.client)}
    with capture_logs() as logs:
        for replaced in range(1, 2 * CLIENTS_MAX):
            with pytest.raises(Unavailable, match="PanicException"):
                await read(connection.session(), 4)
            assert await read(connection.session(), 3) == b"abc"
            assert replaced_clients(logs) == replaced
            used.add(id(connection.session().client))
    assert await read(session, 3) == b"abc"
    assert len(used) == CLIENTS_MAX
    await connection.close()
    with pytest.raises(Unavailable, match="closed"):
        connection.session()


async def test_calls_at_once_are_bounded(hdfs_server: HdfsServer) -> None:
    connection = Connection(HdfsSettings(url=hdfs_server.url, root="/"))
    lock, full = threading.Lock(), threading.Barrier(CALLS_AT_ONCE, timeout=60)
    now = most = 0

    def slow() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        full.wait()  # else it is a race of threads whether so many run at the same time
        with lock:
            now -= 1

    session = connection.session()
    await asyncio.gather(*(session.call("wait", "x", slow) for _ in range(5 * CALLS_AT_ONCE)))
    await connection.close()
    assert most == CALLS_AT_ONCE


async def test_the_layout_pinterest_is_refused_and_leaves_nothing(
    hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    """There are neither hard links nor versions, by which attempts could share a key."""
    opened = await KIND.open(KIND.settings.values(rows(hdfs_server)), threads := FileThreads(1))
    assert opened.layouts == frozenset(Layout) - {Layout.PINTEREST}
    await opened.manager.close()
    threads.close()
    unknown = {**rows(hdfs_server), "rsm.config.pinterest.cluster": "kafkaCluster1"}
    with pytest.raises(Invalid, match=r"rsm\.config\.pinterest\.cluster: unknown setting"):
        KIND.settings.refuse_unknown(unknown)
    async with hdfs_subject(hdfs_server, tmp_path) as subject:
        subject = replace(subject, layout=Layout.PINTEREST)
        segment = subject.segment()
        for refused in (
            subject.manager.copy_log_segment_data(segment.locator, segment.data),
            subject.manager.fetch_log_segment(segment.locator, ByteRange(start=0, end=1)),
            subject.manager.fetch_indexes(segment.locator),
        ):
            with pytest.raises(Invalid, match="has layout pinterest and no"):
                await refused
        listed = [one async for one in subject.manager.list_objects(subject.cluster_id)]
        assert listed == []


async def test_a_missing_server_is_unavailable_at_once(tmp_path: Path) -> None:
    """A single NameNode that is dead: no waiting, no panic, and no client used up."""
    settings: dict[str, object] = {
        "rsm.config.root": "/",
        "rsm.config.hdfs.url": "hdfs://127.0.0.1:9",
        "rsm.config.hdfs.call.timeout.ms": 3_600_000,
    }
    async with opened_store(settings) as store:
        with capture_logs() as logs:
            for _ in range(3):
                with pytest.raises(Unavailable, match="refused"):
                    await store.read_identity()
        assert replaced_clients(logs) == 0
        states = [one.state for one in await store.inspect()]
        assert all(state.startswith("unknown: ") for state in states)


async def test_blocks_smaller_than_the_log(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    """Every range over the borders of blocks and of what is read at once."""
    more = {"conf__dfs.blocksize": "1m", "conf__dfs.replication": 1}
    async with hdfs_subject(hdfs_server, tmp_path, **more) as subject:
        segment = subject.segment(log_size_bytes=18 * MIB + 7)
        await subject.complete(segment)
        name = object_name(segment.locator, ObjectKind.LOG)
        client = Client(hdfs_server.url)
        status = client.get_file_info(f"{base_of(hdfs_server, subject)}/{name}")
        assert (status.blocksize, status.replication) == (MIB, 1)
        edges = (0, 1, MIB - 1, MIB, 8 * MIB, 8 * MIB + 1, 18 * MIB + 6, 18 * MIB + 7)
        for start in edges:
            for end in (edge for edge in edges if edge >= start):
                assert await subject.fetch(segment.locator, start, end) == segment.log[start:end]


async def test_a_file_that_is_completed_early_is_whole_and_its_own_close_agrees(
    hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    """What the library asks later, of a file that has another name by then, changes nothing. One
    replica: with more of them the NameNode of these tests completes files that are not reported.
    """
    one = WriteOptions(create_parent=True, overwrite=False, replication=1)
    async with hdfs_subject(hdfs_server, tmp_path) as subject:
        tree = manager_of(subject)._tree
        names: list[str] = []
        left: set[asyncio.Task[object]] = set()
        with capture_logs() as logs:
            async with tree.writing("early") as writing:
                while len(names) < 8 or (not left and len(names) < 80):
                    names.append(f"early-{len(names)}")
                    path = await writing.write(os.urandom(100) * 7000, "copy to", one)
                    await writing.publish(path, names[-1], 700_000, "copy to")
                    left |= tree._connection._left
            assert left, "no file was completed before the library asked again"
            assert await asyncio.gather(*left) == [None] * len(left)
        assert replaced_clients(logs) == 0
        for name in names:
            assert len(await tree.read(name, "fetch from")) == 700_000


async def test_readers_are_given_nothing_of_a_block_that_is_not_complete(
    hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    """Also where the NameNode knows its length already: or a lease would be ended too early."""
    async with hdfs_subject(hdfs_server, tmp_path) as subject:
        tree = manager_of(subject)._tree
        async with tree.writing("open") as writing:
            file = await writing.create("copy to")
            await file.append(b"x" * 1000)
            await file.sync()
            found = await tree._status(writing.session, file.path, "copy to")
            assert found is not None
            assert found.length == 1000
            assert await tree.readable(writing.session, file.path, "copy to") == 0
            await file.close()
            assert await tree.readable(writing.session, file.path, "copy to") == 1000


async def test_findings(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    async with hdfs_subject(hdfs_server, tmp_path) as subject:
        copies, free = await subject.manager.inspect()
        assert (copies.kind, copies.state, copies.value) == (
            FindingKind.REPLICATION,
            "2 copies",
            2,
        )
        assert free.kind is FindingKind.FREE_SPACE
        assert free.value is not None and free.value > 0, free.state


async def test_the_user_is_who_owns_the_files(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    before = os.environ.get("HADOOP_USER_NAME")
    try:
        async with hdfs_subject(hdfs_server, tmp_path, user="carla") as subject:
            segment = subject.segment()
            await subject.complete(segment)
            name = object_name(segment.locator, ObjectKind.MANIFEST)
            path = f"{base_of(hdfs_server, subject)}/{name}"
            assert Client(hdfs_server.url).get_file_info(path).owner == "carla"
    finally:
        os.environ.pop("HADOOP_USER_NAME", None)
        if before is not None:
            os.environ["HADOOP_USER_NAME"] = before


async def test_a_sweep_spares_what_is_younger_than_the_grace(
    hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    async with hdfs_subject(hdfs_server, tmp_path) as subject:
        client = Client(hdfs_server.url)
        base = base_of(hdfs_server, subject)
        for name, age_ms in (("young", 0), ("old", 7_200_000)):
            path = f"{base}/~rlm-tmp/{name}/x"
            client.create(path, WriteOptions(create_parent=True)).close()
            stamp = client.get_file_info(path).modification_time - age_ms
            client.set_times(path, stamp, stamp)
        assert subject.sweep is not None
        assert await subject.sweep(3_600_000) == 1
        assert temporary_files(hdfs_server, subject) == [f"{base}/~rlm-tmp/young/x"]
        assert await subject.sweep(0) == 1
        left = [file.path for file in client.list_status(f"{base}/~rlm-tmp")]
        assert left == []


async def test_h11_a_wrong_file_system_is_no_empty_store(
    hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    """The right root without the identity object: nothing is believed to be missing or deleted."""
    async with hdfs_subject(hdfs_server, tmp_path) as subject:
        segment = subject.segment()
        async with opened_store(rows(hdfs_server)) as other:
            assert await other.read_identity() is None
            for call in (
                other.read_manifest(segment.locator),
                other.fetch_indexes(segment.locator),
                other.stat([subject.expected(segment)]),
                other.delete_log_segment_data(segment.locator),
                other.copy_log_segment_data(segment.locator, segment.data),
                other.sweep(0),
            ):
                with pytest.raises(Unavailable, match=r"it has no rlm-store\.json"):
                    await call


async def test_a_log_of_several_blocks_whose_datanodes_report_late(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """A NameNode refuses a block while the block before the last one is not reported."""
    late = {"dfs.blockreport.incremental.intervalMsec": "1000"}
    server = start_hdfs(tmp_path_factory.mktemp("hdfs-late"), overrides=late)
    more = {"conf__dfs.blocksize": "1m", "conf__dfs.replication": 1}
    try:
        async with hdfs_subject(server, tmp_path, **more) as subject:
            segment = subject.segment(log_size_bytes=5 * MIB + 7)
            await subject.copy(segment)
            assert await subject.fetch(segment.locator, 0, 1 << 40) == segment.log
            assert temporary_files(server, subject) == []
    finally:
        await asyncio.to_thread(end_hdfs, server)


@pytest.mark.long
async def test_a_copy_can_be_read_though_its_datanodes_report_late(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """A NameNode that closes files before their last block is reported gives readers an empty file
    until then. Here DataNodes report every two seconds; on a busy machine they are as late.
    """
    late = {"dfs.blockreport.incremental.intervalMsec": "2000"}
    server = start_hdfs(tmp_path_factory.mktemp("hdfs-late"), datanodes=2, overrides=late)
    try:
        async with hdfs_subject(server, tmp_path) as subject:
            for _ in range(3):
                segment = subject.segment(log_size_bytes=MIB)
                await subject.copy(segment)
                assert await subject.fetch(segment.locator, 0, 1 << 40) == segment.log
                await subject.manager.write_manifest(segment.locator, b'{"v":1}')
                assert await subject.manager.read_manifest(segment.locator) == b'{"v":1}'
    finally:
        await asyncio.to_thread(end_hdfs, server)


async def test_a_copy_given_up_frees_its_connection(
    hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    """Cancelled at many points, with the same client: nothing stays, and no client is used up."""
    async with hdfs_subject(hdfs_server, tmp_path) as subject:
        segment = subject.segment(log_size_bytes=16 * MIB)
        began = time.monotonic()
        await subject.complete(segment)
        whole = time.monotonic() - began
        with capture_logs() as logs:
            for share in range(12):
                try:
                    async with asyncio.timeout(whole * share / 10):
                        await subject.copy(segment)
                except TimeoutError:
                    continue
            assert temporary_files(hdfs_server, subject) == []
            assert await subject.fetch(segment.locator, 0, 1 << 40) == segment.log
        assert replaced_clients(logs) == 0

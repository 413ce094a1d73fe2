"""What many failures leave behind: no uploads, sockets, files, threads or memory."""

import gc
import os
import threading
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip405.errors import RemoteStorageError
from rsm_plugins.conformance.broken_copies import give_up
from rsm_plugins.conformance.subject import StoredSegment
from tests.builders.cutting_actions import (
    Action,
    Answer,
    ResetAnswer,
    ResetRequest,
    ShortBody,
    StallAnswer,
)
from tests.builders.cutting_proxy import CuttingProxy
from tests.rsm_plugins.faults.cut_store import CutStore, cut_rig, cut_store, settle
from tests.rsm_plugins.faults.operations import BY_NAME
from tests.rsm_plugins.stores import BYTES, opened, s3_rig
from tests.store_servers import S3Server

CONNECTIONS = 6
REPEATS = 3
REPEATS_LONG = 300
GROWTH_BYTES = 2 << 20
LIMITS: dict[str, Any] = {
    "rsm.config.s3.max.connections": CONNECTIONS,
    "rsm.config.s3.upload.concurrency": 2,
}
FAULTS: tuple[tuple[str, Action], ...] = (
    ("copy_small", Answer(status=403, code="AccessDenied")),
    ("copy_begin", Answer(status=404, code="NoSuchBucket")),
    ("copy_part", Answer(status=403, code="ExpiredToken")),
    ("copy_complete", Answer(status=400, code="InvalidRequest")),
    ("copy_small", ResetRequest(after_bytes=50)),
    ("fetch", ResetAnswer(after_bytes=5)),
    ("indexes", ShortBody(missing_bytes=3)),
    ("list", ResetAnswer(after_bytes=5)),
    ("stat", Answer(status=403, code="AccessDenied")),
    ("delete", Answer(status=403, code="AccessDenied")),
)


class Failures:
    """The same failures again and again, of segments that were prepared once."""

    def __init__(self, store: CutStore) -> None:
        self._store = store
        self._segments: dict[str, StoredSegment] = {}

    async def prepare(self) -> None:
        for name in {name for name, _ in FAULTS}:
            self._segments[name] = await self._store.prepared(BY_NAME[name])

    async def one_round(self) -> None:
        for name, fault in FAULTS:
            operation, proxy = BY_NAME[name], self._store.proxy
            proxy.script(fault, *operation.requests, times=None)
            with pytest.raises(RemoteStorageError):
                await operation.run(self._store.subject, self._segments[name])
            assert proxy.open_connections <= CONNECTIONS
            proxy.forget()
            self._store.pauses.clear()


async def many_failures(server: S3Server, folder: Path, repeats: int) -> None:
    async with cut_store(server, folder, **LIMITS) as store:
        failures = Failures(store)
        await failures.prepare()
        files = sorted(os.listdir(folder))
        await failures.one_round()
        threads = threading.active_count()
        tracemalloc.start()
        try:
            await failures.one_round()
            before = traced_bytes()
            for _ in range(repeats):
                await failures.one_round()
            grown = traced_bytes() - before
        finally:
            tracemalloc.stop()
        assert grown < GROWTH_BYTES, f"{grown} bytes more after {repeats} repeats"
        assert threading.active_count() <= threads + 1
        assert store.uploads() == []
        assert sorted(os.listdir(folder)) == files
        await store.nothing_stays()


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.timeout(600)
async def test_failures_leave_nothing(s3_server: S3Server, tmp_path: Path) -> None:
    await many_failures(s3_server, tmp_path, REPEATS)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_many_failures_leave_nothing(s3_server: S3Server, tmp_path: Path) -> None:
    await many_failures(s3_server, tmp_path, REPEATS_LONG)


async def test_given_up_copies_leave_no_upload(s3_server: S3Server, tmp_path: Path) -> None:
    """However far a copy came when its caller gave up, the server holds no part of it once the
    attempt was deleted; before, at most the upload whose number was lost on its way to us.
    """
    operation = BY_NAME["copy_part"]
    async with cut_store(s3_server, tmp_path) as store:
        for stage in ("CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"):
            segment = await store.prepared(operation)
            store.proxy.script(StallAnswer(), stage, times=1)
            await give_up(store.subject, segment, 0.5)
            most = 1 if stage == "CreateMultipartUpload" else 0
            await settle(partial(_at_most, store, most), f"uploads stay after {stage}")
            await store.nothing_stays()


def _at_most(store: CutStore, uploads: int) -> bool:
    return len(store.uploads()) <= uploads


async def test_more_readers_than_connections(s3_server: S3Server, tmp_path: Path) -> None:
    """Bodies that break off give their connections back: a pool of six is never used up."""
    operation = BY_NAME["fetch"]
    async with cut_store(s3_server, tmp_path, **LIMITS) as store:
        segment = await store.prepared(operation)
        for fault in (ShortBody(missing_bytes=3), ResetAnswer(after_bytes=5)):
            for _ in range(4 * CONNECTIONS):
                store.proxy.script(fault, "GetObject")
                await operation.run(store.subject, segment)
            assert store.proxy.open_connections <= CONNECTIONS
        await store.nothing_stays()


async def test_a_plugins_spool_is_empty_after_failures(s3_server: S3Server, tmp_path: Path) -> None:
    """Copies that came as bytes and could not be stored leave no file behind."""
    behind, spool = s3_rig(s3_server), tmp_path / "spool"
    spool.mkdir()
    async with CuttingProxy(s3_server.port) as proxy:
        rig = cut_rig(behind, proxy, **{"spool.dir": str(spool)})
        async with opened(rig, BYTES, tmp_path) as subject:
            await subject.ensure_identity()
            for operation in ("copy_begin", "copy_part", "copy_complete", "copy_small"):
                one = BY_NAME[operation]
                segment = subject.segment(log_size_bytes=one.log_size_bytes)
                denied = Answer(status=403, code="AccessDenied")
                proxy.script(denied, *one.requests, times=None)
                with pytest.raises(RemoteStorageError, match="AccessDenied"):
                    await subject.copy(segment)
                proxy.forget()
                files = [path for path in spool.rglob("*") if path.suffix not in ("", ".lock")]
                assert files == [], operation
        assert [path for path in spool.rglob("*") if path.is_file()] == []
        await settle(lambda: proxy.open_connections == 0, "connections to the proxy stay open")

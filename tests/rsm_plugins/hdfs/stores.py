"""HDFS stores for tests: opened as the plugin opens them, over a real server."""

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hdfs_native import Client

from kip405.ids import Uuid
from rsm_plugins.conformance.subject import Subject
from rsm_plugins.hdfs.manager import KIND, HdfsRemoteStorageManager
from rsm_plugins.threads import FileThreads
from tests.store_servers_hdfs import HdfsServer


def new_uuid() -> Uuid:
    return Uuid(os.urandom(16))


def rows(server: HdfsServer, **more: object) -> dict[str, object]:
    """The `rsm.config.*` rows of a store of its own; `more` below `rsm.config.hdfs.`, with __ for
    dots.
    """
    return {
        "rsm.config.root": "/",
        "rsm.config.prefix": f"tests/{new_uuid()}",
        "rsm.config.hdfs.core-site.path": str(server.config / "core-site.xml"),
        "rsm.config.hdfs.hdfs-site.path": str(server.config / "hdfs-site.xml"),
        **_hdfs_rows(more),
    }


def _hdfs_rows(more: Mapping[str, object]) -> dict[str, object]:
    return {f"rsm.config.hdfs.{key.replace('__', '.')}": value for key, value in more.items()}


@asynccontextmanager
async def opened_store(settings: dict[str, object]) -> AsyncIterator[HdfsRemoteStorageManager]:
    """A store of `rsm.config.*` settings, through the kind's own table."""
    threads = FileThreads(4)
    store = await KIND.open(KIND.settings.values(settings), threads)
    assert isinstance(store.manager, HdfsRemoteStorageManager)
    try:
        yield store.manager
    finally:
        await store.manager.close()
        threads.close()


@asynccontextmanager
async def hdfs_subject(server: HdfsServer, folder: Path, **more: object) -> AsyncIterator[Subject]:
    """A store with an identity, and what makes segments for it."""
    async with patient_and_hasty(server, folder, **more) as (_, subject):
        yield subject


@asynccontextmanager
async def patient_and_hasty(
    server: HdfsServer, folder: Path, **more: object
) -> AsyncIterator[tuple[Subject, Subject]]:
    """The same store twice: as it is by default, and with `more`, which may be deadlines that a
    busy machine would not keep outside of a fault.
    """
    sources = folder / "sources"
    sources.mkdir(exist_ok=True)
    settings = rows(server)
    async with (
        opened_store(settings) as patient,
        opened_store(settings | _hdfs_rows(more)) as hasty,
    ):
        subject = _subject(patient, sources)
        await subject.ensure_identity()
        yield subject, _subject(hasty, sources)


def _subject(store: HdfsRemoteStorageManager, sources: Path) -> Subject:
    return Subject(
        manager=store, folder=sources, new_uuid=new_uuid, cluster_id="c", sweep=store.sweep
    )


def manager_of(subject: Subject) -> HdfsRemoteStorageManager:
    """The manager of a subject, with what is more than the contract."""
    assert isinstance(subject.manager, HdfsRemoteStorageManager)
    return subject.manager


def temporary_files(server: HdfsServer, subject: Subject) -> list[str]:
    """What is being written, or was left, in the store of a subject."""

    base = manager_of(subject).uri.removeprefix(server.url)
    client = Client(config_dir=str(server.config))
    found = client.list_status(base, recursive=True)
    return [one.path for one in found if "~rlm-tmp" in one.path and not one.isdir]


def replaced_clients(logs: Iterable[Mapping[str, Any]]) -> int:
    """How often another client of the library took over from one that failed."""
    return sum(line["event"] == "hdfs_client_replaced" for line in logs)

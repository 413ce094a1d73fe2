"""S3 stores for tests: opened as the plugin opens them, over a real server or a recording one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from kip405.ids import Uuid
from rsm_plugins.conformance.subject import Subject
from rsm_plugins.s3.manager import KIND, S3RemoteStorageManager
from rsm_plugins.threads import FileThreads
from tests.store_servers import S3Server


def new_uuid() -> Uuid:
    return Uuid(uuid4().bytes)


@asynccontextmanager
async def open_store(settings: dict[str, object]) -> AsyncIterator[S3RemoteStorageManager]:
    """A store of `rsm.config.*` settings, through the kind's own table."""
    threads = FileThreads(4)
    store = await KIND.open(KIND.settings.values(settings), threads)
    manager = store.manager
    assert isinstance(manager, S3RemoteStorageManager)
    try:
        yield manager
    finally:
        await manager.close()
        threads.close()


@asynccontextmanager
async def s3_store(
    server: S3Server, bucket: str, **more: object
) -> AsyncIterator[S3RemoteStorageManager]:
    """A store in a bucket of a real server; `more` are settings below `rsm.config.s3.`, with
    underscores for dots.
    """
    settings = server.settings(bucket) | {
        f"rsm.config.s3.{key.replace('_', '.')}": value for key, value in more.items()
    }
    async with open_store(settings) as store:
        yield store


def subject_of(manager: S3RemoteStorageManager, folder: Path, **more: Any) -> Subject:
    """What the conformance cases work with, under a cluster id of its own."""
    return Subject(
        manager=manager,
        folder=folder,
        new_uuid=new_uuid,
        cluster_id=f"cluster-{new_uuid()}",
        **more,
    )

"""Sites with logs to import, and imports that are killed and begun again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from kip405.contracts import RemoteStorageManager
from rlm.imports.run import BucketImport
from rsm_plugins.pinterest.local_objects import LocalUploadedObjects
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager
from rsm_plugins.threads import FileThreads
from tests.builders.pinterest import LAYOUT, PREFIX, ImportSite, upload_all


def fresh(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def site_with(folder: Path, *logs: bytes) -> ImportSite:
    site = ImportSite(folder)
    upload_all(site.bucket, *logs)
    return site


class _Broken:
    """Passes calls on to the store until so many of those that write were made."""

    def __init__(self, inner: Any, writes: int) -> None:
        self._inner = inner
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._inner, name)
        if not name.startswith(("copy_", "write_", "create_", "delete_")):
            return called

        async def counted(*args: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise asyncio.CancelledError
            return await called(*args)

        return counted


async def assert_ends_the_same(folder: Path, logs: Sequence[bytes], writes: int) -> None:
    """An import that is killed after so many writes and begun again ends as an undisturbed one."""
    undisturbed = site_with(fresh(folder, "whole"), *logs)
    await undisturbed.run()
    site = site_with(folder, *logs)
    store = ImportingRemoteStorageManager(
        cast("RemoteStorageManager", _Broken(site.own(), writes)), LAYOUT, site.uploaded()
    )
    with pytest.raises(asyncio.CancelledError):
        await site.run(site.work(store))
    await site.run()
    assert site.content() == undisturbed.content()


class Waiting(LocalUploadedObjects):
    """Their bucket, for an import that waits when it is to read the log with this base offset."""

    def __init__(self, site: ImportSite, base_offset: int) -> None:
        super().__init__(site.bucket.root, PREFIX, FileThreads())
        self._last = f"{base_offset:020d}.log"
        self.is_there = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def read_range(self, name: str, wanted: Any) -> bytes:
        if name.endswith(self._last):
            self.is_there.set()
            await self.goes_on.wait()
        return await super().read_range(name, wanted)


def waiting(site: ImportSite, base_offset: int) -> tuple[Waiting, BucketImport]:
    objects = Waiting(site, base_offset)
    return objects, site.work(ImportingRemoteStorageManager(site.own(), LAYOUT, objects))


async def killed(site: ImportSite, base_offset: int) -> None:
    """An import that ends when it is to read this log."""
    objects, work = waiting(site, base_offset)
    task = asyncio.create_task(site.run(work))
    await objects.is_there.wait()
    task.cancel()
    await asyncio.wait([task])

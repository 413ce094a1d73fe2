"""Sites with logs to import, and imports that are killed and begun again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from kip405.contracts import RemoteStorageManager
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager
from tests.builders.pinterest import LAYOUT, ImportSite, upload_all


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

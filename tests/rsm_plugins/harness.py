"""Stores and plugins for the tests of rsm_plugins: direct, and behind a real gRPC server in this
process.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kip405.ids import Uuid
from rsm_plugins.conformance.subject import Subject
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.process.config import PluginSettings, settings_of
from rsm_plugins.process.plugin import running_server

PREFIX = "some/prefix"
DEADLINES = Deadlines(call_ms=60_000, copy_ms=60_000)


def new_uuid() -> Uuid:
    return Uuid(os.urandom(16))


class DirectoryFaults:
    """StoreFaults of a local store."""

    def __init__(self, root: Path, prefix: str = PREFIX) -> None:
        self._root = root
        self._base = root / prefix
        self._away = root.with_name(f"{root.name}.away")

    def move_away(self) -> None:
        self._root.rename(self._away)

    def bring_back(self) -> None:
        self._away.rename(self._root)

    def path_of(self, name: str) -> Path:
        return self._base / name

    def remove(self, name: str) -> None:
        self.path_of(name).unlink()

    def truncate(self, name: str, size_bytes: int) -> None:
        os.truncate(self._base / name, size_bytes)

    def names(self) -> list[str]:
        found = (path.relative_to(self._base) for path in self._base.rglob("*") if path.is_file())
        return sorted(str(path) for path in found if not path.name.startswith(".probe-"))


def plugin_settings(root: Path, **others: object) -> PluginSettings:
    """Settings as of a YAML file, on a free loopback port; `others` with _ for . and - in their
    keys.
    """
    changes = {key.replace("__", "."): value for key, value in others.items()}
    return settings_of(
        {
            "listen": "127.0.0.1:0",
            "rsm.config.root": str(root),
            "rsm.config.prefix": PREFIX,
            **changes,
        }
    )


@asynccontextmanager
async def local_subject(tmp_path: Path, mode: str) -> AsyncIterator[Subject]:
    """A subject over a local store: mode `direct`, `unshared`, `bytes` or `shared` (the latter two
    over gRPC).
    """
    root = tmp_path / "store"
    root.mkdir()
    if mode in ("direct", "unshared"):
        store = LocalRemoteStorageManager(root, PREFIX, shared=mode == "direct")
        yield _subject(store, tmp_path, root)
        await store.close()
        return
    async with running_server(plugin_settings(root)) as (address, _):
        client = GrpcRemoteStorageManager.connect(
            str(address), principal="test", deadlines=DEADLINES, share=mode == "shared"
        )
        yield _subject(client, tmp_path, root)
        await client.close()


def _subject(
    manager: LocalRemoteStorageManager | GrpcRemoteStorageManager, tmp_path: Path, root: Path
) -> Subject:
    folder = tmp_path / "sources"
    folder.mkdir()
    return Subject(
        manager=manager,
        folder=folder,
        new_uuid=new_uuid,
        cluster_id="test-cluster",
        faults=DirectoryFaults(root),
    )

"""A directory as a kind of store: its settings, and how it is opened."""

from collections.abc import Mapping
from typing import Any

from kip405.settings import PATH, REQUIRED, Setting, Table
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.store_kinds import PREFIX_SETTING, OpenStore, StoreKind
from rsm_plugins.threads import FileThreads

ROOT_SETTING = Setting(
    key="rsm.config.root",
    kind=PATH,
    doc="Directory of the store. It must exist; the plugin never creates it.",
    default=REQUIRED,
)


async def open_local(settings: Mapping[str, Any], threads: FileThreads) -> OpenStore:
    """The store below `rsm.config.root`, which may be away."""
    store = LocalRemoteStorageManager(
        settings[ROOT_SETTING.key], settings[PREFIX_SETTING.key], threads=threads
    )
    return OpenStore(manager=store, uri=store.uri, objects_folder=store.folder, sweep=store.sweep)


KIND = StoreKind(name="local", settings=Table(ROOT_SETTING, PREFIX_SETTING), open=open_local)

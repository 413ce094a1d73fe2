"""A directory as a kind of store: its settings, and how it is opened."""

from collections.abc import Mapping
from typing import Any

from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.settings.kinds import OpenStore, StoreKind
from rsm_plugins.settings.table import PREFIX_SETTING, Setting, folder
from rsm_plugins.threads import FileThreads

ROOT_SETTING = Setting(
    key="rsm.config.root",
    check=folder,
    allowed="an absolute path",
    doc="Directory of the store. It must exist; the plugin never creates it.",
    required=True,
)


async def open_local(settings: Mapping[str, Any], threads: FileThreads) -> OpenStore:
    """The store below `rsm.config.root`, which may be away."""
    store = LocalRemoteStorageManager(
        settings[ROOT_SETTING.key], settings[PREFIX_SETTING.key], threads=threads
    )
    return OpenStore(manager=store, uri=store.uri, objects_folder=store.folder, sweep=store.sweep)


KIND = StoreKind(name="local", settings=(ROOT_SETTING, PREFIX_SETTING), open=open_local)

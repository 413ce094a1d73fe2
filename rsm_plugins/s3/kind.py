"""S3 as a kind of store: its settings, and how it is opened."""

from collections.abc import Mapping
from typing import Any

from rsm_plugins.s3.calls import pause
from rsm_plugins.s3.connection import quiet_library
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.s3.settings import SETTINGS, s3_settings
from rsm_plugins.store_kinds import OpenStore, StoreKind
from rsm_plugins.threads import FileThreads


async def open_s3(values: Mapping[str, Any], threads: FileThreads) -> OpenStore:
    """The store in the bucket, which may be away; Invalid where settings do not go together."""
    settings = s3_settings(values)
    quiet_library()
    store = S3RemoteStorageManager(settings, threads, pause)
    return OpenStore(manager=store, uri=settings.uri, sweep=store.sweep)


KIND = StoreKind(name="s3", settings=SETTINGS, open=open_s3)

"""The plugin process put together from its settings: store, services, server, sweep of leftovers.

The composition root of `rsm-plugin serve`; it ends when told to by the event it is given.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path

import structlog

from kip405.errors import RemoteStorageError
from rsm_plugins.addresses import Address
from rsm_plugins.config import PluginSettings
from rsm_plugins.file_threads import FileThreads
from rsm_plugins.keys import IDENTITY_NAME
from rsm_plugins.local import LocalRemoteStorageManager
from rsm_plugins.server import PluginServer, new_instance
from rsm_plugins.services import Parts, PluginInfo
from rsm_plugins.shared_volume import ProbeFile, SourceFolders
from rsm_plugins.spool import Spool

HANDSHAKE_VERSION = 1
log = structlog.get_logger(__name__)


def handshake(address: Address) -> str:
    """The line that tells who started us where we listen: `1|1|tcp|127.0.0.1:PORT|grpc`."""
    place = address.unix_path or f"{address.host}:{address.port}"
    return f"{HANDSHAKE_VERSION}|{HANDSHAKE_VERSION}|{address.network}|{place}|grpc"


def software_version() -> str:
    """Version of the installed distribution, "unknown" in a bare checkout."""
    try:
        return metadata.version("kafka-rlm")
    except metadata.PackageNotFoundError:
        return "unknown"


@asynccontextmanager
async def running_server(
    settings: PluginSettings,
) -> AsyncIterator[tuple[Address, LocalRemoteStorageManager]]:
    """A plugin that serves while the block runs; answers where it listens, and its store."""
    threads = FileThreads(settings.file_threads)
    store = LocalRemoteStorageManager(settings.root, settings.prefix, threads=threads)
    instance = new_instance()
    probe_file = ProbeFile(store.folder, instance) if settings.shared_volume else None
    parts = Parts(
        manager=store,
        info=PluginInfo(
            name=settings.plugin, version=software_version(), store_uri=store.uri, instance=instance
        ),
        threads=threads,
        spool=Spool(
            store.folder,
            threads,
            settings.copies_by_bytes_max,
            needed=store.folder / IDENTITY_NAME,
        ),
        probe_file=probe_file,
        source_folders=SourceFolders(_source_folders(settings)),
    )
    server = PluginServer(parts, settings.listen, allow_insecure=settings.allow_insecure)
    try:
        address = await server.start()
        try:
            yield address, store
        finally:
            await server.stop()
    finally:
        if probe_file is not None:
            probe_file.remove()
        await store.close()
        threads.close()


def _source_folders(settings: PluginSettings) -> tuple[Path, ...] | None:
    if settings.source_folders is None and not Address.parse(settings.listen).is_private:
        return ()
    return settings.source_folders


async def serve(
    settings: PluginSettings, stopped: asyncio.Event, announce: Callable[[str], None]
) -> None:
    """Serve until `stopped` is set; `announce` gets the handshake line once calls are taken."""
    async with running_server(settings) as (address, store):
        announce(handshake(address))
        log.info("plugin_serving", address=str(address), plugin=settings.plugin, store=store.uri)
        async with asyncio.TaskGroup() as tasks:
            sweeping = tasks.create_task(_sweep(store, settings.sweep_grace_ms))
            await stopped.wait()
            sweeping.cancel()
        log.info("plugin_stopping", address=str(address))


async def _sweep(store: LocalRemoteStorageManager, grace_ms: int) -> None:
    try:
        removed = await store.sweep(grace_ms)
    except RemoteStorageError as error:
        log.warning("sweep_failed", what=str(error))
    else:
        log.info("sweep_done", removed=removed)

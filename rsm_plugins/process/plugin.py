"""Composes the plugin process from its settings: store, services, server, sweep of leftovers.

This is the composition root of `rsm-plugin serve`. It ends when the event that it is given is set.
It knows no kind of store by name.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog

from kip405.addresses import Address
from kip405.errors import RemoteStorageError
from kip405.process import software_version
from rsm_plugins.contract.server import PluginServer, new_instance
from rsm_plugins.contract.services import Dependencies, PluginInfo
from rsm_plugins.files.owned_folder import OwnedFolder
from rsm_plugins.files.segment_files import Spool
from rsm_plugins.files.shared_volume import CallersFolders, ProbeFile
from rsm_plugins.layout.keys import IDENTITY_NAME
from rsm_plugins.process.config import SWEEP_NEVER_MS, PluginSettings
from rsm_plugins.process.handshake import handshake
from rsm_plugins.store_kinds import OpenStore, store_kind
from rsm_plugins.threads import FINISH_MS, FileThreads

log = structlog.get_logger(__name__)


@asynccontextmanager
async def running_server(settings: PluginSettings) -> AsyncIterator[tuple[Address, OpenStore]]:
    """A plugin that serves while the block runs; yields its address and its store."""
    async with AsyncExitStack() as stack:
        threads = FileThreads(settings.file_threads)
        stack.push_async_callback(threads.finish, FINISH_MS)
        store = await store_kind(settings.kind).open(settings.store, threads)
        stack.push_async_callback(store.manager.close)
        dependencies = await _dependencies(settings, store, threads, stack)
        server = PluginServer(
            dependencies, settings.listen, allow_insecure=settings.allow_insecure, tls=settings.tls
        )
        address = await server.start()
        stack.push_async_callback(server.stop)
        yield address, store


async def _dependencies(
    settings: PluginSettings, store: OpenStore, threads: FileThreads, stack: AsyncExitStack
) -> Dependencies:
    instance = new_instance()
    probe_file = None
    if settings.shared_volume and store.objects_folder is not None:
        probe_file = ProbeFile(store.objects_folder, instance)
        stack.callback(probe_file.remove)
    return Dependencies(
        manager=store.manager,
        info=PluginInfo(
            name=settings.kind, version=software_version(), store_uri=store.uri, instance=instance
        ),
        threads=threads,
        spool=await _spool(settings, store, threads, stack),
        probe_file=probe_file,
        source_folders=_callers_folders(settings.source_folders, settings),
        scratch_folders=_scratch_folders(settings),
        layouts=store.layouts,
        secrets=settings.secrets,
    )


async def _spool(
    settings: PluginSettings, store: OpenStore, threads: FileThreads, stack: AsyncExitStack
) -> Spool:
    """A spool in the store's own folder, where the sweep recognizes its files, unless the objects
    are not files or another folder is configured.
    """
    most = settings.copies_by_bytes_max
    if settings.spool_folder is None and store.objects_folder is not None:
        needed = store.objects_folder / IDENTITY_NAME
        return Spool(store.objects_folder, threads, most, needed=needed)
    owned = await threads.run(_owned_spool, settings.spool_folder)
    stack.callback(owned.close)
    return Spool(owned.path, threads, most)


def _owned_spool(folder: Path | None) -> OwnedFolder:
    return OwnedFolder.create(folder) if folder else OwnedFolder.create_private()


def _callers_folders(folders: tuple[Path, ...] | None, settings: PluginSettings) -> CallersFolders:
    """The folders in which callers may name files: all, while only this machine can call."""
    return CallersFolders(() if folders is None and not settings.is_private else folders)


def _scratch_folders(settings: PluginSettings) -> CallersFolders | None:
    """None if the plugin could fill no caller's file, so that no caller creates one in vain."""
    is_possible = settings.is_private or settings.scratch_folders
    if not (settings.shared_volume and is_possible):
        return None
    return _callers_folders(settings.scratch_folders, settings)


async def serve(
    settings: PluginSettings, stopped: asyncio.Event, announce: Callable[[str], None]
) -> None:
    """Serve until `stopped` is set; `announce` gets the handshake line once calls are taken."""
    async with running_server(settings) as (address, store):
        announce(handshake(address))
        log.info("plugin_serving", address=str(address), plugin=settings.kind, store=store.uri)
        async with asyncio.TaskGroup() as tasks:
            sweeping = tasks.create_task(sweep_leftovers(store, settings.sweep_grace_ms))
            await stopped.wait()
            sweeping.cancel()
        log.info("plugin_stopping", address=str(address))


async def sweep_leftovers(store: OpenStore, grace_ms: int) -> None:
    """Remove what crashed copies left longer ago than the grace; a failure is only logged."""
    if store.sweep is None or grace_ms >= SWEEP_NEVER_MS:
        return
    try:
        removed = await store.sweep(grace_ms)
    except RemoteStorageError as error:
        log.warning("sweep_failed", what=str(error))
    except Exception:  # a background task: an error in housekeeping must not end the plugin
        log.exception("sweep_broken")
    else:
        log.info("sweep_done", removed=removed)

"""The stores that a service reads from, in every role: plugins, connections, routes and usage.

A service starts the plugin behind a configured store, or dials it where it already runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.segments import Layout
from rlm.clock import Clock
from rlm.config import CommonConfig
from rlm.config.environment import withheld_variables
from rlm.config.stores import PREFIX_KEY, StoreConfig
from rlm.stores.connection import (
    AskLayouts,
    Connection,
    DescribeStore,
    Memory,
    StoreConnection,
    StoreOrigin,
    store_called,
)
from rlm.stores.reports import StoreStatus, prefix_of
from rlm.stores.stores import Ledger, RoutedReader, Stores, StoresInUse, StoreUsage
from rlmm.manager import Metadata
from rlmm.settings_view import SettingsView
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.contract.probe import layouts_of
from rsm_plugins.process.config import SWEEP_NEVER_MS
from rsm_plugins.process.spawned import OWN_COMMAND, SpawnedPlugin

T = TypeVar("T")
_START_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTerms:
    """How plugins are called and started. `runtime_dir` holds the sockets if its path is short
    enough.
    """

    principal: str
    deadlines: Deadlines
    allow_insecure: bool = False
    sweep_grace_ms: int | None = None
    log_level: str = "info"
    runtime_dir: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPlugin:
    """A client of one plugin and, if this service started it, its process, which the caller
    runs.
    """

    store: StoreConfig
    manager: GrpcRemoteStorageManager
    process: SpawnedPlugin | None = None

    def problem(self) -> str | None:
        """Why the process does not take calls now; None for a plugin that others run."""
        found = self.process.problem if self.process is not None else None
        return None if found is None else str(found)

    async def started(self) -> None:
        """Return once its process, if it is ours, takes calls; Unavailable if it does not start."""
        if self.process is None:
            return
        try:
            async with asyncio.timeout(_START_MS / 1000):
                await self.process.ready()
        except TimeoutError:
            raise Unavailable(self.problem() or "the plugin did not start") from None


def reading_terms(config: CommonConfig) -> PluginTerms:
    """Those of a service that only reads: a sweep of uploads would need rights it has not."""
    return PluginTerms(
        principal=config.principal,
        deadlines=Deadlines(
            call_ms=config.plugin_call_timeout_ms, copy_ms=config.plugin_call_timeout_ms
        ),
        allow_insecure=config.allow_insecure,
        sweep_grace_ms=SWEEP_NEVER_MS,
        log_level=config.log_level,
        runtime_dir=config.state_dir,
    )


async def with_plugins(
    config: CommonConfig, clock: Clock, act: Callable[[Sequence[OpenPlugin]], Awaitable[T]]
) -> T:
    """Call `act` with the plugins of a configuration, for a command; those that were started are
    stopped again.
    """
    terms = PluginTerms(
        principal=config.principal,
        deadlines=Deadlines(call_ms=config.plugin_call_timeout_ms),
        allow_insecure=config.allow_insecure,
        sweep_grace_ms=SWEEP_NEVER_MS,  # services do that
        log_level="error",
    )
    plugins = open_plugins(config.stores, terms, clock)
    processes = [one.process.run for one in plugins if one.process]
    try:
        return await beside(processes, partial(act, plugins))
    finally:
        for one in plugins:
            await one.manager.close()


async def beside(
    background: Iterable[Callable[[], Awaitable[object]]], act: Callable[[], Awaitable[T]]
) -> T:
    """What `act` returns, or its error; the background tasks run as long as it does."""
    failed: RemoteStorageError | None = None
    results: list[T] = []
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_until_cancelled(one)) for one in background]
        try:
            results.append(await act())
        except RemoteStorageError as error:
            failed = error
        finally:
            for one in running:
                one.cancel()
    if failed is not None:
        raise failed
    return results[0]


async def _until_cancelled(life: Callable[[], Awaitable[object]]) -> None:
    await life()


def open_plugins(
    stores: Iterable[StoreConfig], terms: PluginTerms, clock: Clock
) -> tuple[OpenPlugin, ...]:
    """Nothing is started or contacted yet. Needs a running loop.

    Invalid where a file of TLS cannot be used, Unavailable where no folder for sockets can be made.
    """
    return tuple(_open(store, terms, clock) for store in stores)


def _open(store: StoreConfig, terms: PluginTerms, clock: Clock) -> OpenPlugin:
    process = None if store.address else _spawned(store, terms, clock)
    manager = GrpcRemoteStorageManager.connect(
        process.address if process else str(store.address),
        principal=terms.principal,
        deadlines=terms.deadlines,
        allow_insecure=terms.allow_insecure,
        tls=store.tls,
    )
    return OpenPlugin(store=store, manager=manager, process=process)


def _spawned(store: StoreConfig, terms: PluginTerms, clock: Clock) -> SpawnedPlugin:
    async def sleep(seconds: float) -> None:
        await clock.sleep_ms(seconds * 1000)

    config: dict[str, object] = dict(store.config)
    if store.kind:
        config |= {
            "plugin": store.kind,
            "log_level": terms.log_level,
            "sweep.grace.ms": terms.sweep_grace_ms,
        }
    return SpawnedPlugin(
        name=store.name,
        config=config,
        sleep=sleep,
        command=store.command or OWN_COMMAND,
        runtime_dir=terms.runtime_dir,
        withheld=withheld_variables(),
    )


_WATCH_MS = 5_000
_USAGE_MS = 30_000


class Settings(Protocol):
    """The settings topic (rlmm.settings.Settings)."""

    @property
    def view(self) -> SettingsView: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStores:
    """Built before anything is contacted. The background tasks run until cancelled; `close` comes
    last.
    """

    stores: Stores
    routed: RoutedReader
    in_use: StoresInUse
    settings: Settings
    plugins: tuple[OpenPlugin, ...]

    def background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """By component name; one that fails is started again without the others."""
        found: dict[str, Callable[[], Awaitable[None]]] = {
            f"plugin {one.store.name}": one.process.run for one in self.plugins if one.process
        }
        for connection in self.stores.connections:
            found[f"store {connection.name}"] = partial(connection.run, _WATCH_MS)
        found["stores in use"] = partial(self.in_use.run, _USAGE_MS)
        return found

    def can_be_read(self) -> bool:
        """Whether every store is known, and was reached once. One that is away later is a problem,
        and will be back: other readers do not reach it either.
        """
        return all(
            connection.store_id is not None and connection.layouts is not None
            for connection in self.stores.connections
        )

    def statuses(self) -> tuple[StoreStatus, ...]:
        """Every configured store, then those that only the ledger knows.

        While a configured store is not found yet, a store without a recorded name may be that one.
        It is left out then, because the reason why the configured store is not found is reported.
        """
        usages = dict(self.in_use.by_store)
        rows = [self._status(connection, usages) for connection in self.stores.connections]
        not_yet = any(connection.store_id is None for connection in self.stores.connections)
        strangers = [
            self._stranger(store_id, usages[store_id])
            for store_id in usages
            if not (not_yet and self.settings.view.store(store_id) is None)
        ]
        return (*rows, *strangers)

    def _status(self, connection: Connection, usages: dict[Uuid, StoreUsage]) -> StoreStatus:
        record, usage, store_id = connection.record, StoreUsage(), connection.store_id
        if store_id is None:
            record = store_called(connection.name, self.settings.view.stores())
            store_id = record.store_id if record else None
        if store_id is not None:
            usage = usages.pop(store_id, usage)
        return StoreStatus(
            name=connection.name,
            store_id=connection.store_id,
            plugin=record.plugin if record else "",
            uri=record.uri if record else "",
            problem=connection.problem or "",
            segments=usage.segments,
            size_bytes=usage.size_bytes,
        )

    def _stranger(self, store_id: Uuid, usage: StoreUsage) -> StoreStatus:
        record = self.settings.view.store(store_id)
        where = f" ({record.plugin} {record.uri})" if record else ""
        not_yet = any(connection.store_id is None for connection in self.stores.connections)
        what = "is not found (yet)" if not_yet else "is not in this service's configuration"
        return StoreStatus(
            store_id=store_id,
            plugin=record.plugin if record else "",
            uri=record.uri if record else "",
            problem=f"store {store_id}{where} {what}: {usage.segments} segments of "
            f"{len(usage.topics)} topics are there and cannot be read, trimmed on or swept; name "
            "it again",
            segments=usage.segments,
            size_bytes=usage.size_bytes,
        )

    def plugin_restarts(self) -> dict[str, int]:
        """How often each plugin that we run was started again, by the name of its store."""
        return {one.store.name: one.process.restarts for one in self.plugins if one.process}

    async def close(self) -> None:
        """End every connection to a plugin; the processes end with their background tasks."""
        for one in self.plugins:
            await one.manager.close()


def open_stores(
    config: CommonConfig,
    terms: PluginTerms,
    metadata: Metadata,
    clock: Clock,
    new_uuid: Callable[[], Uuid],
    *,
    may_found: bool = True,
) -> OpenStores:
    """Nothing is contacted. Needs a running loop. `may_found` False: only stores that the settings
    know are found, and nothing is written. Invalid, Unavailable: see open_plugins.
    """
    memory = Memory(
        cluster_id=config.cluster_id,
        settings=metadata.settings,
        metadata=metadata.log,
        clock=clock,
        new_uuid=new_uuid,
        may_write=may_found,
    )
    return connected_stores(
        open_plugins(config.stores, terms, clock),
        memory,
        metadata.manager,
        metadata.settings,
        hedged_percent=config.fetch_hedge_max_percent,
    )


def connected_stores(
    plugins: tuple[OpenPlugin, ...],
    memory: Memory,
    ledger: Ledger,
    settings: Settings,
    *,
    hedged_percent: float,
) -> OpenStores:
    """A connection for each plugin; nothing is contacted."""
    stores = Stores(
        [
            StoreConnection(
                one.store.name,
                one.manager,
                describe=_describe(one),
                ask_layouts=_ask_layouts(one),
                memory=memory,
                is_first=number == 0,
                plugin_problem=one.problem,
            )
            for number, one in enumerate(plugins)
        ]
    )
    return OpenStores(
        stores=stores,
        routed=RoutedReader(stores, memory.clock, hedged_percent),
        in_use=StoresInUse(ledger, memory.clock),
        settings=settings,
        plugins=plugins,
    )


def known_prefix(store: StoreConfig) -> str | None:
    """The prefix, if this configuration has it; for a plugin of another maker it may be unknown."""
    return store.prefix if store.kind or PREFIX_KEY in store.config else None


def _describe(plugin: OpenPlugin) -> DescribeStore:
    async def describe() -> StoreOrigin:
        info = await plugin.manager.get_info()
        prefix = prefix_of(info.store_uri, known_prefix(plugin.store))
        return StoreOrigin(plugin=info.name, uri=info.store_uri, prefix=prefix or "")

    return describe


def _ask_layouts(plugin: OpenPlugin) -> AskLayouts:
    async def ask() -> frozenset[Layout]:
        return layouts_of(await plugin.manager.get_info())

    return ask

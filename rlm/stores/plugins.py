"""The plugins behind the configured stores: started by this service, or dialled where they run."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rlm.clock import Clock
from rlm.config.stores import StoreConfig
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.process.spawned import OWN_COMMAND, SpawnedPlugin


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTerms:
    """How plugins are called and started. `runtime_dir`: for sockets, if its path is short."""

    principal: str
    deadlines: Deadlines
    allow_insecure: bool = False
    sweep_grace_ms: int | None = None
    log_level: str = "info"
    runtime_dir: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPlugin:
    """A client of one plugin, and its process where that is ours (then somebody runs it)."""

    store: StoreConfig
    manager: GrpcRemoteStorageManager
    process: SpawnedPlugin | None = None

    def problem(self) -> str | None:
        """Why the process does not take calls now; None for a plugin that others run."""
        found = self.process.problem if self.process is not None else None
        return None if found is None else str(found)


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
    )

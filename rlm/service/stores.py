"""All stores of a service that copies: stores to read from, copy targets, and their inspection."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from kip405.ids import Uuid
from rlm.clock import Clock
from rlm.config import ServiceConfig
from rlm.stores.inspection import Inspection
from rlm.stores.opened import OpenStores, PluginTerms, known_prefix, open_stores
from rlm.stores.reports import StoreReport
from rlm.stores.stores import Targets
from rlmm.manager import Metadata
from rsm_plugins.contract.client import Deadlines


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStores(OpenStores):
    """Contacts nothing when built; the background tasks run until cancelled, `close` comes last."""

    targets: Targets
    inspection: Inspection
    inspect_interval_ms: int

    def background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """See OpenStores."""
        found = OpenStores.background_tasks(self)
        if self.stores.links:
            found["store inspection"] = partial(self.inspection.run, self.inspect_interval_ms)
        return found

    def alarms_of(self, name: str) -> tuple[str, ...]:
        """See OpenStores."""
        report = self.inspection.reports.get(name)
        return report.alarms if report else ()

    async def inspect(self) -> tuple[StoreReport, ...]:
        """How every store is set up now, judged by the topics that it holds."""
        await self.in_use.refresh()
        return await self.inspection.inspect()


def build_stores(
    config: ServiceConfig, metadata: Metadata, clock: Clock, new_uuid: Callable[[], Uuid]
) -> ServiceStores:
    """Nothing is contacted. Needs a running loop. Invalid, Unavailable: see open_plugins."""
    opened = open_stores(config, _terms(config), metadata, clock, new_uuid)
    targets = Targets(config.provider(), opened.stores, config.cluster_id)
    return ServiceStores(
        stores=opened.stores,
        routed=opened.routed,
        targets=targets,
        in_use=opened.in_use,
        inspection=Inspection(
            stores=opened.stores,
            targets=targets,
            in_use=opened.in_use,
            view=lambda: metadata.settings.view,
            cluster_id=config.cluster_id,
            prefixes={one.name: known_prefix(one) for one in config.stores},
            clock=clock,
        ),
        settings=metadata.settings,
        plugins=opened.plugins,
        inspect_interval_ms=config.store_inspect_interval_ms,
    )


def _terms(config: ServiceConfig) -> PluginTerms:
    return PluginTerms(
        principal=config.principal,
        deadlines=Deadlines(call_ms=config.plugin_call_timeout_ms, copy_ms=config.copy_deadline_ms),
        allow_insecure=config.allow_insecure,
        sweep_grace_ms=config.sweep_grace_ms,
        log_level=config.log_level,
        runtime_dir=config.state_dir,
    )

"""Everything about stores of one service, wired together: plugins, links, routes, inspection."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from kip405.ids import Uuid
from rlm.clock import Clock
from rlm.config import ServiceConfig
from rlm.config.stores import PREFIX_KEY, StoreConfig
from rlm.facts_side import FactsSide
from rlm.stores.inspection import Inspection
from rlm.stores.judgement import prefix_of
from rlm.stores.link import DescribeStore, Memory, StoreLink, StoreOrigin
from rlm.stores.plugins import OpenPlugin, PluginTerms, open_plugins
from rlm.stores.routed import RoutedStores
from rlm.stores.status import StoreReport, StoreStatus
from rlm.stores.stores import NO_STORE, Stores, Targets
from rlm.stores.usage import StoresInUse, StoreUsage
from rlmm.settings import Settings
from rsm_plugins.client import Deadlines

_WATCH_MS = 5_000
_USAGE_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSide:
    """Built before anything is contacted; `lives` run until cancelled, `close` comes last."""

    stores: Stores
    routed: RoutedStores
    targets: Targets
    in_use: StoresInUse
    inspection: Inspection
    settings: Settings
    plugins: tuple[OpenPlugin, ...]
    inspect_interval_ms: int

    def lives(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """By component name; one that fails is begun again without the others."""
        found: dict[str, Callable[[], Awaitable[None]]] = {
            f"plugin {one.store.name}": one.process.run for one in self.plugins if one.process
        }
        for link in self.stores.links:
            found[f"store {link.name}"] = partial(link.run, _WATCH_MS)
        found["stores in use"] = partial(self.in_use.run, _USAGE_MS)
        if self.stores.links:
            found["store inspection"] = partial(self.inspection.run, self.inspect_interval_ms)
        return found

    def problems(self) -> tuple[str, ...]:
        """What keeps something from working now: stores away, or others, or not configured."""
        strangers = (row.problem for row in self.statuses() if not row.name)
        return (*self.stores.problems(), *strangers)

    def notices(self) -> tuple[str, ...]:
        """What an operator must see though everything works: alarms of set-up, no store at all."""
        if not self.stores.links:
            return (NO_STORE,)
        return self.inspection.alarms()

    async def inspect(self) -> tuple[StoreReport, ...]:
        """How every store is set up, asked now and judged by the topics it holds."""
        await self.in_use.look()
        return await self.inspection.look()

    def statuses(self) -> tuple[StoreStatus, ...]:
        """Every configured store, then those that only the ledger knows."""
        usages = dict(self.in_use.by_store)
        rows = [self._status(link, usages) for link in self.stores.links]
        return (*rows, *(self._stranger(store_id, usages[store_id]) for store_id in usages))

    def _status(self, link: StoreLink, usages: dict[Uuid, StoreUsage]) -> StoreStatus:
        fact, usage = link.fact, StoreUsage()
        if link.store_id is not None:
            usage = usages.pop(link.store_id, usage)
        report = self.inspection.reports.get(link.name)
        return StoreStatus(
            name=link.name,
            store_id=link.store_id,
            plugin=fact.plugin if fact else "",
            uri=fact.uri if fact else "",
            problem=link.problem or "",
            segments=usage.segments,
            size_bytes=usage.size_bytes,
            alarms=report.alarms if report else (),
        )

    def _stranger(self, store_id: Uuid, usage: StoreUsage) -> StoreStatus:
        fact = self.settings.view.store(store_id)
        where = f" ({fact.plugin} {fact.uri})" if fact else ""
        not_yet = any(link.store_id is None for link in self.stores.links)
        what = "is not found (yet)" if not_yet else "is not in this service's configuration"
        return StoreStatus(
            store_id=store_id,
            plugin=fact.plugin if fact else "",
            uri=fact.uri if fact else "",
            problem=f"store {store_id}{where} {what}: {usage.segments} segments of "
            f"{len(usage.topics)} topics lie there and cannot be read, trimmed on or swept; name "
            "it again",
            segments=usage.segments,
            size_bytes=usage.size_bytes,
        )

    async def close(self) -> None:
        """End every connection to a plugin; the processes end with their lives."""
        for one in self.plugins:
            await one.manager.close()


def build_stores(
    config: ServiceConfig, facts: FactsSide, clock: Clock, new_uuid: Callable[[], Uuid]
) -> StoreSide:
    """Nothing is contacted. Needs a running loop. Invalid, Unavailable: see open_plugins."""
    plugins = open_plugins(config.stores, _terms(config), clock)
    memory = Memory(
        cluster_id=config.cluster_id,
        settings=facts.settings,
        facts=facts.log,
        clock=clock,
        new_uuid=new_uuid,
    )
    stores = Stores(
        [
            StoreLink(
                one.store.name,
                one.manager,
                describe=_describe(one),
                memory=memory,
                is_first=number == 0,
                plugin_problem=one.problem,
            )
            for number, one in enumerate(plugins)
        ]
    )
    targets = Targets(config.provider(), stores, config.cluster_id)
    in_use = StoresInUse(facts.manager, clock)
    return StoreSide(
        stores=stores,
        routed=RoutedStores(stores),
        targets=targets,
        in_use=in_use,
        inspection=Inspection(
            stores=stores,
            targets=targets,
            in_use=in_use,
            view=lambda: facts.settings.view,
            cluster_id=config.cluster_id,
            prefixes={one.name: known_prefix(one) for one in config.stores},
            clock=clock,
        ),
        settings=facts.settings,
        plugins=plugins,
        inspect_interval_ms=config.store_inspect_interval_ms,
    )


def known_prefix(store: StoreConfig) -> str | None:
    """The prefix as far as this configuration says it; of a foreign plugin it may say nothing."""
    return store.prefix if store.kind or PREFIX_KEY in store.config else None


def _terms(config: ServiceConfig) -> PluginTerms:
    return PluginTerms(
        principal=config.principal,
        deadlines=Deadlines(call_ms=config.plugin_call_timeout_ms, copy_ms=config.copy_deadline_ms),
        allow_insecure=config.allow_insecure,
        sweep_grace_ms=config.sweep_grace_ms,
        log_level=config.log_level,
        runtime_dir=config.state_dir,
    )


def _describe(plugin: OpenPlugin) -> DescribeStore:
    async def describe() -> StoreOrigin:
        info = await plugin.manager.get_info()
        prefix = prefix_of(info.store_uri, known_prefix(plugin.store))
        return StoreOrigin(plugin=info.name, uri=info.store_uri, prefix=prefix or "")

    return describe

"""The stores of a configuration asked without a service: plugins are dialled, or started for it.

No settings topic is read, so no retention is known: whatever is kept counts as kept without limit.
"""

import asyncio
from collections.abc import Sequence

from kip405.errors import RemoteStorageError
from rlm.clock import Clock
from rlm.config import ServiceConfig
from rlm.stores.judgement import UNLIMITED, StoredTopic, judge, prefix_of
from rlm.stores.opened import known_prefix
from rlm.stores.plugins import OpenPlugin, PluginTerms, open_plugins
from rlm.stores.status import StoreReport
from rsm_plugins.contract.client import Deadlines

_ANY = StoredTopic(name="every topic", retention_ms=UNLIMITED)
_START_MS = 30_000


async def inspect_configured(config: ServiceConfig, clock: Clock) -> tuple[StoreReport, ...]:
    """A report of each store; plugins started for it are stopped again."""
    terms = PluginTerms(
        principal=config.principal,
        deadlines=Deadlines(call_ms=config.plugin_call_timeout_ms),
        allow_insecure=config.allow_insecure,
        sweep_grace_ms=config.sweep_grace_ms,  # a service may be copying meanwhile
        log_level="error",
    )
    plugins = open_plugins(config.stores, terms, clock)
    async with asyncio.TaskGroup() as tasks:
        lives = [tasks.create_task(one.process.run()) for one in plugins if one.process]
        try:
            return await _reports(plugins)
        finally:
            for life in lives:
                life.cancel()
            for one in plugins:
                await one.manager.close()


async def _reports(plugins: Sequence[OpenPlugin]) -> tuple[StoreReport, ...]:
    return tuple(await asyncio.gather(*(_report(one) for one in plugins)))


async def _report(plugin: OpenPlugin) -> StoreReport:
    name = plugin.store.name
    try:
        if plugin.process is not None:
            async with asyncio.timeout(_START_MS / 1000):
                await plugin.process.ready()
        uri = (await plugin.manager.get_info()).store_uri
        findings = await plugin.manager.inspect()
    except RemoteStorageError as error:
        return StoreReport(name=name, problem=str(error))
    except TimeoutError:
        return StoreReport(name=name, problem=plugin.problem() or "the plugin did not start")
    verdicts = judge(findings, (_ANY,), prefix_of(uri, known_prefix(plugin.store)))
    return StoreReport(name=name, uri=uri, findings=findings, verdicts=verdicts)

"""Inspects how every store is set up, through its plugin, and evaluates it by the topics in it.

`rlm doctor --store` inspects at once. The service inspects every few minutes, so that a lifecycle
rule that would remove segments raises an alarm before it does (H11).

The stores of a configuration can also be inspected without a service: their plugins are then
dialled, or started for the inspection. In this case no settings topic is read and no retention is
known, so everything counts as kept without limit.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from rlm.clock import Clock
from rlm.config import CommonConfig
from rlm.stores.connection import Connection
from rlm.stores.opened import OpenPlugin, known_prefix, with_plugins
from rlm.stores.reports import UNLIMITED, StoredTopic, StoreReport, evaluate, prefix_of
from rlm.stores.stores import Stores, StoresInUse, Targets
from rlmm.settings_records import TopicRecord
from rlmm.settings_view import SettingsView
from rsm_plugins.layout.keys import TOPIC_CUT

_ANSWER_MS = 15_000
_FIRST_MS = 5_000
_AGAIN_MS = 30_000


class Inspection:
    """Inspects and evaluates; `reports` has the last reports by name."""

    def __init__(
        self,
        *,
        stores: Stores,
        targets: Targets,
        in_use: StoresInUse,
        view: Callable[[], SettingsView],
        cluster_id: str,
        prefixes: Mapping[str, str | None],
        clock: Clock,
        answer_ms: int = _ANSWER_MS,
    ) -> None:
        """`prefixes`: by store, as far as the configuration knows them. `answer_ms`: how long one
        store may take.
        """
        self._stores = stores
        self._targets = targets
        self._in_use = in_use
        self._view = view
        self._cluster_id = cluster_id
        self._prefixes = prefixes
        self._clock = clock
        self._answer_ms = answer_ms
        self.reports: Mapping[str, StoreReport] = {}

    async def run(self, interval_ms: Callable[[], int]) -> None:
        """Run until cancelled; begins once a store is known."""
        while True:
            await self._clock.sleep_ms(min(interval_ms(), self._patience_ms()))
            if all(connection.store_id is None for connection in self._stores.connections):
                continue
            await self.inspect()

    def _patience_ms(self) -> float:
        """Before the first report, and after a problem, the next inspection comes sooner."""
        if not self.reports:
            return _FIRST_MS
        return _AGAIN_MS if any(one.problem for one in self.reports.values()) else math.inf

    async def inspect(self) -> tuple[StoreReport, ...]:
        """Ask every store now, concurrently; a store that does not answer has a report that says
        so.
        """
        found = await asyncio.gather(
            *(self._report(connection) for connection in self._stores.connections)
        )
        self.reports = {report.name: report for report in found}
        return tuple(found)

    async def _report(self, connection: Connection) -> StoreReport:
        uri = connection.record.uri if connection.record else ""
        if connection.is_other:
            return StoreReport(
                name=connection.name, uri=uri, problem=connection.problem or "another store"
            )
        try:
            async with asyncio.timeout(self._answer_ms / 1000):
                findings = await connection.store.inspect()
        except RemoteStorageError as error:
            return StoreReport(
                name=connection.name, uri=uri, problem=connection.problem or str(error)
            )
        except TimeoutError:
            return StoreReport(
                name=connection.name, uri=uri, problem=f"no answer within {self._answer_ms} ms"
            )
        verdicts = evaluate(
            findings,
            tuple(self._topics(connection)),
            prefix_of(uri, self._prefixes.get(connection.name)),
        )
        return StoreReport(name=connection.name, uri=uri, findings=findings, verdicts=verdicts)

    def _topics(self, connection: Connection) -> Iterable[StoredTopic]:
        """Topics that have segments in the store, and those whose next segments go to it."""
        records = {record.topic_id: record for record in self._view().topics()}
        usage = (
            None if connection.store_id is None else self._in_use.by_store.get(connection.store_id)
        )
        held = usage.topics if usage else frozenset[Uuid]()
        for topic_id in sorted(held - records.keys(), key=str):
            yield StoredTopic(name=f"topic {topic_id}", retention_ms=UNLIMITED)
        for record in records.values():
            if record.topic_id in held or self._is_next(record, connection):
                yield stored_topic(record, self._cluster_id)

    def _is_next(self, record: TopicRecord, connection: Connection) -> bool:
        if record.state != "enabled":
            return False
        try:
            return self._targets.endpoint(record.name, 0).store == connection.name
        except RemoteStorageError:
            return False


def stored_topic(record: TopicRecord, cluster_id: str) -> StoredTopic:
    """What a store promises to keep of a topic, and in which folder."""
    folder = f"{cluster_id}/{record.name[:TOPIC_CUT]}-{record.topic_id}"
    return StoredTopic(name=record.name, retention_ms=record.retention_ms, folder=folder)


_ANY = StoredTopic(name="every topic", retention_ms=UNLIMITED)


async def inspect_configured(config: CommonConfig, clock: Clock) -> tuple[StoreReport, ...]:
    """A report of each store; plugins started for the inspection are stopped again. A store whose
    plugin cannot be opened, for example because of its files of TLS, has a report that says so.
    """
    alone = [replace(config, stores=(store,)) for store in config.stores]
    return tuple(await asyncio.gather(*(_report_of(one, clock) for one in alone)))


async def _report_of(config: CommonConfig, clock: Clock) -> StoreReport:
    try:
        return await with_plugins(config, clock, _report)
    except RemoteStorageError as error:
        return StoreReport(name=config.stores[0].name, problem=str(error))


async def _report(plugins: Sequence[OpenPlugin]) -> StoreReport:
    [plugin] = plugins
    name = plugin.store.name
    try:
        await plugin.started()
        uri = (await plugin.manager.get_info()).store_uri
        findings = await plugin.manager.inspect()
    except RemoteStorageError as error:
        return StoreReport(name=name, problem=str(error))
    verdicts = evaluate(findings, (_ANY,), prefix_of(uri, known_prefix(plugin.store)))
    return StoreReport(name=name, uri=uri, findings=findings, verdicts=verdicts)

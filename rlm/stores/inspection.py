"""How every store is set up, asked through its plugin and judged against the topics it holds.

`rlm doctor --store` asks now; the service itself looks every few minutes, so that a lifecycle rule
that will remove segments is an alarm before it does (H11).
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from rlm.clock import Clock
from rlm.stores.judgement import UNLIMITED, StoredTopic, judge, prefix_of
from rlm.stores.link import StoreLink
from rlm.stores.status import StoreReport
from rlm.stores.stores import Stores, Targets
from rlm.stores.usage import StoresInUse
from rlmm.facts import TopicFact
from rlmm.settings_view import SettingsView
from rsm_plugins.layout.keys import TOPIC_CUT

_ANSWER_MS = 15_000
_FIRST_MS = 5_000
_AGAIN_MS = 30_000


class Inspection:
    """Asks and judges; `reports` by name are the last ones."""

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

    async def run(self, interval_ms: int) -> None:
        """Look for ever, as soon as anything is known of the stores."""
        while True:
            await self._clock.sleep_ms(min(interval_ms, self._patience_ms()))
            if all(link.store_id is None for link in self._stores.links):
                continue
            await self.look()

    def _patience_ms(self) -> float:
        """What is not known yet is asked for sooner."""
        if not self.reports:
            return _FIRST_MS
        return _AGAIN_MS if any(one.problem for one in self.reports.values()) else math.inf

    async def look(self) -> tuple[StoreReport, ...]:
        """Ask every store now, side by side; one that does not answer says so in its report."""
        found = await asyncio.gather(*(self._report(link) for link in self._stores.links))
        self.reports = {report.name: report for report in found}
        return tuple(found)

    async def _report(self, link: StoreLink) -> StoreReport:
        uri = link.fact.uri if link.fact else ""
        if link.is_other:
            return StoreReport(name=link.name, uri=uri, problem=link.problem or "another store")
        try:
            async with asyncio.timeout(self._answer_ms / 1000):
                findings = await link.store.inspect()
        except RemoteStorageError as error:
            return StoreReport(name=link.name, uri=uri, problem=link.problem or str(error))
        except TimeoutError:
            return StoreReport(
                name=link.name, uri=uri, problem=f"no answer within {self._answer_ms} ms"
            )
        verdicts = judge(
            findings, tuple(self._topics(link)), prefix_of(uri, self._prefixes.get(link.name))
        )
        return StoreReport(name=link.name, uri=uri, findings=findings, verdicts=verdicts)

    def _topics(self, link: StoreLink) -> Iterable[StoredTopic]:
        """Topics that have segments there, and those whose next segments go there."""
        facts = {fact.topic_id: fact for fact in self._view().topics()}
        usage = None if link.store_id is None else self._in_use.by_store.get(link.store_id)
        held = usage.topics if usage else frozenset[Uuid]()
        for topic_id in sorted(held - facts.keys(), key=str):
            yield StoredTopic(name=f"topic {topic_id}", retention_ms=UNLIMITED)
        for fact in facts.values():
            if fact.topic_id in held or self._is_next(fact, link):
                folder = f"{self._cluster_id}/{fact.name[:TOPIC_CUT]}-{fact.topic_id}"
                yield StoredTopic(name=fact.name, retention_ms=fact.retention_ms, folder=folder)

    def _is_next(self, fact: TopicFact, link: StoreLink) -> bool:
        if fact.state != "enabled":
            return False
        try:
            return self._targets.endpoint(fact.name, 0).store == link.name
        except RemoteStorageError:
            return False

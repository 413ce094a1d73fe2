"""Which store this cluster's segments go to, and whether the plugin still serves that one (H11).

The first service of a cluster creates the store's identity object, once; the settings remember it.
From then on a store with another identity, or none, is not ours: nothing is copied or trimmed.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from kip405.contracts import RemoteStorageManager, StoreIdentity
from kip405.errors import Invalid, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from rlm.clock import Clock, backoff_ms
from rlmm.fact_log import FactLog
from rlmm.facts import ClusterFact, StoreFact
from rlmm.settings import Settings
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

log = structlog.get_logger()
_BARRIER_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOrigin:
    """What the plugin says of itself, as the StoreFact records it."""

    plugin: str
    uri: str
    prefix: str


DescribeStore = Callable[[], Awaitable[StoreOrigin]]
"""Asks the plugin; Unavailable while it does not answer."""


class StoreLink:
    """Finds or founds the default store; `problem` says why there is none yet."""

    def __init__(
        self,
        *,
        store: RemoteStorageManager,
        describe: DescribeStore,
        cluster_id: str,
        settings: Settings,
        facts: FactLog,
        clock: Clock,
        new_uuid: Callable[[], Uuid],
    ) -> None:
        self._store = store
        self._describe = describe
        self._cluster_id = cluster_id
        self._settings = settings
        self._facts = facts
        self._clock = clock
        self._new_uuid = new_uuid
        self.problem: str | None = "the store was not asked yet"

    async def establish(self) -> Uuid:
        """The id of the cluster's default store; waits until it is known, with back-off."""
        attempt = 0
        while True:
            try:
                store_id = await self._once()
            except RemoteStorageError as error:
                self.problem = str(error)
                log.warning("store_not_established", error=str(error))
                await self._clock.sleep_ms(backoff_ms(attempt))
                attempt += 1
            else:
                self.problem = await self._problem_of(store_id)
                return store_id

    async def _once(self) -> Uuid:
        if not self._settings.is_ready:
            raise Unavailable("the settings were not read to their end yet")
        await self._settings.barrier(_BARRIER_MS)
        cluster = self._settings.view.cluster
        if cluster is not None and cluster.cluster_id != self._cluster_id:
            raise Invalid(f"the settings topic belongs to cluster {cluster.cluster_id}")
        if cluster is not None and cluster.default_store_id is not None:
            return cluster.default_store_id
        if cluster is None:
            await self._publish_cluster(None)
        origin = await self._describe()
        identity = await self._found(origin.uri)
        await self._settings.barrier(_BARRIER_MS)
        self._refuse_second_store(identity.store_id, origin.uri)
        await self._settings.publish(
            StoreFact(
                store_id=identity.store_id,
                plugin=origin.plugin,
                uri=origin.uri,
                prefix=origin.prefix,
            )
        )
        await self._publish_cluster(identity.store_id)
        log.info("store_established", store_id=str(identity.store_id), uri=origin.uri)
        return identity.store_id

    async def _publish_cluster(self, store_id: Uuid | None) -> None:
        """From now on the ledger is never made anew (H6)."""
        ids = self._facts.topic_ids
        await self._settings.publish(
            ClusterFact(
                cluster_id=self._cluster_id,
                ledger_topic_id=ids[LEDGER_TOPIC],
                settings_topic_id=ids[SETTINGS_TOPIC],
                default_store_id=store_id,
            )
        )

    async def _found(self, uri: str) -> StoreIdentity:
        """The identity object, created if the store has none; Invalid for another cluster's."""
        identity = await self._store.read_identity()
        if identity is None:
            self._refuse_second_store(None, uri)
            identity = await self._store.create_identity(
                StoreIdentity(
                    store_id=self._new_uuid(),
                    cluster_id=self._cluster_id,
                    created_ms=self._clock.now_ms(),
                )
            )
        if identity.cluster_id != self._cluster_id:
            raise Invalid(
                f"the store at {uri} belongs to cluster {identity.cluster_id}, "
                f"not to {self._cluster_id}; give this cluster a prefix of its own"
            )
        return identity

    def _refuse_second_store(self, store_id: Uuid | None, uri: str) -> None:
        """Invalid where the cluster knows a store already and this is another (or an empty one)."""
        known = [str(fact.store_id) for fact in self._settings.view.stores()]
        if known and str(store_id) not in known:
            raise Invalid(
                f"the plugin's store at {uri} is {store_id or 'empty'}, "
                f"this cluster's is {', '.join(known)}: point the plugin at that one"
            )

    async def watch(self, store_id: Uuid, interval_ms: int) -> None:
        """Look again and again whether the plugin serves that store; a log line per change."""
        while True:
            problem = await self._problem_of(store_id)
            if problem != self.problem:
                log.warning("store_changed", problem=problem or "none")
            self.problem = problem
            await self._clock.sleep_ms(interval_ms)

    async def _problem_of(self, store_id: Uuid) -> str | None:
        try:
            identity = await self._store.read_identity()
        except RemoteStorageError as error:
            return str(error)
        if identity is None:
            return f"the store has no identity, {store_id} was expected"
        if identity.store_id != store_id:
            return f"the plugin serves store {identity.store_id}, {store_id} was expected"
        return None

"""Connects to one configured store, and checks that its plugin still serves this same store (H11).

The first service that meets an empty store creates its identity object, once. The settings topic
records the store and the name that the configuration gives it. A name refers to one store
permanently: a store with another identity, or with none, is foreign, and nothing is copied or
trimmed there.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol

import structlog

from kip405.contracts import RemoteStorageManager, StoreAdmin, StoreIdentity
from kip405.errors import Invalid, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.segments import Layout
from rlm.clock import Clock, backoff_ms
from rlmm.settings_records import ClusterRecord, SettingsRecord, StoreRecord
from rlmm.settings_view import SettingsView
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

log = structlog.get_logger()
_BARRIER_MS = 10_000
_MOST_BACKOFF_MS = 1_000
_UNNAMED = "default"
"""The name of stores that were recorded before they had names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOrigin:
    """The plugin's description of its store, as the StoreRecord records it."""

    plugin: str
    uri: str
    prefix: str


DescribeStore = Callable[[], Awaitable[StoreOrigin]]
"""Asks the plugin; Unavailable while it does not answer."""
AskLayouts = Callable[[], Awaitable[frozenset[Layout]]]
"""The layouts that the plugin copies and reads; Unavailable while it does not answer."""
PluginProblem = Callable[[], str | None]
"""Why the plugin's process does not run, where it is ours; None = it does."""


class Settings(Protocol):
    """The settings topic (rlmm.settings.Settings)."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def view(self) -> SettingsView: ...

    async def barrier(self, deadline_ms: int) -> None: ...

    async def publish(self, record: SettingsRecord) -> None: ...


class Topics(Protocol):
    """Our own two topics (rlmm.metadata_log.MetadataLog)."""

    @property
    def topic_ids(self) -> Mapping[str, Uuid]: ...

    async def wait_ready(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Records which name refers to which store: the settings of one cluster.

    With `may_write` False, only what the settings already know counts: no store is founded and
    nothing is recorded.
    """

    cluster_id: str
    settings: Settings
    metadata: Topics
    clock: Clock
    new_uuid: Callable[[], Uuid]
    may_write: bool = True


def store_called(name: str, records: Iterable[StoreRecord]) -> StoreRecord | None:
    """The store that a name refers to; None = no store yet."""
    found = [record for record in records if name in (record.names or (_UNNAMED,))]
    return min(found, key=lambda record: str(record.store_id), default=None)


class Connection(Protocol):
    """The connection to one configured store; see StoreConnection."""

    @property
    def name(self) -> str: ...

    @property
    def store(self) -> RemoteStorageManager: ...

    @property
    def store_id(self) -> Uuid | None: ...

    @property
    def is_other(self) -> bool: ...

    @property
    def problem(self) -> str | None: ...

    @property
    def layouts(self) -> frozenset[Layout] | None:
        """Those that its plugin copies and reads; None = it was not asked yet."""
        ...

    @property
    def record(self) -> StoreRecord | None: ...

    async def run(self, interval_ms: int) -> None: ...


class StoreConnection:
    """Finds or founds one store; `problem` says why there is none, or what is wrong with it.

    `is_first`: the settings of the cluster call this store the default one. `is_other`: the plugin
    serves another store than the one recorded under this name, so none of its bytes may be used.
    """

    def __init__(
        self,
        name: str,
        store: RemoteStorageManager,
        *,
        describe: DescribeStore,
        ask_layouts: AskLayouts,
        memory: Memory,
        is_first: bool = True,
        plugin_problem: PluginProblem = lambda: None,
    ) -> None:
        self.name = name
        self.store = store
        self.store_id: Uuid | None = None
        self.is_other = False
        self._problem: str | None = "the store was not asked yet"
        self._plugin_problem = plugin_problem
        self._describe = describe
        self.layouts: frozenset[Layout] | None = None
        self._ask_layouts = ask_layouts
        self._memory = memory
        self._is_first = is_first
        self._is_recorded = not memory.may_write

    @property
    def problem(self) -> str | None:
        """The problem of the plugin's process comes first, because it explains why no answer
        comes.
        """
        return self._plugin_problem() or self._problem

    @property
    def record(self) -> StoreRecord | None:
        """The settings record of the store."""
        view = self._memory.settings.view
        return None if self.store_id is None else view.store(self.store_id)

    async def run(self, interval_ms: int) -> None:
        """Find the store, then check at intervals that the plugin still serves it."""
        await self.establish()
        await self.watch(interval_ms)

    async def establish(self) -> Uuid:
        """The store's id; waits until it is known, with back-off.

        If the settings know the id, the plugin is not asked, because it may be away.
        """
        if not self._memory.settings.is_ready:
            self._problem = "the settings were not read to their end yet"
            await self._memory.metadata.wait_ready()
        attempt = 0
        while True:
            try:
                self.store_id = await self._once()
            except RemoteStorageError as error:
                self._problem = str(error)
                await self._memory.clock.sleep_ms(backoff_ms(attempt, most_ms=_MOST_BACKOFF_MS))
                attempt += 1
            else:
                await self._check()
                return self.store_id

    async def watch(self, interval_ms: int) -> None:
        """Check every `interval_ms` whether the plugin serves that store, and with back-off as long
        as it does not: a plugin that starts is noticed within a second.
        """
        failures = 0
        while True:
            await self._check()
            if self._problem is None:
                failures = 0
                await self._memory.clock.sleep_ms(interval_ms)
            else:
                wait_ms = backoff_ms(failures, most_ms=_MOST_BACKOFF_MS)
                failures += 1
                await self._memory.clock.sleep_ms(min(wait_ms, interval_ms))

    async def _check(self) -> None:
        if self.store_id is None:
            return
        try:
            other = await identity_problem(self.store, self.store_id, self._memory.cluster_id)
            self.is_other = other is not None
            self._problem = None if other is None else self._in_words(other)
            self.layouts = await self._ask_layouts()
            if other is None and not self._is_recorded:
                await self._record(self.store_id, await self._describe())
        except RemoteStorageError as error:
            self._problem = str(error)

    def _in_words(self, other: str) -> str:
        location = f" at {self.record.uri}" if self.record else ""
        return (
            f"{other}; {self.name!r} is the name of that one{location}: bring it back, or give "
            "another store a new name"
        )

    async def _once(self) -> Uuid:
        settings, cluster_id = self._memory.settings, self._memory.cluster_id
        await settings.barrier(_BARRIER_MS)
        cluster = settings.view.cluster
        if cluster is not None and cluster.cluster_id != cluster_id:
            raise Invalid(f"the settings topic belongs to cluster {cluster.cluster_id}")
        if cluster is None:
            if not (self._is_first and self._memory.may_write):
                raise Unavailable("the settings do not know the cluster yet")
            await self._publish_cluster()
        store_id = self._known()
        if not self._memory.may_write:
            return store_id or self._not_known()
        store_id = store_id or await self._found()
        cluster = settings.view.cluster
        if self._is_first and cluster is not None and cluster.default_store_id != store_id:
            await settings.publish(replace(cluster, default_store_id=store_id))
        return store_id

    def _not_known(self) -> NoReturn:
        raise Unavailable(
            f"the settings know no store called {self.name!r} (yet): a broker's service that is "
            "configured for it makes it known"
        )

    def _known(self) -> Uuid | None:
        """The store that the settings know under this name."""
        found = store_called(self.name, self._memory.settings.view.stores())
        return None if found is None else found.store_id

    async def _found(self) -> Uuid:
        """The store that the plugin serves, recorded under this name; founded if it is empty.

        Invalid for another cluster's, for one that lost its identity, and where the name was given
        to another store meanwhile.
        """
        origin = await self._describe()
        identity = await self.store.read_identity()
        if identity is None:
            self._refuse_lost(origin.uri)
            identity = await self.store.create_identity(
                StoreIdentity(
                    store_id=self._memory.new_uuid(),
                    cluster_id=self._memory.cluster_id,
                    created_ms=self._memory.clock.now_ms(),
                )
            )
        if identity.cluster_id != self._memory.cluster_id:
            text = foreign_store_text(origin.uri, identity, self._memory.cluster_id)
            raise Invalid(f"{text}; {FOREIGN_STORE_REMEDY}")
        await self._memory.settings.barrier(_BARRIER_MS)
        known = self._known()
        if known is not None and known != identity.store_id:
            raise Invalid(
                f"the plugin's store at {origin.uri} is {identity.store_id}, this cluster calls "
                f"{known} {self.name!r}: point the plugin at that one, or give this a new name"
            )
        await self._record(identity.store_id, origin)
        log.info(
            "store_established",
            store=self.name,
            store_id=str(identity.store_id),
            uri=origin.uri,
        )
        return identity.store_id

    def _refuse_lost(self, uri: str) -> None:
        for record in self._memory.settings.view.stores():
            if record.uri == uri:
                raise Invalid(
                    f"the store at {uri} is empty, this cluster knows it as {record.store_id}: "
                    "bring it back; it is not founded a second time"
                )

    async def _record(self, store_id: Uuid, origin: StoreOrigin) -> None:
        """Record the store's location and name, if the record changes."""
        known = self._memory.settings.view.store(store_id)
        names = (known.names or (_UNNAMED,)) if known else ()
        record = StoreRecord(
            store_id=store_id,
            plugin=origin.plugin,
            uri=origin.uri,
            prefix=origin.prefix,
            names=tuple(sorted({*names, self.name})),
        )
        if known is None or record != replace(known, extra={}):
            await self._memory.settings.publish(record)
        self._is_recorded = True

    async def _publish_cluster(self) -> None:
        """After this record the ledger is never created again; another ledger than the one it names
        is rebuilt by an operator only (H6).
        """
        ids = self._memory.metadata.topic_ids
        await self._memory.settings.publish(
            ClusterRecord(
                cluster_id=self._memory.cluster_id,
                ledger_topic_id=ids[LEDGER_TOPIC],
                settings_topic_id=ids[SETTINGS_TOPIC],
                default_store_id=None,
            )
        )


FOREIGN_STORE_REMEDY = "give this cluster a prefix of its own"


def foreign_store_text(uri: str, identity: StoreIdentity, cluster_id: str) -> str:
    """Of a store that the settings do not know yet, and that is another cluster's."""
    return f"the store at {uri} belongs to cluster {identity.cluster_id}, not to {cluster_id}"


async def identity_problem(store: StoreAdmin, store_id: Uuid, cluster_id: str) -> str | None:
    """The reason why a plugin's store is not the expected one, requested now; None = it is."""
    return identity_mismatch(await store.read_identity(), store_id, cluster_id)


def identity_mismatch(found: StoreIdentity | None, store_id: Uuid, cluster_id: str) -> str | None:
    """The same of an identity that was read."""
    if found is None:
        return f"the store has no identity, {store_id} was expected"
    if found.store_id != store_id:
        return f"the plugin serves store {found.store_id}, {store_id} was expected"
    if found.cluster_id != cluster_id:
        return f"store {store_id} belongs to cluster {found.cluster_id}, not to {cluster_id}"
    return None

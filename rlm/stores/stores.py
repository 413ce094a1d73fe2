"""The configured stores of a service: by name, by the uuid in segments, and what is in them.

The provider decides to which store a new segment goes; an old segment records its own store. A
store that is unreachable, or that is not the one recorded under its name, stops only the work that
needs it.

`RoutedReader` reads from all stores. It routes each call by the store that the segment records,
whatever the rules of the configuration say now. A store that no plugin serves is Unavailable, never
NotFound, because its objects may well exist (H11).

`StoresInUse` finds at intervals which stores hold the ledger's segments, how much, and of which
topics. With this, a service reports that its configuration no longer names a store that segments
need, and a store's lifecycle rules are evaluated by the topics that it really holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from kip405.contracts import RemoteStorageManager, SegmentReader
from kip405.crc import ByteBuffer
from kip405.errors import Invalid, Unavailable
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from kip405.segments import (
    ByteRange,
    CustomMetadata,
    FileSlice,
    Layout,
    RemoteLogSegmentState,
    SegmentLocator,
)
from rlm.clock import Clock
from rlm.stores.connection import Connection
from rlm.stores.hedging import HedgeCounts, HedgedReads
from rlmm.ledger import PartitionLedger, SegmentEntry
from rsm_plugins.endpoints import EndpointProvider, StorageEndpoint

NO_STORE = (
    "no store is configured: nothing is tiered; give the service `plugin` and rsm.config.*, "
    "`plugin.address` or `stores` (docs/reference/settings.md) and start it again"
)


_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_STORE_ID = slice(2, 18)
"""Where the envelope of custom metadata has the store uuid (kip405.segments)."""
_YIELD_EVERY = 64
_LEDGER_POLL_MS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTarget:
    """Where the next segment of a partition goes, as its custom metadata records it."""

    store_id: Uuid
    entropy_bits: int = 0
    layout: Layout = Layout.KAFKA


class Stores:
    """Implements rlm.remote_log.ports.Stores; the creator of the managers closes them."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self.connections = tuple(connections)

    def by_name(self, name: str) -> Connection:
        """Invalid where the configuration has no such store."""
        for connection in self.connections:
            if connection.name == name:
                return connection
        if not self.connections:
            raise Invalid(NO_STORE)
        names = ", ".join(connection.name for connection in self.connections)
        raise Invalid(f"there is no store {name!r} in the configuration, but {names}")

    def by_id(self, store_id: Uuid) -> Connection:
        """Unavailable where no configured store is that one (as far as is known now)."""
        for connection in self.connections:
            if connection.store_id == store_id:
                return connection
        unknown = [
            connection.name for connection in self.connections if connection.store_id is None
        ]
        hint = f"; not known yet: {', '.join(unknown)}" if unknown else ""
        raise Unavailable(f"store {store_id} is not in this service's configuration{hint}")

    def manager(self, store_id: Uuid) -> RemoteStorageManager:
        """See rlm.remote_log.ports.Stores."""
        return self.by_id(store_id).store

    def trusted(self, store_id: Uuid) -> SegmentReader:
        """The same for readers: Unavailable, too, while the plugin serves another store.

        There a missing object proves nothing (H11).
        """
        connection = self.by_id(store_id)
        if connection.is_other:
            raise Unavailable(f"store {connection.name}: {connection.problem}")
        return connection.store

    def known(self) -> tuple[Uuid, ...]:
        """The configured stores that were found, as the heartbeat reports them. A store whose
        plugin serves another store is left out, because its segments could not be read through that
        plugin.
        """
        found = (connection.store_id for connection in self.connections if not connection.is_other)
        return tuple(dict.fromkeys(store_id for store_id in found if store_id is not None))

    def twins(self) -> list[str]:
        """Names that refer to one and the same store: harmless for data, but surely a mistake."""
        first: dict[Uuid, str] = {}
        twins = []
        for connection in self.connections:
            if connection.store_id is None:
                continue
            name = first.setdefault(connection.store_id, connection.name)
            if name != connection.name:
                both = f"stores {name} and {connection.name}"
                twins.append(f"{both} are one and the same: {connection.store_id}")
        return twins


Chosen = Callable[[Uuid], Layout | None]
"""The layout that a topic has chosen by its id; None = the rules decide."""


class Targets:
    """Implements rlm.remote_log.ports.Targets: the provider's choice, as a known store; a layout
    that the topic itself has chosen comes first.
    """

    def __init__(
        self, provider: EndpointProvider, stores: Stores, cluster_id: str, chosen: Chosen
    ) -> None:
        self._provider = provider
        self._stores = stores
        self._cluster_id = cluster_id
        self._chosen = chosen

    def endpoint(self, topic: str, partition: int) -> StorageEndpoint:
        """The endpoint of a partition's next segment by the rules; Invalid if it is in no known
        store.
        """
        if not self._stores.connections:
            raise Invalid(NO_STORE)
        found = self._provider.endpoint(self._cluster_id, topic, partition)
        self._stores.by_name(found.store)
        return found

    def target(self, partition: TopicIdPartition) -> CopyTarget:
        """See rlm.remote_log.ports.Targets."""
        endpoint = self.endpoint(partition.topic, partition.partition)
        connection = self._stores.by_name(endpoint.store)
        if connection.store_id is None:
            raise Unavailable(f"store {connection.name}: {connection.problem}")
        chosen = self._chosen(partition.topic_id)
        layout = endpoint.layout if chosen is None else chosen
        _refuse_layout(connection, layout)
        return CopyTarget(
            store_id=connection.store_id, entropy_bits=endpoint.entropy_bits, layout=layout
        )

    def refuse_untiered(self, topic: str, chosen: Layout | None) -> None:
        """Invalid where a topic could not be tiered as the service is configured, or not in its
        layout; Unavailable as long as this is not known. `chosen`: the topic's own layout.
        """
        endpoint = self.endpoint(topic, 0)
        layout = endpoint.layout if chosen is None else chosen
        _refuse_layout(self._stores.by_name(endpoint.store), layout)


def _refuse_layout(connection: Connection, layout: Layout) -> None:
    """Invalid where the store's plugin does not write segments of that layout."""
    if layout is Layout.KAFKA:
        return
    if connection.layouts is None:
        raise Unavailable(
            f"store {connection.name}: it is not known yet whether its plugin writes the layout "
            f"{layout}: {connection.problem or 'it was not asked yet'}"
        )
    if layout not in connection.layouts:
        known = ", ".join(str(one) for one in sorted(connection.layouts))
        raise Invalid(
            f"store {connection.name}: its plugin does not write the layout {layout}, but {known}"
        )


class RoutedReader:
    """Reads each segment from the store that its metadata names; implements SegmentReader.

    `hedged_percent`: of the reads of a store, at most so many are asked for twice.
    """

    def __init__(self, stores: Stores, clock: Clock, hedged_percent: float) -> None:
        self._stores = stores
        self._clock = clock
        self._hedged_percent = hedged_percent
        self._hedged: dict[Uuid, HedgedReads] = {}
        self.hedges = HedgeCounts()

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> ByteBuffer | FileSlice:
        """See SegmentReader."""
        store_id = _store_id_of(locator)
        store = self._stores.trusted(store_id)
        ask = partial(store.fetch_log_segment, locator, byte_range)
        return await self._reads_of(store_id).read(byte_range.size_bytes, ask)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """See SegmentReader."""
        store_id = _store_id_of(locator)
        store = self._stores.trusted(store_id)
        return await self._reads_of(store_id).read(0, partial(store.fetch_indexes, locator))

    def _reads_of(self, store_id: Uuid) -> HedgedReads:
        if store_id not in self._hedged:
            self._hedged[store_id] = HedgedReads(self._clock, self.hedges, self._hedged_percent)
        return self._hedged[store_id]


def _store_id_of(locator: SegmentLocator) -> Uuid:
    """The id of the store that a locator names; Invalid if it names none."""
    if locator.custom_metadata is None:
        raise Invalid(f"segment {locator.segment_id} does not say in which store it lies")
    try:
        return CustomMetadata.decode(locator.custom_metadata).store_id
    except ValueError as error:
        raise Invalid(f"segment {locator.segment_id}: {error}") from error


class Ledger(Protocol):
    """The manager of rlmm."""

    @property
    def is_ready(self) -> bool: ...

    def partitions(self) -> tuple[PartitionKey, ...]: ...

    def ledger(self, key: PartitionKey) -> PartitionLedger: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUsage:
    """`segments` and `size_bytes` count FINISHED ones; `topics` are all that need the store."""

    segments: int = 0
    size_bytes: int = 0
    topics: frozenset[Uuid] = frozenset()

    def __add__(self, other: "StoreUsage") -> "StoreUsage":
        return StoreUsage(
            segments=self.segments + other.segments,
            size_bytes=self.size_bytes + other.size_bytes,
            topics=self.topics | other.topics,
        )


@dataclass(kw_only=True)
class _Known:
    """The result for one version of a partition's view."""

    version: int
    usage: Mapping[Uuid, StoreUsage] = field(default_factory=dict)


class StoresInUse:
    """`by_store` holds the last result; it is empty before the ledger was read."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self.by_store: Mapping[Uuid, StoreUsage] = {}
        self._ledger = ledger
        self._clock = clock
        self._known: dict[PartitionKey, _Known] = {}

    async def run(self, interval_ms: int) -> None:
        """Run until cancelled; begins once the ledger is read."""
        while True:
            is_ready = self._ledger.is_ready
            if is_ready:
                await self.refresh()
            await self._clock.sleep_ms(
                interval_ms if is_ready else min(interval_ms, _LEDGER_POLL_MS)
            )

    async def refresh(self) -> None:
        """Count again the partitions that changed; yields to other tasks in between."""
        total: dict[Uuid, StoreUsage] = {}
        keys = self._ledger.partitions()
        for number, key in enumerate(keys):
            for store_id, usage in self._of(key).items():
                total[store_id] = total.get(store_id, StoreUsage()) + usage
            if number % _YIELD_EVERY == 0:
                await self._clock.sleep_ms(0)
        self._known = {key: self._known[key] for key in keys if key in self._known}
        self.by_store = total

    def _of(self, key: PartitionKey) -> Mapping[Uuid, StoreUsage]:
        view = self._ledger.ledger(key)
        known = self._known.get(key)
        if known is None or known.version != view.version:
            usage = _usage(key.topic_id, view)
            known = self._known[key] = _Known(version=view.version, usage=usage)
        return known.usage


def _usage(topic_id: Uuid, view: PartitionLedger) -> dict[Uuid, StoreUsage]:
    counted: dict[bytes, tuple[int, int]] = {}
    for entry in view.entries.values():
        custom = entry.metadata.custom_metadata
        if custom is None or entry.state is _DELETED:
            continue
        segments, size_bytes = counted.get(custom[_STORE_ID], (0, 0))
        counted[custom[_STORE_ID]] = (
            segments + (entry.state is _FINISHED),
            size_bytes + _finished_bytes(entry),
        )
    return {
        Uuid(raw): StoreUsage(segments=many, size_bytes=size, topics=frozenset((topic_id,)))
        for raw, (many, size) in counted.items()
    }


def _finished_bytes(entry: SegmentEntry) -> int:
    return entry.metadata.segment_size_bytes if entry.state is _FINISHED else 0

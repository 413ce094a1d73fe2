"""The configured stores of a service: by name, by the uuid in segments, and their problems.

The provider decides to which store a new segment goes; an old segment records its own store. A
store that is unreachable, or that is not the one recorded under its name, stops only the work that
needs it.

`RoutedReader` reads from all stores. It routes each call by the store that the segment records,
whatever the rules of the configuration say now. A store that nobody serves is Unavailable, never
NotFound, because its objects may well exist (H11).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kip405.contracts import RemoteStorageManager, SegmentReader
from kip405.errors import Invalid, Unavailable
from kip405.ids import TopicIdPartition, Uuid
from kip405.segments import ByteRange, CustomMetadata, FileSlice, SegmentLocator
from rlm.stores.connection import StoreConnection
from rsm_plugins.endpoints import EndpointProvider, StorageEndpoint

NO_STORE = (
    "no store is configured: nothing is tiered; give the service `plugin` and rsm.config.*, "
    "`plugin.address` or `stores` (docs/reference/settings.md) and start it again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTarget:
    """Where the next segment of a partition goes, as its custom metadata records it."""

    store_id: Uuid
    entropy_bits: int = 0


class Stores:
    """Implements rlm.remote_log.ports.Stores; the creator of the managers closes them."""

    def __init__(self, links: Sequence[StoreConnection]) -> None:
        self.links = tuple(links)

    def by_name(self, name: str) -> StoreConnection:
        """Invalid where the configuration has no such store."""
        for link in self.links:
            if link.name == name:
                return link
        if not self.links:
            raise Invalid(NO_STORE)
        names = ", ".join(link.name for link in self.links)
        raise Invalid(f"there is no store {name!r} in the configuration, but {names}")

    def by_id(self, store_id: Uuid) -> StoreConnection:
        """Unavailable where no configured store is that one (as far as is known now)."""
        for link in self.links:
            if link.store_id == store_id:
                return link
        open_ends = [link.name for link in self.links if link.store_id is None]
        hint = f"; not known yet: {', '.join(open_ends)}" if open_ends else ""
        raise Unavailable(f"store {store_id} is not in this service's configuration{hint}")

    def manager(self, store_id: Uuid) -> RemoteStorageManager:
        """See rlm.remote_log.ports.Stores."""
        return self.by_id(store_id).store

    def trusted(self, store_id: Uuid) -> SegmentReader:
        """The same for readers: Unavailable, too, while the plugin serves another store.

        There a missing object proves nothing (H11).
        """
        link = self.by_id(store_id)
        if link.is_other:
            raise Unavailable(f"store {link.name}: {link.problem}")
        return link.store

    def known(self) -> tuple[Uuid, ...]:
        """The configured stores that were found, as the heartbeat says; not those whose plugin
        serves another one: what lies there could not be read through it.
        """
        found = (link.store_id for link in self.links if not link.is_other)
        return tuple(dict.fromkeys(store_id for store_id in found if store_id is not None))

    def twins(self) -> list[str]:
        """Names of one and the same store: harmless for data, and surely not what was meant."""
        first: dict[Uuid, str] = {}
        twins = []
        for link in self.links:
            if link.store_id is None:
                continue
            name = first.setdefault(link.store_id, link.name)
            if name != link.name:
                twins.append(f"stores {name} and {link.name} are one and the same: {link.store_id}")
        return twins


class Targets:
    """Implements rlm.remote_log.ports.Targets: the provider's choice, as a known store."""

    def __init__(self, provider: EndpointProvider, stores: Stores, cluster_id: str) -> None:
        self._provider = provider
        self._stores = stores
        self._cluster_id = cluster_id

    def endpoint(self, topic: str, partition: int) -> StorageEndpoint:
        """Where the rules send a partition's next segment; Invalid where to no known store."""
        if not self._stores.links:
            raise Invalid(NO_STORE)
        found = self._provider.endpoint(self._cluster_id, topic, partition)
        self._stores.by_name(found.store)
        return found

    def target(self, place: TopicIdPartition) -> CopyTarget:
        """See rlm.remote_log.ports.Targets."""
        endpoint = self.endpoint(place.topic, place.partition)
        link = self._stores.by_name(endpoint.store)
        if link.store_id is None:
            raise Unavailable(f"store {link.name}: {link.problem}")
        return CopyTarget(store_id=link.store_id, entropy_bits=endpoint.entropy_bits)

    def refuse_untiered(self, topic: str) -> None:
        """Invalid where a topic could not be tiered as the service is configured."""
        self.endpoint(topic, 0)


class RoutedReader:
    """Reads each segment from the store that its metadata names; implements SegmentReader."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        """See SegmentReader."""
        return await self._of(locator).fetch_log_segment(locator, byte_range)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """See SegmentReader."""
        return await self._of(locator).fetch_indexes(locator)

    def _of(self, locator: SegmentLocator) -> SegmentReader:
        return self._stores.trusted(_store_id_of(locator))


def _store_id_of(locator: SegmentLocator) -> Uuid:
    """The store a locator leads to; Invalid where it does not say."""
    if locator.custom_metadata is None:
        raise Invalid(f"segment {locator.segment_id} does not say in which store it lies")
    try:
        return CustomMetadata.decode(locator.custom_metadata).store_id
    except ValueError as error:
        raise Invalid(f"segment {locator.segment_id}: {error}") from error

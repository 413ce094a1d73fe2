"""The configured stores of a service: by name, by the uuid that segments record, their troubles.

Which store a new segment goes to is the provider's word; where an old one lies is the segment's
own. A store that is away, or another than its name stands for, stops only what needs it.
"""

from collections.abc import Sequence

from kip405.contracts import RemoteStorageManager
from kip405.errors import Invalid, Unavailable
from kip405.ids import TopicIdPartition, Uuid
from rlm.lanes.ports import CopyTarget
from rlm.stores.link import StoreLink
from rsm_plugins.endpoints import EndpointProvider, StorageEndpoint

NO_STORE = (
    "no store is configured: nothing is tiered; give the service `plugin` and rsm.config.*, "
    "`plugin.address` or `stores` (docs/reference/settings.md) and start it again"
)


class Stores:
    """Implements rlm.lanes.ports.Stores; the managers are closed by who made them."""

    def __init__(self, links: Sequence[StoreLink]) -> None:
        self.links = tuple(links)

    def by_name(self, name: str) -> StoreLink:
        """Invalid where the configuration has no such store."""
        for link in self.links:
            if link.name == name:
                return link
        if not self.links:
            raise Invalid(NO_STORE)
        names = ", ".join(link.name for link in self.links)
        raise Invalid(f"there is no store {name!r} in the configuration, but {names}")

    def by_id(self, store_id: Uuid) -> StoreLink:
        """Unavailable where no configured store is that one (as far as is known now)."""
        for link in self.links:
            if link.store_id == store_id:
                return link
        open_ends = [link.name for link in self.links if link.store_id is None]
        hint = f"; not known yet: {', '.join(open_ends)}" if open_ends else ""
        raise Unavailable(f"store {store_id} is not in this service's configuration{hint}")

    def manager(self, store_id: Uuid) -> RemoteStorageManager:
        """See rlm.lanes.ports.Stores."""
        return self.by_id(store_id).store

    def trusted(self, store_id: Uuid) -> RemoteStorageManager:
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
    """Implements rlm.lanes.ports.Targets: the provider's word, as a store that is known."""

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
        """See rlm.lanes.ports.Targets."""
        endpoint = self.endpoint(place.topic, place.partition)
        link = self._stores.by_name(endpoint.store)
        if link.store_id is None:
            raise Unavailable(f"store {link.name}: {link.problem}")
        return CopyTarget(store_id=link.store_id, entropy_bits=endpoint.entropy_bits)

    def refuse_untiered(self, topic: str) -> None:
        """Invalid where a topic could not be tiered as the service is configured."""
        self.endpoint(topic, 0)

"""Finds objects in the stores that the ledger does not list (H6, H12).

The objects are listed first; the caller takes a snapshot, with its barrier, and only then asks what
is still not listed. A copy publishes COPY_SEGMENT_STARTED before its first object, so objects of a
copy under way are never among them. What the second listing does not have any more was deleted
meanwhile. Nothing is deleted or published here.

That a record was never stored, or is not stored any more, is proven only by all stores that were
ever used. One that is not configured here any more, or whose plugin did not start yet, may have it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kip405.errors import Invalid, RemoteStorageError
from kip405.ids import TopicIdPartition, Uuid
from rlm.plans.verification import UnlistedSegment
from rlm.remote_log.ports import Ledger, Stores
from rlm.stores.connection import identity_problem
from rlmm.settings_view import SettingsView
from rsm_plugins.layout.keys import ObjectKind, parse_name


@dataclass(slots=True, kw_only=True)
class Listing:
    """`segments` that the ledger did not list then, and why stores could not be listed."""

    segments: dict[Uuid, UnlistedSegment] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def stores_ever_used(view: SettingsView, known: Collection[Uuid]) -> tuple[Uuid, ...]:
    """All that the settings know, and those of this service that are `known` by now. A store is on
    record there before anything is copied to it.
    """
    return tuple(dict.fromkeys((*(one.store_id for one in view.stores()), *known)))


class UnlistedSegments:
    """`store_ids`: which stores are listed; one that this service does not have is an error."""

    def __init__(
        self,
        *,
        stores: Stores,
        store_ids: Callable[[], Collection[Uuid]],
        ledger: Ledger,
        cluster_id: str,
    ) -> None:
        self._stores = stores
        self._store_ids = store_ids
        self._ledger = ledger
        self._cluster_id = cluster_id

    async def listing(self, partition: TopicIdPartition, without: Collection[Uuid] = ()) -> Listing:
        """The partition's objects as they are in all stores now, but for some."""
        found = Listing()
        for store_id in (one for one in self._store_ids() if one not in without):
            try:
                await self._list(store_id, partition, found)
            except RemoteStorageError as error:
                found.errors.append(f"the objects in store {store_id} were not listed: {error}")
        return found

    async def confirmed(
        self, partition: TopicIdPartition, before: Listing, without: Collection[Uuid] = ()
    ) -> tuple[UnlistedSegment, ...]:
        """Those that are still there, and still not listed; call it after a barrier."""
        if not before.segments:
            return ()
        again = await self.listing(partition, without)
        before.errors += again.errors
        return tuple(
            segment
            for segment_id, segment in again.segments.items()
            if segment_id in before.segments
        )

    async def _list(self, store_id: Uuid, partition: TopicIdPartition, found: Listing) -> None:
        manager = self._stores.manager(store_id)
        problem = await identity_problem(manager, store_id, self._cluster_id)
        if problem is not None:
            raise Invalid(problem)
        entries = self._ledger.ledger(partition.key).entries
        async for stored in manager.list_objects(self._cluster_id, partition):
            name = parse_name(stored.name)
            if name.segment_id in entries or (name.topic_id, name.partition) != partition.key:
                continue
            known = found.segments.get(name.segment_id)
            is_manifest = name.kind is ObjectKind.MANIFEST
            found.segments[name.segment_id] = UnlistedSegment(
                segment_id=name.segment_id,
                start_offset=name.start_offset,
                objects_stem=stored.name.removesuffix(f".{name.kind.value}"),
                has_manifest=is_manifest or (known is not None and known.has_manifest),
                size_bytes=stored.size_bytes + (known.size_bytes if known else 0),
            )

"""Says in our store where the import of a partition stopped, so that no reader takes it for an end.

    a stop at the end of what was there -> new segments -> a stop where that has ended, if it is not
    the end of all -> the first stop is removed, last

So an import that is killed leaves its stop, and a listing in the order of names that no longer has
the first stop has all that was written before it was removed.
"""

from collections.abc import Iterable, Sequence

from kip405.ids import TopicIdPartition
from kip405.segments import SegmentLocator
from rlm.tasks.store_survey import UnusableManifest
from rsm_plugins.layout.import_stops import ImportStop, encode_stop, stop_locator
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager

UNDER_WAY = "an import is under way here, or was interrupted: let it end, or begin it again"


class PartitionStops:
    """The stops of one partition; `known`: those that are there."""

    def __init__(
        self,
        store: ImportingRemoteStorageManager,
        cluster_id: str,
        partition: TopicIdPartition,
        known: Iterable[UnusableManifest],
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._partition = partition
        self._there: list[SegmentLocator] = [
            stop_locator(cluster_id, partition, one.segment_id, one.start_offset) for one in known
        ]

    async def begin(self, start_offset: int) -> None:
        """What follows is being imported."""
        await self._add(start_offset, UNDER_WAY)

    async def end(self, start_offset: int, why: str | None) -> None:
        """All that will be imported now is there; `why`: what stopped it, None = it is whole."""
        before = tuple(self._there)
        kept = None if why is None else await self._add(start_offset, why)
        await self._remove([one for one in before if one != kept])

    async def _add(self, start_offset: int, why: str) -> SegmentLocator:
        stop = ImportStop(partition=self._partition, start_offset=start_offset, why=why)
        locator = stop.locator(self._cluster_id)
        if locator not in self._there:
            await self._store.write_manifest(locator, encode_stop(stop))
            self._there.append(locator)
        return locator

    async def _remove(self, stops: Sequence[SegmentLocator]) -> None:
        for one in stops:
            await self._store.delete_log_segment_data(one)
            self._there.remove(one)

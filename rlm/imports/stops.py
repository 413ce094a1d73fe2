"""Says in our store where the import of a partition stopped, so that no reader takes it for an end.

    a stop at the end of what was there -> new segments -> a stop where that has ended, if it is not
    the end of all -> the first stop is removed, last

So an import that is killed leaves its stop, and whoever sees no stop in a listing that is settled
(rlm/tasks/settled_listing.py) has all that was written before one was removed.

Two imports of one partition may run at once. Each has stops of its own, and removes besides them
only those that it saw before it listed their bucket: what their imports had to import, and still
have not, is in its own listing too. So a stop goes only when all that it stands for is there.
"""

from collections.abc import Iterable, Sequence

from kip405.ids import TopicIdPartition, Uuid
from kip405.segments import SegmentLocator
from rlm.tasks.store_survey import UnusableManifest
from rsm_plugins.layout.import_stops import ImportStop, encode_stop, stop_locator
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager

UNDER_WAY = "an import is under way here, or was interrupted: let it end, or begin it again"


class PartitionStops:
    """What one import says of one partition; `known`: the stops that it has seen there."""

    def __init__(
        self,
        store: ImportingRemoteStorageManager,
        cluster_id: str,
        import_id: Uuid,
        partition: TopicIdPartition,
        known: Iterable[UnusableManifest],
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._import_id = import_id
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
        if why is not None:
            await self._add(start_offset, why)
        await self._remove(before)

    async def _add(self, start_offset: int, why: str) -> SegmentLocator:
        stop = ImportStop(partition=self._partition, start_offset=start_offset, why=why)
        locator = stop.locator(self._cluster_id, self._import_id)
        await self._store.write_manifest(locator, encode_stop(stop))
        self._there.append(locator)
        return locator

    async def _remove(self, stops: Sequence[SegmentLocator]) -> None:
        for one in stops:
            await self._store.delete_log_segment_data(one)
            self._there.remove(one)

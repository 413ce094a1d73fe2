"""Downloads from a store by its manifests only, without any service or cluster."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kip405.contracts import SegmentReader, StoreAdmin
from kip405.errors import Corrupt, Invalid, NotFound
from kip405.ids import TopicIdPartition, Uuid
from kip405.segments import ByteRange, RemoteLogSegmentMetadata
from rlm.download.plan import PartitionPlan, Piece, pieces_of, usable_by_itself
from rlm.remote_log.objects import slice_bytes
from rlmm.framing import decode_value
from rsm_plugins.layout.keys import TOPIC_CUT, ObjectKind, ParsedName, locator_of, parse_name
from rsm_plugins.layout.manifest import Manifest
from rsm_plugins.threads import Threads

_READS_AT_ONCE = 16


class ListedStore(SegmentReader, StoreAdmin, Protocol):
    """A store whose segments are found by listing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    manifest: Manifest
    metadata: RemoteLogSegmentMetadata


class StoreSource:
    """`cluster_id` None = the store's own; `topic_id` decides where a name was used twice."""

    def __init__(
        self,
        store: ListedStore,
        *,
        threads: Threads,
        cluster_id: str | None = None,
        topic_id: Uuid | None = None,
    ) -> None:
        self._store = store
        self._threads = threads
        self._cluster_id = cluster_id
        self._topic_id = topic_id

    async def plans(self, topic: str, partition: int | None) -> Sequence[PartitionPlan]:
        cluster_id = self._cluster_id or await self._own_cluster()
        found = await self._manifests(cluster_id, topic, partition)
        ids = sorted({known.manifest.topic_id for known in found})
        if not ids:
            number = "" if partition is None else f"-{partition}"
            raise NotFound(f"the store has no manifest of {topic}{number} of cluster {cluster_id}")
        if len(ids) > 1:
            names = ", ".join(map(str, ids))
            raise Invalid(f"{topic} is the name of several topics: choose a --topic-id of {names}")
        numbers = sorted({known.manifest.partition for known in found})
        return [
            _plan(cluster_id, [known for known in found if known.manifest.partition == number])
            for number in numbers
        ]

    async def read_indexes(self, plan: PartitionPlan, piece: Piece) -> bytes:
        return await self._store.fetch_indexes(piece.metadata.locator(plan.cluster_id))

    async def read_log(self, plan: PartitionPlan, piece: Piece, wanted: ByteRange) -> bytes:
        locator = piece.metadata.locator(plan.cluster_id)
        found = await self._store.fetch_log_segment(locator, wanted)
        return await slice_bytes(found, self._threads)

    async def _own_cluster(self) -> str:
        identity = await self._store.read_identity()
        if identity is None:
            raise Invalid("the store has no rlm-store.json: say whose data with --cluster-id")
        return identity.cluster_id

    async def _manifests(
        self, cluster_id: str, topic: str, partition: int | None
    ) -> Sequence[_Known]:
        names = [
            (stored.name, parsed)
            async for stored in self._store.list_objects(cluster_id)
            if (parsed := _manifest_name(stored.name)) is not None
            and parsed.topic_cut == topic[:TOPIC_CUT]
            and partition in (None, parsed.partition)
            and self._topic_id in (None, parsed.topic_id)
        ]
        found: list[_Known] = []
        for at in range(0, len(names), _READS_AT_ONCE):
            some = names[at : at + _READS_AT_ONCE]
            read = await asyncio.gather(*(self._known(*one, topic) for one in some))
            found += [known for known in read if known is not None]
        return found

    async def _known(self, name: str, parsed: ParsedName, topic: str) -> _Known | None:
        """None where the segment was deleted meanwhile, or the cut name is another topic's."""
        try:
            data = await self._store.read_manifest(locator_of(parsed, topic))
        except NotFound:
            return None
        manifest = Manifest.parse(data, name)
        if manifest.topic != topic:
            return None
        return _Known(manifest=manifest, metadata=_metadata(manifest, name))


def _manifest_name(name: str) -> ParsedName | None:
    try:
        parsed = parse_name(name)
    except Invalid:
        return None
    return parsed if parsed.kind is ObjectKind.MANIFEST else None


def _metadata(manifest: Manifest, name: str) -> RemoteLogSegmentMetadata:
    metadata = decode_value(manifest.segment_metadata)
    if metadata.segment_id != manifest.remote_segment_id:
        raise Corrupt(f"{name} carries the metadata of segment {metadata.segment_id}")
    return metadata


def _plan(cluster_id: str, known: Sequence[_Known]) -> PartitionPlan:
    manifest = known[0].manifest
    start = max(one.manifest.remote_log_start_offset for one in known)
    lineage, usable = usable_by_itself(one.metadata for one in known)
    return PartitionPlan(
        cluster_id=cluster_id,
        place=TopicIdPartition(
            topic_id=manifest.topic_id, topic=manifest.topic, partition=manifest.partition
        ),
        remote_log_start_offset=start,
        lineage=lineage,
        pieces=pieces_of(usable, start),
    )

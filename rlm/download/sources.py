"""The two sources of a download: running services, or a store alone.

Of services, that of the partition's leader decides which segments count, and reads their ranges. A
store needs no service and no cluster: its manifests describe all segments, and `store_plans.py`
says which of them count.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from grpc import StatusCode, aio

from kip405.errors import Corrupt, Elsewhere, Fenced, Invalid, NotFound, Unavailable
from kip405.ids import TopicIdPartition, Uuid
from kip405.lineage import Lineage
from kip405.segments import ByteRange, EpochEntry, RemoteLogSegmentMetadata
from rlm.download.plan import PartitionPlan, Piece, pieces_of
from rlm.download.store_plans import StoredPartition, StorePlans
from rlm.remote_log.objects import slice_bytes
from rlm.tasks.settled_listing import (
    MOST_ADDED,
    UNSETTLED,
    Records,
    Relisting,
    above_gaps,
    identity_of,
    manifest_name,
)
from rlm.tasks.store_survey import REPORT_EVERY, SurveyProgress
from rlm.tasks.stored_lineages import ReadableStore
from rlm.v1 import admin_pb2, fetch_pb2
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rlmm.ledger_values import decode_value
from rsm_plugins.contract.client_channel import RenewedChannel
from rsm_plugins.contract.status import error_of_call
from rsm_plugins.contract.tls import Tls
from rsm_plugins.layout.import_stops import (
    ENDED_MEANWHILE,
    ImportStop,
    is_stop_id,
    parse_stop,
)
from rsm_plugins.layout.keys import TOPIC_CUT, ParsedName, locator_of
from rsm_plugins.layout.manifest import Manifest
from rsm_plugins.layout.pinterest import is_marked
from rsm_plugins.threads import Threads

if TYPE_CHECKING:  # the async shapes of the stubs exist only for the type checker
    from rlm.v1.admin_pb2_grpc import AdminServiceAsyncStub
    from rlm.v1.fetch_pb2_grpc import FetchServiceAsyncStub

_OPTIONS = (("grpc.max_receive_message_length", 128 << 20), ("grpc.enable_http_proxy", 0))
_MAX_MOVES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stubs:
    admin: "AdminServiceAsyncStub"
    fetch: "FetchServiceAsyncStub"


def _stubs(channel: aio.Channel) -> _Stubs:
    return _Stubs(admin=AdminServiceStub(channel), fetch=FetchServiceStub(channel))


class ServiceSource:
    """Begins at one service and follows partitions to the services of their leaders; `close` ends
    the channels.
    """

    def __init__(
        self,
        address: str,
        metadata: tuple[tuple[str, str], ...],
        *,
        timeout_s: float,
        tls: Tls | None = None,
    ) -> None:
        self._address = address
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._tls = tls
        self._channels: dict[str, RenewedChannel[_Stubs]] = {}
        self._leaders: dict[int, str] = {}

    async def plans(self, topic: str, partition: int | None) -> Sequence[PartitionPlan]:
        numbers = [partition] if partition is not None else await self._partitions(topic)
        return [await self._plan(topic, number) for number in numbers]

    async def read_indexes(self, plan: PartitionPlan, piece: Piece) -> bytes:
        return await self._read(plan, piece, fetch_pb2.INDEXES, ByteRange(start=0, end=0))

    async def read_log(self, plan: PartitionPlan, piece: Piece, wanted: ByteRange) -> bytes:
        return await self._read(plan, piece, fetch_pb2.LOG, wanted)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def _partitions(self, topic: str) -> Sequence[int]:
        """All partitions of the topic; of a service that has no cluster, those that it knows."""
        stubs = self._stubs(self._address)
        try:
            answer = await stubs.admin.DescribeTopic(
                admin_pb2.DescribeTopicRequest(topic=topic), **self._sent()
            )
        except aio.AioRpcError as error:
            if error.code() is not StatusCode.UNIMPLEMENTED:
                raise error_of_call(error, f"service at {self._address}") from error
        else:
            return range(answer.partitions)
        request = fetch_pb2.DescribeTopicsRequest(topics=[topic])
        try:
            found = await stubs.fetch.DescribeTopics(request, **self._sent())
        except aio.AioRpcError as error:
            raise error_of_call(error, f"service at {self._address}") from error
        return [row.partition for row in found.topics[0].partitions]

    async def _plan(self, topic: str, partition: int) -> PartitionPlan:
        request = fetch_pb2.DescribeRemoteLogRequest(
            topic=fetch_pb2.TopicRef(name=topic), partition=partition
        )
        address = self._address
        for _ in range(_MAX_MOVES):
            try:
                answer = await self._stubs(address).fetch.DescribeRemoteLog(request, **self._sent())
            except aio.AioRpcError as error:
                failed = error_of_call(error, f"service at {address}")
                if not isinstance(failed, Elsewhere) or not failed.leader_address:
                    raise failed from error
                address = failed.leader_address
                continue
            self._leaders[partition] = address
            return plan_of(answer)
        raise Fenced(f"{topic}-{partition}: its leader moved {_MAX_MOVES} times")

    async def _read(
        self, plan: PartitionPlan, piece: Piece, kind: fetch_pb2.ObjectKind, wanted: ByteRange
    ) -> bytes:
        topic_partition = plan.topic_partition
        address = self._leaders.get(topic_partition.partition, self._address)
        request = fetch_pb2.ReadObjectRequest(
            topic=fetch_pb2.TopicRef(topic_id=topic_partition.topic_id.raw),
            partition=topic_partition.partition,
            segment_id=piece.metadata.segment_id.id.raw,
            kind=kind,
            start_position=wanted.start,
            end_position=wanted.end,
        )
        try:
            call = self._stubs(address).fetch.ReadObject(request, **self._sent())
            return b"".join([answer.data async for answer in call])
        except aio.AioRpcError as error:
            raise error_of_call(error, f"service at {address}") from error

    def _stubs(self, address: str) -> _Stubs:
        if address not in self._channels:
            self._channels[address] = RenewedChannel(address, self._tls, _OPTIONS, _stubs)
        return self._channels[address].stubs()

    def _sent(self) -> dict[str, Any]:
        return {"metadata": self._metadata, "timeout": self._timeout_s}


def plan_of(answer: fetch_pb2.RemoteLog) -> PartitionPlan:
    """Invalid where the answer makes no sense."""
    try:
        lineage = Lineage(
            tuple(
                EpochEntry(epoch=row.epoch, start_offset=row.start_offset)
                for row in answer.leader_epochs
            )
        )
        topic_partition = TopicIdPartition(
            topic_id=Uuid(answer.topic_id), topic=answer.topic, partition=answer.partition
        )
    except ValueError as error:
        raise Invalid(f"the service's description of the partition: {error}") from error
    usable = [(decode_value(row.segment_metadata), row.next_offset) for row in answer.segments]
    return PartitionPlan(
        cluster_id=answer.cluster_id,
        topic_partition=topic_partition,
        remote_log_start_offset=answer.remote_log_start_offset,
        lineage=lineage,
        pieces=pieces_of(usable, answer.remote_log_start_offset),
    )


_READS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    manifest: Manifest
    metadata: RemoteLogSegmentMetadata

    @property
    def partition(self) -> TopicIdPartition:
        return self.manifest.remote_segment_id.topic_id_partition


_Stored = dict[TopicIdPartition, list[_Known | ImportStop]]
_Vanished = dict[TopicIdPartition, set[Uuid]]
"""Manifests that had gone when they were to be read."""


class StoreSource:
    """`cluster_id` None = the store's own; `topic_id` decides where a name was used twice.
    `accepted`: partitions, as TOPIC-PARTITION, of which what the segments show is right. `report`
    gets how far the store is listed.
    """

    def __init__(
        self,
        store: ReadableStore,
        *,
        threads: Threads,
        cluster_id: str | None = None,
        topic_id: Uuid | None = None,
        accepted: Collection[str] = (),
        report: Callable[[SurveyProgress], None] = lambda _: None,
    ) -> None:
        self._report = report
        self._accepted = frozenset(accepted)
        self._store = store
        self._threads = threads
        self._cluster_id = cluster_id
        self._topic_id = topic_id

    async def plans(self, topic: str, partition: int | None) -> Sequence[PartitionPlan]:
        cluster_id = self._cluster_id or await self._own_cluster()
        found = await self._manifests(cluster_id, topic, partition)
        ids = sorted({known.partition.topic_id for known in found})
        if not ids:
            number = "" if partition is None else f"-{partition}"
            raise NotFound(f"the store has no manifest of {topic}{number} of cluster {cluster_id}")
        if len(ids) > 1:
            names = ", ".join(map(str, ids))
            raise Invalid(f"{topic} is the name of several topics: choose a --topic-id of {names}")
        numbers = sorted({known.partition.partition for known in found})
        partitions = [_of_partition(number, found) for number in numbers]
        return await StorePlans(self._store, cluster_id, self._accepted).of(partitions)

    async def read_indexes(self, plan: PartitionPlan, piece: Piece) -> bytes:
        return await self._store.fetch_indexes(piece.metadata.locator(plan.cluster_id))

    async def read_log(self, plan: PartitionPlan, piece: Piece, wanted: ByteRange) -> bytes:
        locator = piece.metadata.locator(plan.cluster_id)
        found = await self._store.fetch_log_segment(locator, wanted)
        return await slice_bytes(found, self._threads)

    async def _own_cluster(self) -> str:
        identity = await self._store.read_identity()
        if identity is None:
            raise Invalid("the store has no rlm-store.json: give --cluster-id")
        return identity.cluster_id

    async def _manifests(
        self, cluster_id: str, topic: str, partition: int | None
    ) -> Sequence[_Known | ImportStop]:
        """Unavailable: others go on writing."""
        names: list[tuple[str, ParsedName]] = []
        objects = 0
        async for stored in self._store.list_objects(cluster_id):
            objects += 1
            if objects % REPORT_EVERY == 0:
                self._report(SurveyProgress(objects=objects))
            if (
                (parsed := manifest_name(stored.name)) is not None
                and parsed.topic_cut == topic[:TOPIC_CUT]
                and partition in (None, parsed.partition)
                and self._topic_id in (None, parsed.topic_id)
            ):
                names.append((stored.name, parsed))
        found: _Stored = {}
        vanished: _Vanished = {}
        listed = {identity_of(parsed) for _, parsed in names}
        await self._read_all(names, topic, found, vanished)
        again = Relisting(
            store=self._store,
            cluster_id=cluster_id,
            listed=listed,
            objects=objects,
            report=lambda done, most: self._report(
                SurveyProgress(objects=objects, partitions=most, partitions_listed=done)
            ),
        )
        left, seen = list({**found, **vanished}), set[Uuid]()
        for _ in range(MOST_ADDED):
            imports, with_gaps = _to_list_again(left, found, vanished, seen)
            if not imports and not with_gaps:
                break
            added = {**await again.settling(imports), **await again.once(with_gaps)}
            more = [one for several in added.values() for one in several]
            listed.update(identity_of(parsed) for _, parsed in more)
            await self._read_all(more, topic, found, vanished)
            left = [*with_gaps, *(one for one in imports if one.key in added)]
        for one in chain(*_to_list_again(left, found, vanished, seen)):
            raise Unavailable(f"{one}: {UNSETTLED}: try again")
        return [one for several in found.values() for one in several]

    async def _read_all(
        self,
        names: Sequence[tuple[str, ParsedName]],
        topic: str,
        found: _Stored,
        vanished: _Vanished,
    ) -> None:
        for at in range(0, len(names), _READS_AT_ONCE):
            some = names[at : at + _READS_AT_ONCE]
            read = (self._known(*one, topic, vanished) for one in some)
            for one in await asyncio.gather(*read):
                if one is not None:
                    found.setdefault(one.partition, []).append(one)

    async def _known(
        self, name: str, parsed: ParsedName, topic: str, vanished: _Vanished
    ) -> _Known | ImportStop | None:
        """None where the segment was deleted meanwhile, or the cut name is another topic's.
        Unavailable: an import has ended since the store was listed.
        """
        try:
            data = await self._store.read_manifest(locator_of(parsed, topic))
        except NotFound:
            if is_stop_id(parsed.segment_id):
                raise Unavailable(f"{name}: {ENDED_MEANWHILE}") from None
            partition = TopicIdPartition(
                topic_id=parsed.topic_id, topic=topic, partition=parsed.partition
            )
            vanished.setdefault(partition, set()).add(parsed.segment_id)
            return None
        stop = parse_stop(data, name)
        if stop is not None:
            return stop if stop.partition.topic == topic else None
        manifest = Manifest.parse(data, name)
        if manifest.topic != topic:
            return None
        return _Known(manifest=manifest, metadata=_metadata(manifest, name))


def _to_list_again(
    partitions: Sequence[TopicIdPartition], found: _Stored, vanished: _Vanished, seen: set[Uuid]
) -> tuple[list[TopicIdPartition], list[TopicIdPartition]]:
    """Those that an import writes to, and those with a gap that is new, or with what has vanished,
    as another copy may have taken its place; see rlm/tasks/settled_listing.py. `seen`: the segments
    above gaps, and those that have vanished, so far.
    """
    imports: list[TopicIdPartition] = []
    with_gaps: list[TopicIdPartition] = []
    for partition in partitions:
        there = found.get(partition, [])
        if any(map(_is_of_import, there)):
            imports.append(partition)
            continue
        known = [one for one in there if isinstance(one, _Known)]
        start = max((one.manifest.remote_log_start_offset for one in known), default=0)
        segments = [one.metadata for one in known]
        above = {one.segment_id.id for one in above_gaps(segments, Records(segments), start)}
        above |= vanished.get(partition, set())
        if not above <= seen:
            with_gaps.append(partition)
        seen |= above
    return imports, with_gaps


def _is_of_import(found: _Known | ImportStop) -> bool:
    return isinstance(found, ImportStop) or is_marked(
        found.metadata.locator(found.manifest.cluster_id)
    )


def _metadata(manifest: Manifest, name: str) -> RemoteLogSegmentMetadata:
    metadata = decode_value(manifest.segment_metadata)
    if metadata.segment_id != manifest.remote_segment_id:
        raise Corrupt(f"{name} carries the metadata of segment {metadata.segment_id}")
    return metadata


def _of_partition(number: int, found: Sequence[_Known | ImportStop]) -> StoredPartition:
    here = [one for one in found if one.partition.partition == number]
    known = [one for one in here if isinstance(one, _Known)]
    starts = (one.manifest.remote_log_start_offset for one in known)
    return StoredPartition(
        topic_partition=here[0].partition,
        remote_log_start_offset=max(starts, default=0),
        segments=tuple(one.metadata for one in known),
        stops=tuple(one for one in here if isinstance(one, ImportStop)),
    )

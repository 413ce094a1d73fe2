"""rlm.v1.FetchService: reads over both tiers, positions, segments, and copying now."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from kip405.errors import Fenced, Invalid, NotFound
from kip405.ids import PartitionKey, Uuid
from kip405.segments import ByteRange
from kip405.states import RemoteLogSegmentState
from rlm.api import messages
from rlm.api.calls import Answering, Context, Gate
from rlm.api.peers import Peers
from rlm.api.places import Place, Places
from rlm.api.ports import Broker, CopyNow, Ledger, PartitionStatuses
from rlm.api.reading import PartitionReading, Piece, ReadRequest
from rlm.api.remote_log import RemoteLogs
from rlm.api.status import Elsewhere
from rlm.broker.answers import EARLIEST_TIMESTAMP
from rlm.proxy import positions
from rlm.proxy.tier import Tier, TopicRef
from rlm.topics.ports import Settings
from rlm.v1 import fetch_pb2 as pb
from rlm.v1 import fetch_pb2_grpc

DEFAULT_MAX_BYTES = 1 << 20
MOST_BYTES = 32 << 20
_LEAST_TIMESTAMP = positions.EARLIEST_PENDING_UPLOAD
# What only we can answer; our broker is asked where its log begins instead.
_OURS = (
    positions.EARLIEST_LOCAL,
    positions.LATEST_TIERED,
    positions.EARLIEST_PENDING_UPLOAD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchParts:
    """Collaborators; closed by the one who made them."""

    gate: Gate
    places: Places
    peers: Peers
    reading: PartitionReading
    tier: Tier
    broker: Broker
    settings: Settings
    ledger: Ledger
    statuses: PartitionStatuses
    copy: CopyNow
    remote_logs: RemoteLogs
    barrier_deadline_ms: int


class FetchService(fetch_pb2_grpc.FetchServiceServicer):
    """See proto/rlm/v1/fetch.proto for what each call promises."""

    def __init__(self, parts: FetchParts) -> None:
        self._parts = parts

    async def Fetch(
        self, request: pb.FetchRequest, context: Context
    ) -> AsyncIterator[pb.FetchResponse]:
        async with Answering(self._parts.gate, context, "fetch"):
            place = await self._parts.places.partition(request.topic, request.partition)
            self._require_led(place)
            wanted = _read_request(request)
            try:
                async for piece in self._parts.reading.stream(place, wanted):
                    yield _fetch_response(piece)
            except Fenced as error:
                place = await self._parts.places.partition(request.topic, request.partition)
                self._require_led(place)
                raise Elsewhere(str(error)) from error

    async def ListOffsets(
        self, request: pb.ListOffsetsRequest, context: Context
    ) -> pb.ListOffsetsResponse:
        async with Answering(self._parts.gate, context, "list offsets") as caller:
            if request.timestamp < _LEAST_TIMESTAMP:
                raise Invalid(f"timestamp {request.timestamp}: -6 to -1, or milliseconds")
            place = await self._parts.places.partition(request.topic, request.partition)
            if place.leader != self._parts.peers.node_id:
                return await self._parts.peers.forward(
                    place.leader,
                    caller,
                    lambda stubs, sent, timeout: stubs.fetch.ListOffsets(
                        request, metadata=sent, timeout=timeout
                    ),
                )
            read_committed = request.isolation_level == pb.READ_COMMITTED
            position = await self._position(place, request.timestamp, read_committed)
            return pb.ListOffsetsResponse(
                offset=position.offset,
                timestamp_ms=position.timestamp_ms,
                leader_epoch=position.leader_epoch,
            )

    async def DescribePartition(
        self, request: pb.DescribePartitionRequest, context: Context
    ) -> pb.PartitionDescription:
        async with Answering(self._parts.gate, context, "describe partition") as caller:
            place = await self._parts.places.partition(request.topic, request.partition)
            await self._require_enabled(place.key, place.topic.name)
            if place.leader != self._parts.peers.node_id:
                return await self._parts.peers.forward(
                    place.leader,
                    caller,
                    lambda stubs, sent, timeout: stubs.fetch.DescribePartition(
                        request, metadata=sent, timeout=timeout
                    ),
                )
            return messages.partition_message(await self._parts.statuses.look(place.key))

    async def ListSegments(
        self, request: pb.ListSegmentsRequest, context: Context
    ) -> AsyncIterator[pb.Segment]:
        async with Answering(self._parts.gate, context, "list segments"):
            topic = await self._parts.places.topic(request.topic)
            chosen = sorted(topic.partitions)
            if request.HasField("partition"):
                place = await self._parts.places.partition(request.topic, request.partition)
                chosen = [place.partition]
            await self._require_enabled(PartitionKey(topic.topic_id, 0), topic.name)
            states = tuple(RemoteLogSegmentState)
            if not request.all_states:
                states = (RemoteLogSegmentState.COPY_SEGMENT_FINISHED,)
            for partition in chosen:
                key = PartitionKey(topic.topic_id, partition)
                await self._parts.ledger.barrier(key, self._parts.barrier_deadline_ms)
                for entry in self._parts.ledger.ledger(key).in_state(*states):
                    yield messages.segment_message(topic.name, entry)

    async def DescribeRemoteLog(
        self, request: pb.DescribeRemoteLogRequest, context: Context
    ) -> pb.RemoteLog:
        async with Answering(self._parts.gate, context, "describe remote log"):
            place = await self._parts.places.partition(request.topic, request.partition)
            await self._require_enabled(place.key, place.topic.name)
            self._require_led(place)
            found = await self._parts.remote_logs.describe(place.key)
            return messages.remote_log_message(place.topic.name, place.key, found)

    async def ReadObject(
        self, request: pb.ReadObjectRequest, context: Context
    ) -> AsyncIterator[pb.ReadObjectResponse]:
        async with Answering(self._parts.gate, context, "read object"):
            place = await self._parts.places.partition(request.topic, request.partition)
            try:
                segment_id = Uuid(request.segment_id)
                wanted = ByteRange(start=request.start_position, end=request.end_position)
            except ValueError as error:
                raise Invalid(str(error)) from error
            remote = self._parts.remote_logs
            if request.kind == pb.INDEXES:
                pieces = remote.read_indexes(place.key, segment_id)
            else:
                pieces = remote.read_log(place.key, segment_id, wanted)
            async for piece in pieces:
                yield pb.ReadObjectResponse(data=piece)

    async def Copy(self, request: pb.CopyRequest, context: Context) -> pb.CopyResponse:
        async with Answering(self._parts.gate, context, "copy") as caller:
            place = await self._parts.places.partition(request.topic, request.partition)
            await self._require_enabled(place.key, place.topic.name)
            if place.leader != self._parts.peers.node_id:
                return await self._parts.peers.forward(
                    place.leader,
                    caller,
                    lambda stubs, sent, _: stubs.fetch.Copy(
                        request, metadata=sent, timeout=context.time_remaining()
                    ),
                )
            up_to = request.up_to_offset if request.HasField("up_to_offset") else None
            done = await self._parts.copy.copy_now(place.key, up_to)
            return pb.CopyResponse(
                first_uncopied_offset=done.first_uncopied_offset, reason=done.reason
            )

    def _require_led(self, place: Place) -> None:
        if place.leader != self._parts.peers.node_id:
            raise Elsewhere(
                f"{place} is led by broker {place.leader}: ask its service",
                self._parts.peers.address_of(place.leader),
            )

    async def _require_enabled(self, key: PartitionKey, topic: str) -> None:
        settings = self._parts.settings
        if settings.view.topic(key.topic_id) is None:
            await settings.barrier(self._parts.barrier_deadline_ms)
        if settings.view.topic(key.topic_id) is None:
            raise NotFound(f"topic {topic} is not enabled")

    async def _position(
        self, place: Place, timestamp: int, read_committed: bool
    ) -> positions.Position:
        parts, name = self._parts, place.topic.name
        answered = await parts.broker.list_offset(
            name,
            place.partition,
            EARLIEST_TIMESTAMP if timestamp in _OURS else timestamp,
            leader_epoch=place.leader_epoch,
            read_committed=read_committed,
        )
        stands = positions.Position(
            offset=answered.offset,
            leader_epoch=answered.leader_epoch,
            timestamp_ms=answered.timestamp_ms,
        )
        if not positions.needs_view(timestamp):
            return stands
        view = await parts.tier.barrier(
            TopicRef(name=name), place.partition, parts.barrier_deadline_ms
        )
        if view is None:
            nowhere = timestamp == positions.LATEST_TIERED
            return positions.Position(offset=-1, leader_epoch=-1) if nowhere else stands
        if positions.is_frozen_question(view, timestamp):
            raise Fenced(f"{place} is frozen: `rlm status` tells why")
        found = None
        if positions.needs_lookup(timestamp, view):
            found = await parts.tier.offset_for_timestamp(view.topic_id, place.partition, timestamp)
        corrected = positions.list_offsets_position(
            view, timestamp, {"offset": answered.offset}, found, view.local_log_start_offset
        )
        if isinstance(corrected, int):
            epoch = parts.tier.epoch_for_offset(view.topic_id, place.partition, corrected)
            corrected = positions.Position(offset=corrected, leader_epoch=epoch)
        return stands if corrected is None else corrected


def _read_request(request: pb.FetchRequest) -> ReadRequest:
    if request.start_offset < 0:
        raise Invalid(f"start_offset {request.start_offset} is negative")
    if not 0 <= request.max_bytes <= MOST_BYTES:
        raise Invalid(f"max_bytes {request.max_bytes}: 0 to {MOST_BYTES}")
    return ReadRequest(
        start_offset=request.start_offset,
        end_offset=request.end_offset if request.HasField("end_offset") else None,
        max_bytes=request.max_bytes or DEFAULT_MAX_BYTES,
        read_committed=request.isolation_level == pb.READ_COMMITTED,
    )


def _fetch_response(piece: Piece) -> pb.FetchResponse:
    return pb.FetchResponse(
        batches=piece.batches,
        next_offset=piece.next_offset,
        aborted_transactions=[
            pb.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in piece.aborted
        ],
        high_watermark=piece.high_watermark,
        last_stable_offset=piece.last_stable_offset,
        log_start_offset=piece.log_start_offset,
        tier=pb.REMOTE if piece.is_remote else pb.LOCAL,
    )

"""rlm.v1.FetchService as any service answers it, from ledger, settings and store only.

A reader service has only this; a service beside a broker adds the broker's answers (rlm.api.fetch).
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_protocol.apis.offsets import EARLIEST_PENDING_UPLOAD_TIMESTAMP
from kip405.errors import Elsewhere, Invalid
from kip405.ids import PartitionKey, Uuid
from kip405.segments import ByteRange, RemoteLogSegmentState
from rlm.api import messages
from rlm.api.calls import Answering, Caller, Gate
from rlm.api.endpoints import Endpoints
from rlm.api.ports import Ledger
from rlm.api.remote_log_messages import remote_window_message
from rlm.clock import next_turn
from rlm.reading.throttle import ReadThrottle
from rlm.remote_log.aux_state import build_remote_log_aux_state
from rlm.remote_log.objects import RemoteObjects
from rlm.remote_log.reads import Piece, ReadRequest
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.remote_log.remote_window import MOST_WINDOW_SEGMENTS, WINDOW_SEGMENTS, remote_window
from rlm.v1 import fetch_pb2 as pb
from rlm.v1 import fetch_pb2_grpc
from rlmm.ledger import PartitionLedger, SegmentEntry, SortedPart
from rsm_plugins.contract.answering import Context
from rsm_plugins.layout.keys import objects_stem

DEFAULT_MAX_BYTES = 1 << 20
MOST_BYTES = 32 << 20
_PARTS_A_TURN = 4
_ENTRIES_A_TURN = 200
_LEAST_TIMESTAMP = EARLIEST_PENDING_UPLOAD_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDependencies:
    """Collaborators; their creator closes them."""

    gate: Gate
    view: RemoteView
    reading: RemoteReading
    ledger: Ledger
    objects: RemoteObjects
    endpoints: Endpoints
    throttle: ReadThrottle


class RemoteFetchService(fetch_pb2_grpc.FetchServiceServicer):
    """See proto/rlm/v1/fetch.proto for what each call promises."""

    def __init__(self, dependencies: RemoteDependencies) -> None:
        self._remote = dependencies

    async def Fetch(self, request: pb.FetchRequest, context: Context) -> AsyncIterator[Any]:
        """Answers are bytes as they go over the wire: see rlm.api.server."""
        async with Answering(self._remote.gate, context, "fetch") as caller:
            wanted = _read_request(request)
            pieces: AsyncIterator[Piece]
            if request.tiers == pb.REMOTE_ONLY:
                pieces = self._remote.reading.stream(request.topic, request.partition, wanted)
            else:
                pieces = self._both_tiers(request, wanted)
            async for piece in pieces:
                size_bytes, is_remote = piece.size_bytes, piece.is_remote
                sent = messages.piece_bytes(piece)
                # A call that waits for its client or its quota holds no chunks.
                piece.batches.clear()
                await self._remote.throttle.pace(caller.principal, size_bytes, is_remote=is_remote)
                yield sent

    async def ListOffsets(
        self, request: pb.ListOffsetsRequest, context: Context
    ) -> pb.ListOffsetsResponse:
        async with Answering(self._remote.gate, context, "list offsets") as caller:
            if request.timestamp < _LEAST_TIMESTAMP:
                raise Invalid(f"timestamp {request.timestamp}: -6 to -1, or milliseconds")
            if request.tiers != pb.REMOTE_ONLY:
                return await self._position_in_both_tiers(request, caller)
            position = await self._remote.reading.position(
                request.topic, request.partition, request.timestamp
            )
            return messages.position_message(position)

    async def DescribeTopics(
        self, request: pb.DescribeTopicsRequest, context: Context
    ) -> pb.DescribeTopicsResponse:
        async with Answering(self._remote.gate, context, "describe topics"):
            view = self._remote.view
            topics = await view.topics(request.topics)
            return pb.DescribeTopicsResponse(
                topics=[
                    messages.tiered_topic_message(
                        record, [view.current(record, number) for number in partitions]
                    )
                    for record, partitions in topics
                ]
            )

    async def DescribeEndpoints(
        self, request: pb.DescribeEndpointsRequest, context: Context
    ) -> pb.DescribeEndpointsResponse:
        async with Answering(self._remote.gate, context, "describe endpoints"):
            rows = [messages.endpoint_message(one) for one in self._remote.endpoints.alive()]
            return pb.DescribeEndpointsResponse(endpoints=rows)

    async def DescribePartition(
        self, request: pb.DescribePartitionRequest, context: Context
    ) -> pb.PartitionDescription:
        async with Answering(self._remote.gate, context, "describe partition"):
            raise self._elsewhere("a leader is")

    async def ListSegments(
        self, request: pb.ListSegmentsRequest, context: Context
    ) -> AsyncIterator[pb.Segment]:
        async with Answering(self._remote.gate, context, "list segments"):
            if request.HasField("partition"):
                state = await self._remote.view.partition(request.topic, request.partition)
                topic, keys = state.topic_id_partition.topic, [state.topic_id_partition.key]
            else:
                record, partitions = await self._remote.view.partitions(request.topic)
                topic, keys = (
                    record.name,
                    [PartitionKey(record.topic_id, one) for one in partitions],
                )
            states = tuple(RemoteLogSegmentState)
            if not request.all_states:
                states = (RemoteLogSegmentState.COPY_SEGMENT_FINISHED,)
            for key in keys:
                async for entry in entries_in_turns(self._remote.ledger.ledger(key), states):
                    stem = objects_stem(entry.metadata, self._remote.objects.cluster_id)
                    yield messages.segment_message(topic, entry, stem)

    async def DescribeRemoteLog(
        self, request: pb.DescribeRemoteLogRequest, context: Context
    ) -> pb.RemoteLog:
        async with Answering(self._remote.gate, context, "describe remote log"):
            if request.tiers != pb.REMOTE_ONLY:
                return await self._leaders_remote_log(request)
            state = await self._remote.view.partition(request.topic, request.partition)
            most = request.max_segments or WINDOW_SEGMENTS
            if request.start_offset < 0 or not 0 < most <= MOST_WINDOW_SEGMENTS:
                raise Invalid(
                    f"from {request.start_offset}, {most} segments: at least 0, at most "
                    f"{MOST_WINDOW_SEGMENTS} segments"
                )
            found = remote_window(state, request.start_offset, most)
            return remote_window_message(
                state.topic_id_partition, self._remote.objects.cluster_id, found
            )

    async def ReadObject(
        self, request: pb.ReadObjectRequest, context: Context
    ) -> AsyncIterator[pb.ReadObjectResponse]:
        async with Answering(self._remote.gate, context, "read object") as caller:
            state = await self._remote.view.partition(request.topic, request.partition)
            try:
                segment_id = Uuid(request.segment_id)
                wanted = ByteRange(start=request.start_position, end=request.end_position)
            except ValueError as error:
                raise Invalid(str(error)) from error
            objects, key = self._remote.objects, state.topic_id_partition.key
            if request.kind == pb.INDEXES:
                pieces = objects.read_indexes(key, segment_id)
            else:
                pieces = objects.read_log(key, segment_id, wanted)
            # Not between the pieces: few objects are read at once, and each has a deadline.
            await self._remote.throttle.pace(caller.principal, 0, is_remote=True)
            async for piece in pieces:
                self._remote.throttle.took(caller.principal, len(piece))
                yield pb.ReadObjectResponse(data=piece)

    async def BuildRemoteLogAuxState(
        self, request: pb.BuildRemoteLogAuxStateRequest, context: Context
    ) -> pb.RemoteLogAuxState:
        async with Answering(self._remote.gate, context, "build aux state"):
            state = await self._remote.view.partition(request.topic, request.partition)
            objects = self._remote.objects
            found = await build_remote_log_aux_state(state, objects, request.end_offset)
            return messages.aux_state_message(found)

    async def Copy(self, request: pb.CopyRequest, context: Context) -> pb.CopyResponse:
        async with Answering(self._remote.gate, context, "copy"):
            raise self._elsewhere("a leader is")

    def _both_tiers(self, request: pb.FetchRequest, wanted: ReadRequest) -> AsyncIterator[Piece]:
        """Pieces of both tiers; Elsewhere where this service has one only."""
        raise self._elsewhere("the local tier is")

    async def _position_in_both_tiers(
        self, request: pb.ListOffsetsRequest, caller: Caller
    ) -> pb.ListOffsetsResponse:
        """A position over both tiers, likewise."""
        raise self._elsewhere("the local tier is")

    async def _leaders_remote_log(self, request: pb.DescribeRemoteLogRequest) -> pb.RemoteLog:
        """All of it as the leader's history has it, likewise."""
        raise self._elsewhere("the leader's history is")

    def _elsewhere(self, what: str) -> Elsewhere:
        """Why this service cannot answer, and who can."""
        return Elsewhere(
            f"this is a reader, without a broker, and {what} needed: ask a broker's service "
            "(DescribeEndpoints names them), or ask with tiers = REMOTE_ONLY (rlm fetch "
            "--remote-only)"
        )


async def entries_in_turns(
    ledger: PartitionLedger, states: Sequence[RemoteLogSegmentState]
) -> AsyncIterator[SegmentEntry]:
    """The entries of `ledger.in_state`, in its order. A partition may have hundreds of thousands:
    others have their turn of the event loop after a few hundred.
    """
    parts: list[SortedPart] = []
    for part in ledger.sorted_parts(*states):
        parts.append(part)
        if len(parts) % _PARTS_A_TURN == 0:
            await next_turn()
    for number, entry in enumerate(ledger.in_order(parts), start=1):
        yield entry
        if number % _ENTRIES_A_TURN == 0:
            await next_turn()


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

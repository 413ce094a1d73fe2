"""Downloads through running services; the leader's service says what counts and reads ranges."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpc import aio

from kip405.errors import Fenced, Invalid
from kip405.ids import TopicIdPartition, Uuid
from kip405.lineage import Lineage
from kip405.segments import ByteRange, EpochEntry
from rlm.api.calls import Elsewhere, error_of_call
from rlm.download.plan import PartitionPlan, Piece, pieces_of
from rlm.v1 import admin_pb2, fetch_pb2
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rlmm.framing import decode_value
from rsm_plugins.contract.client_channel import RenewedChannel
from rsm_plugins.contract.tls import Tls

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
        numbers = [partition] if partition is not None else range(await self._partitions(topic))
        return [await self._plan(topic, number) for number in numbers]

    async def read_indexes(self, plan: PartitionPlan, piece: Piece) -> bytes:
        return await self._read(plan, piece, fetch_pb2.INDEXES, ByteRange(start=0, end=0))

    async def read_log(self, plan: PartitionPlan, piece: Piece, wanted: ByteRange) -> bytes:
        return await self._read(plan, piece, fetch_pb2.LOG, wanted)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def _partitions(self, topic: str) -> int:
        try:
            answer = await self._stubs(self._address).admin.DescribeTopic(
                admin_pb2.DescribeTopicRequest(topic=topic), **self._sent()
            )
        except aio.AioRpcError as error:
            raise error_of_call(error, self._address) from error
        return answer.partitions

    async def _plan(self, topic: str, partition: int) -> PartitionPlan:
        request = fetch_pb2.DescribeRemoteLogRequest(
            topic=fetch_pb2.TopicRef(name=topic), partition=partition
        )
        address = self._address
        for _ in range(_MAX_MOVES):
            try:
                answer = await self._stubs(address).fetch.DescribeRemoteLog(request, **self._sent())
            except aio.AioRpcError as error:
                failed = error_of_call(error, address)
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
        place = plan.place
        address = self._leaders.get(place.partition, self._address)
        request = fetch_pb2.ReadObjectRequest(
            topic=fetch_pb2.TopicRef(topic_id=place.topic_id.raw),
            partition=place.partition,
            segment_id=piece.metadata.segment_id.id.raw,
            kind=kind,
            start_position=wanted.start,
            end_position=wanted.end,
        )
        try:
            call = self._stubs(address).fetch.ReadObject(request, **self._sent())
            return b"".join([answer.data async for answer in call])
        except aio.AioRpcError as error:
            raise error_of_call(error, address) from error

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
        place = TopicIdPartition(
            topic_id=Uuid(answer.topic_id), topic=answer.topic, partition=answer.partition
        )
    except ValueError as error:
        raise Invalid(f"the service's description of the partition: {error}") from error
    usable = [(decode_value(row.segment_metadata), row.next_offset) for row in answer.segments]
    return PartitionPlan(
        cluster_id=answer.cluster_id,
        place=place,
        remote_log_start_offset=answer.remote_log_start_offset,
        lineage=lineage,
        pieces=pieces_of(usable, answer.remote_log_start_offset),
    )

"""rlm.v1.FetchService beside a broker: both tiers, the leader's answers, and immediate copies."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from kafka_protocol.apis.offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
)
from kip405.errors import Elsewhere, Fenced, NotFound
from kip405.ids import PartitionKey
from rlm.api import messages
from rlm.api.calls import Answering, Caller
from rlm.api.peers import Peers
from rlm.api.ports import Broker, CopyNow, PartitionStatuses
from rlm.api.remote_fetch import RemoteDependencies, RemoteFetchService
from rlm.api.remote_log_messages import remote_log_message
from rlm.broker.leadership import LedPartition
from rlm.remote_log.list_offsets import NOWHERE, BothTiers, Position, needs_view
from rlm.remote_log.objects import RemoteLogs
from rlm.remote_log.reads import PartitionReading, Piece, ReadRequest
from rlm.remote_log.tier import Tier, TopicRef
from rlm.remote_log.topic_refs import TopicResolver
from rlm.topics.ports import Settings
from rlm.v1 import fetch_pb2 as pb
from rsm_plugins.contract.answering import Context

# Only this service can answer these; the broker is asked for its log start offset instead. For a
# topic that is not tiered, Kafka answers -1 to the first two.
_TIERED_ONLY = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
_OURS = (EARLIEST_LOCAL_TIMESTAMP, *_TIERED_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchDependencies:
    """Collaborators; their creator closes them."""

    remote: RemoteDependencies
    resolver: TopicResolver
    peers: Peers
    reading: PartitionReading
    tier: Tier
    broker: Broker
    settings: Settings
    statuses: PartitionStatuses
    copy: CopyNow
    remote_logs: RemoteLogs
    barrier_deadline_ms: int
    now_ms: Callable[[], int]


class FetchService(RemoteFetchService):
    """See proto/rlm/v1/fetch.proto for what each call promises."""

    def __init__(self, dependencies: FetchDependencies) -> None:
        super().__init__(dependencies.remote)
        self._dependencies = dependencies
        self._both = BothTiers(dependencies.tier, deadline_ms=dependencies.barrier_deadline_ms)

    async def _both_tiers(
        self, request: pb.FetchRequest, wanted: ReadRequest
    ) -> AsyncIterator[Piece]:
        led = await self._dependencies.resolver.partition(request.topic, request.partition)
        await self._require_enabled(led.key, led.topic_id_partition.topic)
        self._require_led(led)
        try:
            async for piece in self._dependencies.reading.stream(led, wanted):
                yield piece
        except Fenced as error:
            led = await self._dependencies.resolver.partition(request.topic, request.partition)
            self._require_led(led)
            raise Elsewhere(str(error)) from error

    async def _position_in_both_tiers(
        self, request: pb.ListOffsetsRequest, caller: Caller
    ) -> pb.ListOffsetsResponse:
        led = await self._dependencies.resolver.partition(request.topic, request.partition)
        if led.leader != self._dependencies.peers.node_id:
            return await self._dependencies.peers.forward(
                led.leader,
                caller,
                lambda stubs, sent, timeout: stubs.fetch.ListOffsets(
                    request, metadata=sent, timeout=timeout
                ),
            )
        read_committed = request.isolation_level == pb.READ_COMMITTED
        return messages.position_message(
            await self._position(led, request.timestamp, read_committed)
        )

    async def DescribePartition(
        self, request: pb.DescribePartitionRequest, context: Context
    ) -> pb.PartitionDescription:
        async with Answering(self._remote.gate, context, "describe partition") as caller:
            led = await self._dependencies.resolver.partition(request.topic, request.partition)
            await self._require_enabled(led.key, led.topic_id_partition.topic)
            if led.leader != self._dependencies.peers.node_id:
                return await self._dependencies.peers.forward(
                    led.leader,
                    caller,
                    lambda stubs, sent, timeout: stubs.fetch.DescribePartition(
                        request, metadata=sent, timeout=timeout
                    ),
                )
            now = await self._dependencies.statuses.current(led.key)
            return messages.partition_message(now, self._dependencies.now_ms())

    async def _leaders_remote_log(self, request: pb.DescribeRemoteLogRequest) -> pb.RemoteLog:
        led = await self._dependencies.resolver.partition(request.topic, request.partition)
        await self._require_enabled(led.key, led.topic_id_partition.topic)
        self._require_led(led)
        found = await self._dependencies.remote_logs.describe(led.key)
        return remote_log_message(led.topic_id_partition.topic, led.key, found)

    async def Copy(self, request: pb.CopyRequest, context: Context) -> pb.CopyResponse:
        async with Answering(self._remote.gate, context, "copy") as caller:
            led = await self._dependencies.resolver.partition(request.topic, request.partition)
            await self._require_enabled(led.key, led.topic_id_partition.topic)
            if led.leader != self._dependencies.peers.node_id:
                return await self._dependencies.peers.forward(
                    led.leader,
                    caller,
                    lambda stubs, sent, _: stubs.fetch.Copy(
                        request, metadata=sent, timeout=context.time_remaining()
                    ),
                )
            up_to = request.up_to_offset if request.HasField("up_to_offset") else None
            done = await self._dependencies.copy.copy_now(led.key, up_to)
            return pb.CopyResponse(
                first_uncopied_offset=done.first_uncopied_offset, reason=done.reason
            )

    def _require_led(self, led: LedPartition) -> None:
        if led.leader != self._dependencies.peers.node_id:
            raise Elsewhere(
                f"{led} is led by broker {led.leader}: ask its service",
                self._dependencies.peers.address_of(led.leader),
            )

    async def _require_enabled(self, key: PartitionKey, topic: str) -> None:
        settings = self._dependencies.settings
        if settings.view.topic(key.topic_id) is None:
            await settings.barrier(self._dependencies.barrier_deadline_ms)
        if settings.view.topic(key.topic_id) is None:
            raise NotFound(f"topic {topic} is not enabled")

    async def _position(self, led: LedPartition, timestamp: int, read_committed: bool) -> Position:
        dependencies, name = self._dependencies, led.topic_id_partition.topic
        answered = await dependencies.broker.list_offset(
            name,
            led.topic_id_partition.partition,
            EARLIEST_TIMESTAMP if timestamp in _OURS else timestamp,
            leader_epoch=led.leader_epoch,
            read_committed=read_committed,
        )
        answer = Position(
            offset=answered.offset,
            leader_epoch=answered.leader_epoch,
            timestamp_ms=answered.timestamp_ms,
        )
        if not needs_view(timestamp):
            return answer
        view = await dependencies.tier.barrier(
            TopicRef(name=name), led.topic_id_partition.partition, dependencies.barrier_deadline_ms
        )
        if view is None:
            return NOWHERE if timestamp in _TIERED_ONLY else answer
        corrected = await self._both.position(view, timestamp, answered.offset)
        return answer if corrected is None else corrected

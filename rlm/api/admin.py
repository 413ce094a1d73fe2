"""rlm.v1.AdminService: topics, freezes, status, and what an operator adopts.

The service of the partition-0 leader makes every change to a topic (H14); the others forward to it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kip405.errors import Invalid
from kip405.ids import PartitionKey
from rlm.api import messages
from rlm.api.calls import Answering, Caller, Context, Gate
from rlm.api.cluster_status import ClusterStatus
from rlm.api.peers import Peers, Sent, Stubs
from rlm.api.ports import PartitionStatuses, StoreDoctor
from rlm.api.topic_summaries import TopicSummaries
from rlm.plans.holes import LostRange
from rlm.remote_log.topic_refs import TopicResolver, checked_name
from rlm.topics.access import Access
from rlm.topics.freezes import Adoption, Freezes
from rlm.topics.ports import NotLeader
from rlm.topics.rules import RetentionOptions
from rlm.topics.verbs import EnableOptions, TopicVerbs
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import admin_pb2_grpc, fetch_pb2

T = TypeVar("T")


class Losses(Protocol):
    """Data that is lost permanently, and may be accepted as lost (rlm.tasks.accept_loss)."""

    async def accept(self, key: PartitionKey, *, by: str, apply: bool) -> tuple[LostRange, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminDependencies:
    """Collaborators; their creator closes them."""

    gate: Gate
    verbs: TopicVerbs
    access: Access
    freezes: Freezes
    adoption: Adoption
    losses: Losses
    summaries: TopicSummaries
    status: ClusterStatus
    statuses: PartitionStatuses
    places: TopicResolver
    peers: Peers
    stores: StoreDoctor


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """See proto/rlm/v1/admin.proto for what each call promises."""

    def __init__(self, parts: AdminDependencies) -> None:
        self._parts = parts

    async def EnableTopic(
        self, request: pb.EnableTopicRequest, context: Context
    ) -> pb.TopicDescription:
        async with Answering(self._parts.gate, context, "enable topic") as caller:
            options = _enable_options(request)

            async def here() -> pb.TopicDescription:
                done = await self._parts.verbs.enable(checked_name(request.topic), options)
                return await self._parts.summaries.describe(done.record, done.warnings)

            return await self._at_leader(
                caller,
                here,
                lambda stubs, sent, timeout: stubs.admin.EnableTopic(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def DisableTopic(
        self, request: pb.DisableTopicRequest, context: Context
    ) -> pb.TopicDescription:
        async with Answering(self._parts.gate, context, "disable topic") as caller:

            async def here() -> pb.TopicDescription:
                done = await self._parts.verbs.disable(
                    checked_name(request.topic),
                    confirm=request.confirm,
                    delete_remote=request.delete_remote,
                )
                return await self._parts.summaries.describe(done.record, done.warnings)

            return await self._at_leader(
                caller,
                here,
                lambda stubs, sent, timeout: stubs.admin.DisableTopic(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def SetTrim(self, request: pb.SetTrimRequest, context: Context) -> pb.SetTrimResponse:
        async with Answering(self._parts.gate, context, "set trim") as caller:

            async def here() -> pb.SetTrimResponse:
                name = checked_name(request.topic)
                if request.on and request.giveback:
                    raise Invalid("giveback goes with trim off: on takes retention over")
                if request.on:
                    done = await self._parts.verbs.trim_on(name, force=request.force)
                else:
                    done = await self._parts.verbs.trim_off(name, giveback=request.giveback)
                topic = await self._parts.summaries.describe(done.record)
                return pb.SetTrimResponse(topic=topic, warnings=done.warnings)

            return await self._at_leader(
                caller,
                here,
                lambda stubs, sent, timeout: stubs.admin.SetTrim(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def ListTopics(
        self, request: pb.ListTopicsRequest, context: Context
    ) -> pb.ListTopicsResponse:
        async with Answering(self._parts.gate, context, "list topics"):
            return pb.ListTopicsResponse(topics=await self._parts.summaries.all())

    async def DescribeTopic(
        self, request: pb.DescribeTopicRequest, context: Context
    ) -> pb.TopicDescription:
        async with Answering(self._parts.gate, context, "describe topic"):
            record = await self._parts.summaries.by_name(checked_name(request.topic))
            return await self._parts.summaries.describe(record)

    async def Freeze(self, request: pb.FreezeRequest, context: Context) -> pb.FreezeResponse:
        async with Answering(self._parts.gate, context, "freeze") as caller:
            topic = checked_name(request.topic) if request.topic else ""
            await self._parts.freezes.freeze(topic, by=caller.principal, why=request.why)
            return self._freezes()

    async def Unfreeze(self, request: pb.FreezeRequest, context: Context) -> pb.FreezeResponse:
        async with Answering(self._parts.gate, context, "unfreeze"):
            topic = checked_name(request.topic) if request.topic else ""
            await self._parts.freezes.unfreeze(topic)
            return self._freezes()

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        async with Answering(self._parts.gate, context, "status") as caller:
            if request.local_only:
                return self._parts.status.own(request.topic)
            if request.topic:
                await self._parts.summaries.by_name(checked_name(request.topic))
            return await self._parts.status.whole(request.topic, caller.principal)

    async def InspectStores(
        self, request: pb.InspectStoresRequest, context: Context
    ) -> pb.InspectStoresResponse:
        async with Answering(self._parts.gate, context, "inspect stores"):
            reports = await self._parts.stores.inspect()
            return pb.InspectStoresResponse(
                stores=[messages.report_message(report) for report in reports]
            )

    async def AdoptPartition(
        self, request: pb.PartitionRequest, context: Context
    ) -> fetch_pb2.PartitionDescription:
        async with Answering(self._parts.gate, context, "adopt partition") as caller:
            return await self._adopt(
                request,
                caller,
                self._parts.adoption.adopt_log,
                lambda stubs, sent, timeout: stubs.admin.AdoptPartition(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def AdoptLogStart(
        self, request: pb.PartitionRequest, context: Context
    ) -> fetch_pb2.PartitionDescription:
        async with Answering(self._parts.gate, context, "adopt log start") as caller:
            return await self._adopt(
                request,
                caller,
                self._parts.adoption.adopt_log_start,
                lambda stubs, sent, timeout: stubs.admin.AdoptLogStart(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def AcceptLoss(
        self, request: pb.AcceptLossRequest, context: Context
    ) -> pb.AcceptLossResponse:
        async with Answering(self._parts.gate, context, "accept loss") as caller:
            led = await self._parts.places.partition(
                fetch_pb2.TopicRef(name=request.topic), request.partition
            )
            if led.leader != self._parts.peers.node_id:
                return await self._parts.peers.forward(
                    led.leader,
                    caller,
                    lambda stubs, sent, timeout: stubs.admin.AcceptLoss(
                        request, metadata=sent, timeout=timeout
                    ),
                )
            found = await self._parts.losses.accept(
                led.key, by=caller.principal, apply=request.apply
            )
            return pb.AcceptLossResponse(ranges=[messages.lost_range_message(one) for one in found])

    async def ProveAccess(
        self, request: pb.ProveAccessRequest, context: Context
    ) -> pb.ProveAccessResponse:
        async with Answering(self._parts.gate, context, "prove access"):
            missing = await self._parts.access.missing(
                checked_name(request.topic), tier=request.tier
            )
            return pb.ProveAccessResponse(missing=[messages.acl_message(one) for one in missing])

    async def _adopt(
        self,
        request: pb.PartitionRequest,
        caller: Caller,
        act: Callable[..., Awaitable[None]],
        call: Callable[[Stubs, Sent, float], Awaitable[fetch_pb2.PartitionDescription]],
    ) -> fetch_pb2.PartitionDescription:
        led = await self._parts.places.partition(
            fetch_pb2.TopicRef(name=request.topic), request.partition
        )
        if led.leader != self._parts.peers.node_id:
            return await self._parts.peers.forward(led.leader, caller, call)
        status = await self._parts.statuses.current(led.key)
        await act(led, frozen=status.frozen, by=caller.principal)
        return messages.partition_message(await self._parts.statuses.current(led.key))

    async def _at_leader(
        self,
        caller: Caller,
        here: Callable[[], Awaitable[T]],
        call: Callable[[Stubs, Sent, float], Awaitable[T]],
    ) -> T:
        try:
            return await here()
        except NotLeader as error:
            return await self._parts.peers.forward(error.leader, caller, call)

    def _freezes(self) -> pb.FreezeResponse:
        rows = [messages.freeze_message(*row) for row in self._parts.freezes.listed()]
        return pb.FreezeResponse(freezes=rows)


def _enable_options(request: pb.EnableTopicRequest) -> EnableOptions:
    def given(name: str) -> int | None:
        return int(getattr(request, name)) if request.HasField(name) else None

    return EnableOptions(
        trim=request.trim,
        force=request.force,
        retention=RetentionOptions(
            retention_ms=given("retention_ms"),
            retention_bytes=given("retention_bytes"),
            local_retention_ms=given("local_retention_ms"),
            local_retention_bytes=given("local_retention_bytes"),
        ),
    )

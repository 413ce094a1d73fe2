"""rlm.v1.AdminService: topics, freezes, copy limits, status, and what an operator adopts.

The service of the partition-0 leader makes every change to a topic (H14); the others forward to it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from kip405.errors import Invalid, NotFound
from kip405.topic_names import checked_name
from rlm.api import deletion_messages, explanation_messages, messages, ports
from rlm.api.calls import Answering, Caller, Gate
from rlm.api.cluster_copy import ClusterCopy
from rlm.api.cluster_status import ClusterStatus
from rlm.api.cluster_verify import ClusterVerify
from rlm.api.copy_limits import ClusterCopyLimits
from rlm.api.expiry_plans import ExpiryPlans
from rlm.api.peers import Peers, Sent, Stubs
from rlm.api.ports import Discards, Explanations, Losses, PartitionStatuses, Purge, StoreDoctor
from rlm.api.report_calls import ReportCalls, Reports
from rlm.api.topic_summaries import TopicSummaries
from rlm.broker.leadership import LedPartition
from rlm.remote_log.topic_refs import TopicResolver
from rlm.topics.acceptance import RetentionAcceptance
from rlm.topics.access import Access
from rlm.topics.deletions import PendingDeletions
from rlm.topics.partition_records import Adoption, Freezes
from rlm.topics.ports import NotLeader
from rlm.topics.verbs import TopicVerbs
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from rlmm.settings_records import TopicRecord
from rsm_plugins.contract.answering import Context

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminDependencies:
    """Collaborators; their creator closes them."""

    gate: Gate
    verbs: TopicVerbs
    acceptance: RetentionAcceptance
    access: Access
    freezes: Freezes
    copy_limits: ClusterCopyLimits
    reload: ports.ConfigReload
    adoption: Adoption
    losses: Losses
    deletions: PendingDeletions
    discards: Discards
    purge: Purge
    summaries: TopicSummaries
    status: ClusterStatus
    statuses: PartitionStatuses
    resolver: TopicResolver
    peers: Peers
    stores: StoreDoctor
    verify: ClusterVerify
    copies: ClusterCopy
    expiry_plans: ExpiryPlans
    explanations: Explanations
    reports: Reports
    now_ms: Callable[[], int]


class AdminService(ReportCalls):
    """See proto/rlm/v1/admin.proto for what each call promises."""

    def __init__(self, dependencies: AdminDependencies) -> None:
        super().__init__(dependencies.reports)
        self._dependencies = dependencies

    async def EnableTopic(
        self, request: pb.EnableTopicRequest, context: Context
    ) -> pb.TopicDescription:
        async with Answering(self._dependencies.gate, context, "enable topic") as caller:
            options = messages.enable_options_of(request, by=caller.principal)

            async def here() -> pb.TopicDescription:
                done = await self._dependencies.verbs.enable(checked_name(request.topic), options)
                return await self._dependencies.summaries.describe(done.record, done.warnings)

            return await self._at_leader(
                caller,
                here,
                lambda stubs, sent, timeout: stubs.admin.EnableTopic(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def PlanRetention(
        self, request: pb.EnableTopicRequest, context: Context
    ) -> pb.RetentionPlan:
        async with Answering(self._dependencies.gate, context, "plan retention") as caller:
            options = messages.enable_options_of(request, by=caller.principal)

            async def here() -> pb.RetentionPlan:
                name = checked_name(request.topic)
                plan = await self._dependencies.verbs.plan_retention(name, options)
                return deletion_messages.retention_plan_message(plan)

            return await self._at_leader(
                caller,
                here,
                lambda stubs, sent, timeout: stubs.admin.PlanRetention(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def AcceptRetention(
        self, request: pb.AcceptRetentionRequest, context: Context
    ) -> pb.AcceptRetentionResponse:
        async with Answering(self._dependencies.gate, context, "accept retention") as caller:
            name, acceptance = checked_name(request.topic), self._dependencies.acceptance

            async def here() -> pb.AcceptRetentionResponse:
                wanted = deletion_messages.limits_of(request)
                if wanted is None:
                    plan = await acceptance.plan(name)
                    return pb.AcceptRetentionResponse(
                        plan=deletion_messages.retention_plan_message(plan)
                    )
                done = await acceptance.accept(name, wanted, by=caller.principal, yes=request.yes)
                topic = await self._dependencies.summaries.describe(done.record, done.warnings)
                return pb.AcceptRetentionResponse(topic=topic)

            return await self._at_leader(
                caller,
                here,
                lambda stubs, sent, timeout: stubs.admin.AcceptRetention(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def DisableTopic(
        self, request: pb.DisableTopicRequest, context: Context
    ) -> pb.TopicDescription:
        async with Answering(self._dependencies.gate, context, "disable topic") as caller:

            async def here() -> pb.TopicDescription:
                done = await self._dependencies.verbs.disable(
                    checked_name(request.topic),
                    confirm=request.confirm,
                    delete_remote=request.delete_remote,
                )
                return await self._dependencies.summaries.describe(done.record, done.warnings)

            return await self._at_leader(
                caller,
                here,
                lambda stubs, sent, timeout: stubs.admin.DisableTopic(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def SetTrim(self, request: pb.SetTrimRequest, context: Context) -> pb.SetTrimResponse:
        async with Answering(self._dependencies.gate, context, "set trim") as caller:

            async def here() -> pb.SetTrimResponse:
                name = checked_name(request.topic)
                if request.on and request.giveback:
                    raise Invalid("giveback goes with trim off: on takes retention over")
                if request.on:
                    done = await self._dependencies.verbs.trim_on(name, force=request.force)
                else:
                    done = await self._dependencies.verbs.trim_off(name, giveback=request.giveback)
                topic = await self._dependencies.summaries.describe(done.record)
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
        async with Answering(self._dependencies.gate, context, "list topics"):
            return pb.ListTopicsResponse(topics=await self._dependencies.summaries.all())

    async def DescribeTopic(
        self, request: pb.DescribeTopicRequest, context: Context
    ) -> pb.TopicDescription:
        async with Answering(self._dependencies.gate, context, "describe topic"):
            record = await self._dependencies.summaries.by_name(checked_name(request.topic))
            return await self._dependencies.summaries.describe(record)

    async def ListCandidates(
        self, request: pb.ListCandidatesRequest, context: Context
    ) -> pb.ListCandidatesResponse:
        async with Answering(self._dependencies.gate, context, "list candidates"):
            topics = await self._dependencies.summaries.candidates()
            return pb.ListCandidatesResponse(topics=topics)

    async def Freeze(self, request: pb.FreezeRequest, context: Context) -> pb.FreezeResponse:
        async with Answering(self._dependencies.gate, context, "freeze") as caller:
            topic = checked_name(request.topic) if request.topic else ""
            await self._dependencies.freezes.freeze(topic, by=caller.principal, why=request.why)
            return self._freezes()

    async def Unfreeze(self, request: pb.FreezeRequest, context: Context) -> pb.FreezeResponse:
        async with Answering(self._dependencies.gate, context, "unfreeze"):
            topic = checked_name(request.topic) if request.topic else ""
            await self._dependencies.freezes.unfreeze(topic)
            return self._freezes()

    async def ListCopyLimits(
        self, request: pb.ListCopyLimitsRequest, context: Context
    ) -> pb.ListCopyLimitsResponse:
        async with Answering(self._dependencies.gate, context, "list copy limits") as caller:
            limits = self._dependencies.copy_limits
            return await (limits.own() if request.local_only else limits.whole(caller.principal))

    async def SetCopyLimit(
        self, request: pb.SetCopyLimitRequest, context: Context
    ) -> pb.ListCopyLimitsResponse:
        async with Answering(self._dependencies.gate, context, "set copy limit") as caller:
            return await self._dependencies.copy_limits.change(request, caller.principal)

    async def ReloadConfig(
        self, request: pb.ReloadConfigRequest, context: Context
    ) -> pb.ReloadConfigResponse:
        async with Answering(self._dependencies.gate, context, "reload the settings"):
            return messages.setting_changes_message(await self._dependencies.reload.reload())

    async def ListDeletions(
        self, request: pb.ListDeletionsRequest, context: Context
    ) -> pb.ListDeletionsResponse:
        async with Answering(self._dependencies.gate, context, "list deletions"):
            found = await self._dependencies.deletions.listed()
            rows = [deletion_messages.deletion_message(one) for one in found]
            rows += map(deletion_messages.discard_message, self._dependencies.discards.pending())
            purge = self._dependencies.purge
            rows += [
                deletion_messages.ending_message(one, purge.extent(one.record.topic_id))
                for one in purge.listed()
                if not one.is_kept
            ]
            return pb.ListDeletionsResponse(deletions=rows)

    async def UndoDeletion(
        self, request: pb.UndoDeletionRequest, context: Context
    ) -> pb.TopicDescription:
        async with Answering(self._dependencies.gate, context, "undo deletion") as caller:

            async def here() -> pb.TopicDescription:
                record = await self._undo(checked_name(request.topic))
                return await self._dependencies.summaries.describe(record)

            async def discard(led: LedPartition) -> pb.TopicDescription:
                await self._dependencies.discards.undo(led.key)
                record = await self._dependencies.summaries.by_name(request.topic)
                return await self._dependencies.summaries.describe(record)

            async def call(stubs: Stubs, sent: Sent, timeout: float) -> pb.TopicDescription:
                return await stubs.admin.UndoDeletion(request, metadata=sent, timeout=timeout)

            if request.HasField("partition"):
                return await self._at_partition(
                    request.topic, request.partition, caller, discard, call
                )
            return await self._at_leader(caller, here, call)

    async def _undo(self, name: str) -> TopicRecord:
        """A shorter retention, or else the end of topics of this name or id."""
        try:
            return await self._dependencies.deletions.undo(name)
        except NotFound:
            if kept := await self._dependencies.purge.keep(name):
                return kept[-1]
            raise

    async def Status(self, request: pb.StatusRequest, context: Context) -> Any:
        """The answer is bytes as they go over the wire: see rlm.api.server."""
        async with Answering(self._dependencies.gate, context, "status") as caller:
            if request.local_only:
                answer = self._dependencies.status.own(request.topic)
            else:
                if request.topic:
                    await self._dependencies.summaries.by_name(checked_name(request.topic))
                answer = await self._dependencies.status.whole(request, caller.principal)
            diagnosis = self._dependencies.reports.diagnosis
            return await diagnosis.masked_status(answer) if request.mask_secrets else answer

    async def InspectStores(
        self, request: pb.InspectStoresRequest, context: Context
    ) -> pb.InspectStoresResponse:
        async with Answering(self._dependencies.gate, context, "inspect stores"):
            reports = await self._dependencies.stores.inspect()
            return pb.InspectStoresResponse(
                stores=[messages.report_message(report) for report in reports]
            )

    async def AdoptPartition(
        self, request: pb.PartitionRequest, context: Context
    ) -> fetch_pb2.PartitionDescription:
        async with Answering(self._dependencies.gate, context, "adopt partition") as caller:
            return await self._adopt(
                request,
                caller,
                self._dependencies.adoption.adopt_log,
                lambda stubs, sent, timeout: stubs.admin.AdoptPartition(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def DiscardPartition(
        self, request: pb.DiscardPartitionRequest, context: Context
    ) -> pb.DiscardPlan:
        async with Answering(self._dependencies.gate, context, "discard partition") as caller:
            discards = self._dependencies.discards

            async def here(led: LedPartition) -> pb.DiscardPlan:
                if not request.confirm:
                    return deletion_messages.discard_plan_message(await discards.plan(led.key))
                plan = await discards.decide(led.key, by=caller.principal)
                return deletion_messages.discard_plan_message(plan)

            return await self._at_partition(
                request.topic,
                request.partition,
                caller,
                here,
                lambda stubs, sent, timeout: stubs.admin.DiscardPartition(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def AdoptLogStart(
        self, request: pb.PartitionRequest, context: Context
    ) -> fetch_pb2.PartitionDescription:
        async with Answering(self._dependencies.gate, context, "adopt log start") as caller:
            return await self._adopt(
                request,
                caller,
                self._dependencies.adoption.adopt_log_start,
                lambda stubs, sent, timeout: stubs.admin.AdoptLogStart(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def AcceptLoss(
        self, request: pb.AcceptLossRequest, context: Context
    ) -> pb.AcceptLossResponse:
        async with Answering(self._dependencies.gate, context, "accept loss") as caller:

            async def here(led: LedPartition) -> pb.AcceptLossResponse:
                found = await self._dependencies.losses.accept(
                    led.key,
                    by=caller.principal,
                    apply=request.apply,
                    without=messages.store_ids_of(request),
                )
                rows = [messages.lost_range_message(one) for one in found]
                return pb.AcceptLossResponse(ranges=rows)

            return await self._at_partition(
                request.topic,
                request.partition,
                caller,
                here,
                lambda stubs, sent, timeout: stubs.admin.AcceptLoss(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def Verify(
        self, request: pb.VerifyRequest, context: Context
    ) -> AsyncIterator[pb.VerifyResponse]:
        async with Answering(self._dependencies.gate, context, "verify") as caller:
            topic, verify = request.topic, self._dependencies.verify
            if request.local_only:
                events = verify.own(topic, deep=request.deep)
            else:
                if topic:
                    await self._dependencies.summaries.by_name(checked_name(topic))
                events = verify.whole(topic, caller.principal, deep=request.deep)
            async with aclosing(events):
                async for event in events:
                    yield event

    async def CopyClosed(
        self, request: pb.CopyClosedRequest, context: Context
    ) -> AsyncIterator[pb.CopyClosedResponse]:
        async with Answering(self._dependencies.gate, context, "copy closed segments") as caller:
            for target in request.targets:
                await self._dependencies.summaries.enabled(checked_name(target.topic))
            async with aclosing(self._dependencies.copies.run(request, caller.principal)) as rows:
                async for row in rows:
                    yield row

    async def ExplainPartition(
        self, request: pb.ExplainPartitionRequest, context: Context
    ) -> pb.Explanation:
        async with Answering(self._dependencies.gate, context, "explain partition") as caller:
            offset = explanation_messages.offset_of(request)
            await self._dependencies.summaries.by_name(checked_name(request.topic))

            async def here(led: LedPartition) -> pb.Explanation:
                found = await self._dependencies.explanations.explain(led, offset)
                return explanation_messages.explanation_message(found)

            return await self._at_partition(
                request.topic,
                request.partition,
                caller,
                here,
                lambda stubs, sent, timeout: stubs.admin.ExplainPartition(
                    request, metadata=sent, timeout=timeout
                ),
            )

    async def PlanExpiry(
        self, request: pb.PlanExpiryRequest, context: Context
    ) -> pb.PlanExpiryResponse:
        async with Answering(self._dependencies.gate, context, "plan expiry") as caller:
            topic = await self._dependencies.summaries.by_name(checked_name(request.topic))
            plans = self._dependencies.expiry_plans
            if request.local_only:
                return await plans.own(topic)
            return await plans.whole(topic, caller.principal)

    async def Purge(self, request: pb.PurgeRequest, context: Context) -> pb.PurgeResponse:
        async with Answering(self._dependencies.gate, context, "purge"):
            purge = self._dependencies.purge
            if request.confirm:
                await purge.confirm(request.topics)
            found = purge.listed()
            return pb.PurgeResponse(
                topics=[
                    deletion_messages.topic_end_message(one, purge.extent(one.record.topic_id))
                    for one in found
                ]
            )

    async def ProveAccess(
        self, request: pb.ProveAccessRequest, context: Context
    ) -> pb.ProveAccessResponse:
        async with Answering(self._dependencies.gate, context, "prove access"):
            missing = await self._dependencies.access.missing(
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
        async def here(led: LedPartition) -> fetch_pb2.PartitionDescription:
            status = await self._dependencies.statuses.current(led.key)
            await act(led, frozen=status.frozen, by=caller.principal)
            now = await self._dependencies.statuses.current(led.key)
            return messages.partition_message(now, self._dependencies.now_ms())

        return await self._at_partition(request.topic, request.partition, caller, here, call)

    async def _at_partition(
        self,
        topic: str,
        partition: int,
        caller: Caller,
        here: Callable[[LedPartition], Awaitable[T]],
        call: Callable[[Stubs, Sent, float], Awaitable[T]],
    ) -> T:
        led = await self._dependencies.resolver.partition(fetch_pb2.TopicRef(name=topic), partition)
        if led.leader != self._dependencies.peers.node_id:
            return await self._dependencies.peers.forward(led.leader, caller, call)
        return await here(led)

    async def _at_leader(
        self,
        caller: Caller,
        here: Callable[[], Awaitable[T]],
        call: Callable[[Stubs, Sent, float], Awaitable[T]],
    ) -> T:
        try:
            return await here()
        except NotLeader as error:
            return await self._dependencies.peers.forward(error.leader, caller, call)

    def _freezes(self) -> pb.FreezeResponse:
        rows = [messages.freeze_message(*row) for row in self._dependencies.freezes.listed()]
        return pb.FreezeResponse(freezes=rows)

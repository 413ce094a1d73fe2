"""The calls of rlm.v1.AdminService that only report, beside those of rlm.api.admin."""

from dataclasses import dataclass

from kip405.topic_names import checked_name
from rlm.api.calls import Answering, Gate
from rlm.api.clients import ClusterClients
from rlm.api.costs import ClusterCosts
from rlm.api.diagnosis import ClusterDiagnosis
from rlm.api.peers import Peers
from rlm.api.task_events import ClusterEvents
from rlm.api.topic_plans import TopicPlans
from rlm.topics.ports import NotLeader
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import admin_pb2_grpc
from rsm_plugins.contract.answering import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Collaborators; their creator closes them."""

    gate: Gate
    peers: Peers
    clients: ClusterClients
    plans: TopicPlans
    costs: ClusterCosts
    events: ClusterEvents
    diagnosis: ClusterDiagnosis


class ReportCalls(admin_pb2_grpc.AdminServiceServicer):
    """See proto/rlm/v1/admin.proto for what each call promises."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    async def PlanTopic(self, request: pb.PlanTopicRequest, context: Context) -> pb.TopicPlan:
        async with Answering(self._reports.gate, context, "plan topic") as caller:
            plans = self._reports.plans
            if request.local_only:
                return await plans.own(request.enable)
            try:
                return await plans.whole(request.enable, caller.principal)
            except NotLeader as error:
                return await self._reports.peers.forward(
                    error.leader,
                    caller,
                    lambda stubs, sent, timeout: stubs.admin.PlanTopic(
                        request, metadata=sent, timeout=timeout
                    ),
                )

    async def ListClients(
        self, request: pb.ListClientsRequest, context: Context
    ) -> pb.ListClientsResponse:
        async with Answering(self._reports.gate, context, "list clients") as caller:
            topic = checked_name(request.topic) if request.topic else ""
            clients = self._reports.clients
            if request.local_only:
                return clients.own(topic)
            return await clients.whole(topic, caller.principal)

    async def DescribeCosts(
        self, request: pb.DescribeCostsRequest, context: Context
    ) -> pb.CostsResponse:
        async with Answering(self._reports.gate, context, "describe costs") as caller:
            costs = self._reports.costs
            return costs.own() if request.local_only else await costs.whole(caller.principal)

    async def ListEvents(
        self, request: pb.ListEventsRequest, context: Context
    ) -> pb.ListEventsResponse:
        async with Answering(self._reports.gate, context, "list events") as caller:
            events, diagnosis = self._reports.events, self._reports.diagnosis
            if request.local_only:
                answer = events.own(request)
            else:
                answer = await events.whole(request, caller.principal)
            return await diagnosis.masked_events(answer) if request.mask_secrets else answer

    async def Diagnose(self, request: pb.DiagnoseRequest, context: Context) -> pb.DiagnoseResponse:
        async with Answering(self._reports.gate, context, "diagnose") as caller:
            diagnosis = self._reports.diagnosis
            if request.local_only:
                return await diagnosis.own()
            return await diagnosis.whole(caller.principal)

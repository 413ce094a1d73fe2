"""rlm.v1.AdminService of an attached reader: the status of what it serves, and no command.

There is no cluster to command. Every other method answers UNIMPLEMENTED, as at a reader that has no
AdminService.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grpc import StatusCode

from rlm.api import messages
from rlm.api.calls import Answering, Gate
from rlm.api.endpoints import Endpoint
from rlm.api.ports import PartitionStatus
from rlm.clock import Clock
from rlm.plans.problems import Problem, health_of
from rlm.remote_log.remote_only import RemoteView
from rlm.remote_log.remote_state import RemotePartitionState
from rlm.stores.reports import StoreStatus
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import admin_pb2_grpc
from rsm_plugins.contract.answering import Context

_NOBODY = -1
_STATUS = "Status"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedDependencies:
    """Collaborators; their creator closes them."""

    gate: Gate
    view: RemoteView
    own: Endpoint
    problems: Callable[[], Sequence[Problem]]
    stores: Callable[[], Sequence[StoreStatus]]
    clock: Clock


class AttachedAdminService(admin_pb2_grpc.AdminServiceServicer):
    """See proto/rlm/v1/admin.proto."""

    def __init__(self, dependencies: AttachedDependencies) -> None:
        self._dependencies = dependencies

    async def Status(self, request: pb.StatusRequest, context: Context) -> Any:
        """The answer is bytes as they go over the wire: see rlm.api.server."""
        own = self._dependencies
        async with Answering(own.gate, context, "status"):
            view, now_ms = own.view, own.clock.now_ms()
            topics = await view.topics([request.topic] if request.topic else [])
            states = [view.current(record, one) for record, numbers in topics for one in numbers]
            problems = own.problems()
            shown = [one for one in problems if request.topic in ("", one.topic) or not one.topic]
            answer = pb.StatusResponse(
                partitions=[messages.partition_message(_status(one), now_ms) for one in states],
                services=[self._service(problems)],
                problems=[messages.problem_message(one, _NOBODY) for one in shown],
            )
            return answer.SerializeToString()

    def _service(self, problems: Sequence[Problem]) -> pb.ServiceStatus:
        own = self._dependencies.own
        return pb.ServiceStatus(
            node_id=_NOBODY,
            version=own.version,
            grpc_address=own.grpc_address,
            heartbeat_age_ms=0,
            reachable=True,
            stores=[messages.store_message(one) for one in self._dependencies.stores()],
            health=health_of(problems),
        )


async def _not_served(service: object, request: object, context: Any) -> None:
    await context.abort(
        StatusCode.UNIMPLEMENTED, "an attached reader has no cluster, and so no such command"
    )


for _method in pb.DESCRIPTOR.services_by_name["AdminService"].methods:
    if _method.name != _STATUS:
        setattr(AttachedAdminService, _method.name, _not_served)


def _status(state: RemotePartitionState) -> PartitionStatus:
    partition, ledger = state.topic_id_partition, state.history.ledger
    return PartitionStatus(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        leader=_NOBODY,
        leader_epoch=_NOBODY,
        remote_log_start_offset=state.log_start_offset,
        remote_next_offset=state.next_offset if state.has_records else _NOBODY,
        frozen=state.frozen or "; ".join(one.text for one in state.doubts),
        remote_size_bytes=ledger.finished_total.size_bytes,
        remote_segments=ledger.finished_total.segments,
    )

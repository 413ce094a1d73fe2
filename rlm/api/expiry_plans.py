"""What total retention would delete now: own partitions, and those of every peer that answers.

Only the leader of a partition can plan it. A partition that nobody planned is shown with the
reason: unknown is not nothing (H38).
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from kip405.errors import RemoteStorageError
from rlm.api.fan_out import answers_of_others
from rlm.api.peers import Peers
from rlm.api.ports import Broker
from rlm.plans.expiry import PartitionExpiry
from rlm.v1 import admin_pb2 as pb
from rlmm.settings_records import TopicRecord


class Planner(Protocol):
    """Plans what is led here; changes nothing (rlm.service.tasks)."""

    async def plan_expiry(self, topic: TopicRecord) -> Sequence[PartitionExpiry]: ...


class ExpiryPlans:
    """Owns nothing."""

    def __init__(self, *, peers: Peers, planner: Planner, broker: Broker) -> None:
        self._peers = peers
        self._planner = planner
        self._broker = broker

    async def own(self, topic: TopicRecord) -> pb.PlanExpiryResponse:
        """The partitions that this service's broker leads."""
        found = await self._planner.plan_expiry(topic)
        return pb.PlanExpiryResponse(partitions=[_message(topic, one) for one in found])

    async def whole(self, topic: TopicRecord, principal: str) -> pb.PlanExpiryResponse:
        """All partitions; those whose leader's service does not answer have a problem."""
        own = await self.own(topic)
        request = pb.PlanExpiryRequest(topic=topic.name, local_only=True)
        answers, silent = await answers_of_others(
            self._peers, lambda stubs: stubs.admin.PlanExpiry, request, principal
        )
        rows = [row for answer in (own, *answers) for row in answer.partitions]
        rows += await self._missing(topic, rows, silent)
        rows.sort(key=lambda row: row.partition)
        return pb.PlanExpiryResponse(partitions=rows)

    async def _missing(
        self, topic: TopicRecord, known: Iterable[pb.ExpiryPlan], silent: dict[int, str]
    ) -> list[pb.ExpiryPlan]:
        described = await self._broker.topic(topic.name)
        seen = {row.partition for row in known}
        return [
            pb.ExpiryPlan(
                topic=topic.name,
                partition=row.partition,
                remote_log_start_offset=-1,
                new_remote_log_start_offset=-1,
                problem=silent.get(row.leader)
                or f"no service has planned it; its leader is {row.leader}",
            )
            for row in described.partitions.values()
            if row.partition not in seen
        ]


def _message(topic: TopicRecord, found: PartitionExpiry) -> pb.ExpiryPlan:
    if isinstance(found.plan, RemoteStorageError):
        return pb.ExpiryPlan(
            topic=topic.name,
            partition=found.partition,
            remote_log_start_offset=-1,
            new_remote_log_start_offset=-1,
            problem=str(found.plan),
        )
    plan = found.plan
    timestamps = [one.max_timestamp_ms for one in plan.segments]
    return pb.ExpiryPlan(
        topic=topic.name,
        partition=found.partition,
        remote_log_start_offset=plan.remote_log_start_offset,
        new_remote_log_start_offset=plan.new_start,
        segments=len(plan.segments),
        size_bytes=sum(one.segment_size_bytes for one in plan.segments),
        oldest_timestamp_ms=min(timestamps, default=None),
        newest_timestamp_ms=max(timestamps, default=None),
        reason=plan.held.words,
    )

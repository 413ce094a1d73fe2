"""What enabling a topic would mean, by the services of all leaders, for PlanTopic.

The service of the partition-0 leader checks, as for EnableTopic; each leader's service measures. A
partition that nobody measured is shown with the reason: unknown is not nothing (H38). Nobody waits
for a plan but its caller, and PLANS_MOST are made at once. So many measure here at a time, for
plans of this service and of others; those that wait are bounded too.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from kip405.errors import Busy, RemoteStorageError
from kip405.topic_names import checked_name
from rlm.api import messages
from rlm.api.fan_out import answers_of_others, why_silent
from rlm.api.peers import Peers
from rlm.broker.answers import PartitionDescription, TopicDescription
from rlm.plans.enabling import PartitionMeasure
from rlm.plans.retention import LocalRetention, effective_local_retention
from rlm.topics.verbs import EnableCheck, EnableOptions
from rlm.v1 import admin_pb2 as pb

PLANS_MOST = 2
WAITING_MOST = 64
"""Measures for other services: each of them makes PLANS_MOST plans at once."""


class Checker(Protocol):
    """The topic verbs (rlm.topics.verbs)."""

    async def check(self, name: str, options: EnableOptions) -> EnableCheck: ...


class TopicMeasures(Protocol):
    """What our broker leads of a topic (rlm.service.topic_plans)."""

    async def own(
        self, topic: TopicDescription, retention: LocalRetention
    ) -> Mapping[int, PartitionMeasure | RemoteStorageError]:
        """Each partition led here, by number: its measure, or why there is none."""
        ...


class Broker(Protocol):
    """Our own broker."""

    async def topic(self, name: str) -> TopicDescription: ...


class TopicPlans:
    """`copy_limit`: bytes a second that this service may copy."""

    def __init__(
        self,
        *,
        peers: Peers,
        check: Checker,
        measures: TopicMeasures,
        broker: Broker,
        copy_limit: Callable[[], int],
    ) -> None:
        self._peers = peers
        self._check = check
        self._measures = measures
        self._broker = broker
        self._copy_limit = copy_limit
        self._turns = asyncio.Semaphore(PLANS_MOST)
        self._measuring = asyncio.Semaphore(PLANS_MOST)
        self._waiting = 0

    async def own(self, request: pb.EnableTopicRequest) -> pb.TopicPlan:
        """The partitions that our broker leads, with the local retention of the request. Busy:
        WAITING_MOST are to be measured already.
        """
        topic = await self._broker.topic(checked_name(request.topic))
        retention = LocalRetention(
            max_age_ms=_limit(request, "local_retention_ms"),
            max_bytes=_limit(request, "local_retention_bytes"),
        )
        return pb.TopicPlan(topic=topic.name, partitions=await self._own_rows(topic, retention))

    async def whole(self, request: pb.EnableTopicRequest, principal: str) -> pb.TopicPlan:
        """All partitions. NotLeader: call the service of `error.leader`; NotFound, Invalid. Busy:
        PLANS_MOST are being made.
        """
        if self._turns.locked():
            raise Busy(f"{PLANS_MOST} plans of topics are being made here: ask again in a moment")
        async with self._turns:
            return await self._whole(request, principal)

    async def _whole(self, request: pb.EnableTopicRequest, principal: str) -> pb.TopicPlan:
        options = messages.enable_options_of(request, by=principal)
        found = await self._check.check(checked_name(request.topic), options)
        retention = effective_local_retention(found.retention)
        rows = await self._own_rows(found.topic, retention)
        asked = pb.PlanTopicRequest(
            enable=pb.EnableTopicRequest(
                topic=request.topic,
                local_retention_ms=retention.max_age_ms,
                local_retention_bytes=retention.max_bytes,
            ),
            local_only=True,
        )
        answers, errors = await answers_of_others(
            self._peers, lambda stubs: stubs.admin.PlanTopic, asked, principal
        )
        rows += [row for answer in answers for row in answer.partitions]
        seen = {row.partition for row in rows}
        rows += [
            _unknown(one, why_silent(one.leader, errors))
            for one in found.topic.partitions.values()
            if one.partition not in seen
        ]
        rows.sort(key=lambda row: row.partition)
        return pb.TopicPlan(
            topic=found.topic.name,
            refusal="" if found.refusal is None else str(found.refusal),
            warnings=found.warnings,
            local_retention_ms=retention.max_age_ms,
            local_retention_bytes=retention.max_bytes,
            partitions=rows,
        )

    async def _own_rows(
        self, topic: TopicDescription, retention: LocalRetention
    ) -> list[pb.PartitionPlan]:
        if self._waiting >= WAITING_MOST:
            raise Busy(f"{WAITING_MOST} plans of topics wait here: ask again in a moment")
        self._waiting += 1
        try:
            async with self._measuring:
                found = await self._measures.own(topic, retention)
        finally:
            self._waiting -= 1
        return [self._row(topic.partitions[number], one) for number, one in found.items()]

    def _row(
        self, described: PartitionDescription, found: PartitionMeasure | RemoteStorageError
    ) -> pb.PartitionPlan:
        if isinstance(found, RemoteStorageError):
            return _unknown(described, str(found))
        return pb.PartitionPlan(
            partition=described.partition,
            leader=described.leader,
            replicas=len(described.replicas),
            segments=found.segments,
            size_bytes=found.size_bytes,
            local_bytes=found.local_bytes,
            freed_bytes=found.freed_bytes,
            objects=found.objects,
            requests=found.requests,
            copy_bytes_per_second=self._copy_limit(),
        )


def _limit(request: pb.EnableTopicRequest, field: str) -> int | None:
    return getattr(request, field) if request.HasField(field) else None


def _unknown(described: PartitionDescription, why: str) -> pb.PartitionPlan:
    return pb.PartitionPlan(
        partition=described.partition,
        leader=described.leader,
        replicas=len(described.replicas),
        problem=why,
    )

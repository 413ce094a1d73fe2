"""Verifies the whole cluster: own partitions, those of every other leader's service, and gaps.

A partition that no service reports is shown as unchecked with the reason: unknown is not clean
(H38).
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from kip405.errors import RemoteStorageError
from kip405.ids import TopicPartition
from rlm.api import messages
from rlm.api.fan_out import merged_rows, why_silent
from rlm.api.peers import Peer, Peers
from rlm.api.ports import Broker
from rlm.tasks.verify_runs import Event
from rlm.topics.ports import Settings
from rlm.v1 import admin_pb2 as pb

_IDLE_MS = 300_000
"""A peer reports progress after each batch of its store, which may take as long as one call."""


class Runs(Protocol):
    """Verifies what is led here (rlm.tasks.verify_runs)."""

    def run(self, topic: str, *, deep: bool) -> AsyncGenerator[Event, None]: ...


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """`reported` partitions, and why a node (by id) did not report all of its own."""

    reported: set[TopicPartition] = field(default_factory=set)
    errors: dict[int, str] = field(default_factory=dict)


class ClusterVerify:
    """Owns nothing."""

    def __init__(self, *, peers: Peers, runs: Runs, settings: Settings, broker: Broker) -> None:
        self._peers = peers
        self._runs = runs
        self._settings = settings
        self._broker = broker

    async def own(self, topic: str, *, deep: bool) -> AsyncGenerator[pb.VerifyResponse, None]:
        """The partitions that this service's broker leads."""
        async with aclosing(self._runs.run(topic, deep=deep)) as events:
            async for event in events:
                yield messages.verify_message(event, self._peers.node_id)

    async def whole(
        self, topic: str, principal: str, *, deep: bool
    ) -> AsyncGenerator[pb.VerifyResponse, None]:
        """The partitions of all brokers, each service working at the same time."""
        gathered = _Gathered()
        streams: dict[int, AsyncIterator[pb.VerifyResponse]] = {
            peer.node_id: self._of_peer(peer, topic, principal, deep)
            for peer in self._peers.others()
        }
        streams[self._peers.node_id] = self.own(topic, deep=deep)
        async with aclosing(merged_rows(streams, gathered.errors)) as rows:
            async for row in rows:
                if row.HasField("partition"):
                    gathered.reported.add(
                        TopicPartition(row.partition.topic, row.partition.partition)
                    )
                yield row
        for row in await self._missing(topic, gathered):
            yield row

    async def _of_peer(
        self, peer: Peer, topic: str, principal: str, deep: bool
    ) -> AsyncIterator[pb.VerifyResponse]:
        request = pb.VerifyRequest(topic=topic, deep=deep, local_only=True)
        async for row in self._peers.stream(
            peer.grpc_address,
            lambda stubs, sent: stubs.admin.Verify(request, metadata=sent),
            principal=principal,
            idle_ms=_IDLE_MS,
        ):
            yield row

    async def _missing(self, topic: str, gathered: _Gathered) -> list[pb.VerifyResponse]:
        """Partitions that nobody reported, with the reason."""
        records = {
            record.topic_id: record
            for record in self._settings.view.topics()
            if topic in ("", record.name)
        }
        try:
            topics = await self._broker.topics(sorted({one.name for one in records.values()}))
        except RemoteStorageError as error:
            return [_unchecked(topic, -1, -1, f"the broker does not say what there is: {error}")]
        seen = {described.topic_id for described in topics}
        unseen = [
            _unchecked(record.name, -1, -1, "the broker does not describe the topic (H7)")
            for topic_id, record in records.items()
            if topic_id not in seen and record.state == "enabled"
        ]
        return unseen + [
            _unchecked(
                described.name,
                number,
                partition.leader,
                why_silent(partition.leader, gathered.errors),
            )
            for described in topics
            if described.topic_id in records
            for number, partition in sorted(described.partitions.items())
            if TopicPartition(described.name, number) not in gathered.reported
        ]


def _unchecked(topic: str, partition: int, leader: int, why: str) -> pb.VerifyResponse:
    return pb.VerifyResponse(
        partition=pb.VerifiedPartition(
            topic=topic, partition=partition, node_id=leader, unchecked=[why]
        )
    )

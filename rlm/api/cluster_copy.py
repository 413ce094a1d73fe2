"""Copies closed segments of the whole cluster now: each partition by its leader's service.

A partition without a leader for the moment, or whose leader's service has not seen yet that it
leads, is asked for again for half a minute, once the others are copied. One that no service reports
then is shown as not complete with the reason (H38).
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing, suppress
from typing import Protocol

from kip405.errors import Invalid, NotFound, Unavailable
from kip405.ids import TopicPartition
from rlm.api.fan_out import merged_rows, why_silent
from rlm.api.peers import Peer, Peers
from rlm.api.ports import Broker
from rlm.clock import Clock
from rlm.tasks.copy_runs import CopyEvent, CopyProgress, CopyTarget
from rlm.v1 import admin_pb2 as pb

_IDLE_MS = 60_000
"""Several times as long as a run is silent."""
_LED_WITHIN_MS = 30_000
_AGAIN_MS = 500


class Runs(Protocol):
    """Copies what is led here (rlm.tasks.copy_runs)."""

    def run(self, target: CopyTarget) -> AsyncGenerator[CopyEvent, None]: ...


class ClusterCopy:
    """Owns nothing."""

    def __init__(self, *, peers: Peers, runs: Runs, broker: Broker, clock: Clock) -> None:
        self._peers = peers
        self._runs = runs
        self._broker = broker
        self._clock = clock

    async def run(
        self, request: pb.CopyClosedRequest, principal: str
    ) -> AsyncGenerator[pb.CopyClosedResponse, None]:
        """The partitions of the request; NotFound for one that is not there. Invalid: an offset for
        several.
        """
        leaders = await self._leaders(request)
        if request.HasField("up_to_offset") and len(leaders) != 1:
            raise Invalid("an offset goes with one partition: name it as TOPIC:PARTITION")
        own = self._own(request, leaders)
        rows = own if request.local_only else self._until_reported(request, leaders, principal)
        async with aclosing(rows):
            async for row in rows:
                yield row

    async def _own(
        self, request: pb.CopyClosedRequest, partitions: Collection[TopicPartition]
    ) -> AsyncGenerator[pb.CopyClosedResponse, None]:
        has_keep, has_end = map(request.HasField, ("keep_local_bytes", "up_to_offset"))
        target = CopyTarget(
            partitions=frozenset(partitions),
            keep_local_bytes=request.keep_local_bytes if has_keep else None,
            up_to_offset=request.up_to_offset if has_end else None,
        )
        async with aclosing(self._runs.run(target)) as events:
            async for event in events:
                yield _message(event, self._peers.node_id)

    async def _until_reported(
        self,
        request: pb.CopyClosedRequest,
        leaders: dict[TopicPartition, int],
        principal: str,
    ) -> AsyncGenerator[pb.CopyClosedResponse, None]:
        until_ms: int | None = None
        left = dict(leaders)
        while left:
            errors: dict[int, str] = {}
            async with aclosing(self._round(request, left, principal, errors)) as rows:
                async for row in rows:
                    if row.HasField("partition"):
                        left.pop(TopicPartition(row.partition.topic, row.partition.partition), None)
                    yield row
            now_ms = self._clock.monotonic_ms()
            if until_ms is None:
                until_ms = now_ms + _LED_WITHIN_MS  # the first round may take hours
            is_over = now_ms >= until_ms
            for partition, leader in tuple(left.items()):
                if is_over or leader in errors:
                    del left[partition]
                    yield _unreported(partition, leader, f"{why_silent(leader, errors)}; ask again")
            if left:
                await self._clock.sleep_ms(_AGAIN_MS)
                request = _narrowed(request, left)
                with suppress(Unavailable):  # asked again in the next round
                    left = await self._leaders(request)

    async def _round(
        self,
        request: pb.CopyClosedRequest,
        leaders: dict[TopicPartition, int],
        principal: str,
        errors: dict[int, str],
    ) -> AsyncGenerator[pb.CopyClosedResponse, None]:
        """Rows of the services that lead them; `errors` gets why one ended early."""
        streams: dict[int, AsyncIterator[pb.CopyClosedResponse]] = {
            peer.node_id: self._of_peer(peer, request, principal)
            for peer in self._peers.others()
            if peer.node_id in leaders.values()
        }
        streams[self._peers.node_id] = self._own(request, leaders)
        async with aclosing(merged_rows(streams, errors)) as rows:
            async for row in rows:
                yield row

    async def _of_peer(
        self, peer: Peer, request: pb.CopyClosedRequest, principal: str
    ) -> AsyncIterator[pb.CopyClosedResponse]:
        local = pb.CopyClosedRequest()
        local.CopyFrom(request)
        local.local_only = True
        async for row in self._peers.stream(
            peer.grpc_address,
            lambda stubs, sent: stubs.admin.CopyClosed(local, metadata=sent),
            principal=principal,
            idle_ms=_IDLE_MS,
        ):
            yield row

    async def _leaders(self, request: pb.CopyClosedRequest) -> dict[TopicPartition, int]:
        """The leader of each partition that is meant, -1 = none."""
        names = sorted({target.topic for target in request.targets})
        topics = {name: await self._broker.topic(name) for name in names}
        found: dict[TopicPartition, int] = {}
        for target in request.targets:
            rows = topics[target.topic].partitions
            numbers = [target.partition] if target.HasField("partition") else sorted(rows)
            for number in numbers:
                if number not in rows:
                    raise NotFound(f"topic {target.topic} has no partition {number}")
                found[TopicPartition(target.topic, number)] = rows[number].leader
        return found


def _narrowed(
    request: pb.CopyClosedRequest, partitions: Collection[TopicPartition]
) -> pb.CopyClosedRequest:
    """The same for these partitions only."""
    narrowed = pb.CopyClosedRequest()
    narrowed.CopyFrom(request)
    del narrowed.targets[:]
    narrowed.targets.extend(
        pb.CopyTarget(topic=one.topic, partition=one.partition) for one in partitions
    )
    return narrowed


def _message(event: CopyEvent, node_id: int) -> pb.CopyClosedResponse:
    topic, partition = event.partition.topic, event.partition.partition
    if isinstance(event, CopyProgress):
        return pb.CopyClosedResponse(
            progress=pb.CopyProgress(
                topic=topic,
                partition=partition,
                node_id=node_id,
                doing=event.doing.value,
                segments=event.segments,
                segments_total=event.segments_total,
                size_bytes=event.size_bytes,
                size_total_bytes=event.size_total_bytes,
                error=event.error,
            )
        )
    return pb.CopyClosedResponse(
        partition=pb.CopiedPartition(
            topic=topic,
            partition=partition,
            node_id=node_id,
            segments=event.segments,
            size_bytes=event.size_bytes,
            first_uncopied_offset=event.first_uncopied_offset,
            local_log_start_offset=event.local_log_start_offset,
            complete=event.is_complete,
            why=event.why,
        )
    )


def _unreported(partition: TopicPartition, leader: int, why: str) -> pb.CopyClosedResponse:
    return pb.CopyClosedResponse(
        partition=pb.CopiedPartition(
            topic=partition.topic,
            partition=partition.partition,
            node_id=leader,
            first_uncopied_offset=-1,
            local_log_start_offset=-1,
            why=why,
        )
    )

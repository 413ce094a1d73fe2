"""A partition in memory with both tiers, which are trimmed, late and away as a test wants them.

aiokafka's fetcher and its subscription state are real, and so are `ServiceRemoteLog` and the
failover below it; only connections are not.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import NodeNotReadyError
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from kip405.batches import batch_headers
from rlm.v1 import fetch_pb2 as pb
from rlm_client.counters import ConsumerCounters
from rlm_client.remote_log import ServiceRemoteLog
from rlm_client.tiered_fetcher import TieredFetcher
from tests.kip405.batch_builder import batch, control_batch
from tiered_reads.errors import ServiceError
from tiered_reads.fetch_client import Answer, BelowLogStart, BeyondLogEnd, FetchAsk
from tiered_reads.kafka_requests import TopicMetadata
from tiered_reads.stopping import Stop
from tiered_reads.values import Fetched, ReadMode

PARTITION = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
OUT_OF_RANGE, NOT_LEADER = 1, 6
_DENIED = 29
_REFUSED_WITHIN_S = 60
_ABORT = 0
_NODE = 1


@dataclass(slots=True)
class World:
    """Kafka has [kafka_start, end), the remote tier [remote_start, remote_end), of which a reader's
    service knows what is below `known_end`. `holes`: what no tier has. `away`, `leader_away`: how
    many calls to services, or to the leader's, fail; `refusing`: how many fetches Kafka refuses.
    `hidden`: how many fetches by the topic's id are of an id that services do not know.
    `configs`: what brokers say of the topic's, None = nothing. `refusal`, `refused_question`: where
    it is given, the next fetch, or question for an offset, is refused when it is set.
    """

    kafka_start: int = 0
    remote_start: int = 0
    remote_end: int = 0
    known_end: int = 0
    end: int = 0
    is_tiered: bool = True
    topic_id: bytes = TOPIC_ID
    kafka_topic_id: bytes = TOPIC_ID
    away: int = 0
    leader_away: int = 0
    refusing: int = 0
    hidden: int = 0
    configs: dict[str, str] | None = None
    refusal: threading.Event | None = None
    refused_question: threading.Event | None = None
    holes: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def append(self, count: int) -> None:
        """A batch of records that count."""
        self._add(count, batch(self.end, count))
        self.given += range(self.end - count, self.end)

    def append_aborted(self, count: int) -> None:
        """A batch that was aborted, and its marker."""
        begun = self.end
        self.append_open(count, 7)
        self.abort(7, begun)

    def append_open(self, count: int, producer_id: int) -> None:
        """A batch of a transaction that is not ended."""
        self._add(count, batch(self.end, count, transactional=True, producer_id=producer_id))

    def abort(self, producer_id: int, first_offset: int) -> None:
        """The marker of a transaction that began there."""
        self.aborted.append((producer_id, first_offset, self.end))
        self._add(1, control_batch(self.end, _ABORT, producer_id=producer_id))

    def compact(self) -> None:
        """Offsets that compaction has left no batch of."""
        self.end += 2

    def _add(self, count: int, data: bytes) -> None:
        self.batches.append((self.end, self.end + count, data))
        self.end += count

    def copy(self, end_offset: int) -> None:
        """The remote tier has offsets up to there; readers do not know it yet."""
        with self.lock:
            self.remote_end = max(self.remote_end, min(end_offset, self.end))

    def learn(self) -> None:
        """Readers know what is remote."""
        with self.lock:
            self.known_end = self.remote_end

    def trim(self, offset: int) -> None:
        """Kafka drops what is remote and below an offset."""
        with self.lock:
            self.kafka_start = max(self.kafka_start, min(offset, self.remote_end))

    def read(self, start: int, end: int, most: int) -> tuple[bytes, int]:
        """Whole batches from the one with `start` on, below `end`, and the next offset."""
        data, position = b"", start
        for first, after, stored in self.batches:
            if after <= start or first >= end:
                continue
            data += stored
            position = after
            most -= 1
            if most == 0:
                break
        else:
            position = end
        return data, position

    def aborted_in(self, data: bytes) -> tuple[tuple[int, int], ...]:
        """Producer and first offset of those that overlap the batches, in order of their ends."""
        found = [one for _, one in batch_headers(data)]
        return tuple(
            (producer_id, first)
            for producer_id, first, last in self.aborted
            if any(first < one.next_offset and one.base_offset <= last for one in found)
        )


class FakeClient:
    """aiokafka's client of a broker that leads the partition."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._metadata_max_age_ms = 300_000
        self._loop = asyncio.get_running_loop()
        self.cluster = SimpleNamespace(leader_for_partition=lambda _: _NODE)

    def force_metadata_update(self) -> Any:
        done = asyncio.get_running_loop().create_future()
        done.set_result(True)
        return done

    async def _maybe_wait_metadata(self) -> None: ...

    def get_random_node(self) -> int:
        return _NODE

    async def send(self, node: int, request: Any) -> Any:
        await asyncio.sleep(0.001)
        world = self._world
        with world.lock:
            if isinstance(request, FetchRequest):
                return self._fetched(request)
            if isinstance(request, OffsetRequest):
                return self._listed(request)
            if isinstance(request, DescribeConfigsRequest):
                return self._configured()
            row = TopicMetadata(
                error_code=0, name="t", topic_id=world.kafka_topic_id, leaders={0: _NODE}
            )
            return (row,)

    def _fetched(self, request: FetchRequest) -> Any:
        world = self._world
        [(topic, [(partition, offset, _)])] = request.topics
        error, data = 0, b""
        if world.refusing:
            world.refusing -= 1
            if world.refusing % 2:
                raise NodeNotReadyError("the broker is away")
            error = NOT_LEADER
        elif not world.kafka_start <= offset <= world.end:
            error = OUT_OF_RANGE
        else:
            data, _ = world.read(offset, world.end, 2)
        aborted = list(world.aborted_in(data))
        row = (partition, error, world.end, world.end, world.kafka_start, aborted, -1, data)
        return SimpleNamespace(API_VERSION=11, topics=[(topic, [row])])

    def _listed(self, request: OffsetRequest) -> Any:
        world = self._world
        rows = [
            (partition, 0, -1, {-1: world.end, -2: world.kafka_start}.get(at, world.kafka_start))
            for _, partitions in request._topics
            for partition, at in partitions
        ]
        return SimpleNamespace(API_VERSION=3, topics=[("t", rows)])

    def _configured(self) -> Any:
        found = self._world.configs
        entries: list[Any] = [
            (name, value, False, 5, False, []) for name, value in (found or {}).items()
        ]
        denied = _DENIED if found is None else 0
        return SimpleNamespace(API_VERSION=1, resources=[(denied, "", 2, "t", entries)])


class FakeFetchApi:
    """The client of services."""

    def __init__(self, world: World) -> None:
        self._world = world

    def close(self) -> None: ...

    def describe_topics(
        self, topics: Any, partition: Any, stop: Stop
    ) -> tuple[pb.TieredTopic, ...]:
        world = self._world
        with world.lock:
            self._check(False)
            if not world.is_tiered:
                return ()
            known = world.known_end if world.known_end > world.remote_start else -1
            row = pb.TieredPartition(
                partition=0, remote_log_start_offset=world.remote_start, remote_next_offset=known
            )
            return (pb.TieredTopic(topic="t", topic_id=world.topic_id, partitions=[row]),)

    def list_dated_offset(
        self, partition: Any, timestamp: int, *, remote_only: bool, read_committed: bool, stop: Stop
    ) -> tuple[int, int] | None:
        world = self._world
        refusal, world.refused_question = world.refused_question, None
        _refuse(refusal)
        with world.lock:
            self._check(not remote_only)
            if not world.is_tiered:
                raise ServiceError("NOT_FOUND", "topic t is not enabled")
            start = min(world.remote_start, world.kafka_start) if world.remote_end else 0
            end = world.known_end if remote_only else world.end
            return {-1: end, -2: world.remote_start if remote_only else start}[timestamp], -1

    def fetch(self, ask: FetchAsk, stop: Stop) -> Generator[Answer, None, None]:
        world, position = self._world, ask.wanted.start_offset
        refusal, world.refusal = world.refusal, None
        _refuse(refusal)
        while position < ask.wanted.end_offset:
            stop.check()
            with world.lock:
                self._check(not ask.remote_only)
                if not world.is_tiered:
                    raise ServiceError("NOT_FOUND", "topic t is not enabled")
                if ask.topic_id not in (None, world.topic_id) or (ask.topic_id and world.hidden):
                    world.hidden = max(world.hidden - 1, 0)
                    raise ServiceError("NOT_FOUND", "no topic has the id")
                if position < world.remote_start:
                    raise BelowLogStart(world.remote_start, "below the log start")
                known = world.known_end if ask.remote_only else world.end
                upto = min(ask.wanted.end_offset, known)
                if position > known and not ask.remote_only:
                    raise BeyondLogEnd("beyond the log end")
                if position >= upto:
                    return
                answer = self._answer(position, upto)
            yield answer
            position = answer.piece.next_offset

    def _answer(self, position: int, upto: int) -> Answer:
        world = self._world
        for start, end in world.holes:
            if start <= position < end:
                piece = Fetched(batches=b"", start_offset=position, next_offset=end)
                return Answer(piece=piece, missing=((position, end),))
        upto = min([upto, *(start for start, _ in world.holes if start > position)])
        data, after = world.read(position, upto, 1)
        piece = Fetched(
            batches=memoryview(data),
            start_offset=position,
            next_offset=after,
            aborted=world.aborted_in(data),
        )
        return Answer(piece=piece)

    def _check(self, is_leaders: bool) -> None:
        world = self._world
        if world.away:
            world.away -= 1
            raise ServiceError("UNAVAILABLE", "the service is away")
        if is_leaders and world.leader_away:
            world.leader_away -= 1
            raise ServiceError("UNAVAILABLE", "the leader's service is away")


def _refuse(when: threading.Event | None) -> None:
    if when is not None:
        when.wait(_REFUSED_WITHIN_S)
        raise ServiceError("INVALID", "the caller has no right")


@dataclass(slots=True)
class Reader:
    """A consumer of the partition without its connections."""

    fetcher: TieredFetcher
    subscription: SubscriptionState
    counters: ConsumerCounters
    got: list[int] = field(default_factory=list)

    @property
    def state(self) -> Any:
        return self.subscription.subscription.assignment.state_value(PARTITION)

    async def take(self, timeout: float = 0.02, max_records: int | None = None) -> list[int]:
        """What one call gives; kept in `got`."""
        found = await self.fetcher.fetched_records((), timeout, max_records=max_records)
        offsets = [record.offset for records in found.values() for record in records]
        self.got += offsets
        return offsets

    async def take_until(self, offset: int, limit_s: float = 60) -> None:
        """Until the position is there."""
        async with asyncio.timeout(limit_s):
            while not self.state.has_valid_position or self.state.position < offset:
                await self.take()


@contextlib.asynccontextmanager
async def reading(
    world: World,
    mode: ReadMode,
    *,
    committed: int | None = 0,
    policy: str = "none",
    isolation: str = "read_committed",
    settle_ms: int = 60,
    retry_timeout_ms: int | None = None,
    value_deserializer: Any = None,
) -> AsyncIterator[Reader]:
    """`committed`: where the group begins; None = it has committed nothing."""
    subscription, counters = SubscriptionState(), ConsumerCounters()
    subscription.assign_from_user([PARTITION])
    remote_log = ServiceRemoteLog(
        FakeFetchApi(world),  # type: ignore[arg-type]
        read_committed=isolation == "read_committed",
        max_bytes=1 << 20,
        settle_ms=settle_ms,
    )
    fetcher = TieredFetcher(
        FakeClient(world),
        subscription,
        mode=mode,
        remote_log=remote_log,
        counters=counters,
        auto_offset_reset=policy,
        retry_timeout_ms=retry_timeout_ms,
        settle_ms=settle_ms,
        poll_ms=5,
        key_deserializer=None,
        value_deserializer=value_deserializer,
        fetcher_timeout=0.003,
        retry_backoff_ms=2,
        isolation_level=isolation,
    )
    reader = Reader(fetcher, subscription, counters)
    answering = asyncio.create_task(answer_commits(subscription, committed))
    try:
        yield reader
    finally:
        answering.cancel()
        await fetcher.close()


async def answer_commits(subscription: SubscriptionState, committed: int | None) -> None:
    """What the group has committed, for the assignment that is now."""
    assignment = subscription.subscription.assignment
    while True:
        await assignment.commit_refresh_needed.wait()
        assignment.commit_refresh_needed.clear()
        offset = -1 if committed is None else committed
        for one in assignment.requesting_committed():
            assignment.state_value(one).update_committed(OffsetAndMetadata(offset, ""))

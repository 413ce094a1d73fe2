"""Answers ListOffsets, OffsetForLeaderEpoch and DeleteRecords: the broker first, then the view.

No answer about an offset is sent before settings and ledger have passed a barrier that was taken
after the broker's answer (H17). DeleteRecords cannot be undone, so its barrier comes before the
request to the broker (H26). rlm/remote_log/list_offsets.py decides what is right. This module must
not know sockets.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import structlog

from kafka_protocol.apis import DELETE_RECORDS, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kafka_protocol.error_codes import KAFKA_STORAGE_ERROR, NONE, POLICY_VIOLATION
from kafka_protocol.fetch import CONSUMER_REPLICA_ID
from kafka_protocol.frames import (
    encode_response,
    frame_length,
    parse_request_header,
    parse_response_header,
)
from kafka_protocol.primitives import Buffer
from kafka_protocol.schema import Api, decode, encode
from kip405.errors import Fenced, RemoteStorageError, Unavailable
from rlm.clock import Clock
from rlm.proxy.position_answers import (
    NOT_NOW,
    Question,
    Value,
    apply_epoch_end,
    apply_error,
    apply_position,
    epoch_end_of,
    merge_deletes,
    paired,
    questions,
    without_refused,
)
from rlm.proxy.reads import STREAMED, WHOLE, Upstream, frozen, guarded
from rlm.proxy.session import Taken
from rlm.proxy.settings import ProxyMetrics, ProxySettings
from rlm.remote_log.list_offsets import BothTiers, Position, needs_view
from rlm.remote_log.tier import Tier, TierPartition, TopicRef

log = structlog.get_logger(__name__)

_FIRST_EPOCH_WITH_REPLICA_ID = 3
_MOST_AT_ONCE = 64

Work = Callable[[], Awaitable[None]]
View = TierPartition | RemoteStorageError | None


class PositionHandler:
    """Answers the requests about offsets of one connection."""

    def __init__(
        self, settings: ProxySettings, tier: Tier, clock: Clock, metrics: ProxyMetrics
    ) -> None:
        self._wait_ms = settings.barrier_wait_ms
        self._tier = tier
        self._both = BothTiers(tier, deadline_ms=settings.barrier_wait_ms)
        self._clock = clock
        self._metrics = metrics
        self._deadline_ms = 0

    def _left_ms(self) -> int:
        """The rest of the time of one request, whatever its number of partitions."""
        return max(1, self._deadline_ms - self._clock.monotonic_ms())

    async def list_offsets(self, taken: Taken, upstream: Upstream) -> list[Buffer] | None:
        """The broker's answer, corrected for both tiers; None when it was passed on unchanged."""
        request = _decode_request(LIST_OFFSETS, taken)
        asked = questions(request, "timestamp", name="name", index="partition_index")
        is_ours = any(needs_view(one.asked) for one in asked)
        if request["replica_id"] != CONSUMER_REPLICA_ID or not is_ours:
            await _pass(taken, upstream)
            return None
        response, header_bytes = await self._ask(LIST_OFFSETS, taken, taken.frame, upstream)
        await self._each(
            partial(self._list_offset, one, answered, taken.api_version)
            for one, answered in paired(asked, response, name="name", index="partition_index")
            if needs_view(one.asked) and answered["error_code"] == NONE
        )
        return _respond(LIST_OFFSETS, taken, header_bytes, response)

    async def offset_for_leader_epoch(
        self, taken: Taken, upstream: Upstream
    ) -> list[Buffer] | None:
        """The broker's answer, or the merged lineage's where the broker's epochs were trimmed."""
        request = _decode_request(OFFSET_FOR_LEADER_EPOCH, taken)
        is_consumer = (
            taken.api_version < _FIRST_EPOCH_WITH_REPLICA_ID
            or request["replica_id"] == CONSUMER_REPLICA_ID
        )
        asked = questions(request, "leader_epoch", name="topic", index="partition")
        if not is_consumer or not asked:
            await _pass(taken, upstream)
            return None
        response, header_bytes = await self._ask(
            OFFSET_FOR_LEADER_EPOCH, taken, taken.frame, upstream
        )
        await self._each(
            partial(self._epoch_end, one, answered)
            for one, answered in paired(asked, response, name="topic", index="partition")
            if answered["error_code"] == NONE
        )
        return _respond(OFFSET_FOR_LEADER_EPOCH, taken, header_bytes, response)

    async def delete_records(self, taken: Taken, upstream: Upstream) -> list[Buffer] | None:
        """Refused for enabled topics (H26), which the broker never sees; others are forwarded."""
        request = _decode_request(DELETE_RECORDS, taken)
        asked = questions(request, "offset", name="name", index="partition_index")
        refused: dict[tuple[str, int], int] = {}
        await self._each(partial(self._refuse_delete, one, refused) for one in asked)
        if not refused:
            await _pass(taken, upstream)
            return None
        forwarded = without_refused(request, refused)
        response: Value | None = None
        if forwarded is None:
            await upstream.settled()
        else:
            head = taken.frame[: parse_request_header(taken.frame).body_offset]
            frame = head + encode(DELETE_RECORDS.request, taken.api_version, forwarded)
            response, _ = await self._ask(DELETE_RECORDS, taken, frame, upstream)
        merged = merge_deletes(request, response, refused)
        return [encode_response(DELETE_RECORDS, taken.api_version, taken.correlation_id, merged)]

    async def _ask(
        self, api: Api, taken: Taken, frame: Buffer, upstream: Upstream
    ) -> tuple[Value, bytes]:
        """The broker's decoded answer, and its header as it came."""
        answer = await upstream.ask(frame, taken.api_version, taken.correlation_id, WHOLE)
        if answer is None:
            raise ConnectionError("an answer that was asked whole was streamed")
        _, position = parse_response_header(answer, api, taken.api_version)
        response, _ = decode(api.response, taken.api_version, answer, position)
        return response, bytes(answer[:position])

    async def _each(self, work: Iterable[Work]) -> None:
        """Run all partitions concurrently, a bounded number at once."""
        limit = asyncio.Semaphore(_MOST_AT_ONCE)
        self._deadline_ms = self._clock.monotonic_ms() + self._wait_ms

        async def bounded(one: Work) -> None:
            async with limit:
                await one()

        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(bounded(one))

    async def _view(self, topic: str, partition: int) -> View:
        began_ms = self._clock.monotonic_ms()
        view = await guarded(self._tier.barrier(TopicRef(name=topic), partition, self._left_ms()))
        passed = not isinstance(view, RemoteStorageError)
        self._metrics.barrier_waited(self._clock.monotonic_ms() - began_ms, passed=passed)
        return view

    async def _list_offset(self, one: Question, answered: Value, version: int) -> None:
        view = await self._view(one.topic, one.partition)
        if view is None:
            return
        if isinstance(view, RemoteStorageError):
            self._refuse("list_offsets", answered, NOT_NOW)
            return
        found = await self._position(view, one, answered["offset"])
        if isinstance(found, RemoteStorageError):
            lost = not found.retriable and not frozen(found)
            self._refuse("list_offsets", answered, KAFKA_STORAGE_ERROR if lost else NOT_NOW)
            return
        if found is not None:
            apply_position(answered, found, version)
        self._metrics.answered("list_offsets", "broker" if found is None else "remote")

    async def _position(
        self, view: TierPartition, one: Question, broker_offset: int
    ) -> Position | RemoteStorageError | None:
        try:
            async with asyncio.timeout(self._left_ms() / 1000):
                return await guarded(self._both.position(view, one.asked, broker_offset))
        except TimeoutError:
            return Unavailable(f"{one.topic}-{one.partition}: timestamp lookup took too long")

    async def _epoch_end(self, one: Question, answered: Value) -> None:
        view = await self._view(one.topic, one.partition)
        if view is None:
            return
        if isinstance(view, RemoteStorageError):
            self._refuse("offset_for_leader_epoch", answered, NOT_NOW)
            return
        try:
            known = self._both.epoch_end(view, one.asked, epoch_end_of(answered))
        except Fenced:
            self._refuse("offset_for_leader_epoch", answered, NOT_NOW)
            return
        if known is not None:
            apply_epoch_end(answered, known)
        self._metrics.answered("offset_for_leader_epoch", "broker" if known is None else "remote")

    async def _refuse_delete(self, one: Question, refused: dict[tuple[str, int], int]) -> None:
        view = await self._view(one.topic, one.partition)
        if view is None:
            return
        barred = isinstance(view, TierPartition | Fenced)
        refused[one.topic, one.partition] = POLICY_VIOLATION if barred else NOT_NOW
        self._metrics.answered("delete_records", "refused" if barred else "not_ready")
        log.info("delete_records_refused", topic=one.topic, partition=one.partition)

    def _refuse(self, api: str, answered: Value, error_code: int) -> None:
        apply_error(answered, error_code)
        self._metrics.answered(api, f"error_{error_code}")


def _decode_request(api: Api, taken: Taken) -> Value:
    position = parse_request_header(taken.frame).body_offset
    request, _ = decode(api.request, taken.api_version, taken.frame, position)
    return request


async def _pass(taken: Taken, upstream: Upstream) -> None:
    await upstream.ask(taken.frame, taken.api_version, taken.correlation_id, STREAMED)


def _respond(api: Api, taken: Taken, header: bytes, response: Value) -> list[Buffer]:
    body = encode(api.response, taken.api_version, response)
    return [frame_length(len(header) + len(body)), header, body]

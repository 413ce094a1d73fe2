"""The answers to Kafka clients that read the remote tier of a cluster which may be gone.

One node that leads every partition, which nobody writes: ApiVersions, Metadata, ListOffsets, Fetch,
and a Produce that is always refused. Groups are those of rlm.history_proxy.coordinator. What is not
offered, a client refuses itself by name. Each answer is that of rlm.remote_log.remote_only, as of
the gRPC API with tiers = REMOTE_ONLY. What is doubtful or not read yet is an error that keeps a
client's position, never an end and never a reset.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog

from kafka_protocol.api_versions import UNSUPPORTED_VERSION
from kafka_protocol.apis import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE
from kafka_protocol.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafka_protocol.schema import Api, Value, VersionRange
from kip405.addresses import Address
from kip405.errors import (
    Fenced,
    Invalid,
    NotFound,
    OffsetOutOfRange,
    RemoteStorageError,
    Unavailable,
)
from rlm.clock import Clock
from rlm.history_proxy.coordinator import GROUP_APIS, GroupCoordinator
from rlm.proxy.settings import ProxyMetrics
from rlm.reading.throttle import ReadThrottle
from rlm.remote_log.reads import ReadRequest
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.v1 import fetch_pb2
from rlmm.settings_records import TopicRecord

log = structlog.get_logger(__name__)

NODE_ID = 0
PRINCIPAL = "kafka-clients"
"""What quotas count all clients as."""
MOST_ANSWER_BYTES = 2 << 20
"""Of the records in one answer, except for a larger batch; held until the client has it."""
MOST_WAIT_MS = 10_000
"""For one partition, for the quota, and until no further partition is read. All three together are
less than the 30 s after which clients give up a request, so that a slow store or a full quota makes
them slow and does not have them ask for the same again and again.
"""
OFFERED = {
    # librdkafka takes a node without it for one that has no batches; every request is refused.
    PRODUCE: VersionRange(0, 8),
    API_VERSIONS: VersionRange(0, 4),
    METADATA: VersionRange(0, 12),
    LIST_OFFSETS: VersionRange(1, 7),
    # By names of topics, which from 13 on are ids.
    FETCH: VersionRange(4, 12),
    **GROUP_APIS,
}
_BY_KEY = {api.key: api for api in OFFERED}
_READ_COMMITTED = 1
_UNKNOWN = -1
_WITHOUT_SESSION = frozenset({0, -1})  # FetchMetadata.INITIAL_EPOCH and FINAL_EPOCH
_FIRST_WITHOUT_NAME = 12
_FIRST_WITH_MESSAGE = 8

Answered = TypeVar("Answered")


class NotOffered(Exception):
    """A request that no client sends which has read ApiVersions: its connection ends."""


def offered(api_key: int, version: int) -> Api:
    """The API of a request. NotOffered, but for ApiVersions, which is answered in any version."""
    api = _BY_KEY.get(api_key)
    if api is None or (api is not API_VERSIONS and not OFFERED[api].has(version)):
        raise NotOffered(f"API {api_key} v{version} is not offered")
    return api


def versions_answer(version: int) -> Value:
    """What is offered; an error beside it where the request is of an unknown version (KIP-511)."""
    rows = [
        {"api_key": api.key, "min_version": span.low, "max_version": span.high}
        for api, span in OFFERED.items()
    ]
    is_known = OFFERED[API_VERSIONS].has(version)
    return {"error_code": NONE if is_known else UNSUPPORTED_VERSION, "api_keys": rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One partition that was asked for."""

    topic: str
    partition: int

    @property
    def ref(self) -> fetch_pb2.TopicRef:
        return fetch_pb2.TopicRef(name=self.topic)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Quota(Protocol):
    """What clients may read together."""

    async def wait(self) -> None:
        """Until there is room for more."""
        ...

    def took(self, size_bytes: int) -> None:
        """So much was given out."""
        ...


class SharedQuota:
    """One for all Kafka clients, as nobody proves who he is. What one has read is waited for before
    the next read.
    """

    def __init__(self, throttle: ReadThrottle) -> None:
        self._throttle = throttle

    async def wait(self) -> None:
        """See Quota."""
        await self._throttle.pace(PRINCIPAL, 0, is_remote=True)

    def took(self, size_bytes: int) -> None:
        """See Quota."""
        self._throttle.took(PRINCIPAL, size_bytes)


class HistoryAnswers:
    """Owns nothing of what it is given."""

    def __init__(
        self,
        *,
        view: RemoteView,
        reading: RemoteReading,
        advertised: Address,
        cluster_id: str,
        clock: Clock,
        quota: Quota,
        metrics: ProxyMetrics,
        groups: GroupCoordinator,
    ) -> None:
        self._groups = groups
        self._metrics = metrics
        self._view = view
        self._reading = reading
        self._advertised = advertised
        self._cluster_id = cluster_id
        self._clock = clock
        self._quota = quota

    async def answer(self, api: Api, version: int, request: Value) -> Value:
        """The answer to a request that is offered."""
        if api in GROUP_APIS:
            return await self._groups.answer(api, version, request)
        if api is PRODUCE:
            return _refused(request, version)
        if api is METADATA:
            return await self._metadata(version, request)
        if api is LIST_OFFSETS:
            return await self._list_offsets(request)
        return await self._fetch(request)

    async def _metadata(self, version: int, request: Value) -> Value:
        asked = request["topics"]
        wants_all = asked is None or (version == 0 and not asked)
        if wants_all:
            topics = await self._all_topics()
        else:
            topics = await self._topics(asked, version)
        host, port = self._advertised.host, self._advertised.port
        return {
            "brokers": [{"node_id": NODE_ID, "host": host, "port": port}],
            "cluster_id": self._cluster_id,
            "controller_id": NODE_ID,
            "topics": topics,
        }

    async def _all_topics(self) -> list[Value]:
        """RemoteStorageError while nobody knows them: a list without them would be a wrong one."""
        found = await self._view.topics(())
        return [_topic_row(record, partitions) for record, partitions in found]

    async def _topics(self, asked: list[Value], version: int) -> list[Value]:
        """Of many, the partitions are found in one pass over all segments and starts."""
        until_ms = self._clock.monotonic_ms() + MOST_WAIT_MS
        known: dict[str, Value] = {}
        if len(asked) > 1:
            with suppress(RemoteStorageError):  # each of them says why
                found = await self._view.topics(())
                known = {record.name: _topic_row(record, numbers) for record, numbers in found}
        rows: list[Value] = []
        for one in asked:
            row = known.get(one["name"])
            is_late = self._clock.monotonic_ms() >= until_ms
            rows.append(row or await self._topic(one, version, is_late=is_late))
        return rows

    async def _topic(self, asked: Value, version: int, *, is_late: bool) -> Value:
        name, topic_id = asked["name"], bytes(asked["topic_id"])
        ref = fetch_pb2.TopicRef(name=name) if name is not None else _by_id(topic_id)
        try:
            if is_late:
                raise Unavailable("the topics before it took too long")
            record, partitions = await self._view.partitions(ref)
        except RemoteStorageError as error:
            unknown = UNKNOWN_TOPIC_ID if name is None else UNKNOWN_TOPIC_OR_PARTITION
            if isinstance(error, Invalid):  # a name that Kafka itself refuses
                unknown = INVALID_TOPIC_EXCEPTION
            code = LEADER_NOT_AVAILABLE if error.retriable else unknown
            shown = name if name is not None or version >= _FIRST_WITHOUT_NAME else ""
            return {"error_code": code, "name": shown, "topic_id": topic_id}
        return _topic_row(record, partitions)

    async def _list_offsets(self, request: Value) -> Value:
        until_ms = self._clock.monotonic_ms() + MOST_WAIT_MS
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        await self._position(
                            Log(topic=topic["name"], partition=row["partition_index"]),
                            row["timestamp"],
                            until_ms,
                        )
                        for row in topic["partitions"]
                    ],
                }
                for topic in request["topics"]
            ]
        }

    async def _position(self, of: Log, timestamp: int, until_ms: int) -> Value:
        try:
            if self._clock.monotonic_ms() >= until_ms:
                raise Unavailable(f"{of}: the partitions before it took too long")
            found = await self._limited(of, self._reading.position(of.ref, of.partition, timestamp))
        except RemoteStorageError as error:
            code = LEADER_NOT_AVAILABLE if error.retriable else _code(error)
            if code == UNKNOWN_SERVER_ERROR and isinstance(error, Invalid) and timestamp < 0:
                code = UNSUPPORTED_VERSION  # as a broker answers a position that it does not know
            _warn("list_offsets_not_answered", of, error)
            self._metrics.answered("list_offsets", f"error_{code}")
            return {"partition_index": of.partition, "error_code": code}
        self._metrics.answered("list_offsets", "remote")
        return {
            "partition_index": of.partition,
            "error_code": NONE,
            "timestamp": found.timestamp_ms,
            "offset": found.offset,
        }

    async def _fetch(self, request: Value) -> Value:
        """Records of the partitions in the order asked; empty after max_wait_ms without any."""
        if request["session_epoch"] not in _WITHOUT_SESSION:
            # Another broker's, whose address this reader has now; the client begins anew.
            return {"error_code": FETCH_SESSION_ID_NOT_FOUND, "responses": []}
        left_bytes = min(request["max_bytes"], MOST_ANSWER_BYTES)
        may_read = await self._has_quota()
        began_ms = self._clock.monotonic_ms()
        read_committed = request["isolation_level"] == _READ_COMMITTED
        topics, given_bytes = [], 0
        for topic in request["topics"]:
            rows = []
            for asked in topic["partitions"]:
                of = Log(topic=topic["topic"], partition=asked["partition"])
                most = min(asked["partition_max_bytes"], left_bytes - given_bytes)
                if not given_bytes:
                    most = max(most, 1)  # the first batch comes whole, however large (KIP-74)
                if not may_read or self._clock.monotonic_ms() - began_ms >= MOST_WAIT_MS:
                    most = 0
                row = await self._records(of, asked["fetch_offset"], most, read_committed)
                given_bytes += len(row["records"])
                rows.append(row)
            topics.append({"topic": topic["topic"], "partitions": rows})
        self._quota.took(given_bytes)
        self._metrics.spliced(given_bytes)
        if not given_bytes:
            # Also with an error: a client that asks again at once would not stop.
            waited_ms = self._clock.monotonic_ms() - began_ms
            await self._clock.sleep_ms(
                max(0, min(request["max_wait_ms"], MOST_WAIT_MS) - waited_ms)
            )
        return {"responses": topics}

    async def _has_quota(self) -> bool:
        """False: clients have read more than they may, for longer than one of them can wait."""
        try:
            async with asyncio.timeout(MOST_WAIT_MS / 1_000):
                await self._quota.wait()
        except TimeoutError:
            return False
        return True

    async def _records(self, of: Log, offset: int, most: int, read_committed: bool) -> Value:
        try:
            row = await self._limited(of, self._given(of, offset, most, read_committed))
        except RemoteStorageError as error:
            code = NOT_LEADER_OR_FOLLOWER if error.retriable else _code(error)
            _warn("fetch_not_answered", of, error)
            self._metrics.answered("fetch", f"error_{code}")
            return {**_empty(of), "error_code": code}
        self._metrics.answered("fetch", "remote")
        return row

    async def _given(self, of: Log, offset: int, most: int, read_committed: bool) -> Value:
        state = await self._view.partition(of.ref, of.partition)
        state.refuse_unreadable()
        if offset >= state.next_offset:
            state.refuse_doubtful_end()  # an empty answer, too, would be an end
        if offset > state.next_offset:
            raise OffsetOutOfRange(f"{of}: offset {offset} is beyond the end {state.next_offset}")
        if offset < state.log_start_offset:
            start = state.log_start_offset
            raise OffsetOutOfRange(f"{of}: offset {offset} is below the log start {start}")
        row = {
            **_empty(of),
            "high_watermark": state.next_offset,
            "last_stable_offset": state.next_offset,
            "log_start_offset": state.log_start_offset,
            "aborted_transactions": [] if read_committed else None,
        }
        if most <= 0:
            return row
        wanted = ReadRequest(
            start_offset=offset, end_offset=None, max_bytes=most, read_committed=read_committed
        )
        async with aclosing(self._reading.stream(of.ref, of.partition, wanted)) as pieces:
            async for piece in pieces:
                row["records"] = b"".join(piece.batches)
                piece.batches.clear()  # an answer on its way holds no chunks
                if read_committed:
                    row["aborted_transactions"] = [
                        {"producer_id": producer_id, "first_offset": first}
                        for producer_id, first in piece.aborted
                    ]
                if piece.missing:
                    log.warning("offsets_missing", partition=str(of), ranges=piece.missing)
                break
        return row

    async def _limited(self, of: Log, work: Awaitable[Answered]) -> Answered:
        try:
            async with asyncio.timeout(MOST_WAIT_MS / 1_000):
                return await work
        except TimeoutError as error:
            raise Unavailable(f"{of}: not within {MOST_WAIT_MS} ms") from error


def _refused(request: Value, version: int) -> Value:
    if not request["acks"]:
        raise NotOffered("a producer without acks, to which no answer can be given")
    row: Value = {"error_code": TOPIC_AUTHORIZATION_FAILED, "base_offset": _UNKNOWN}
    if version >= _FIRST_WITH_MESSAGE:
        row["error_message"] = "an attached reader has the history of a cluster, and no broker"
    return {
        "responses": [
            {
                "name": topic["name"],
                "partition_responses": [
                    {"index": one["index"], **row} for one in topic["partition_data"]
                ],
            }
            for topic in request["topic_data"]
        ]
    }


def _by_id(topic_id: bytes) -> fetch_pb2.TopicRef:
    return fetch_pb2.TopicRef(topic_id=topic_id)


def _topic_row(record: TopicRecord, partitions: tuple[int, ...]) -> Value:
    """Numbers count from 0 without gaps, as clients expect; those without data have no leader."""
    known = frozenset(partitions)
    rows = [
        _partition_row(one, is_known=one in known) for one in range(max(partitions, default=-1) + 1)
    ]
    return {
        "error_code": NONE,
        "name": record.name,
        "topic_id": record.topic_id.raw,
        "partitions": rows,
    }


def _partition_row(number: int, *, is_known: bool) -> Value:
    """Without a leader epoch: nothing is truncated here, so there is nothing to validate."""
    nodes = [NODE_ID] if is_known else []
    return {
        "error_code": NONE if is_known else LEADER_NOT_AVAILABLE,
        "partition_index": number,
        "leader_id": NODE_ID if is_known else _UNKNOWN,
        "replica_nodes": nodes,
        "isr_nodes": nodes,
    }


def _empty(of: Log) -> dict[str, Any]:
    return {
        "partition_index": of.partition,
        "error_code": NONE,
        "high_watermark": _UNKNOWN,
        "last_stable_offset": _UNKNOWN,
        "log_start_offset": _UNKNOWN,
        "aborted_transactions": None,
        "records": b"",
    }


def _code(error: RemoteStorageError) -> int:
    """Of an error that does not pass: clients log the unknown one, and keep asking."""
    if isinstance(error, OffsetOutOfRange):
        return OFFSET_OUT_OF_RANGE
    if isinstance(error, NotFound):
        return UNKNOWN_TOPIC_OR_PARTITION
    return KAFKA_STORAGE_ERROR if isinstance(error, Fenced) else UNKNOWN_SERVER_ERROR


def _warn(event: str, of: Log, error: RemoteStorageError) -> None:
    if not isinstance(error, OffsetOutOfRange | NotFound):
        log.warning(event, partition=str(of), error=str(error))

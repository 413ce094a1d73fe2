"""A scriptable broker, a tier of plain values, and a raw client, for the tests of the proxy."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_protocol.apis import (
    APIS,
    DELETE_RECORDS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from kafka_protocol.frames import (
    RequestHeader,
    encode_response,
    parse_request_header,
)
from kafka_protocol.node_addresses import AddressLookup, keep_addresses
from kafka_protocol.schema import Api, decode
from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import Uuid
from rlm.clock import Clock, SystemClock
from rlm.proxy.client_tokens import ClientTokens
from rlm.proxy.own_topics import OwnTopicIds
from rlm.proxy.reads import FetchQuota
from rlm.proxy.server import ProxyServer
from rlm.proxy.settings import ProxySettings
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.mirrored import LeaderEpochs
from rlm.remote_log.tier import (
    Deletions,
    EpochEnd,
    Tier,
    TierPartition,
    TopicRef,
    Watermarks,
)
from rlm.spans import Tracer
from rlm.workers.records_memory import RecordsMemory
from tests.builders.snapshots import epochs_from
from tests.rlm.proxy.border import reach, settled
from tests.rlm.proxy.fake_deletions import FakeDeletions
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.secured import broker_context, client_tls, proxy_contexts
from tests.rlm.proxy.uncounted import Counting, NoQuota

Value = dict[str, Any]
TOPIC = "archive"
TOPIC_ID = Uuid(b"archive-topic-id")
PLAIN = "plain"
PLAIN_ID = Uuid(b"plain--topic--id")
OWN = "__rlm_settings"
OWN_ID = Uuid(b"own----topic--id")
NAMES = {TOPIC_ID.raw: TOPIC, PLAIN_ID.raw: PLAIN, OWN_ID.raw: OWN}
IDS = {name: raw for raw, name in NAMES.items()}


def blob(first: int, end: int, size_bytes: int = 10) -> bytes:
    """Bytes that represent the batches of [first, end)."""
    return b"".join(b"%09d|" % n + b"." * (size_bytes - 10) for n in range(first, end))


@dataclass
class Log:
    """A partition as a broker knows it; each record has `record_bytes`."""

    start: int = 100
    high_watermark: int = 200
    last_stable: int = 200
    error_code: int = 0
    preferred: int = -1
    record_bytes: int = 10
    leader_epoch: int | None = None
    rack: str | None = None
    """The rack that `preferred` is for, if that replica has the offset; None = any rack."""

    def for_rack(self, rack: str, offset: int) -> "Log":
        is_for = self.rack is None or (self.rack == rack and offset >= self.start)
        return self if is_for else replace(self, preferred=-1)

    def error_of(self, asked: Value) -> int:
        """As a leader checks it: a set error, then the epoch that the client names."""
        named = asked.get("current_leader_epoch", -1)
        if self.error_code or self.leader_epoch is None or named in (-1, self.leader_epoch):
            return self.error_code
        return 74 if named < self.leader_epoch else 75


@dataclass
class FakeBroker:
    """Answers like a broker with tiering off; `script` may answer an API instead."""

    logs: dict[tuple[str, int], Log] = field(default_factory=dict)
    script: dict[int, Callable[[int, Value], Value]] = field(default_factory=dict)
    raw_answers: dict[int, bytes] = field(default_factory=dict)
    seen: list[tuple[RequestHeader, Any]] = field(default_factory=list)
    connections: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    def requests(self, api: Api) -> list[Value]:
        return [value for header, value in self.seen if header.api_key == api.key]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                answer = await self.answer(frame)
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()  # a close waits until a peer that reads no more has read all
            raise
        finally:
            self.connections -= 1
            writer.close()

    async def answer(self, frame: bytes) -> bytes | None:
        header = parse_request_header(frame)
        api = APIS.get(header.api_key)
        if header.api_key in self.raw_answers:
            self.seen.append((header, frame))
            body = header.correlation_id.to_bytes(4, "big") + self.raw_answers[header.api_key]
            return len(body).to_bytes(4, "big") + body
        assert api is not None
        value, _ = decode(api.request, header.api_version, frame, header.body_offset)
        self.seen.append((header, value))
        if header.api_key in self.script:
            response = self.script[header.api_key](header.api_version, value)
        elif api is FETCH:
            response = await self.fetch(header.api_version, value)
        elif api is LIST_OFFSETS:
            response = self.list_offsets(header.api_version, value)
        elif api is PRODUCE:
            if value["acks"] == 0:
                return None
            response = self.produce(header.api_version, value)
        elif api is OFFSET_FOR_LEADER_EPOCH:
            response = self.epochs(value)
        elif api is DELETE_RECORDS:
            response = self.delete(value)
        else:
            raise AssertionError(f"no answer for {api.name}")
        return encode_response(api, header.api_version, header.correlation_id, response)

    async def fetch(self, version: int, request: Value) -> Value:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request["max_wait_ms"] / 1000
        while True:
            self.changed.clear()
            answer, size, is_final = self._fetch_now(version, request)
            left = deadline - loop.time()
            if is_final or size >= request["min_bytes"] or left <= 0:
                return answer
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.changed.wait()

    def _fetch_now(self, version: int, request: Value) -> tuple[Value, int, bool]:
        topics, total, is_final = [], 0, False
        for topic in request["topics"]:
            name = topic["topic"] if version <= 12 else NAMES[topic["topic_id"]]
            partitions = []
            for asked in topic["partitions"]:
                log = self.logs.setdefault((name, asked["partition"]), Log())
                log = log.for_rack(request.get("rack_id", ""), asked["fetch_offset"])
                room = max(min(asked["partition_max_bytes"], request["max_bytes"] - total), 0)
                one = self._partition(log, asked, room, is_first=total == 0)
                is_final |= bool(one["error_code"]) or one.get("preferred_read_replica", -1) >= 0
                total += len(one["records"] or b"")
                if version < 11:
                    one.pop("preferred_read_replica")
                if request["isolation_level"] == 1 and one["error_code"] == 0:
                    one["aborted_transactions"] = []
                partitions.append(one)
            key = {"topic": name} if version <= 12 else {"topic_id": topic["topic_id"]}
            topics.append({**key, "partitions": partitions})
        return {"responses": topics}, total, is_final

    def _partition(self, log: Log, asked: Value, room: int, *, is_first: bool) -> Value:
        offset = asked["fetch_offset"]
        out = not log.start <= offset <= log.high_watermark
        error = log.error_of(asked) or (1 if out and log.preferred < 0 else 0)
        bad = {"partition_index": asked["partition"], "error_code": error, "high_watermark": -1}
        if error:
            return {**bad, "records": b"", "preferred_read_replica": -1}
        count = room // log.record_bytes
        if is_first and log.preferred < 0:
            count = max(count, 1)
        end = min(log.high_watermark, offset + count) if log.preferred < 0 else offset
        return {
            "partition_index": asked["partition"],
            "error_code": 0,
            "high_watermark": log.high_watermark,
            "last_stable_offset": log.last_stable,
            "log_start_offset": log.start,
            "preferred_read_replica": log.preferred,
            "records": blob(offset, end, log.record_bytes) if end > offset else b"",
        }

    def list_offsets(self, version: int, request: Value) -> Value:
        def one(name: str, asked: Value) -> Value:
            log = self.logs.setdefault((name, asked["partition_index"]), Log())
            known = {-1: log.high_watermark, -2: log.start, -4: log.start}
            offset = known.get(asked["timestamp"], -1)
            epoch = -1 if offset < 0 else 9
            if asked["timestamp"] >= 0:
                offset, epoch = log.start + 20, 9
            return {
                "partition_index": asked["partition_index"],
                "error_code": log.error_code,
                "offset": offset,
                **({"leader_epoch": epoch} if version >= 4 else {}),
            }

        return _each(request, "name", one)

    def produce(self, version: int, request: Value) -> Value:
        answers = []
        for topic in request["topic_data"]:
            name = topic["name"] if version <= 12 else NAMES.get(topic["topic_id"], "")
            log = self.logs.setdefault((name, 0), Log())
            written, unknown = {"base_offset": 7, "log_start_offset": log.start}, {"error_code": 3}
            rows = (one["index"] for one in topic["partition_data"])
            parts = [{"index": at, **(unknown if at < 0 else written)} for at in rows]
            key = {"name": name} if version <= 12 else {"topic_id": topic["topic_id"]}
            answers.append({**key, "partition_responses": parts})
        return {"responses": answers}

    def epochs(self, request: Value) -> Value:
        def one(name: str, asked: Value) -> Value:
            log = self.logs.setdefault((name, asked["partition"]), Log())
            return {
                "partition": asked["partition"],
                "error_code": log.error_code,
                "leader_epoch": asked["leader_epoch"],
                "end_offset": log.start,
            }

        return _each(request, "topic", one)

    def delete(self, request: Value) -> Value:
        """As a leader whose followers keep up."""

        def one(name: str, asked: Value) -> Value:
            log = self.logs.setdefault((name, asked["partition_index"]), Log())
            offset = log.high_watermark if asked["offset"] == -1 else asked["offset"]
            refused = log.error_code or (1 if not 0 <= offset <= log.high_watermark else 0)
            if refused == 0:
                log.start = max(log.start, offset)
            low = {"low_watermark": -1 if refused else log.start, "error_code": refused}
            return {"partition_index": asked["partition_index"], **low}

        return _each(request, "name", one)


@dataclass
class HeldBroker(FakeBroker):
    """Answers while `may_answer` is set, and reads no further request meanwhile."""

    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, frame: bytes) -> bytes | None:
        await self.may_answer.wait()
        return await super().answer(frame)


def _each(request: Value, name: str, one: Callable[[str, Value], Value]) -> Value:
    return {
        "topics": [
            {name: t[name], "partitions": [one(t[name], p) for p in t["partitions"]]}
            for t in request["topics"]
        ]
    }


WATERMARKS = Watermarks(high_watermark=200, last_stable_offset=200, log_start_offset=100)


def tier_partition(**changes: Any) -> TierPartition:
    """[0, 100) is remote, [100, 200) local."""
    known = TierPartition(
        topic_id=TOPIC_ID,
        topic=TOPIC,
        partition=0,
        remote_log_start_offset=0,
        remote_next_offset=100,
        watermarks=WATERMARKS,
        led_here=True,
        leader_epoch=9,
        frozen=False,
    )
    return replace(known, **changes)


@dataclass
class FakeTier:
    """Plain values; `gate` closed = reads do not come back, an error set = it is raised."""

    partitions: dict[int, TierPartition] = field(default_factory=dict)
    is_ready: bool = True
    view_hidden: bool = False
    error: RemoteStorageError | None = None
    barrier_error: RemoteStorageError | None = None
    watermarks_error: RemoteStorageError | None = None
    broker_watermarks: Watermarks = WATERMARKS
    record_bytes: int = 10
    aborted: tuple[tuple[int, int], ...] = ()
    timestamped: TimestampedOffset | None = None
    epochs: LeaderEpochs = field(default_factory=lambda: epochs_from((3, 0)))
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    hang: bool = False
    reads: list[RemoteRead] = field(default_factory=list)
    barriers: int = 0
    under_way: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    def ready(self) -> bool:
        return self.is_ready

    def _find(self, topic: TopicRef, partition: int) -> TierPartition | None:
        if topic.name == TOPIC or topic.topic_id == TOPIC_ID:
            return self.partitions.get(partition)
        return None

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        if self.view_hidden or not self.is_ready:
            return None
        return self._find(topic, partition)

    async def barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        self.barriers += 1
        await self._maybe_hang(deadline_ms)
        if self.barrier_error is not None:
            raise self.barrier_error
        return self._find(topic, partition)

    async def _maybe_hang(self, deadline_ms: int) -> None:
        if self.hang:
            await asyncio.sleep(deadline_ms / 1000)
            raise Unavailable("deadline")

    async def watermarks(self, topic: TopicRef, partition: int, deadline_ms: int) -> Watermarks:
        if self.watermarks_error is not None:
            raise self.watermarks_error
        return self.broker_watermarks

    async def read(self, request: RemoteRead) -> RemoteRecords:
        self.reads.append(request)
        self.under_way += 1
        try:
            await self.gate.wait()
        finally:
            self.under_way -= 1
        if self.error is not None:
            raise self.error
        count = request.max_bytes // self.record_bytes
        count = max(count, 1) if request.at_least_one else count
        end = min(request.offset + count, request.upper_offset)
        records = blob(request.offset, end, self.record_bytes)
        return RemoteRecords(
            records=(memoryview(records),) if records else (),
            size_bytes=len(records),
            next_offset=end,
            aborted=self.aborted if request.read_committed else (),
        )

    async def offset_for_timestamp(
        self, topic_id: Uuid, partition: int, timestamp_ms: int, start_offset: int = 0
    ) -> TimestampedOffset | None:
        if self.error is not None:
            raise self.error
        found = self.timestamped
        return replace(found, offset=max(found.offset, start_offset)) if found else None

    def epoch_for_offset(self, topic_id: Uuid, partition: int, offset: int) -> int:
        return self.epochs.epoch_for_offset(offset)

    def epoch_end(self, topic_id: Uuid, partition: int, leader_epoch: int) -> EpochEnd | None:
        return self.epochs.end_of(leader_epoch)


@dataclass
class Proxied:
    """A fake broker behind a proxy."""

    broker: FakeBroker
    proxy: ProxyServer
    metrics: Counting
    connect: Callable[[], Awaitable[RawClient]]
    records_memory: RecordsMemory | None


@dataclass
class World(Proxied):
    tier: FakeTier
    deletions: FakeDeletions


@contextlib.asynccontextmanager
async def world(
    tier: FakeTier | None = None,
    broker: FakeBroker | None = None,
    quota: FetchQuota | None = None,
    tokens: ClientTokens | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """A fake broker, a tier with partition 0 of `archive`, and a proxy between."""
    tier = tier or FakeTier(partitions={0: tier_partition()})
    deletions, broker = FakeDeletions(), broker or FakeBroker()
    more: Any = {"tokens": tokens, "clock": clock, **settings}
    async with proxied(tier, broker, quota, deletions, **more) as made:
        yield World(**vars(made), tier=tier, deletions=deletions)


@contextlib.asynccontextmanager
async def proxied(
    tier: Tier,
    broker: FakeBroker,
    quota: FetchQuota | None = None,
    deletions: Deletions | None = None,
    nodes: AddressLookup = keep_addresses,
    own_topic_ids: OwnTopicIds = lambda: frozenset({OWN_ID.raw}),
    tokens: ClientTokens | None = None,
    clock: Clock | None = None,
    remembered: frozenset[bytes] = frozenset(),
    tracer: Tracer | None = None,
    **settings: Any,
) -> AsyncIterator[Proxied]:
    """A proxy between a fake broker and a tier. `nodes`: which addresses it gives to clients.
    `remembered`: ids of the service's own topics that an earlier process has seen.
    """
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=broker_context())
    broker.port = server.sockets[0].getsockname()[1]
    metrics, host = Counting(), "127.0.0.1"
    kept = {"upstream_port": broker.port, "shutdown_timeout_ms": 1000, "barrier_wait_ms": 9_000}
    kept |= {"first_request_timeout_ms": 600_000, "handshake_timeout_ms": 60_000}
    kept |= {"connect_timeout_ms": 60_000}
    made = ProxySettings(listen_host=host, listen_port=0, upstream_host=host, **kept | settings)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(server.close)
        ours = deletions or FakeDeletions(), own_topic_ids
        near = await stack.enter_async_context(reach(tier, *ours))
        clock = clock or SystemClock()
        parts = near.tier, near.deletions, clock, metrics, quota or NoQuota(), nodes
        more = proxy_contexts(), near.own_topic_ids, None, tokens, remembered, tracer
        await (proxy := ProxyServer(made, *parts, *more)).start()
        stack.push_async_callback(proxy.close)

        async def connect() -> RawClient:
            await settled()
            streams = await asyncio.open_connection(host, proxy.port, **client_tls())
            client = RawClient(*streams)
            stack.callback(client.writer.close)
            return client

        yield Proxied(broker, proxy, metrics, connect, near.memory)


def fetch_request(version: int, *partitions: Value, topic: str = TOPIC, **fields: Any) -> Value:
    """A Fetch of some partitions of one topic."""
    key = {"topic": topic} if version <= 12 else {"topic_id": IDS[topic]}
    return {
        "max_wait_ms": 200,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "topics": [{**key, "partitions": list(partitions)}],
        **fields,
    }


def asked(offset: int, partition: int = 0, max_bytes: int = 100_000, **fields: Any) -> Value:
    """One partition of a Fetch."""
    sizes = {"fetch_offset": offset, "partition_max_bytes": max_bytes}
    return {"partition": partition, **sizes, **fields}


def only(answer: Value) -> Value:
    """The single partition of a Fetch answer."""
    [topic] = answer["responses"]
    [partition] = topic["partitions"]
    assert isinstance(partition, dict)
    return partition

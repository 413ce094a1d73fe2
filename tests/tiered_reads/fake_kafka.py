"""A Kafka broker in memory over real sockets, in a thread: topics with batches, trimmed, recreated,
leaderless, as a test wants them.
"""

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_protocol.apis import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA
from kafka_protocol.schema import Value
from kip405.batches import batch_headers
from tests.builders.fake_broker import FakeBroker
from tests.kip405.batch_builder import batch
from tiered_reads.kafka_connection import LoopThread
from tiered_reads.stopping import Stop

TOPIC_ID = bytes(range(16))
OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER = 1, 3, 6
UNKNOWN_TOPIC_ID = 100


@dataclass(slots=True)
class FakeKafka:
    """Topic `t` with partition 0: records [log_start, end) in batches of `per_batch`.

    `newest`: the highest Fetch and Metadata versions offered. `errors`: what the next fetches
    are answered with; likewise `metadata_errors` and `offset_errors`. `advertised_port`: where
    clients are sent, None = here.
    """

    log_start: int = 0
    end: int = 30
    per_batch: int = 3
    value: bytes = b"value"
    topic: str | None = "t"
    topic_id: bytes = TOPIC_ID
    newest: tuple[int, int] = (17, 13)
    bytes_a_fetch: int = 400
    errors: deque[int] = field(default_factory=deque)
    metadata_errors: deque[int] = field(default_factory=deque)
    offset_errors: deque[int] = field(default_factory=deque)
    advertised_port: int | None = None
    broker: FakeBroker = field(default_factory=FakeBroker)
    _loop: LoopThread = field(default_factory=lambda: LoopThread("fake-kafka"))

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker.address.port}"

    def kafka(self, **options: str) -> dict[str, str]:
        """Properties for the connector's consumer."""
        found = {"bootstrap.servers": self.bootstrap, "fetch.max.wait.ms": "5"}
        return found | {name.replace("__", "."): value for name, value in options.items()}

    @contextlib.contextmanager
    def running(self) -> Iterator["FakeKafka"]:
        broker = self.broker
        broker.on(API_VERSIONS, self._versions())
        broker.on(METADATA, self._metadata)
        broker.on(LIST_OFFSETS, self._list_offsets)
        broker.on(FETCH, self._fetch)
        started: list[Any] = []

        async def start() -> None:
            stack = contextlib.AsyncExitStack()
            await stack.enter_async_context(broker.running())
            started.append(stack)

        self._loop.run(start(), Stop())
        try:
            yield self
        finally:
            self._loop.run(started[0].aclose(), Stop())
            self._loop.close()

    def drop_connections(self) -> None:
        async def drop() -> None:
            self.broker.drop_connections()

        self._loop.run(drop(), Stop())

    def _versions(self) -> dict[str, Any]:
        offered = (
            (FETCH.key, 4, self.newest[0]),
            (METADATA.key, 0, self.newest[1]),
            (LIST_OFFSETS.key, 1, 9),
            (API_VERSIONS.key, 0, 4),
        )
        keys = [
            {"api_key": key, "min_version": least, "max_version": most}
            for key, least, most in offered
        ]
        return {"error_code": 0, "api_keys": keys}

    def _metadata(self, request: Value) -> dict[str, Any]:
        wanted = None if request["topics"] is None else [row["name"] for row in request["topics"]]
        known = [self.topic] if self.topic else []
        topics: list[dict[str, Any]] = []
        for name in known if wanted is None else wanted:
            error = self.metadata_errors.popleft() if self.metadata_errors else 0
            if name not in known or error:
                code = error or UNKNOWN_TOPIC
                topics.append({"error_code": code, "name": name, "partitions": []})
                continue
            partition = {
                "error_code": 0,
                "partition_index": 0,
                "leader_id": 1,
                "replica_nodes": [1],
                "isr_nodes": [1],
            }
            row = {"error_code": 0, "name": name, "topic_id": self.topic_id, "is_internal": False}
            topics.append({**row, "partitions": [partition]})
        port = self.advertised_port or self.broker.address.port
        broker = {"node_id": 1, "host": "127.0.0.1", "port": port}
        return {"brokers": [broker], "cluster_id": "c", "controller_id": 1, "topics": topics}

    def _list_offsets(self, request: Value) -> dict[str, Any]:
        topics = []
        for topic in request["topics"]:
            rows = []
            for asked in topic["partitions"]:
                refusal = self.offset_errors.popleft() if self.offset_errors else 0
                timestamp = asked["timestamp"]
                dated = max(self.log_start, timestamp - 1_000)
                found = {-1: self.end, -2: self.log_start}.get(timestamp, dated)
                if timestamp >= 0:
                    found = max(found, self.log_start)
                rows.append(
                    {
                        "partition_index": asked["partition_index"],
                        "error_code": refusal if topic["name"] == self.topic else UNKNOWN_TOPIC,
                        "timestamp": -1,
                        "offset": found if found <= self.end else -1,
                    }
                )
            topics.append({"name": topic["name"], "partitions": rows})
        return {"topics": topics}

    def _fetch(self, request: Value) -> dict[str, Any]:
        [topic] = request["topics"]
        [asked] = topic["partitions"]
        named = topic.get("topic") or topic.get("topic_id")
        answer: dict[str, Any] = {
            "partition_index": asked["partition"],
            "error_code": self._fetch_error(named, asked["fetch_offset"]),
            "high_watermark": self.end,
            "last_stable_offset": self.end,
            "log_start_offset": self.log_start,
            "aborted_transactions": [{"producer_id": 7, "first_offset": 4}],
            "records": b"",
        }
        if not answer["error_code"]:
            answer["records"] = self._records(asked["fetch_offset"])
        row = {"topic": self.topic, "topic_id": self.topic_id, "partitions": [answer]}
        return {"error_code": 0, "responses": [row]}

    def _fetch_error(self, named: Any, offset: int) -> int:
        if self.errors:
            return self.errors.popleft()
        if self.topic is None or named not in (self.topic, self.topic_id):
            return UNKNOWN_TOPIC_ID if isinstance(named, bytes) else UNKNOWN_TOPIC
        return 0 if self.log_start <= offset <= self.end else OUT_OF_RANGE

    def _records(self, offset: int) -> bytes:
        """Whole batches from the one that has the offset, and then a part of the next."""
        first = offset - offset % self.per_batch
        batches = b"".join(
            batch(base, self.per_batch, value=self.value)
            for base in range(first, self.end, self.per_batch)
        )
        ends = [position + header.size_bytes for position, header in batch_headers(batches)]
        return batches[: max(self.bytes_a_fetch, ends[0])] if ends else b""

"""Two brokers over real sockets that lead a partition each; each serves as much as a test lets it.

They hold no records: a fetch is answered with an error that the test gives, or never. Node 1
coordinates all groups, and closes the connections of those who commit.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from kafka_protocol.apis import (
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
)
from kafka_protocol.schema import Value
from tests.builders.fake_broker import FakeBroker

TOPIC = "t"
END = 10
FAILED_FETCH = "Failed fetch messages"
"""What aiokafka logs before a fetch waits to be tried again."""
_OFFERED = (
    (FETCH.key, 4, 11),
    (METADATA.key, 0, 8),
    (LIST_OFFSETS.key, 1, 3),
    (API_VERSIONS.key, 0, 3),
    (FIND_COORDINATOR.key, 0, 1),
    (OFFSET_COMMIT.key, 2, 3),
)


class TwoBrokers:
    """Node n leads partition n. `refusals`: the error code of fetches by node, once the test knows
    it; a node without one closes the connections of those who fetch. While `gate` is not set, new
    connections get no answer; while `metadata_gate` is not set, requests for metadata get none.
    """

    def __init__(self) -> None:
        self.brokers = [FakeBroker(), FakeBroker()]
        self.refusals: dict[int, asyncio.Future[int]] = {}
        self.gate = asyncio.Event()
        self.metadata_gate = asyncio.Event()
        self.open_gates()
        for node, broker in enumerate(self.brokers):
            broker.on(API_VERSIONS, self._versions)
            broker.on(METADATA, self._metadata)
            broker.on(LIST_OFFSETS, self._offsets)
            broker.on(FIND_COORDINATOR, self._coordinator)
            broker.on(FETCH, partial(self._answer, node))

    @property
    def bootstrap(self) -> str:
        return str(self.brokers[0].address)

    @property
    def connections(self) -> int:
        """How many there were."""
        return sum(broker.connections for broker in self.brokers)

    @property
    def open_connections(self) -> int:
        return sum(broker.open_connections for broker in self.brokers)

    def open_gates(self) -> None:
        """Answer again: a broker notices no end while it answers."""
        self.gate.set()
        self.metadata_gate.set()

    def fetches(self, node: int) -> int:
        return len(self.brokers[node].asked(FETCH))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TwoBrokers"]:
        async with AsyncExitStack() as stack:
            for broker in self.brokers:
                await stack.enter_async_context(broker.running())
            stack.callback(self.open_gates)
            yield self

    async def _versions(self, _: Value) -> dict[str, Any]:
        await self.gate.wait()
        keys = [
            {"api_key": key, "min_version": least, "max_version": most}
            for key, least, most in _OFFERED
        ]
        return {"error_code": 0, "api_keys": keys}

    async def _metadata(self, request: Value) -> dict[str, Any]:
        await self.metadata_gate.wait()
        partitions = [
            {
                "error_code": 0,
                "partition_index": node,
                "leader_id": node,
                "replica_nodes": [node],
                "isr_nodes": [node],
            }
            for node in range(len(self.brokers))
        ]
        named = [row["name"] for row in request["topics"] or []]
        topics = [
            {"error_code": 0, "name": name, "is_internal": False, "partitions": partitions}
            for name in named
        ]
        brokers = [
            {"node_id": node, "host": one.address.host, "port": one.address.port}
            for node, one in enumerate(self.brokers)
        ]
        return {"brokers": brokers, "cluster_id": "c", "controller_id": 0, "topics": topics}

    def _coordinator(self, _: Value) -> dict[str, Any]:
        at = self.brokers[1].address
        where = {"node_id": 1, "host": at.host, "port": at.port}
        return {"error_code": 0, "error_message": None, **where}

    def _offsets(self, request: Value) -> dict[str, Any]:
        topics = []
        for topic in request["topics"]:
            rows = [
                {
                    "partition_index": asked["partition_index"],
                    "error_code": 0,
                    "timestamp": -1,
                    "offset": {-1: END, -2: 0}[asked["timestamp"]],
                }
                for asked in topic["partitions"]
            ]
            topics.append({"name": topic["name"], "partitions": rows})
        return {"topics": topics}

    async def _answer(self, node: int, request: Value) -> dict[str, Any]:
        error_code = await self.refusals[node]
        rows = [
            {
                "partition_index": asked["partition"],
                "error_code": error_code,
                "high_watermark": END,
                "last_stable_offset": END,
                "log_start_offset": 0,
                "aborted_transactions": [],
                "preferred_read_replica": -1,
                "records": b"",
            }
            for asked in request["topics"][0]["partitions"]
        ]
        return {"error_code": 0, "responses": [{"topic": TOPIC, "partitions": rows}]}

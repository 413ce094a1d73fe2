"""Single requests of any version through a proxy, to see exactly what is answered."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from kafka_protocol.apis import FETCH, LIST_OFFSETS, METADATA
from tests.rlm.proxy.raw_client import RawClient
from tests.scenarios.cluster import Cluster

Value = dict[str, Any]
T = TypeVar("T")
PATIENT_MS = 60_000
"""How long a Fetch may wait for records that only the store has: they come sooner."""
_FIRST_FETCH_BY_ID = 13
ASK_AGAIN = (5, 6, 7, 56)
"""LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR: all of them
are retriable to Kafka's clients.
"""
_KNOWN_WITHIN_S, _PAUSE_S = 60, 0.2


@contextlib.asynccontextmanager
async def connection(address: str) -> AsyncIterator[RawClient]:
    host, port = address.rsplit(":", 1)
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    try:
        yield client
    finally:
        client.writer.close()


def proxy_of(cluster: Cluster, node: int) -> str:
    [found] = [one["proxy"] for one in cluster.sandbox.json["brokers"] if one["id"] == node]
    return str(found)


def at_leader(cluster: Cluster, topic: str, work: Callable[[RawClient], Awaitable[T]]) -> T:
    """Run `work` on a connection to the proxy of partition 0's leader, once there is one."""
    proxy = proxy_of(cluster, cluster.wait_led(topic))

    async def run() -> T:
        async with connection(proxy) as client:
            return await work(client)

    return asyncio.run(run())


async def topic_id(client: RawClient, topic: str) -> bytes:
    answer = await client.call(METADATA, 12, {"topics": [{"name": topic}]})
    found: bytes = answer["topics"][0]["topic_id"]
    return found


async def fetch(
    client: RawClient,
    version: int,
    topic: str,
    offset: int,
    *,
    id_of_topic: bytes | None = None,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 500,
    **fields: Any,
) -> Value:
    """The answer for partition 0 of one Fetch."""
    by_id = version >= _FIRST_FETCH_BY_ID
    key: Value = {"topic": topic}
    if by_id:
        key = {"topic_id": id_of_topic or await topic_id(client, topic)}
    asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    request = {
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "topics": [{**key, "partitions": [asked]}],
        **fields,
    }
    answer = await client.call(FETCH, version, request)
    partition: Value = answer["responses"][0]["partitions"][0]
    return partition


async def list_offset(
    client: RawClient, version: int, topic: str, timestamp: int, *, again: bool = True
) -> Value:
    """The answer for partition 0 of one ListOffsets; as clients do, asked again where that says so:
    the leader, or what is remote, may not be known in this moment. Not `again`: that is expected.
    """
    asked = {"partition_index": 0, "timestamp": timestamp}
    request = {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]}

    async def ask() -> Value:
        answer = await client.call(LIST_OFFSETS, version, request)
        partition: Value = answer["topics"][0]["partitions"][0]
        return partition

    return await until_known(ask) if again else await ask()


async def until_known(ask: Callable[[], Awaitable[Value]]) -> Value:
    """The answer for a partition, of which the last one that is to be asked again is given too."""
    until_s = time.monotonic() + _KNOWN_WITHIN_S
    while True:
        found = await ask()
        if found["error_code"] not in ASK_AGAIN or time.monotonic() >= until_s:
            return found
        await asyncio.sleep(_PAUSE_S)

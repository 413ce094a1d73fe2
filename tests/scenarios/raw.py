"""Single requests of any version through a proxy, to see exactly what is answered."""

import asyncio
import contextlib
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
    client: RawClient, version: int, topic: str, timestamp: int, **fields: Any
) -> Value:
    """The answer for partition 0 of one ListOffsets."""
    asked = {"partition_index": 0, "timestamp": timestamp}
    request = {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}], **fields}
    answer = await client.call(LIST_OFFSETS, version, request)
    partition: Value = answer["topics"][0]["partitions"][0]
    return partition

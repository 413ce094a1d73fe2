"""The requests by which a principal may try to learn of a topic or to change it.

Each `Ask` returns what its sender learns about one topic of one partition.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from kafka_protocol.apis import (
    DELETE_RECORDS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from rlm.clock import SystemClock
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.oauth import signed_token
from tests.rlm.proxy.raw_client import RawClient
from tests.scenarios.raw import PATIENT_MS, connection

RECORDS = 4_000
FIRST_TIMESTAMP_MS = SystemClock().now_ms() - 3_600_000  # not so old that retention ends them
COMMITTED_GROUP = "committed"
LIFETIME_MS = 3_600_000
NONE, REFUSED = 0, 29
INVALID_TOKEN = '{"status":"invalid_token"}'
"""What a broker says of a token that has ended."""
Ask = Callable[[RawClient, str, bytes], Awaitable[Any]]
_SHORT_MS = 500
"""How long a Fetch waits for records that nobody writes."""


def bearer_token(sandbox: Sandbox, name: str, lifetime_ms: int = LIFETIME_MS) -> str:
    """A token of OAUTHBEARER that makes its owner this principal; a negative lifetime is over."""
    files = SecurityFiles(folder=sandbox.layout.security)
    now_ms = SystemClock().now_ms()
    return signed_token(files, name, now_ms=now_ms, lifetime_ms=lifetime_ms)


async def prove(client: RawClient, token: str) -> int:
    """Authenticate by OAUTHBEARER, for the first time or again; the error code."""
    return int((await proved(client, token))["error_code"])


async def proved(client: RawClient, token: str) -> Any:
    """The same; the whole answer."""
    shaken = await client.call(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
    assert shaken["error_code"] == NONE
    proof = b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    answer = await client.call(SASL_AUTHENTICATE, 2, {"auth_bytes": proof})
    if answer["auth_bytes"]:  # what is wrong; the error follows upon this reply (RFC 7628)
        answer = await client.call(SASL_AUTHENTICATE, 2, {"auth_bytes": b"\x01"})
    return answer


@asynccontextmanager
async def with_token(address: str, token: str) -> AsyncIterator[RawClient]:
    """A connection of whom the token names."""
    async with connection(address) as client:
        assert await prove(client, token) == NONE
        yield client


def fetch(version: int, offset: int, *, max_wait_ms: int = PATIENT_MS, **fields: Any) -> Ask:
    async def ask(client: RawClient, topic: str, topic_id: bytes) -> Any:
        key = {"topic": topic} if version <= 12 else {"topic_id": topic_id}
        asked = {
            "partition": 0,
            "fetch_offset": offset,
            "partition_max_bytes": 100_000,
            **fields,
        }
        answer = await client.call(
            FETCH,
            version,
            {
                "max_wait_ms": max_wait_ms,
                "min_bytes": 1,
                "max_bytes": 100_000,
                "topics": [{**key, "partitions": [asked]}],
            },
        )
        [row] = answer["responses"][0]["partitions"]
        records = row["records"] or b""
        first = int.from_bytes(records[:8], "big") if records else None
        offsets = {name: row[name] for name in row if name.endswith(("offset", "watermark"))}
        return row["error_code"], first, offsets, row.get("diverging_epoch")

    return ask


def list_offsets(version: int, timestamp: int) -> Ask:
    async def ask(client: RawClient, topic: str, _: bytes) -> Any:
        asked = {"partition_index": 0, "timestamp": timestamp}
        request = {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]}
        answer = await client.call(LIST_OFFSETS, version, request)
        [row] = answer["topics"][0]["partitions"]
        return row

    return ask


def epoch_end(version: int, leader_epoch: int) -> Ask:
    async def ask(client: RawClient, topic: str, _: bytes) -> Any:
        asked = {"partition": 0, "leader_epoch": leader_epoch}
        request = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]}
        answer = await client.call(OFFSET_FOR_LEADER_EPOCH, version, request)
        [row] = answer["topics"][0]["partitions"]
        return row

    return ask


def metadata(version: int, *, by_id: bool = False, all_topics: bool = False) -> Ask:
    async def ask(client: RawClient, topic: str, topic_id: bytes) -> Any:
        named = {"topic_id": topic_id, "name": None} if by_id else {"name": topic}
        wanted = None if all_topics else [named]
        answer = await client.call(METADATA, version, {"topics": wanted})
        rows = [one for one in answer["topics"] if one["name"] in (topic, "", None)]
        for row in rows:
            row["is_it"] = row.pop("topic_id", None) == topic_id, row.pop("name") == topic
        return rows

    return ask


def offset_fetch(*, all_topics: bool = False) -> Ask:
    async def ask(client: RawClient, topic: str, _: bytes) -> Any:
        topics = None if all_topics else [{"name": topic, "partition_indexes": [0]}]
        request = {"groups": [{"group_id": COMMITTED_GROUP, "topics": topics}]}
        answer = await client.call(OFFSET_FETCH, 8, request)
        [group] = answer["groups"]
        rows = [one["partitions"] for one in group["topics"] if one["name"] == topic]
        return group["error_code"], rows

    return ask


def delete_records(version: int, offset: int) -> Ask:
    async def ask(client: RawClient, topic: str, _: bytes) -> Any:
        rows = [{"partition_index": 0, "offset": offset}]
        request = {"topics": [{"name": topic, "partitions": rows}], "timeout_ms": 9_000}
        answer = await client.call(DELETE_RECORDS, version, request)
        [row] = answer["topics"][0]["partitions"]
        return row

    return ask


def produce(version: int, batch: bytes) -> Ask:
    async def ask(client: RawClient, topic: str, topic_id: bytes) -> Any:
        key = {"name": topic} if version <= 12 else {"topic_id": topic_id}
        rows = [{"index": 0, "records": batch}]
        request = {
            "acks": -1,
            "timeout_ms": 9_000,
            "topic_data": [{**key, "partition_data": rows}],
        }
        answer = await client.call(PRODUCE, version, request)
        [row] = answer["responses"][0]["partition_responses"]
        return row

    return ask


def log_dirs() -> Ask:
    """DescribeLogDirs v1, of which nobody here reads the answer."""

    async def ask(client: RawClient, topic: str, _: bytes) -> Any:
        name = topic.encode()
        body = b"\0\0\0\x01" + len(name).to_bytes(2, "big") + name + b"\0\0\0\x01\0\0\0\0"
        frame = b"\0\x23\0\x01\0\0\0\x07\xff\xff" + body
        client.writer.write(len(frame).to_bytes(4, "big") + frame)
        return await client.frame()

    return ask


EARLIEST_LOCAL, LAST_TIERED = -4, -5
SAME_AS_TWIN: dict[str, Ask] = {
    **{f"Fetch v{v} old": fetch(v, 0) for v in (5, 11, 12, 13, 17)},
    **{f"Fetch v{v} local": fetch(v, RECORDS - 1) for v in (5, 11, 12, 13, 17)},
    "Fetch end": fetch(12, RECORDS, max_wait_ms=_SHORT_MS),
    "Fetch beyond the end": fetch(12, RECORDS + 9),
    "Fetch of an epoch": fetch(12, 60, last_fetched_epoch=0),
    "Fetch of a wrong leader epoch": fetch(12, 60, current_leader_epoch=9),
    **{
        f"ListOffsets v{v} {at}": list_offsets(v, at)
        for v in (1, 5, 8, 11)
        for at in (-1, -2, FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS + 123, 2**60)
    },
    "ListOffsets v8 -3": list_offsets(8, -3),
    "ListOffsets v11 -3": list_offsets(11, -3),
    **{f"epoch v{v} {epoch}": epoch_end(v, epoch) for v in (2, 4) for epoch in (0, 5)},
    **{f"Metadata v{v}": metadata(v) for v in (1, 9, 12)},
    "Metadata of all": metadata(9, all_topics=True),
    "Metadata by id": metadata(12, by_id=True),
    "OffsetFetch": offset_fetch(),
    "OffsetFetch of all": offset_fetch(all_topics=True),
}
"""A bare broker answers them for the twin as the proxy does for the trimmed topic."""
SAME_ERROR: dict[str, Ask] = {
    "Fetch of an unknown epoch": fetch(12, 60, last_fetched_epoch=7),
    **{
        f"ListOffsets v{v} {at}": list_offsets(v, at)
        for v in (8, 9, 11)
        for at in (EARLIEST_LOCAL, LAST_TIERED, -6)
    },
}
"""Tiering itself shows in their answers, to whom the broker gives any."""
REFUSED_HERE: dict[str, Ask] = {
    **{f"DeleteRecords v{v} {at}": delete_records(v, at) for v in (0, 2) for at in (-1, 10, 3_999)},
    **{f"Produce v{v}": produce(v, b"") for v in (3, 9, 12, 13)},
    "DescribeLogDirs": log_dirs(),
}
"""Sent only by principals to whom the broker refuses them."""

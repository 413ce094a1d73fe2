"""Time to the first record of a cold read: one Fetch over a warm connection to a segment that
nobody read since the service started.

Segments are taken from the newest to the oldest, since reading ahead goes the other way.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.plan import PROXY, topic_name
from bench.processes import BenchError
from bench.stores.lab import Lab
from bench.stores.report import FirstRecord
from kip405.addresses import Address
from rlm.broker.own_broker import OwnBroker
from rlm.cli.target import Connect
from rlm.v1 import fetch_pb2

_MAX_BYTES = 1 << 20
_MAX_WAIT_MS = 30_000
_PAUSE_S = 1.0


def segments_of(lab: Lab, topic: str, partition: int) -> list[tuple[int, int]]:
    """(start, next offset) of finished segments, ascending, as the service lists them."""
    connect = Connect(
        address=lab.sandbox.json["brokers"][0]["grpc"],
        principal="bench",
        token_file=None,
        timeout_s=30,
        as_json=False,
    )
    request = fetch_pb2.ListSegmentsRequest(
        topic=fetch_pb2.TopicRef(name=topic), partition=partition
    )
    with connect.open() as target:
        rows = target.fetch.ListSegments(request, metadata=target.metadata, timeout=30)
        return sorted((row.start_offset, row.next_offset) for row in rows)


def measure_first_records(
    lab: Lab, *, partitions: int, delay_ms: int, count: int
) -> list[FirstRecord]:
    """So many timings over all partitions but the last, which warms the connections."""
    topic = topic_name(PROXY, partitions)
    *cold, warm = (segments_of(lab, topic, number) for number in range(partitions))
    positions = _newest_first(cold or [warm[1:]])[:count]
    if len(positions) < count:
        raise BenchError(f"{topic} has {len(positions)} cold segments, {count} are needed")
    lab.delay(delay_ms)
    lab.empty_caches()
    warm_position = _Position(partition=partitions - 1, offset=warm[0][0])
    times = asyncio.run(_timed(lab.sandbox.bootstrap, topic, warm_position, positions))
    return [
        FirstRecord(
            store=lab.store,
            delay_ms=delay_ms,
            partition=position.partition,
            offset=position.offset,
            ms=round(ms, 1),
        )
        for position, ms in zip(positions, times, strict=True)
    ]


def _newest_first(segments: list[list[tuple[int, int]]]) -> list["_Position"]:
    """The middle of every segment: of all partitions the newest ones, then those before them."""
    return [
        _Position(partition=number, offset=sum(rows[-depth]) // 2)
        for depth in range(1, max(map(len, segments)) + 1)
        for number, rows in enumerate(segments)
        if depth <= len(rows)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    partition: int
    offset: int


async def _timed(
    bootstrap: str, topic: str, warm: _Position, cold: Sequence[_Position]
) -> list[float]:
    client = OwnBroker(Address.parse(bootstrap), client_id="bench-first-record")
    try:
        await _fetch(client, topic, warm)
        found = []
        for position in cold:
            await asyncio.sleep(_PAUSE_S)
            found.append(await _fetch(client, topic, position))
        return found
    finally:
        await client.close()


async def _fetch(client: OwnBroker, topic: str, position: _Position) -> float:
    """Milliseconds until an answer with records is there whole."""
    began = time.monotonic()
    answer = await client.fetch(
        topic, position.partition, position.offset, max_bytes=_MAX_BYTES, max_wait_ms=_MAX_WAIT_MS
    )
    took_ms = (time.monotonic() - began) * 1000
    if not answer.records:
        raise BenchError(
            f"{topic}-{position.partition} at {position.offset}: empty after {took_ms} ms"
        )
    return took_ms

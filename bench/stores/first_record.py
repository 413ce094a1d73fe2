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
    places = _newest_first(cold or [warm[1:]])[:count]
    if len(places) < count:
        raise BenchError(f"{topic} has {len(places)} cold segments, {count} are needed")
    lab.delay(delay_ms)
    lab.empty_caches()
    warm_place = _Place(partition=partitions - 1, offset=warm[0][0])
    times = asyncio.run(_timed(lab.sandbox.bootstrap, topic, warm_place, places))
    return [
        FirstRecord(
            store=lab.store,
            delay_ms=delay_ms,
            partition=place.partition,
            offset=place.offset,
            ms=round(ms, 1),
        )
        for place, ms in zip(places, times, strict=True)
    ]


def _newest_first(segments: list[list[tuple[int, int]]]) -> list["_Place"]:
    """The middle of every segment: of all partitions the newest ones, then those before them."""
    return [
        _Place(partition=number, offset=sum(rows[-depth]) // 2)
        for depth in range(1, max(map(len, segments)) + 1)
        for number, rows in enumerate(segments)
        if depth <= len(rows)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    partition: int
    offset: int


async def _timed(bootstrap: str, topic: str, warm: _Place, cold: Sequence[_Place]) -> list[float]:
    client = OwnBroker(Address.parse(bootstrap), client_id="bench-first-record")
    try:
        await _fetch(client, topic, warm)
        found = []
        for place in cold:
            await asyncio.sleep(_PAUSE_S)
            found.append(await _fetch(client, topic, place))
        return found
    finally:
        await client.close()


async def _fetch(client: OwnBroker, topic: str, place: _Place) -> float:
    """Milliseconds until an answer with records is there whole."""
    began = time.monotonic()
    answer = await client.fetch(
        topic, place.partition, place.offset, max_bytes=_MAX_BYTES, max_wait_ms=_MAX_WAIT_MS
    )
    took_ms = (time.monotonic() - began) * 1000
    if not answer.records:
        raise BenchError(f"{topic}-{place.partition} at {place.offset}: empty after {took_ms} ms")
    return took_ms

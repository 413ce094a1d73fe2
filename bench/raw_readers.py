"""`python -m bench.raw_readers`: many connections that fetch, in a process of its own.

Java's consumers take too much memory for thousands of connections, so these speak the protocol
themselves: one connection and one fetch under way for each reader, one partition each, no group.
The broker that is asked must lead the partitions. The work comes as one JSON line on stdin. When
all readers are connected, "ready" is printed; the work begins with the next line on stdin, and its
result is the next line on stdout.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from kafka_protocol.apis import FETCH, LIST_OFFSETS
from kafka_protocol.fetch import scan_fetch_response
from kafka_protocol.frames import decode_response, encode_request
from kip405.batches import HEADER_BYTES, BatchHeader, read_header

_FETCH_VERSION = 12
_LIST_OFFSETS_VERSION = 7
_LATEST = -1
_FETCHED_AT_ONCE = 50 * 1024 * 1024
_CONNECTED_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the readers do. `seconds`: how long to follow the ends of the logs; None: each reader
    reads `bytes_each` from an offset of its own and is ready.
    """

    host: str
    port: int
    topic: str
    partitions: int
    readers: int
    seconds: float | None
    bytes_each: int
    offsets: tuple[int, ...]
    fetch_bytes: int
    max_wait_ms: int


@dataclass(slots=True)
class Result:
    """Of all readers. Latencies are from a record's timestamp until its answer was received."""

    messages: int = 0
    size_bytes: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)


class _Reader:
    def __init__(self, work: Work, number: int, result: Result) -> None:
        self._work = work
        self._partition = number % work.partitions
        self._result = result
        self._offset = work.offsets[number % len(work.offsets)] if work.offsets else _LATEST
        self._size_bytes = 0

    async def connect(self, limit: asyncio.Semaphore) -> None:
        async with limit:
            self._reader, self._writer = await asyncio.open_connection(
                self._work.host, self._work.port, limit=_FETCHED_AT_ONCE
            )
            if self._offset == _LATEST:
                self._offset = await self._end()

    async def read(self) -> None:
        while self._work.seconds is not None or self._size_bytes < self._work.bytes_each:
            frame = await self._fetch()
            [topic] = scan_fetch_response(frame, _FETCH_VERSION).topics
            [partition] = topic.partitions
            if partition.error_code:
                raise RuntimeError(f"error {partition.error_code} at {self._offset}")
            self._take(frame, partition.records_position, partition.records_size)

    def close(self) -> None:
        self._writer.close()

    def _take(self, frame: bytes, position: int, size_bytes: int) -> None:
        now_ms = time.time() * 1000
        for batch in _batches(frame, position, position + size_bytes):
            if batch.last_offset >= self._offset:
                self._result.messages += batch.last_offset + 1 - self._offset
                self._offset = batch.last_offset + 1
                self._result.latencies_ms.append(round(now_ms - batch.max_timestamp_ms, 1))
        self._size_bytes += size_bytes
        self._result.size_bytes += size_bytes

    async def _fetch(self) -> bytes:
        asked = {
            "partition": self._partition,
            "fetch_offset": self._offset,
            "partition_max_bytes": self._work.fetch_bytes,
        }
        value = {
            "max_wait_ms": self._work.max_wait_ms,
            "min_bytes": 1,
            "max_bytes": _FETCHED_AT_ONCE,
            "isolation_level": 0,
            "topics": [{"topic": self._work.topic, "partitions": [asked]}],
        }
        self._writer.write(encode_request(FETCH, _FETCH_VERSION, 1, "bench", value))
        return await self._frame()

    async def _end(self) -> int:
        asked = {"partition_index": self._partition, "timestamp": _LATEST}
        value = {"topics": [{"name": self._work.topic, "partitions": [asked]}]}
        version = _LIST_OFFSETS_VERSION
        self._writer.write(encode_request(LIST_OFFSETS, version, 1, "bench", value))
        _, answer = decode_response(LIST_OFFSETS, version, await self._frame())
        return int(answer["topics"][0]["partitions"][0]["offset"])

    async def _frame(self) -> bytes:
        size_bytes = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size_bytes)


def _batches(frame: bytes, position: int, end: int) -> Iterator[BatchHeader]:
    """The batches that are whole."""
    view = memoryview(frame)
    while end - position >= HEADER_BYTES:
        batch = read_header(view, position)
        if batch.size_bytes > end - position:
            return
        yield batch
        position += batch.size_bytes


async def _run(work: Work) -> Result:
    result = Result()
    readers = [_Reader(work, number, result) for number in range(work.readers)]
    limit = asyncio.Semaphore(_CONNECTED_AT_ONCE)
    await asyncio.gather(*(one.connect(limit) for one in readers))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began_s, cpu_s = time.monotonic(), time.process_time()
    try:
        async with asyncio.timeout(work.seconds):
            await asyncio.gather(*(one.read() for one in readers))
    except TimeoutError:
        if work.seconds is None:
            raise
    result.wall_s, result.cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    for one in readers:
        one.close()
    return result


def main() -> None:
    """Does the work that comes on stdin."""
    given: dict[str, Any] = json.loads(sys.stdin.readline())
    work = Work(**{**given, "offsets": tuple(given["offsets"])})
    print(json.dumps(asdict(asyncio.run(_run(work)))), flush=True)


if __name__ == "__main__":
    main()

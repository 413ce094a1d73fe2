"""Producers and consumers of one connection each, whose every reconnect is counted.

A producer is idempotent: what it sends again after a reconnect is written once. Each has a
partition of its own, and one consumer reads it from the first offset on.
"""

import asyncio
import os
import random
import struct
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kafka_protocol.apis import FETCH, PRODUCE
from kafka_protocol.schema import Api
from kip405.batches import batch_headers, check_crc, size_at
from tests.kip405.batch_builder import batch, with_right_crc
from tests.rlm.proxy.raw_client import RawClient

_PRODUCE_VERSION, _FETCH_VERSION = 9, 12
_PRODUCER_EPOCH_AT = 51
_MOST_DOUBLED = 10

Written = tuple[int, int]
"""Offset of a batch, which of a CountedProducer has one record, and its checksum."""
Connect = Callable[[str, int], Awaitable[RawClient]]


async def connect_plainly(host: str, port: int) -> RawClient:
    """A `Connect` without TLS and SASL."""
    return RawClient(*await asyncio.open_connection(host, port))


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How clients ask. The defaults are for a few of them whose waits are measured. `passing`:
    errors of a partition that are no problem, but make a client ask again.
    """

    connect: Connect = connect_plainly
    interval_s: float = 0.1
    value_bytes: int = 8_192
    fetch_bytes: int = 1 << 20
    max_wait_ms: int = 500
    again_s: float = 0.01
    longest_again_s: float = 0.01
    passing: frozenset[int] = frozenset()


_USUAL = Habits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """When and by which error a connection ended, and when the client had its next answer."""

    lost_s: float
    back_s: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """From when a record was to be sent until it was acknowledged."""

    due_s: float
    took_s: float


class CountedClient:
    """Connects again whenever its connection ends: at once, then later and later, as far as its
    habits say so. Times are those of the event loop.
    """

    def __init__(self, address: str, topic: str, partition: int, habits: Habits = _USUAL) -> None:
        self._host, _, self._port = address.rpartition(":")
        self.topic = topic
        self.partition = partition
        self.reconnects: list[Reconnect] = []
        self.problems: list[str] = []
        self.written: list[Written] = []
        self.passed: Counter[int] = Counter()
        """Passing errors by their code."""
        self.answered_s = 0.0
        """When it had its newest answer."""
        self.is_ending = False
        self._habits = habits
        self._chance = random.Random(f"{address} {topic} {partition}")
        self._tries = 0
        self._client: RawClient | None = None
        self._lost_s: float | None = None
        self._cause = ""
        self.is_to_move = False

    @property
    def port(self) -> int | None:
        """Its own, None while it has no connection."""
        if self._client is None:
            return None
        return int(self._client.writer.get_extra_info("sockname")[1])

    @property
    def is_lost(self) -> bool:
        """Whether it has had no answer since its connection ended."""
        return self._lost_s is not None

    def move(self) -> None:
        """Take another connection, between two requests: that one is not counted."""
        self.is_to_move = True

    async def ask(self, api: Api, version: int, request: dict[str, Any]) -> dict[str, Any]:
        """The answer, from the connection that gives one."""
        while True:
            try:
                client = await self._connected()
                answer = await client.call(api, version, request)
            except (OSError, asyncio.IncompleteReadError) as error:
                await self._lose(error)
                continue
            self._answered()
            return answer

    async def ask_partition(
        self, api: Api, version: int, request: dict[str, Any], rows: str
    ) -> dict[str, Any]:
        """What is answered of its partition, once that is no passing error."""
        while True:
            answer = await self.ask(api, version, request)
            [found] = answer["responses"][0][rows]
            code = found["error_code"]
            if code not in self._habits.passing:
                return dict(found)
            self.passed[code] += 1
            await asyncio.sleep(self._habits.longest_again_s)

    async def _connected(self) -> RawClient:
        if self.is_to_move:
            self.is_to_move = False
            self.close()
        if self._client is None:
            self._client = await self._habits.connect(self._host, int(self._port))
        return self._client

    async def _lose(self, error: Exception) -> None:
        if self._lost_s is None:
            self._lost_s = asyncio.get_running_loop().time()
            self._cause = repr(error)
        self.close()
        later_s = self._habits.again_s * 2 ** min(self._tries, _MOST_DOUBLED)
        self._tries += 1
        wait_s = min(later_s, self._habits.longest_again_s)
        await asyncio.sleep(wait_s * self._chance.uniform(1, 1.5))

    def _answered(self) -> None:
        self._tries = 0
        self.answered_s = back_s = asyncio.get_running_loop().time()
        if self._lost_s is not None:
            self.reconnects.append(Reconnect(lost_s=self._lost_s, back_s=back_s, cause=self._cause))
            self._lost_s = None

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.writer.close()


class CountedProducer(CountedClient):
    """Sends a record in each interval until `is_ending`; acks=all."""

    def __init__(self, address: str, topic: str, partition: int, habits: Habits = _USUAL) -> None:
        super().__init__(address, topic, partition, habits)
        self.acknowledged: list[Acknowledged] = []
        self.values: list[int] = []
        """Checksums of the values."""
        self._id = int.from_bytes(os.urandom(4), "big") | 1 << 40

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while not self.is_ending:
            due_s = max(due_s + self._habits.interval_s, loop.time() - 1)
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            await self._produce(os.urandom(self._habits.value_bytes))
            self.acknowledged.append(Acknowledged(due_s=due_s, took_s=loop.time() - due_s))

    async def _produce(self, value: bytes) -> None:
        records = self._batch(value)
        row = {"index": self.partition, "records": records}
        topic = {"name": self.topic, "partition_data": [row]}
        request = {"acks": -1, "timeout_ms": 10_000, "topic_data": [topic]}
        rows = "partition_responses"
        found = await self.ask_partition(PRODUCE, _PRODUCE_VERSION, request, rows)
        if found["error_code"]:
            self.problems.append(f"record {len(self.written)}: error {found['error_code']}")
        [(_, header)] = batch_headers(records)
        self.written.append((found["base_offset"], header.crc))
        self.values.append(zlib.crc32(value))

    def _batch(self, value: bytes) -> bytes:
        now_ms = int(time.time() * 1000)
        data = bytearray(batch(0, 1, first_ms=now_ms, value=value, producer_id=self._id))
        struct.pack_into(">hi", data, _PRODUCER_EPOCH_AT, 0, len(self.written))
        return with_right_crc(data)


class CountedConsumer(CountedClient):
    """Reads on from the first offset until it has `end` records."""

    end: int | None = None
    next_offset = 0

    async def run(self) -> None:
        while self.end is None or len(self.written) < self.end:
            await self._fetch()

    async def _fetch(self) -> None:
        offset, most = self.next_offset, self._habits.fetch_bytes
        row = {"partition": self.partition, "fetch_offset": offset, "partition_max_bytes": most}
        topic = {"topic": self.topic, "partitions": [row]}
        wait_ms = self._habits.max_wait_ms
        request = {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": most, "topics": [topic]}
        found = await self.ask_partition(FETCH, _FETCH_VERSION, request, "partitions")
        if found["error_code"]:
            self.problems.append(f"fetch of {offset}: error {found['error_code']}")
        records = found["records"] or b""
        for position, header in batch_headers(records, 0, _whole_bytes(records)):
            check_crc(records, position, header)
            self.written.append((header.base_offset, header.crc))
            self.next_offset = header.next_offset


def _whole_bytes(records: bytes) -> int:
    """Where the last whole batch ends: brokers may cut off what is more than was asked for."""
    position = 0
    while (size_bytes := size_at(records, position)) is not None:
        if position + size_bytes > len(records):
            break
        position += size_bytes
    return position


class Rereader(CountedConsumer):
    """Reads what is below an offset again and again until `is_ending`, with pauses; each pass has
    to show the same.
    """

    until_offset = 0
    passes = 0
    _first_pass: list[Written] | None = None

    async def run(self) -> None:
        while not self.is_ending:
            await self._fetch()
            if self.next_offset >= self.until_offset:
                self._end_pass()
            await asyncio.sleep(self._habits.interval_s)

    def _end_pass(self) -> None:
        if self._first_pass is None:
            self._first_pass = self.written
        elif self.written != self._first_pass:
            self.problems.append(f"pass {self.passes} is not the first one again")
        self.passes, self.written, self.next_offset = self.passes + 1, [], 0

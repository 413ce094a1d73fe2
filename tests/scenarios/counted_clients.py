"""Producers and consumers of one connection each, whose every reconnect is counted.

A producer is idempotent: what it sends again after a reconnect is written once. Each has a
partition of its own, and one consumer reads it from the first offset on.
"""

import asyncio
import os
import struct
import time
import zlib
from dataclasses import dataclass
from typing import Any

from kafka_protocol.apis import FETCH, PRODUCE
from kafka_protocol.schema import Api
from kip405.batches import batch_headers, check_crc
from tests.kip405.batch_builder import batch, with_right_crc
from tests.rlm.proxy.raw_client import RawClient

_VALUE_BYTES = 8_192
_INTERVAL_S = 0.1
_PRODUCE_VERSION, _FETCH_VERSION = 9, 12
_PRODUCER_EPOCH_AT = 51
_AGAIN_S = 0.01

Written = tuple[int, int]
"""Offset and checksum of a batch of one record."""


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
    """Connects again at once whenever its connection ends; times are those of the event loop."""

    def __init__(self, address: str, topic: str, partition: int) -> None:
        self._host, _, self._port = address.rpartition(":")
        self.topic = topic
        self.partition = partition
        self.reconnects: list[Reconnect] = []
        self.problems: list[str] = []
        self.written: list[Written] = []
        self.is_ending = False
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

    async def _connected(self) -> RawClient:
        if self.is_to_move:
            self.is_to_move = False
            self.close()
        if self._client is None:
            self._client = RawClient(*await asyncio.open_connection(self._host, self._port))
        return self._client

    async def _lose(self, error: Exception) -> None:
        if self._lost_s is None:
            self._lost_s = asyncio.get_running_loop().time()
            self._cause = repr(error)
        self.close()
        await asyncio.sleep(_AGAIN_S)

    def _answered(self) -> None:
        if self._lost_s is not None:
            back_s = asyncio.get_running_loop().time()
            self.reconnects.append(Reconnect(lost_s=self._lost_s, back_s=back_s, cause=self._cause))
            self._lost_s = None

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.writer.close()


class CountedProducer(CountedClient):
    """Sends a record each 100 ms until `is_ending`; acks=all."""

    def __init__(self, address: str, topic: str, partition: int) -> None:
        super().__init__(address, topic, partition)
        self.acknowledged: list[Acknowledged] = []
        self.values: list[int] = []
        """Checksums of the values."""
        self._id = int.from_bytes(os.urandom(4), "big") | 1 << 40

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while not self.is_ending:
            due_s = max(due_s + _INTERVAL_S, loop.time() - 1)
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            await self._produce(os.urandom(_VALUE_BYTES))
            self.acknowledged.append(Acknowledged(due_s=due_s, took_s=loop.time() - due_s))

    async def _produce(self, value: bytes) -> None:
        records = self._batch(value)
        row = {"index": self.partition, "records": records}
        topic = {"name": self.topic, "partition_data": [row]}
        request = {"acks": -1, "timeout_ms": 10_000, "topic_data": [topic]}
        answer = await self.ask(PRODUCE, _PRODUCE_VERSION, request)
        [found] = answer["responses"][0]["partition_responses"]
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

    async def run(self) -> None:
        while self.end is None or len(self.written) < self.end:
            await self._fetch()

    async def _fetch(self) -> None:
        offset = self.written[-1][0] + 1 if self.written else 0
        row = {"partition": self.partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topic = {"topic": self.topic, "partitions": [row]}
        request = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "topics": [topic]}
        answer = await self.ask(FETCH, _FETCH_VERSION, request)
        [found] = answer["responses"][0]["partitions"]
        if found["error_code"]:
            self.problems.append(f"fetch of {offset}: error {found['error_code']}")
        records = found["records"] or b""
        for position, header in batch_headers(records):
            check_crc(records, position, header)
            self.written.append((header.base_offset, header.crc))

"""Nothing is read, and nothing asked, for a client before the broker has answered it (G8)."""

import asyncio
from dataclasses import dataclass

import pytest

from kafka_protocol.apis import DELETE_RECORDS, FETCH
from kafka_protocol.frames import parse_request_header
from rlm.remote_log.tier import TopicRef, Watermarks
from tests.rlm.proxy.fakes import (
    TOPIC,
    FakeBroker,
    FakeTier,
    HeldBroker,
    Log,
    Value,
    World,
    asked,
    blob,
    fetch_request,
    only,
    tier_partition,
    world,
)
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.test_pass_through import ended

REFUSED = 29
MANY = range(40)
HIGH_WATERMARK = -1


@dataclass
class CountingTier(FakeTier):
    """Every partition has remote records."""

    watermarks_asked: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.partitions = {number: tier_partition(partition=number) for number in MANY}

    async def watermarks(self, topic: TopicRef, partition: int, deadline_ms: int) -> Watermarks:
        self.watermarks_asked += 1
        return await super().watermarks(topic, partition, deadline_ms)

    @property
    def work(self) -> tuple[int, int, int]:
        return len(self.reads), self.barriers, self.watermarks_asked


@dataclass
class StrictBroker(FakeBroker):
    """A listener with SASL: it closes the connection of a client that asks for more before it."""

    async def answer(self, frame: bytes) -> bytes | None:
        if parse_request_header(frame).api_key in (FETCH.key, DELETE_RECORDS.key):
            raise ConnectionError
        return await super().answer(frame)


def small_pieces() -> Value:
    """As many reads as partitions, if any begins."""
    return fetch_request(12, *(asked(40, number, max_bytes=1) for number in MANY))


def deletion() -> Value:
    rows = [{"partition_index": number, "offset": HIGH_WATERMARK} for number in MANY]
    return {"topics": [{"name": TOPIC, "partitions": rows}], "timeout_ms": 1_000}


def codes(answer: Value, topics: str) -> set[int]:
    return {row["error_code"] for topic in answer[topics] for row in topic["partitions"]}


@pytest.mark.parametrize("api", [FETCH, DELETE_RECORDS], ids=lambda api: api.name)
async def test_g8_a_stranger_makes_nobody_work(api: object) -> None:
    tier = CountingTier()
    async with world(tier, StrictBroker()) as w:
        client = await w.connect()
        is_fetch = api is FETCH
        frame = (
            client.encode(FETCH, 12, small_pieces())
            if is_fetch
            else client.encode(DELETE_RECORDS, 2, deletion())
        )
        client.writer.write(frame)
        assert await ended(client)
        assert tier.work == (0, 0, 0)


async def test_g8_nothing_is_read_for_who_may_not_read() -> None:
    tier = CountingTier()
    async with world(tier) as w:
        w.broker.logs |= {(TOPIC, number): Log(error_code=REFUSED) for number in MANY}
        client = await w.connect()
        for _ in range(2):
            answer = await client.call(FETCH, 12, small_pieces())
            assert codes(answer, "responses") == {REFUSED}
        assert tier.work == (0, 0, 0)


async def test_g8_nothing_is_asked_for_who_may_not_delete() -> None:
    tier = CountingTier()
    async with world(tier) as w:
        w.broker.logs |= {(TOPIC, number): Log(error_code=REFUSED) for number in MANY}
        answer = await (await w.connect()).call(DELETE_RECORDS, 2, deletion())
        assert codes(answer, "topics") == {REFUSED}
        assert tier.work == (0, 0, 0)
        [asked_first] = w.broker.requests(DELETE_RECORDS)
        assert asked_first["timeout_ms"] == 0
        assert {row["offset"] for row in asked_first["topics"][0]["partitions"]} == {0}


async def begun_reads(w: World, client: RawClient, wanted: int) -> None:
    client.writer.write(client.encode(FETCH, 12, fetch_request(12, asked(40))))
    async with asyncio.timeout(60):
        while len(w.tier.reads) < wanted:  # noqa: ASYNC110 - of what the proxy has begun
            await asyncio.sleep(0.005)


async def test_who_has_been_answered_once_is_read_for_at_once() -> None:
    broker = HeldBroker()
    async with world(CountingTier(), broker) as w:
        broker.may_answer.set()
        client = await w.connect()
        first = only(await client.call(FETCH, 12, fetch_request(12, asked(40))))
        assert first["records"] == blob(40, 100)
        broker.may_answer.clear()
        await begun_reads(w, client, 2)
        broker.may_answer.set()
        assert only(await client.answer(FETCH, 12))["records"] == blob(40, 100)


async def test_g8_a_right_that_is_taken_away_ends_reads_before_the_answer() -> None:
    tier = CountingTier()
    async with world(tier) as w:
        client = await w.connect()
        request = fetch_request(12, asked(40))
        assert only(await client.call(FETCH, 12, request))["error_code"] == 0
        w.broker.logs[TOPIC, 0] = Log(error_code=REFUSED)
        assert only(await client.call(FETCH, 12, request))["error_code"] == REFUSED
        done = len(tier.reads)
        assert only(await client.call(FETCH, 12, request))["error_code"] == REFUSED
        assert len(tier.reads) == done
        w.broker.logs[TOPIC, 0] = Log()
        assert only(await client.call(FETCH, 12, request))["records"] == blob(40, 100)


async def test_a_first_fetch_that_does_not_wait_still_gets_records() -> None:
    """Its read begins after the answer of the broker, and has a first moment all the same."""
    tier = CountingTier()
    async with world(tier) as w:
        client = await w.connect()
        tier.gate.clear()
        request = fetch_request(12, asked(40), max_wait_ms=0)
        answer = asyncio.create_task(client.call(FETCH, 12, request))
        async with asyncio.timeout(60):
            while not tier.reads:  # noqa: ASYNC110 - of what the proxy has begun
                await asyncio.sleep(0)
        tier.gate.set()
        assert only(await answer)["records"] == blob(40, 100)

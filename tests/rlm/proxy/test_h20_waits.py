"""When a Fetch with remote offsets is answered: at once, when records come, or after its wait."""

import asyncio
import time
from dataclasses import replace

import pytest

from kafka_protocol.apis import FETCH
from kafka_protocol.error_codes import UNKNOWN_SERVER_ERROR
from kip405.errors import Busy, Corrupt
from rlm.remote_log.tier import Watermarks
from tests.rlm.proxy.fakes import (
    TOPIC,
    WATERMARKS,
    FakeTier,
    Log,
    asked,
    blob,
    fetch_request,
    only,
    tier_partition,
    world,
)
from tests.rlm.proxy.test_pass_through import settle


def ten_partitions() -> FakeTier:
    return FakeTier(partitions={n: tier_partition(partition=n) for n in range(10)})


@pytest.mark.usefixtures("short_first_moment")
async def test_h20_one_archived_and_nine_idle_tail_partitions_do_not_spin() -> None:
    async with world(ten_partitions()) as w:
        w.tier.gate.clear()
        client = await w.connect()
        parts = [asked(40, 0), *(asked(200, n) for n in range(1, 10))]
        request = fetch_request(12, *parts, max_wait_ms=300)
        began, answers = time.monotonic(), 0
        while time.monotonic() - began < 1.0:
            answer = await client.call(FETCH, 12, request)
            assert all(not p["records"] for p in answer["responses"][0]["partitions"])
            assert answer["responses"][0]["partitions"][0]["high_watermark"] == 200
            answers += 1
        assert answers < 5
        assert len(w.broker.requests(FETCH)) < 25
        await client.call(FETCH, 12, fetch_request(12, asked(200), max_wait_ms=1))
        await settle(lambda: w.tier.under_way == 0)


@pytest.mark.usefixtures("short_first_moment")
async def test_h20_new_tail_records_end_the_wait_at_once() -> None:
    async with world(ten_partitions()) as w:
        w.tier.gate.clear()
        client = await w.connect()
        request = fetch_request(12, asked(40, 0), asked(200, 1), max_wait_ms=60_000)
        calling = asyncio.ensure_future(client.call(FETCH, 12, request))
        await settle(lambda: (TOPIC, 1) in w.broker.logs)
        await asyncio.sleep(0.15)
        w.broker.logs[TOPIC, 1].high_watermark = 205
        began = time.monotonic()
        w.broker.changed.set()
        answer = await calling
        assert time.monotonic() - began < 30
        assert answer["responses"][0]["partitions"][1]["records"] == blob(200, 205)
        assert answer["responses"][0]["partitions"][0]["records"] == b""


async def test_h20_remote_bytes_end_the_wait_at_once() -> None:
    async with world() as w:
        w.tier.gate.clear()
        client = await w.connect()
        request = fetch_request(12, asked(40), max_wait_ms=60_000)
        calling = asyncio.ensure_future(client.call(FETCH, 12, request))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        w.tier.gate.set()
        assert only(await calling)["records"] == blob(40, 100)
        assert time.monotonic() - began < 30
        assert len(w.broker.requests(FETCH)) == 1


async def test_h20_a_stale_high_watermark_is_dropped_and_asked_again() -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(watermarks=replace(WATERMARKS, high_watermark=999))
        client = await w.connect()
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(40))))
        assert (answer["error_code"], answer["records"]) == (0, blob(40, 100))
        offsets = [
            r["topics"][0]["partitions"][0]["fetch_offset"] for r in w.broker.requests(FETCH)
        ]
        assert offsets == [999, 40]


async def test_h25_with_busy_tail_partitions_the_error_is_not_repeated_at_once() -> None:
    async with world(ten_partitions()) as w:
        w.tier.error = Corrupt("bad crc")
        client = await w.connect()
        request = fetch_request(12, asked(40, 0), asked(150, 1), max_wait_ms=60_000)
        codes = []
        for _ in range(4):
            answer = await client.call(FETCH, 12, request)
            first, second = answer["responses"][0]["partitions"]
            codes.append(first["error_code"])
            assert second["records"] == blob(150, 200)
        assert codes[0] == UNKNOWN_SERVER_ERROR
        assert codes[1:] == [0, 0, 0]


@pytest.mark.usefixtures("short_first_moment")
async def test_min_bytes_zero_does_not_wait() -> None:
    async with world() as w:
        w.tier.gate.clear()
        client = await w.connect()
        began = time.monotonic()
        request = fetch_request(12, asked(40), min_bytes=0, max_wait_ms=60_000)
        assert only(await client.call(FETCH, 12, request))["records"] == b""
        assert time.monotonic() - began < 30


async def test_h15_a_hole_at_the_log_end_is_held_and_not_a_spin() -> None:
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(200, 200, 200)
        w.tier.partitions[0] = tier_partition(watermarks=replace(WATERMARKS, log_start_offset=200))
        w.tier.broker_watermarks = Watermarks(
            high_watermark=200, last_stable_offset=200, log_start_offset=200
        )
        client = await w.connect()
        began = time.monotonic()
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(150))))
        assert (answer["error_code"], answer["records"], answer["high_watermark"]) == (0, b"", 200)
        assert time.monotonic() - began > 0.15
        assert len(w.broker.requests(FETCH)) < 6


async def test_the_last_remote_bytes_do_not_wait_for_min_bytes() -> None:
    async with world() as w:
        client = await w.connect()
        began = time.monotonic()
        request = fetch_request(12, asked(95), min_bytes=100_000, max_wait_ms=60_000)
        assert only(await client.call(FETCH, 12, request))["records"] == blob(95, 100)
        assert time.monotonic() - began < 30


async def test_a_read_that_failed_for_now_is_tried_again_within_max_wait() -> None:
    async with world() as w:
        w.tier.error = Busy("queue full")
        client = await w.connect()
        request = fetch_request(12, asked(40), max_wait_ms=60_000)
        calling = asyncio.ensure_future(client.call(FETCH, 12, request))
        await asyncio.sleep(0.15)
        w.tier.error = None
        assert only(await calling)["records"] == blob(40, 100)

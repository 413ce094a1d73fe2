"""Reads of a Fetch beyond those that were planned: together, within one short wait, in turn."""

import asyncio
import contextlib
import math
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import pytest

from kafka_protocol.apis import FETCH
from rlm.proxy.fetch_answer import FetchAnswer
from rlm.reading.values import RemoteRead, RemoteRecords
from tests.rlm.proxy.border import ONE_PROCESS, grace_ms
from tests.rlm.proxy.fakes import (
    TOPIC,
    FakeTier,
    Log,
    Value,
    asked,
    blob,
    fetch_request,
    tier_partition,
    world,
)

LIMIT = 1_000
PLANNED = 10
"""As many limits of partitions fit into one answer."""
ALL = 40
LOCAL = ALL
MOST_TRIES = 3
MANY = 2_000


@dataclass
class SlowTier(FakeTier):
    """Reads of some partitions never come back, and those of others take a while."""

    hanging: Collection[int] = ()
    duration_ms: int = 0
    further_under_way: int = 0
    most_under_way: int = 0
    """Of those that were not planned."""

    async def read(self, request: RemoteRead) -> RemoteRecords:
        is_further = request.partition >= PLANNED
        self.further_under_way += is_further
        self.most_under_way = max(self.most_under_way, self.further_under_way)
        try:
            if request.partition in self.hanging:
                await asyncio.Event().wait()
            if self.duration_ms:
                await asyncio.sleep(self.duration_ms / 1000)
        finally:
            self.further_under_way -= is_further
        found = await super().read(request)
        return replace(found, exhausted=found.next_offset >= request.upper_offset)


def slow_tier(hanging: Collection[int], duration_ms: int = 0, count: int = ALL) -> SlowTier:
    views = {n: tier_partition(partition=n) for n in range(count)}
    return SlowTier(partitions=views, hanging=hanging, duration_ms=duration_ms)


def fetch(version: int, offset: int = 40, **fields: Any) -> Value:
    """All remote partitions in the same order, and a local one behind them."""
    rows = [asked(offset, n, LIMIT) for n in range(ALL)]
    return fetch_request(
        version, *rows, asked(150, LOCAL, LIMIT), max_bytes=PLANNED * LIMIT, **fields
    )


def given(answer: Value) -> dict[int, bytes]:
    """The records of each partition that has any."""
    rows = answer["responses"][0]["partitions"]
    assert all(row["error_code"] == 0 for row in rows)
    return {row["partition_index"]: row["records"] for row in rows if row["records"]}


@pytest.mark.usefixtures("short_first_moment")
async def test_g6_slow_reads_beyond_the_plan_hold_back_nothing() -> None:
    """Each would have had the whole wait for itself, one after the other."""
    async with world(slow_tier(range(1, ALL))) as w:
        client = await w.connect()
        began = time.monotonic()
        records = given(await client.call(FETCH, 12, fetch(12, max_wait_ms=20_000)))
        assert time.monotonic() - began < 15
        assert records.keys() == {0, LOCAL}
        assert records[0] == blob(40, 100)


@pytest.mark.usefixtures("short_first_moment")
async def test_g6_after_the_wait_slow_reads_hold_back_nothing_either() -> None:
    async with world(slow_tier(range(ALL))) as w:
        w.broker.logs[TOPIC, LOCAL] = Log(start=150, high_watermark=150, last_stable=150)
        client = await w.connect()
        took_s, most_s = math.inf, (ALL - PLANNED) * grace_ms() / 1_000
        for _ in range(MOST_TRIES):  # a busy machine may hold up one of them
            began = time.monotonic()
            assert given(await client.call(FETCH, 12, fetch(12, max_wait_ms=100))) == {}
            took_s = min(took_s, time.monotonic() - began)
            if took_s < most_s:
                break
        assert took_s < most_s


@pytest.mark.usefixtures("short_first_moment")
async def test_each_partition_has_its_turn_while_others_hang() -> None:
    """The client names its partitions in the same order each time, and the store has only the last
    ones.
    """
    there = range(ALL - PLANNED // 2, ALL)
    async with world(slow_tier(range(ALL - PLANNED // 2))) as w:
        w.broker.logs[TOPIC, LOCAL] = Log(start=150, high_watermark=150, last_stable=150)
        client = await w.connect()
        seen: set[int] = set()
        for _ in range(4 * ALL // PLANNED):
            seen |= given(await client.call(FETCH, 12, fetch(12, max_wait_ms=50))).keys()
            if seen == set(there):
                return
    raise AssertionError(f"only {sorted(seen)} had their turn")


async def test_reads_beyond_the_plan_begin_together() -> None:
    tier = slow_tier((), duration_ms=5)
    async with world(tier) as w:
        client = await w.connect()
        records = given(await client.call(FETCH, 12, fetch(12, offset=95, max_wait_ms=20_000)))
        assert records.keys() >= {LOCAL}
        assert tier.most_under_way >= PLANNED // 2


@pytest.mark.parametrize("border", [ONE_PROCESS], indirect=True)
async def test_small_partitions_beyond_the_plan_fill_the_answer() -> None:
    """As far as they need no wait, which depends on the machine."""
    async with world(slow_tier(())) as w:
        client = await w.connect()
        records: dict[int, bytes] = {}
        for _ in range(MOST_TRIES):
            w.tier.reads.clear()
            records = given(await client.call(FETCH, 12, fetch(12, offset=95, max_wait_ms=20_000)))
            if len(records) == len({*range(ALL), LOCAL}):
                break
        assert records == {**dict.fromkeys(range(ALL), blob(95, 100)), LOCAL: records[LOCAL]}
        assert len(w.tier.reads) == ALL


async def test_the_room_of_an_answer_bounds_what_is_read_for_it() -> None:
    """The first partition has little, so that there is room for half of another one."""
    async with world(slow_tier(())) as w:
        client = await w.connect()
        rows = [asked(75, 0, 500), *(asked(0, n, 500) for n in range(1, ALL))]
        request = fetch_request(12, *rows, max_bytes=PLANNED * 500, max_wait_ms=60_000)
        records = given(await client.call(FETCH, 12, request))
        assert sum(map(len, records.values())) == PLANNED * 500
        assert len(w.tier.reads) == PLANNED + 1


@pytest.mark.parametrize("border", [ONE_PROCESS], indirect=True)
async def test_the_room_of_an_answer_bounds_what_many_rounds_read_for_it() -> None:
    """The first partition has half of what it may have, and the others behind the plan 100 bytes
    each: two of them fit, and half of a third one.
    """
    async with world(slow_tier(())) as w:
        client = await w.connect()
        rows = [asked(75, 0, 500), *(asked(0, n, 500) for n in range(1, PLANNED))]
        rows += [asked(90, n, 500) for n in range(PLANNED, ALL)]
        request = fetch_request(12, *rows, max_bytes=PLANNED * 500, max_wait_ms=60_000)
        records = given(await client.call(FETCH, 12, request))
        assert sum(map(len, records.values())) == PLANNED * 500
        assert len(w.tier.reads) == PLANNED + 3


class Steps:
    """How often all partitions of an answer were gone through, and how much was read from one turn
    of the event loop to the next.
    """

    def __init__(self, tier: FakeTier) -> None:
        self.passes = self.most_reads = 0
        self._tier = tier

    async def watch(self) -> None:
        while True:
            before = len(self._tier.reads)
            await asyncio.sleep(0)
            self.most_reads = max(self.most_reads, len(self._tier.reads) - before)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        watching = asyncio.create_task(self.watch())
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            watching.cancel()

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        self.passes += event == "call" and frame.f_code is FetchAnswer.unread.__code__


@pytest.mark.parametrize("border", [ONE_PROCESS], indirect=True)
async def test_g6_a_fetch_of_very_many_small_partitions_keeps_nobody_from_the_event_loop() -> None:
    """Each may have the whole answer and has 100 bytes, which are there at once."""
    async with world(slow_tier((), count=MANY)) as w:
        client = await w.connect()
        rows = [asked(90, n, 1_000_000) for n in range(MANY)]
        steps = Steps(w.tier)
        seen: set[int] = set()
        for _ in range(3):
            with steps.counted():
                request = fetch_request(12, *rows, max_bytes=1_000_000, max_wait_ms=10)
                records = given(await client.call(FETCH, 12, request))
            assert set(records.values()) == {blob(90, 100)}
            assert len(w.tier.reads) < MANY  # there is one short wait for all
            assert not (records.keys() - {0}) & seen  # the others have their turn
            seen |= records.keys()
        assert steps.passes <= 2 * 3
        assert steps.most_reads <= 3

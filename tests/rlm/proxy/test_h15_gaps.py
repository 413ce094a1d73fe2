"""H15: where the last remote segment ends without records, as after compaction, a consumer goes on
behind it, and nowhere else.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kafka_protocol.apis import FETCH
from kip405.errors import Fenced, Unavailable
from rlm.reading.values import RemoteRead, RemoteRecords
from rlm.remote_log.tier import TierPartition, TopicRef
from tests.rlm.proxy.fakes import (
    TOPIC,
    WATERMARKS,
    FakeTier,
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

VERSIONS = (4, 11, 12, 16, FETCH.versions.high)
GAP = 90
"""The segment ends at 100, and its last record is the one before this offset."""


@dataclass
class GapTier(FakeTier):
    """Has nothing from `gap` on up to 100. `meanwhile` becomes true while it is read."""

    gap: int = GAP
    meanwhile: Callable[[], None] | None = None

    async def read(self, request: RemoteRead) -> RemoteRecords:
        if self.meanwhile is not None:
            self.meanwhile()
        if not self.gap <= request.offset < 100:
            return await super().read(request)
        self.reads.append(request)
        await self.gate.wait()
        if request.upper_offset > 100:
            return await super().read(replace(request, offset=100))
        return RemoteRecords(records=(), size_bytes=0, next_offset=request.offset, aborted=())


def gap_tier(**changes: Any) -> GapTier:
    return GapTier(partitions={n: tier_partition(partition=n, **changes) for n in range(3)})


async def fetch(w: World, version: int, offset: int, **fields: Any) -> Value:
    client = await w.connect()
    answer = await client.call(FETCH, version, fetch_request(version, asked(offset), **fields))
    return only(answer)


def asked_offsets(w: World) -> list[int]:
    rows = [request["topics"][0]["partitions"][0] for request in w.broker.requests(FETCH)]
    return [row["fetch_offset"] for row in rows]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_h15_a_consumer_at_the_end_of_the_last_segment_goes_on(
    version: int, isolation_level: int
) -> None:
    async with world(gap_tier()) as w:
        began = time.monotonic()
        for offset in (GAP, 99):
            answer = await fetch(
                w, version, offset, isolation_level=isolation_level, max_wait_ms=20_000
            )
            assert (answer["error_code"], answer["records"]) == (0, blob(100, 200))
            assert answer.get("log_start_offset", 0) == (-1 if version < 5 else 0)
        assert time.monotonic() - began < 15


@pytest.mark.parametrize("version", VERSIONS)
async def test_h15_the_broker_begins_behind_the_end_of_the_remote_data(version: int) -> None:
    """A hole follows the gap."""
    tier = gap_tier(watermarks=replace(WATERMARKS, log_start_offset=120))
    tier.broker_watermarks = replace(WATERMARKS, log_start_offset=120)
    async with world(tier) as w:
        w.broker.logs[TOPIC, 0] = Log(start=120)
        answer = await fetch(w, version, GAP, max_wait_ms=20_000)
        assert (answer["error_code"], answer["records"]) == (0, blob(120, 200))


@pytest.mark.usefixtures("short_first_moment")
@pytest.mark.parametrize("is_slow", [False, True])
async def test_h15_records_of_other_partitions_do_not_keep_a_consumer_at_a_gap(
    is_slow: bool,
) -> None:
    """They are there at once, each time, and the read comes only then."""
    async with world(gap_tier()) as w:
        client = await w.connect()
        if is_slow:
            w.tier.gate.clear()
        request = fetch_request(12, asked(GAP, 0), asked(150, 1), asked(95, 2), max_wait_ms=20_000)
        rows: list[Value] = []
        for _ in range(3):
            answer = await client.call(FETCH, 12, request)
            rows = answer["responses"][0]["partitions"]
            assert rows[1]["records"]
            w.tier.gate.set()
        assert rows[0]["records"] == rows[2]["records"] == blob(100, 200)


async def test_h15_no_gap_is_passed_before_it_is_settled() -> None:
    """The ledger may still learn of records in it."""
    async with world(gap_tier(unsettled_next_offset=100)) as w:
        answer = await fetch(w, 12, GAP)
        assert (answer["error_code"], answer["records"], answer["high_watermark"]) == (0, b"", 200)
        assert set(asked_offsets(w)) == {200}


async def test_h17_no_gap_is_passed_without_a_barrier() -> None:
    async with world(gap_tier()) as w:
        w.tier.barrier_error = Unavailable("replaying")
        began = time.monotonic()
        answer = await fetch(w, 12, GAP, max_wait_ms=300)
        assert 0.25 < time.monotonic() - began < 30
        assert (answer["error_code"], answer["records"]) == (0, b"")
        assert (set(asked_offsets(w)), w.tier.barriers) == ({200}, 1)


async def test_h04_nothing_is_passed_in_a_partition_that_is_frozen_meanwhile() -> None:
    async with world(gap_tier()) as w:
        w.tier.barrier_error = Fenced("frozen meanwhile")
        assert (await fetch(w, 12, GAP))["error_code"] == 56
        w.tier.barrier_error = None
        frozen = tier_partition(frozen=True)

        async def barrier(topic: TopicRef, partition: int, deadline_ms: int) -> TierPartition:
            return frozen

        w.tier.barrier = barrier  # type: ignore[method-assign]
        client = await w.connect()
        assert only(await client.call(FETCH, 12, fetch_request(12, asked(GAP))))["error_code"] == 56
        assert 100 not in asked_offsets(w)


@pytest.mark.parametrize(
    ("log", "isolation_level"),
    [(Log(50, 95, 95), 0), (Log(50, 100, 95), 1)],
    ids=["high watermark", "last stable offset"],
)
async def test_h15_the_end_of_what_may_be_read_is_no_gap(log: Log, isolation_level: int) -> None:
    """The remote data go on up to 100, but no consumer may have more than [50, 95)."""
    known = replace(
        WATERMARKS,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable,
        log_start_offset=94,
    )
    tier = gap_tier(watermarks=known)
    tier.gap = 92
    async with world(tier) as w:
        w.broker.logs[TOPIC, 0] = replace(log, start=94)
        answer = await fetch(w, 12, 92, isolation_level=isolation_level)
        assert (answer["error_code"], answer["records"]) == (0, b"")
        assert w.tier.barriers == 0


async def test_h15_records_that_were_copied_meanwhile_are_not_passed() -> None:
    """The broker's log was trimmed up to their end, too."""
    tier = gap_tier()

    def copied() -> None:
        known = replace(WATERMARKS, log_start_offset=150)
        tier.partitions[0] = tier_partition(remote_next_offset=150, watermarks=known)
        w.broker.logs[TOPIC, 0] = Log(start=150)

    async with world(tier) as w:
        tier.meanwhile = copied
        answer = await fetch(w, 12, GAP)
        assert (answer["error_code"], answer["records"]) == (0, b"")
        assert (await fetch(w, 12, GAP))["records"] == blob(100, 150)


@pytest.mark.parametrize(
    "now",
    [
        None,
        tier_partition(led_here=False),
        tier_partition(remote_log_start_offset=GAP + 1),
    ],
    ids=["not tiered", "led elsewhere", "ended"],
)
async def test_h15_what_is_not_the_same_any_more_is_the_brokers_to_answer(
    now: TierPartition | None,
) -> None:
    async with world(gap_tier()) as w:

        async def barrier(
            topic: TopicRef, partition: int, deadline_ms: int
        ) -> TierPartition | None:
            return now

        w.tier.barrier = barrier  # type: ignore[method-assign]
        answer = await fetch(w, 12, GAP)
        assert (answer["error_code"] in (1, 6), answer["records"]) == (True, b"")
        assert 100 not in asked_offsets(w)

"""Many partitions of one flowing answer that have to be settled."""

import time

import pytest

from kafka_protocol.apis import FETCH
from tests.rlm.proxy.fakes import TOPIC, FakeBroker, FakeTier, Log, asked, fetch_request, world
from tests.waiting import succeeds_once

PARTITIONS = 200
BARRIER_WAIT_S = 0.1  # of `world`
ASSEMBLED, FLOWS = 100, 2_000


@pytest.mark.usefixtures("short_first_moment")
@pytest.mark.parametrize("record_bytes", [ASSEMBLED, FLOWS])
async def test_h17_partitions_that_are_not_ready_do_not_wait_one_after_the_other(
    record_bytes: int,
) -> None:
    tier = FakeTier(is_ready=False, hang=True)
    broker = FakeBroker(logs={(TOPIC, 0): Log(record_bytes=record_bytes)})

    async def attempt() -> None:
        async with world(tier=tier, broker=broker, barrier_wait_ms=200) as w:
            client = await w.connect()
            far_below = [asked(40, partition) for partition in range(1, PARTITIONS + 1)]
            request = fetch_request(12, asked(150, max_bytes=1 << 20), *far_below, max_wait_ms=200)
            began = time.monotonic()
            answer = await client.call(FETCH, 12, request)
            assert time.monotonic() - began < PARTITIONS * BARRIER_WAIT_S / 2
            [topic] = answer["responses"]
            assert [one["error_code"] for one in topic["partitions"]] == [0] * (PARTITIONS + 1)
            assert len(topic["partitions"][0]["records"]) == 50 * record_bytes

    await succeeds_once(attempt)

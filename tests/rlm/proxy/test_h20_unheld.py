"""H20: a broker that answers at once, for the sake of a partition that is remote, is not asked
without a pause.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kafka_protocol.apis import FETCH
from kip405.errors import Unavailable
from tests.rlm.proxy.fakes import (
    TOPIC,
    WATERMARKS,
    FakeBroker,
    FakeTier,
    Log,
    Value,
    World,
    asked,
    blob,
    fetch_request,
    tier_partition,
    world,
)

MAX_WAIT_MS = 500
MOST_REQUESTS = 8
"""One at once, and one for each slice of 100 ms."""
VERSIONS = (4, 11, 12, FETCH.versions.high)


@dataclass
class KafkaBroker(FakeBroker):
    """Holds no request of read_committed beyond the last stable offset (DelayedFetch)."""

    def _fetch_now(self, version: int, request: Value) -> tuple[Value, int, bool]:
        answer, size, is_final = super()._fetch_now(version, request)
        if request["isolation_level"] == 0:
            return answer, size, is_final
        given = answer["responses"][0]["partitions"]
        for asked_for, row in zip(request["topics"][0]["partitions"], given, strict=True):
            beyond = (
                asked_for["fetch_offset"] - self.logs[TOPIC, asked_for["partition"]].last_stable
            )
            is_final |= beyond > 0
            if beyond >= 0:
                size, row["records"] = size - len(row["records"]), b""
        return answer, size, is_final


def away() -> FakeTier:
    """Partition 0 is remote, and the store gives nothing; partition 1 has nothing new."""
    views = {n: tier_partition(partition=n) for n in range(2)}
    return FakeTier(partitions=views, error=Unavailable("store away"))


async def fetch(w: World, version: int, **fields: Any) -> list[Value]:
    """The rows of both partitions in one answer."""
    client = await w.connect()
    request = fetch_request(version, asked(40, 0), asked(200, 1), max_wait_ms=MAX_WAIT_MS, **fields)
    answer = await client.call(FETCH, version, request)
    rows = answer["responses"][0]["partitions"]
    assert isinstance(rows, list)
    return rows


def asked_offsets(w: World) -> list[int]:
    """Where the broker was asked for partition 0."""
    rows = [request["topics"][0]["partitions"] for request in w.broker.requests(FETCH)]
    return [row[0]["fetch_offset"] for row in rows]


async def waits_in_vain(fetched: Awaitable[list[Value]]) -> None:
    assert [(row["error_code"], row["records"]) for row in await fetched] == [(0, b"")] * 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_h20_an_open_transaction_does_not_make_the_proxy_spin(version: int) -> None:
    async with world(away(), KafkaBroker(logs={(TOPIC, 0): Log(last_stable=150)})) as w:
        await waits_in_vain(fetch(w, version, isolation_level=1))
        assert len(asked_offsets(w)) <= MOST_REQUESTS
        assert set(asked_offsets(w)[2:]) <= {150}  # old versions begin at the client's offset


async def test_h20_an_old_last_stable_offset_has_no_records_read_for_nothing() -> None:
    """The first request is not to wait, and a broker would read a batch for it each time."""
    async with world(away(), KafkaBroker()) as w:
        old = replace(WATERMARKS, last_stable_offset=120)
        w.tier.partitions[0] = tier_partition(watermarks=old)
        await waits_in_vain(fetch(w, 12, isolation_level=1))
        assert set(asked_offsets(w)) == {200}


@pytest.mark.parametrize("version", VERSIONS)
async def test_h20_a_producer_of_the_old_partition_does_not_make_the_proxy_spin(
    version: int,
) -> None:
    async with world(away()) as w:
        producing = asyncio.ensure_future(produce_to(w, 0))
        try:
            await waits_in_vain(fetch(w, version))
        finally:
            producing.cancel()
        assert len(asked_offsets(w)) <= MOST_REQUESTS


async def produce_to(w: World, partition: int) -> None:
    """A record every 5 ms."""
    log = w.broker.logs.setdefault((TOPIC, partition), Log())
    while True:
        await asyncio.sleep(0.005)
        log.high_watermark = log.last_stable = log.high_watermark + 1
        w.broker.changed.set()


@pytest.mark.parametrize("version", [11, 12, FETCH.versions.high])
async def test_h20_a_preferred_replica_does_not_make_the_proxy_spin(version: int) -> None:
    async with world(away()) as w:
        w.broker.logs[TOPIC, 0] = Log(preferred=2, rack="a")
        await waits_in_vain(fetch(w, version, rack_id="a"))
        assert len(asked_offsets(w)) <= MOST_REQUESTS


Comes = Callable[[World], None]


def local_records(w: World) -> None:
    """Partition 1 has new records at the broker."""
    w.broker.logs[TOPIC, 1].high_watermark = 205
    w.broker.changed.set()


def remote_records(w: World) -> None:
    """The store is back."""
    w.tier.error = None


@pytest.mark.parametrize(
    ("comes", "records"),
    [(local_records, [b"", blob(200, 205)]), (remote_records, [blob(40, 100), b""])],
)
async def test_h20_what_comes_between_two_requests_is_noticed(
    comes: Comes, records: list[bytes]
) -> None:
    async with world(away()) as w:
        producing = asyncio.ensure_future(produce_to(w, 0))
        client = await w.connect()
        request = fetch_request(12, asked(40, 0), asked(200, 1), max_wait_ms=60_000)
        calling = asyncio.ensure_future(client.call(FETCH, 12, request))
        try:
            async with asyncio.timeout(60):
                while (TOPIC, 1) not in w.broker.logs:  # noqa: ASYNC110 - of what was asked
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.25)
            comes(w)
            answer = await asyncio.wait_for(calling, 60)
        finally:
            producing.cancel()
        rows = answer["responses"][0]["partitions"]
        given = [row["records"] for row in rows]
        assert given == records or given == [blob(40, 100), blob(200, 205)]

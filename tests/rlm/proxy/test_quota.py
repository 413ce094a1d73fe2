"""H23: remote reads through the proxy are held to a rate; clients get the throttle time of
Kafka.
"""

import pytest

from kafka_protocol.apis import FETCH, PRODUCE
from rlm.clock import SystemClock
from rlm.reading.throttle import ReadThrottle, ThrottleLimits
from tests.builders.clock import ManualClock
from tests.rlm.proxy.fakes import (
    PLAIN,
    FakeTier,
    Value,
    asked,
    blob,
    fetch_request,
    only,
    tier_partition,
    world,
)
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.uncounted import NoQuota

RATE = 600
VERSION = 12
LONG = "x" * 249
VERSIONS = (4, 11, 12, FETCH.versions.high)


def throttle(clock: ManualClock, rate: int = RATE) -> ReadThrottle:
    """So many bytes a second for a client; blobs have 10 bytes a record."""
    limits = ThrottleLimits(
        service_bytes_per_second=1 << 40, client_bytes_per_second=rate, cores=1.0
    )
    return ReadThrottle(limits, clock, lambda: 0.0)


async def fetch(client: RawClient, *partitions: Value, version: int = VERSION) -> Value:
    return await client.call(FETCH, version, fetch_request(version, *partitions))


@pytest.mark.parametrize("version", VERSIONS)
async def test_h23_over_its_rate_a_client_gets_nothing_and_a_throttle_time(version: int) -> None:
    clock = ManualClock(0)
    quota = throttle(clock)
    async with world(quota=quota) as w:
        client = await w.connect()
        for start in (0, 60):  # a second's worth is there at first, and a debt is allowed
            answer = await fetch(client, asked(start, max_bytes=600), version=version)
            assert only(answer)["records"] == blob(start, start + 60 if start == 0 else 100)
            assert answer["throttle_time_ms"] == 0
        held = await fetch(client, asked(40, max_bytes=600), version=version)
        assert held["throttle_time_ms"] == 667
        partition = only(held)
        assert (partition["error_code"], partition["high_watermark"]) == (0, 200)
        assert not partition["records"]
        assert len(w.tier.reads) == 2
        clock.advance(667)
        again = await fetch(client, asked(40, max_bytes=600), version=version)
        assert only(again)["records"] == blob(40, 100)  # nothing was lost
        assert again["throttle_time_ms"] == 0
    assert quota.counts.throttled_ms["client"] > 667  # its throttle time, and the delay before
    assert quota.counts.given_bytes["proxy", "remote"] == 1_600


async def test_h23_others_do_not_wait_and_another_name_does_not_help() -> None:
    quota = throttle(ManualClock(0))
    async with world(quota=quota) as w:
        backfill, other = await w.connect(), await w.connect()
        other.client_id = "other"
        await fetch(backfill, asked(0, max_bytes=600))
        await fetch(backfill, asked(0, max_bytes=600))
        assert not only(await fetch(backfill, asked(0)))["records"]
        assert only(await fetch(other, asked(0, max_bytes=600)))["records"] == blob(0, 60)
        backfill.client_id = "someone else"
        assert not only(await fetch(backfill, asked(0)))["records"]
        third = await w.connect()  # a new connection of the same client is the same client
        assert not only(await fetch(third, asked(0)))["records"]


async def test_h23_local_reads_and_produce_of_a_held_client_go_on() -> None:
    quota = throttle(ManualClock(0), rate=10)
    tier = FakeTier(partitions={0: tier_partition(), 1: tier_partition(partition=1)})
    async with world(tier, quota=quota) as w:
        client = await w.connect()
        await fetch(client, asked(0, max_bytes=600))
        both = await client.call(
            FETCH, VERSION, fetch_request(VERSION, asked(0), asked(150, 1), max_wait_ms=600_000)
        )
        remote, local = both["responses"][0]["partitions"]
        assert (remote["error_code"], remote["records"]) == (0, b"")
        assert local["records"] == blob(150, 200)
        assert both["throttle_time_ms"] == 0  # it would hold its local reads too
        plain = await client.call(FETCH, VERSION, fetch_request(VERSION, asked(150), topic=PLAIN))
        assert only(plain)["records"] == blob(150, 200)
        await client.call(PRODUCE, 9, {"acks": 1, "timeout_ms": 1_000, "topic_data": []})
        assert quota.counts.given_bytes["proxy", "local"] == 1_000


async def test_h23_a_held_read_begins_within_max_wait_once_it_may() -> None:
    limits = ThrottleLimits(
        service_bytes_per_second=1 << 40, client_bytes_per_second=2_000, cores=1.0
    )
    quota = ReadThrottle(limits, SystemClock(), lambda: 0.0)
    async with world(quota=quota) as w:
        client = await w.connect()
        for _ in range(3):
            await fetch(client, asked(0, max_bytes=1_000))
        request = fetch_request(VERSION, asked(0, max_bytes=1_000), max_wait_ms=300_000)
        answer = await client.call(FETCH, VERSION, request)
        assert only(answer)["records"] == blob(0, 100)
        assert answer["throttle_time_ms"] == 0
    assert 0 < quota.counts.throttled_ms["client"] < 300_000


class Spliced(NoQuota):
    """Remembers who was given what of the remote tier."""

    def __init__(self) -> None:
        self.given: list[tuple[str, int]] = []
        self.local_bytes = 0

    def spliced(self, client_id: str, size_bytes: int) -> None:
        self.given.append((client_id, size_bytes))

    def passed(self, size_bytes: int) -> None:
        self.local_bytes += size_bytes


async def test_h36_quotas_know_only_who_reads_remote_data_and_by_short_names() -> None:
    quota = Spliced()
    async with world(quota=quota) as w:
        client = await w.connect()
        client.client_id = LONG + "y" * 10_000
        assert only(await fetch(client, asked(150)))["records"] == blob(150, 200)
        assert (quota.given, quota.local_bytes) == ([], 500)
        assert only(await fetch(client, asked(40)))["records"] == blob(40, 100)
        assert quota.given == [(LONG, 600)]

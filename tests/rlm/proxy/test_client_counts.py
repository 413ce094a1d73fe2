"""Who the clients of a proxy are, as far as their requests say it, and what each was given."""

import asyncio

import pytest

from kafka_protocol.apis import API_VERSIONS, FETCH
from rlm.clock import SystemClock
from rlm.plans.client_activity import ClientRow
from rlm.reading.throttle import ReadThrottle, ThrottleLimits
from tests.rlm.proxy.fakes import (
    PLAIN,
    TOPIC,
    FakeBroker,
    FakeTier,
    Log,
    World,
    asked,
    fetch_request,
    tier_partition,
    world,
)
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.test_introductions import of_group
from tests.rlm.proxy.test_sasl import SaslBroker, log_in
from tests.waiting import until

JOIN_GROUP = 11


def versions_broker() -> FakeBroker:
    broker = SaslBroker().as_broker()
    broker.script[API_VERSIONS.key] = lambda version, request: {"api_keys": []}
    broker.raw_answers[JOIN_GROUP] = b"joined"
    return broker


async def introduce(client: RawClient, name: str = "kcat", version: int = 3) -> None:
    body = {"client_software_name": name, "client_software_version": "1.7"}
    await client.call(API_VERSIONS, version, body)


async def join(client: RawClient, group: str, in_bytes: bool = False) -> None:
    frame = of_group(JOIN_GROUP, 9, group, client.client_id)
    data = len(frame).to_bytes(4, "big") + frame
    for part in [data[at : at + 1] for at in range(len(data))] if in_bytes else [data]:
        client.writer.write(part)
        await client.writer.drain()
        if in_bytes:
            await asyncio.sleep(0)
    assert (await client.frame()).endswith(b"joined")


class StrictBroker(FakeBroker):
    """Closes the connection of a stranger that asks for a group."""

    async def answer(self, frame: bytes) -> bytes | None:
        if frame.startswith(JOIN_GROUP.to_bytes(2, "big")):
            raise ConnectionError
        return await super().answer(frame)


def seen(w: World) -> dict[tuple[str, str], ClientRow]:
    return {row.name[:2]: row for row in w.proxy.clients.rows()}


async def test_a_client_is_known_by_what_it_says_and_proves() -> None:
    async with world(broker=versions_broker()) as w:
        client = await w.connect()
        await introduce(client)
        assert not seen(w)
        await log_in(client, "alice")
        assert list(seen(w)) == [("alice", "test-client")]
        row = seen(w)["alice", "test-client"]
        assert (row.connections, list(row.software)) == (1, ["kcat 1.7"])
        assert row.name.address == "127.0.0.1"


async def test_h36_a_stranger_is_nobody_whatever_it_says() -> None:
    """The broker answers it nothing but what it answers to everybody."""
    async with world(broker=StrictBroker(script=versions_broker().script)) as w:
        client = await w.connect()
        await introduce(client)
        frame = of_group(JOIN_GROUP, 9, "billing", client.client_id)
        client.writer.write(len(frame).to_bytes(4, "big") + frame)
        await until(lambda: not w.proxy.connections)
        assert not w.proxy.clients.rows()


async def test_h36_of_what_a_stranger_says_the_newest_counts_once_it_is_let_in() -> None:
    async with world(broker=versions_broker()) as w:
        client = await w.connect()
        frames = [of_group(JOIN_GROUP, 9, f"g-{number}", "test-client") for number in range(5)]
        client.writer.write(b"".join(len(one).to_bytes(4, "big") + one for one in frames))
        for _ in frames:
            assert (await client.frame()).endswith(b"joined")
        row = seen(w)["", "test-client"]
        assert (row.connections, list(row.groups)) == (1, ["g-4"])
        await join(client, "g-5")
        assert list(row.groups) == ["g-4", "g-5"]


@pytest.mark.parametrize("in_bytes", [False, True])
async def test_a_group_is_that_of_all_connections_of_its_client(in_bytes: bool) -> None:
    async with world(broker=versions_broker()) as w:
        coordinator, reader = await w.connect(), await w.connect()
        await join(coordinator, "billing", in_bytes)
        await reader.call(FETCH, 12, fetch_request(12, asked(0)))
        row = seen(w)["", "test-client"]
        assert (row.connections, list(row.groups)) == (2, ["billing"])


@pytest.mark.parametrize("version", [12, 13])
async def test_bytes_of_each_tier_count_for_client_and_topic(version: int) -> None:
    tier = FakeTier(partitions={n: tier_partition(partition=n) for n in range(2)})
    async with world(tier) as w:
        client = await w.connect()
        await client.call(FETCH, version, fetch_request(version, asked(0, 0), asked(150, 1)))
        [row] = w.proxy.clients.rows()
        assert (row.topics[TOPIC].remote, row.topics[TOPIC].local) == (1_000, 500)
        plain = fetch_request(version, asked(150, 0), topic=PLAIN)
        await client.call(FETCH, version, plain)
        name = PLAIN if version == 12 else ""
        assert (row.topics[name].remote, row.topics[name].local) == (0, 500)


async def test_what_passes_unread_counts_as_local() -> None:
    broker = FakeBroker(logs={(TOPIC, 0): Log(record_bytes=10_000)})
    async with world(broker=broker) as w:
        client = await w.connect()
        await client.call(FETCH, 12, fetch_request(12, asked(100, 0, 2_000_000)))
        [row] = w.proxy.clients.rows()
        assert (row.topics[TOPIC].remote, row.topics[TOPIC].local) == (0, 1_000_000)


async def test_a_connection_that_ends_is_no_more_and_its_client_stays() -> None:
    async with world(broker=versions_broker()) as w:
        stranger, reader = await w.connect(), await w.connect()
        stranger.client_id = "stranger"
        await introduce(stranger)
        await reader.call(FETCH, 12, fetch_request(12, asked(0)))
        stranger.writer.close()
        reader.writer.close()
        await until(lambda: not w.proxy.connections)
        assert {name: row.connections for name, row in seen(w).items()} == {("", "test-client"): 0}


async def test_a_delay_by_a_quota_counts_for_the_client() -> None:
    limits = ThrottleLimits(service_bytes_per_second=1 << 30, client_bytes_per_second=500, cores=2)
    quota = ReadThrottle(limits, SystemClock(), lambda: 0.0)
    async with world(quota=quota) as w:
        client = await w.connect()
        for _ in range(3):
            await client.call(FETCH, 12, fetch_request(12, asked(0), max_wait_ms=20))
        [row] = w.proxy.clients.rows()
        assert row.throttled_ms > 0

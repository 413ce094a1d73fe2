"""What was answered is let go at once: as long as anything refers to a chunk it stays in memory.

The garbage collector is off here: it comes when it likes, and readers wait for the room meanwhile.
"""

import asyncio
import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kafka_protocol.apis import FETCH
from rlm.proxy.limits import StalledClients
from rlm.reading.values import RemoteRead, RemoteRecords
from tests.builders.clock import ManualClock
from tests.rlm.proxy.border import ONE_PROCESS
from tests.rlm.proxy.fakes import (
    PLAIN,
    TOPIC,
    FakeBroker,
    FakeTier,
    Log,
    World,
    asked,
    blob,
    fetch_request,
    only,
    tier_partition,
    world,
)
from tests.rlm.proxy.raw_client import RawClient
from tests.waiting import until

SIZE = 30_000_000
MOST_BYTES = 200


@dataclass
class ChunkTier(FakeTier):
    """Every read answers all of one chunk, whose references can be counted."""

    chunk: bytes = b""

    async def read(self, request: RemoteRead) -> RemoteRecords:
        await super().read(request)
        view = memoryview(self.chunk)
        return RemoteRecords(records=(view,), size_bytes=len(view), next_offset=100, aborted=())


@dataclass
class Chunk:
    """What a proxy holds of the chunk: a worker has its own copy of it."""

    world: World
    tier: ChunkTier

    @property
    def is_held(self) -> bool:
        memory, reads = self.world.records_memory, self.tier.reads
        under_way_bytes = reads[-1].max_bytes if self.tier.under_way else 0
        if memory is not None and memory.held_bytes > under_way_bytes:
            return True
        return sys.getrefcount(self.tier.chunk) > _references_of_one_held_once()


def _references_of_one_held_once() -> int:
    tier = ChunkTier(chunk=bytes(100))
    return sys.getrefcount(tier.chunk)


def chunk_tier(size_bytes: int) -> ChunkTier:
    return ChunkTier(partitions={0: tier_partition()}, chunk=bytes(size_bytes))


@pytest.fixture(autouse=True)
def no_garbage_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def test_an_answer_that_was_taken_is_let_go_while_its_client_is_idle() -> None:
    tier = chunk_tier(1_000)
    async with world(tier=tier) as w:
        chunk = Chunk(w, tier)
        client = await w.connect()
        answer = await client.call(FETCH, 12, fetch_request(12, asked(40)))
        assert only(answer)["records"] == tier.chunk
        await until(lambda: not chunk.is_held)


async def test_an_answer_that_was_taken_is_let_go_while_the_next_one_is_waited_for() -> None:
    """Otherwise readers that wait for room would hold it themselves."""
    tier = chunk_tier(1_000)
    async with world(tier=tier) as w:
        chunk = Chunk(w, tier)
        client = await w.connect()
        await client.call(FETCH, 12, fetch_request(12, asked(40)))
        tier.gate.clear()
        request = fetch_request(12, asked(40), max_wait_ms=60_000)
        client.writer.write(client.encode(FETCH, 12, request))
        await until(lambda: tier.under_way == 1)
        await until(lambda: not chunk.is_held)


async def ask_and_take_nothing(client: RawClient, chunk: Chunk) -> None:
    """Ask for more than the socket takes, until the proxy has answered."""
    request = fetch_request(12, asked(40, max_bytes=SIZE), max_bytes=SIZE, max_wait_ms=20_000)
    client.writer.write(client.encode(FETCH, 12, request))
    proxy = chunk.world.proxy
    await until(lambda: any(one.untaken_bytes for one in proxy.connections))
    assert chunk.is_held


async def test_an_answer_nobody_takes_is_let_go_when_its_client_is_gone() -> None:
    tier = chunk_tier(SIZE)
    async with world(tier=tier) as w:
        chunk = Chunk(w, tier)
        client = await w.connect()
        await ask_and_take_nothing(client, chunk)
        client.writer.transport.abort()
        await until(lambda: not chunk.is_held)


@dataclass
class RefittedTier(ChunkTier):
    """Answers as much of the chunk as is asked for; `stops`: not what is read again of partition 0,
    with fewer bytes, because the broker's part of the answer left less room.
    """

    again: int = 0
    stops: bool = False

    async def read(self, request: RemoteRead) -> RemoteRecords:
        if request.partition == 0 and request.max_bytes < 100:
            self.again += 1
            if self.stops:
                self.gate.clear()
        await FakeTier.read(self, request)
        view = memoryview(self.chunk)[: request.max_bytes // 10 * 10]
        end = request.offset + len(view) // 10
        return RemoteRecords(records=(view,), size_bytes=len(view), next_offset=end, aborted=())


async def test_what_is_read_again_to_fit_is_let_go_also_where_its_client_leaves_meanwhile() -> None:
    """The first records, the fewer ones, and what is counted of both, however often."""
    partitions = {one: tier_partition(partition=one) for one in (0, 2)}
    tier = RefittedTier(partitions=partitions, chunk=blob(40, 100, 10))
    broker = FakeBroker(logs={(TOPIC, 1): Log(record_bytes=60)})
    small = asked(40, 2, max_bytes=30)
    request = fetch_request(12, small, asked(198, 1), asked(40), max_bytes=MOST_BYTES)
    async with world(tier=tier, broker=broker) as w:
        chunk, client = Chunk(w, tier), await w.connect()
        for turn in range(30):
            tier.stops = turn % 3 == 2
            if not tier.stops:
                answer = await client.call(FETCH, 12, request)
                sizes = [len(row["records"]) for row in answer["responses"][0]["partitions"]]
                assert sum(sizes) <= MOST_BYTES
                assert min(sizes) > 0
                continue
            client.writer.write(client.encode(FETCH, 12, request))
            await until(lambda: tier.under_way == 1 and not tier.gate.is_set())
            client.writer.transport.abort()
            await until(lambda: not w.proxy.connections)
            tier.gate.set()
            client = await w.connect()
        assert tier.again >= 30
        await until(lambda: not chunk.is_held)
        await until(lambda: w.proxy.memory.held_bytes == 0)


async def test_a_stalled_client_is_ended_for_the_room_that_it_holds() -> None:
    tier, clock = chunk_tier(SIZE), ManualClock()
    async with world(tier=tier) as w:
        chunk = Chunk(w, tier)
        stalled = StalledClients(
            clients=lambda: w.proxy.connections, lacking_bytes=lambda: 1, clock=clock
        )
        idle, client = await w.connect(), await w.connect()
        await ask_and_take_nothing(client, chunk)
        stalled.check()
        clock.advance(30_000)
        stalled.check()
        await until(lambda: not chunk.is_held)
        await until(lambda: w.metrics.causes == ["stalled"])
        answer = await idle.call(FETCH, 12, fetch_request(12, asked(150)))
        assert only(answer)["error_code"] == 0


async def test_g6_a_client_of_local_records_is_not_ended_for_room_of_reads() -> None:
    broker, clock = FakeBroker(logs={("plain", 0): Log(record_bytes=SIZE)}), ManualClock()
    async with world(broker=broker) as w:
        stalled = StalledClients(
            clients=lambda: w.proxy.connections, lacking_bytes=lambda: 1, clock=clock
        )
        client = await w.connect()
        request = fetch_request(12, asked(150, max_bytes=SIZE), topic="plain", max_bytes=SIZE)
        client.writer.write(client.encode(FETCH, 12, request))
        await until(lambda: bool(w.proxy.connections))
        [connection] = w.proxy.connections
        await until(lambda: connection.taken_bytes > 0)
        await asyncio.sleep(0.1)
        assert connection.taken_bytes < SIZE
        stalled.check()
        clock.advance(30_000)
        stalled.check()
        await asyncio.sleep(0.05)
        assert w.metrics.causes == []


async def test_h36_a_client_that_takes_nothing_is_ended_for_what_its_request_holds() -> None:
    """Also where the bytes of its answer never were in memory of the proxy (`splice`)."""
    broker, clock = FakeBroker(logs={(PLAIN, 0): Log(record_bytes=1_000_000)}), ManualClock()
    async with world(broker=broker) as w:
        stalled = StalledClients(
            clients=lambda: w.proxy.connections,
            lacking_bytes=lambda: 1,
            held_bytes=lambda client: client.held_for_client_bytes,
            clock=clock,
        )
        client = await w.connect()
        request = fetch_request(11, asked(150, max_bytes=SIZE), topic=PLAIN, max_bytes=SIZE)
        client.writer.write(client.encode(FETCH, 11, request))
        await until(lambda: bool(w.proxy.connections))
        [connection] = w.proxy.connections
        await until(lambda: connection.held_for_client_bytes > 0)
        assert w.proxy.memory.work.held_bytes > 0

        def is_ended() -> bool:  # it holds nothing at moments at which the broker has to send more
            stalled.check()
            clock.advance(30_000)
            stalled.check()
            return bool(w.metrics.causes)

        await until(is_ended)
        assert w.metrics.causes == ["stalled"]
        assert w.proxy.memory.held_bytes == 0


@pytest.mark.parametrize("border", [ONE_PROCESS], indirect=True)
@pytest.mark.parametrize(("bytes_per_s", "is_ended"), [(65_536, False), (1_024, True)])
async def test_h36_a_slow_client_gets_its_answer_and_one_that_trickles_does_not(
    bytes_per_s: int, is_ended: bool
) -> None:
    """By sockets with the buffers of a kernel, which takes much at a time after a pause."""
    tier, clock = chunk_tier(SIZE), ManualClock()
    async with world(tier=tier) as w:
        stalled = StalledClients(
            clients=lambda: w.proxy.connections, lacking_bytes=lambda: 1, clock=clock
        )
        client = await w.connect()
        request = fetch_request(12, asked(40, max_bytes=SIZE), max_bytes=SIZE, max_wait_ms=20_000)
        client.writer.write(client.encode(FETCH, 12, request))
        await until(lambda: any(one.untaken_bytes for one in w.proxy.connections))
        left_bytes = int.from_bytes(await client.reader.readexactly(4), "big")
        for _ in range(12):
            await client.reader.readexactly(10 * bytes_per_s)
            left_bytes -= 10 * bytes_per_s
            await asyncio.sleep(0.02)
            stalled.check()
            clock.advance(10_000)
        await asyncio.sleep(0.02)
        assert bool(w.metrics.causes) is is_ended
        if not is_ended:
            assert len(await client.reader.readexactly(left_bytes)) == left_bytes

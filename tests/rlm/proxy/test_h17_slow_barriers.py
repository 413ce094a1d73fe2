"""A client goes on where barriers take longer than it waits, in virtual time (H17, G6)."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pytest

from kafka_protocol.apis import FETCH
from kafka_protocol.error_codes import KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE
from kafka_protocol.fetch import FetchPartition
from kafka_protocol.frames import encode_request, parse_response_header
from kafka_protocol.node_addresses import keep_addresses
from kafka_protocol.primitives import Buffer
from kafka_protocol.schema import decode
from kip405.errors import Unavailable
from rlm.plans.client_activity import ClientTable
from rlm.plans.client_history import HistoryRules
from rlm.proxy.client_counts import ClientCounts
from rlm.proxy.fetch import FetchDependencies, FetchHandler
from rlm.proxy.fetch_plan import HighWatermarks, PartitionFetch, Source
from rlm.proxy.purgatory import RemoteFetchPurgatory
from rlm.proxy.session import FetchEntries, Taken
from rlm.proxy.settings import ProxySettings
from rlm.proxy.settling import BarrierLimit, Settling
from rlm.reading.values import RemoteRead, RemoteRecords
from rlm.remote_log.tier import TierPartition, TopicRef, Watermarks
from rlm.remote_log.visible import VisibleTiers
from tests.builders.snapshots import epochs_from
from tests.rlm.proxy.fakes import (
    PLAIN,
    TOPIC,
    FakeBroker,
    FakeTier,
    Log,
    Value,
    asked,
    blob,
    fetch_request,
    only,
    tier_partition,
)
from tests.rlm.proxy.uncounted import NoMetrics, NoQuota
from tests.simulation.clock import SimulatedClock
from tests.simulation.loop import VirtualTimeLoop

T = TypeVar("T")
MAX_WAIT_MS = 500
BARRIER_WAIT_MS = 5_000
PAUSE_MS = 30_000
LATE_MS = 5
"""How much after its time a timer fires on a busy machine."""
VERSION = 12


@dataclass
class SlowTier(FakeTier):
    """Barriers and watermarks take their time; before a barrier has passed nothing is seen where
    `view_hidden`. `passed`: how many have. No records are at `gap`.
    """

    barrier_ms: int = 2_000
    watermarks_ms: int = 1_500
    passed: int = 0
    gap: int = -1

    async def barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        await _within(self.barrier_ms, deadline_ms)
        found = await super().barrier(topic, partition, deadline_ms)
        self.view_hidden, self.passed = False, self.passed + 1
        return found

    async def watermarks(self, topic: TopicRef, partition: int, deadline_ms: int) -> Watermarks:
        await _within(self.watermarks_ms, deadline_ms)
        return await super().watermarks(topic, partition, deadline_ms)

    async def read(self, request: RemoteRead) -> RemoteRecords:
        found = await super().read(request)
        if request.offset != self.gap:
            return found
        return RemoteRecords(records=(), size_bytes=0, next_offset=found.next_offset, aborted=())


async def _within(duration_ms: int, deadline_ms: int) -> None:
    await asyncio.sleep(min(duration_ms, deadline_ms + LATE_MS) / 1000)
    if duration_ms > deadline_ms:
        raise Unavailable("not in time")


class Upstream:
    """The broker of one connection."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    async def ask(
        self, frame: Buffer, api_version: int, correlation_id: int, stream_above: int | None
    ) -> bytearray | None:
        whole = await self._broker.answer(bytes(frame))
        assert whole is not None
        return bytearray(whole[4:])

    async def ask_fetch(
        self, frame: Buffer, api_version: int, correlation_id: int, entries: FetchEntries
    ) -> bytearray | None:
        return await self.ask(frame, api_version, correlation_id, None)

    async def settled(self) -> None:
        """Nothing was asked before."""

    def go_on(self) -> None:
        """See `FetchUpstream`."""

    def beside(self, work: Coroutine[Any, None, None]) -> None:
        raise AssertionError("no answer is streamed")


class World:
    """Connections of one proxy whose tier is slow."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self.loop, self.clock = loop, SimulatedClock(loop)
        self.tier = SlowTier(partitions={n: tier_partition(partition=n) for n in (0, 1)})
        self.broker = FakeBroker()
        settings = ProxySettings(
            listen_host="",
            listen_port=0,
            upstream_host="",
            upstream_port=0,
            barrier_wait_ms=BARRIER_WAIT_MS,
        )
        self._dependencies = FetchDependencies(
            settings=settings,
            clock=self.clock,
            metrics=NoMetrics(),
            high_watermarks=HighWatermarks(),
            quota=NoQuota(),
            purgatory=RemoteFetchPurgatory(self.clock, NoMetrics()),
            node_addresses=keep_addresses,
            others_wait=lambda: False,
            barrier_limit=BarrierLimit(self.clock, BARRIER_WAIT_MS),
        )

    def connection(self) -> FetchHandler:
        counts = ClientCounts(ClientTable(), "", self.tier.partition)
        view = VisibleTiers(self.tier, HistoryRules()).client()
        return FetchHandler(self._dependencies, view, counts)

    async def fetch(self, client: FetchHandler, *rows: Value, **fields: Any) -> tuple[Value, int]:
        """The answer, and how long it took in ms."""
        request = fetch_request(VERSION, *rows, **{"max_wait_ms": MAX_WAIT_MS, **fields})
        frame = bytearray(encode_request(FETCH, VERSION, 7, "c", request)[4:])
        taken = Taken(api_key=FETCH.key, api_version=VERSION, correlation_id=7, frame=frame)
        began = self.loop.time()
        pieces = await client.handle(taken, Upstream(self.broker))
        assert pieces is not None
        answer = b"".join(bytes(one) for one in pieces)[4:]
        _, position = parse_response_header(answer, FETCH, VERSION)
        value, _ = decode(FETCH.response, VERSION, answer, position)
        return value, round((self.loop.time() - began) * 1000)


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    made = VirtualTimeLoop(random.Random(1))
    yield made
    made.close()


def run(loop: VirtualTimeLoop, work: Callable[[World], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(3_600):
            return await work(World(loop))

    return loop.run_until_complete(bounded())


@pytest.mark.parametrize("barrier_ms", [600, 2_000, 4_500])
@pytest.mark.parametrize(
    ("offset", "topic", "code", "records"),
    [
        (5_000, TOPIC, OFFSET_OUT_OF_RANGE, b""),
        (10, TOPIC, OFFSET_OUT_OF_RANGE, b""),
        (40, PLAIN, OFFSET_OUT_OF_RANGE, b""),
        (40, TOPIC, NONE, blob(40, 70)),
        (80, TOPIC, NONE, blob(100, 200)),
    ],
    ids=["beyond", "below", "plain", "remote", "hole"],
)
def test_h17_a_client_goes_on_though_a_barrier_takes_longer_than_it_waits(
    loop: VirtualTimeLoop, offset: int, topic: str, code: int, records: bytes, barrier_ms: int
) -> None:
    """The broker gives its watermarks later than the client waits, too."""

    async def work(w: World) -> None:
        w.tier.partitions[0] = tier_partition(remote_log_start_offset=20, remote_next_offset=70)
        w.tier.view_hidden, w.tier.barrier_ms = True, barrier_ms
        answer, took_ms = await w.fetch(w.connection(), asked(offset), topic=topic)
        one = only(answer)
        assert (one["error_code"], one["records"]) == (code, records)
        assert barrier_ms <= took_ms <= max(barrier_ms, w.tier.watermarks_ms) + MAX_WAIT_MS
        assert w.tier.passed == 1

    run(loop, work)


def test_h17_h37_a_divergence_is_found_though_a_barrier_takes_longer(loop: VirtualTimeLoop) -> None:
    async def work(w: World) -> None:
        w.tier.epochs = epochs_from((3, 0), (9, 60))
        answer, took_ms = await w.fetch(w.connection(), asked(120, last_fetched_epoch=3))
        assert only(answer)["diverging_epoch"] == {"epoch": 3, "end_offset": 60}
        assert took_ms == w.tier.barrier_ms

    run(loop, work)


def test_h17_h15_a_gap_is_passed_though_a_barrier_takes_longer(loop: VirtualTimeLoop) -> None:
    async def work(w: World) -> None:
        w.tier.gap = 90
        answer, took_ms = await w.fetch(w.connection(), asked(90))
        assert only(answer)["records"] == blob(100, 200)
        assert took_ms <= w.tier.barrier_ms + MAX_WAIT_MS

    run(loop, work)


def test_h15_what_is_trimmed_behind_the_barrier_is_not_passed_as_a_hole(
    loop: VirtualTimeLoop,
) -> None:
    """[70, 100) is a hole. [100, 150) is copied and trimmed before the broker's watermarks come."""

    async def work(w: World) -> None:
        w.tier.partitions[0] = tier_partition(remote_next_offset=70)
        w.tier.barrier_ms, w.tier.watermarks_ms = 1_000, 2_000
        client = w.connection()
        asking = asyncio.create_task(w.fetch(client, asked(80)))
        await asyncio.sleep(1.5)
        trimmed = Watermarks(high_watermark=200, last_stable_offset=200, log_start_offset=150)
        w.broker.logs[(TOPIC, 0)] = Log(start=150)
        w.tier.broker_watermarks = trimmed
        w.tier.partitions[0] = tier_partition(remote_next_offset=150, watermarks=trimmed)
        assert only((await asking)[0])["records"] == blob(80, 150)

    run(loop, work)


@pytest.mark.parametrize("offset", [10, 40, 80, 5_000])
def test_h17_nothing_is_said_without_a_barrier_however_long_it_takes(
    loop: VirtualTimeLoop, offset: int
) -> None:
    async def work(w: World) -> None:
        w.tier.partitions[0] = tier_partition(remote_log_start_offset=20, remote_next_offset=70)
        w.tier.view_hidden, w.tier.barrier_ms = True, BARRIER_WAIT_MS + 1
        client = w.connection()
        while loop.time() < 50:
            one = only((await w.fetch(client, asked(offset)))[0])
            assert one["error_code"] in (NONE, KAFKA_STORAGE_ERROR)
            assert (one["records"], w.tier.passed) == (b"", 0)

    run(loop, work)


async def _late_ms(w: World, client: FetchHandler, duration_ms: int) -> list[int]:
    """How much longer than its max_wait each Fetch of an old and a local partition takes. The local
    one gets its records in each of them.
    """
    until, late_ms = w.loop.time() + duration_ms / 1000, []
    while w.loop.time() < until:
        answer, took_ms = await w.fetch(client, asked(40), asked(150, 1))
        old, local = answer["responses"][0]["partitions"]
        assert (old["error_code"], local["records"]) == (NONE, blob(150, 200))
        late_ms.append(max(0, took_ms - MAX_WAIT_MS))
    return late_ms


def test_g6_other_partitions_are_not_starved_while_no_barrier_passes(loop: VirtualTimeLoop) -> None:
    """One Fetch in half a minute waits longer than its client, whichever client's it is."""

    async def work(w: World) -> None:
        w.tier.view_hidden, w.tier.barrier_ms, w.tier.watermarks_ms = True, 1_000_000, 50
        both = w.connection(), w.connection()
        for late_ms in await asyncio.gather(*(_late_ms(w, one, 3 * PAUSE_MS) for one in both)):
            assert len(late_ms) > 3 * PAUSE_MS / MAX_WAIT_MS * 0.8
            assert sum(one for one in late_ms if one > LATE_MS) <= 3 * BARRIER_WAIT_MS
            assert max(late_ms) <= BARRIER_WAIT_MS

    run(loop, work)


def test_g6_nor_while_the_broker_gives_no_watermarks(loop: VirtualTimeLoop) -> None:
    """A barrier that fails at once does not end the wait for them."""

    async def work(w: World) -> None:
        w.tier.view_hidden, w.tier.barrier_ms, w.tier.watermarks_ms = True, 10, 1_000_000
        w.tier.barrier_error = Unavailable("replaying")
        client, late_ms = w.connection(), []
        while loop.time() < PAUSE_MS / 1000:
            answer, took_ms = await w.fetch(client, asked(40), asked(150, 1))
            assert answer["responses"][0]["partitions"][1]["records"] == blob(150, 200)
            late_ms.append(took_ms - MAX_WAIT_MS)
        assert len([one for one in late_ms if one > LATE_MS]) == 1

    run(loop, work)


@pytest.mark.parametrize(
    ("offset", "changes"),
    [
        (40, {"frozen": True}),
        (40, {"remote_next_offset": 30, "unsettled_next_offset": 70}),
        (90, {"unsettled_next_offset": 100}),
    ],
    ids=["frozen", "unsettled", "gap"],
)
def test_g6_nor_while_barriers_pass_and_a_client_is_no_step_further(
    loop: VirtualTimeLoop, offset: int, changes: dict[str, Any]
) -> None:
    """A partition may be frozen, or something in it not settled, for hours."""

    async def work(w: World) -> None:
        w.tier.partitions[0] = tier_partition(**changes)
        w.tier.gap, w.tier.barrier_ms, w.tier.watermarks_ms = 90, 4_000, 50
        client, late_ms = w.connection(), []
        while loop.time() < PAUSE_MS / 1000:
            answer, took_ms = await w.fetch(client, asked(offset), asked(150, 1))
            old, local = answer["responses"][0]["partitions"]
            assert (old["records"], local["records"]) == (b"", blob(150, 200))
            late_ms.append(took_ms - MAX_WAIT_MS)
        assert len([one for one in late_ms if one > MAX_WAIT_MS]) == 1

    run(loop, work)


def test_h17_a_barrier_that_had_no_more_time_than_in_any_fetch_was_not_in_vain(
    loop: VirtualTimeLoop,
) -> None:
    """In an answer that flows partitions are settled one after another. The others have passed."""

    async def work(w: World) -> None:
        w.tier.partitions = {n: tier_partition(partition=n) for n in range(9)}
        w.tier.barrier_ms, w.tier.watermarks_ms = 1_000, 50
        limit, now_ms = BarrierLimit(w.clock, BARRIER_WAIT_MS), w.clock.monotonic_ms()
        times = {"deadline_ms": now_ms + MAX_WAIT_MS, "until_ms": now_ms + BARRIER_WAIT_MS}
        settling = Settling(w.tier, w.clock, NoMetrics(), limit, **times)
        sources = []
        for index in range(9):
            one = PartitionFetch(
                key=(TOPIC, index),
                ref=TopicRef(name=TOPIC),
                asked=FetchPartition(index, -1, 40, -1, 1_000, 0),
                tiered=None,
                maybe_tiered=False,
            )
            async with asyncio.TaskGroup() as group:
                await settling.out_of_range(group, one)
            sources.append(one.source)
            if settling.has_waited:
                break
        assert sources == [*[Source.REMOTE] * 5, Source.NOT_READY]
        assert limit.wait_ms() == BARRIER_WAIT_MS

    run(loop, work)


def test_g6_a_client_that_does_not_wait_so_long_is_not_held_again(loop: VirtualTimeLoop) -> None:
    """It closes its connection and comes again, and gets what is local."""

    async def work(w: World) -> None:
        w.tier.view_hidden, w.tier.barrier_ms, w.tier.watermarks_ms = True, 1_000_000, 50
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await w.fetch(w.connection(), asked(40), asked(150, 1))
        assert max(await _late_ms(w, w.connection(), PAUSE_MS // 2)) <= LATE_MS

    run(loop, work)


@pytest.mark.parametrize("max_wait_ms", [0, MAX_WAIT_MS])
def test_h17_a_client_goes_on_soon_after_barriers_pass_again(
    loop: VirtualTimeLoop, max_wait_ms: int
) -> None:
    async def work(w: World) -> None:
        w.tier.view_hidden, w.tier.barrier_ms, w.tier.watermarks_ms = True, 1_000_000, 50
        client = w.connection()
        await _late_ms(w, client, PAUSE_MS)
        w.tier.barrier_ms, began = 2_000, loop.time()
        asking = partial(w.fetch, client, asked(40), max_wait_ms=max_wait_ms)
        while not only((await asking())[0])["records"]:
            assert loop.time() - began < PAUSE_MS / 1000 + 3

    run(loop, work)


def test_a_barrier_that_fails_at_once_costs_others_no_wait(loop: VirtualTimeLoop) -> None:
    """As while settings and ledger are read for the first time: clients go on right after it."""

    async def work(w: World) -> None:
        w.tier.view_hidden, w.tier.barrier_ms, w.tier.watermarks_ms = True, 0, 0
        w.tier.barrier_error = Unavailable("replaying")
        client = w.connection()
        for _ in range(5):
            _, took_ms = await w.fetch(client, asked(40), max_wait_ms=0)
            assert took_ms == 0
        w.tier.barrier_error, w.tier.barrier_ms = None, 2_000
        assert only((await w.fetch(client, asked(40)))[0])["records"] == blob(40, 100)

    run(loop, work)


def test_h17_a_client_that_waits_longer_has_all_its_time(loop: VirtualTimeLoop) -> None:
    async def work(w: World) -> None:
        w.tier.view_hidden, w.tier.barrier_ms = True, 2 * BARRIER_WAIT_MS
        asking = w.fetch(w.connection(), asked(40), max_wait_ms=3 * BARRIER_WAIT_MS)
        answer, took_ms = await asking
        assert only(answer)["records"] == blob(40, 100)
        assert took_ms == 2 * BARRIER_WAIT_MS

    run(loop, work)


def test_kip_368_no_barrier_is_waited_for_beyond_the_session(loop: VirtualTimeLoop) -> None:
    """The broker answers nothing afterwards."""

    async def work(w: World) -> None:
        w.tier.view_hidden, w.tier.barrier_ms, w.tier.watermarks_ms = True, 4_000, 50
        client = w.connection()
        client.session_left_ms = lambda: 1_000
        answer, took_ms = await w.fetch(client, asked(40))
        assert (only(answer)["error_code"], took_ms) == (NONE, 1_000 + LATE_MS)

    run(loop, work)

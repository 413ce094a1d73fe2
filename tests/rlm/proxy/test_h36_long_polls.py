"""H36: long polls of very many partitions fill the bound of memory, and none waits for another."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any

import pytest

from kafka_protocol.apis import FETCH
from kafka_protocol.frames import encode_request
from kafka_protocol.node_addresses import keep_addresses
from kafka_protocol.primitives import Buffer
from rlm.clock import SystemClock
from rlm.plans.client_activity import ClientTable
from rlm.plans.client_history import HistoryRules
from rlm.proxy.account import WORK_TIMES
from rlm.proxy.client_counts import ClientCounts
from rlm.proxy.fetch import FetchDependencies, FetchHandler
from rlm.proxy.fetch_plan import HighWatermarks
from rlm.proxy.memory import OVERDRAFT_BYTES, Verdict
from rlm.proxy.purgatory import RemoteFetchPurgatory
from rlm.proxy.session import FetchEntries, Taken
from rlm.proxy.settings import ProxySettings
from rlm.remote_log.visible import VisibleTiers
from tests.rlm.proxy.fakes import (
    PLAIN,
    FakeBroker,
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
from tests.rlm.proxy.holders import Held, hold
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.uncounted import NoMetrics, NoQuota

MIB = 1 << 20
BOUND_BYTES = 4 * MIB
EACH = 500
"""Partitions of one request: its work takes a quarter of a MiB, of two that there are for work."""
FIT = 8
END_OFFSET = 200
QUESTIONS = 3


def request(number: int, version: int, max_wait_ms: int = 250_000) -> Value:
    """At the end of partitions of its own, of a topic that is in no remote tier.

    From v12 on it names an epoch, so that its answer is assembled whole (H37).
    """
    epoch = {"last_fetched_epoch": 3} if version >= 12 else {}
    partitions = [asked(END_OFFSET, number * EACH + n, **epoch) for n in range(EACH)]
    return fetch_request(version, *partitions, topic=PLAIN, max_wait_ms=max_wait_ms)


class Polls:
    """Long polls of clients that the broker knows."""

    def __init__(self, w: World, version: int) -> None:
        self.w, self.version = w, version
        self.clients: list[RawClient] = []
        self.answers: list[asyncio.Task[Value]] = []
        self.most_bytes = self.most_work_bytes = 0

    async def connect(self, count: int) -> None:
        for _ in range(count):
            client = await self.w.connect()
            await client.call(FETCH, 12, fetch_request(12, asked(150), topic=PLAIN))
            self.clients.append(client)

    def send(self, count: int, max_wait_ms: int = 250_000) -> None:
        for _ in range(count):
            number = len(self.answers)
            client, asking = self.clients[number], request(number, self.version, max_wait_ms)
            client.writer.write(client.encode(FETCH, self.version, asking))
            self.answers.append(asyncio.create_task(client.answer(FETCH, self.version)))

    @property
    def frame_bytes(self) -> int:
        return len(self.clients[0].encode(FETCH, self.version, request(1, self.version))) - 4

    def append(self, numbers: Iterable[int]) -> None:
        """Each partition of these requests gets ten records."""
        for number in numbers:
            for n in range(number * EACH, (number + 1) * EACH):
                self.w.broker.logs[PLAIN, n] = Log(high_watermark=END_OFFSET + 10)
        self.w.broker.changed.set()

    async def watch(self) -> None:
        memory = self.w.proxy.memory
        while True:
            self.most_bytes = max(self.most_bytes, memory.held_bytes)
            self.most_work_bytes = max(self.most_work_bytes, memory.work.held_bytes)
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def polls(version: int) -> AsyncIterator[Polls]:
    async with world(memory_max_bytes=BOUND_BYTES) as w:
        made = Polls(w, version)
        watching = asyncio.create_task(made.watch())
        try:
            yield made
        finally:
            for task in (watching, *made.answers):
                task.cancel()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(200):
        while not done():  # noqa: ASYNC110 - the condition is of another task's plain values
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("version", [11, 12])
async def test_h36_long_polls_that_fill_the_bound_are_answered_without_each_other(
    version: int,
) -> None:
    """Twelve get records and three never do. The three that are not answered come last, so that one
    of them would be the one that may exceed the bound, and all others would wait for it.
    """
    async with polls(version) as p:
        await p.connect(15)
        p.send(12)
        await until(lambda: p.w.proxy.memory.work.lacking_bytes > 0)
        p.send(3)
        await until(lambda: len(p.w.proxy.memory.work._waiting) >= 15 - FIT - 1)
        assert FIT - 1 <= p.w.proxy.memory.work.held_bytes // (WORK_TIMES * p.frame_bytes) <= FIT
        p.append(range(12))
        async with asyncio.timeout(200):
            answers = await asyncio.gather(*p.answers[:12])
        for answer in answers:
            [topic] = answer["responses"]
            assert len(topic["partitions"]) == EACH
            for one in topic["partitions"]:
                assert one["records"] == blob(END_OFFSET, END_OFFSET + 10)
        assert not any(one.done() for one in p.answers[12:])
        assert p.most_work_bytes <= BOUND_BYTES // 2 + WORK_TIMES * p.frame_bytes
        assert p.w.metrics.causes == []


async def test_h36_forty_times_as_many_long_polls_as_fit_stay_within_the_bound() -> None:
    """All settle, with as much in work at a time as the bound has room for."""
    async with polls(12) as p:
        await p.connect(40)
        p.send(40, max_wait_ms=50)
        async with asyncio.timeout(200):
            answers = await asyncio.gather(*p.answers)
        assert {one["error_code"] for one in answers} == {0}
        assert p.most_work_bytes <= BOUND_BYTES // 2 + WORK_TIMES * p.frame_bytes
        assert p.most_bytes <= BOUND_BYTES + WORK_TIMES * p.frame_bytes + 40 * OVERDRAFT_BYTES
        await until(lambda: p.w.proxy.memory.held_bytes == 0)


async def test_h36_first_requests_of_many_clients_wait_for_their_turn() -> None:
    """Nobody knows them yet, but all of them only ask what they may ask."""
    async with world(memory_max_bytes=BOUND_BYTES) as w:
        clients = [await w.connect() for _ in range(20)]
        asking = [request(n, 11, max_wait_ms=20) for n in range(20)]
        both = zip(clients, asking, strict=True)
        answers = await asyncio.gather(*(client.call(FETCH, 11, one) for client, one in both))
        assert {len(one["responses"][0]["partitions"]) for one in answers} == {EACH}
        assert w.metrics.causes == []
        await until(lambda: w.proxy.memory.held_bytes == 0)


async def test_h36_an_answer_without_records_is_given_though_answers_fill_the_bound() -> None:
    async with polls(12) as p:
        await p.connect(1)
        known, beyond = p.w.proxy.memory, Held()
        hold(known, Held(), answers=BOUND_BYTES)
        assert known.may_answer(beyond, 0, MIB) is Verdict.GO_ON
        hold(known, beyond, answers=MIB)
        p.send(1, max_wait_ms=50)
        async with asyncio.timeout(200):
            answer = await p.answers[0]
        assert {one["error_code"] for one in answer["responses"][0]["partitions"]} == {0}


def fill_with_requests(w: World) -> None:
    """Another one exceeds each part of them, and others wait for that."""
    known, beyond = w.proxy.memory, Held()
    hold(known, Held(), received=BOUND_BYTES, work=BOUND_BYTES)
    assert known.may_receive(beyond, MIB) is Verdict.GO_ON
    assert known.may_work(beyond, MIB)
    hold(known, beyond, received=MIB, work=MIB)
    assert known.may_receive(Held(), MIB) is Verdict.WAIT
    for one in w.proxy.connections:
        one.flow()


async def test_h36_the_end_of_a_client_is_seen_while_its_request_is_in_work() -> None:
    """And what its request takes is free then, not after its max_wait."""
    async with polls(11) as p:
        await p.connect(1)
        before_bytes = p.w.proxy.memory.held_bytes
        p.send(1)
        await until(lambda: p.w.proxy.memory.work.held_bytes > 0)
        fill_with_requests(p.w)
        full_bytes = p.w.proxy.memory.held_bytes
        p.clients[0].writer.close()
        await until(lambda: not p.w.proxy.connections)
        assert p.w.metrics.causes == ["client_closed"]
        left_bytes = full_bytes - p.w.proxy.memory.held_bytes
        assert left_bytes >= WORK_TIMES * p.frame_bytes + before_bytes


async def test_h36_the_end_of_a_client_is_seen_while_its_request_waits_for_its_turn() -> None:
    async with polls(11) as p:
        await p.connect(1)
        fill_with_requests(p.w)
        known = p.w.proxy.memory
        full_bytes = known.received.held_bytes
        p.send(1)
        await until(lambda: known.received.held_bytes >= full_bytes + p.frame_bytes)
        await until(lambda: known.work.lacking_bytes > 0)
        p.clients[0].writer.close()
        await until(lambda: not p.w.proxy.connections)
        assert (known.work.lacking_bytes, known.received.held_bytes) == (0, full_bytes)


async def test_h36_a_request_that_waits_for_its_turn_is_answered_when_the_service_stops() -> None:
    async with world(memory_max_bytes=BOUND_BYTES, shutdown_timeout_ms=20_000) as w:
        client = await w.connect()
        await client.call(FETCH, 12, fetch_request(12, asked(150), topic=PLAIN))
        full, beyond = Held(), Held()
        hold(w.proxy.memory, full, work=BOUND_BYTES)
        assert w.proxy.memory.may_work(beyond, MIB)
        asking = request(0, 11, max_wait_ms=20)
        client.writer.write(client.encode(FETCH, 11, asking))
        await until(lambda: w.proxy.memory.work.lacking_bytes > 0)
        closing = asyncio.create_task(w.proxy.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        for one in (full, beyond):
            w.proxy.memory.leave(one)
        answer = await client.answer(FETCH, 11)
        assert len(answer["responses"][0]["partitions"]) == EACH
        await closing


async def test_h36_small_requests_pass_while_large_ones_wait() -> None:
    async with polls(11) as p:
        await p.connect(1)
        fill_with_requests(p.w)
        client = await p.w.connect()
        for _ in range(3):
            answer = await client.call(FETCH, 12, fetch_request(12, asked(150), topic=PLAIN))
            assert only(answer)["records"] == blob(150, END_OFFSET)


class AskedBroker(FakeBroker):
    """A broker that looks at each question whether anything refers to its earlier answers; with the
    last of some questions the tier gives records.
    """

    def __init__(self, tier: FakeTier) -> None:
        super().__init__()
        self.answers: list[bytearray] = []
        self.kept: list[int] = []
        self._tier = tier

    async def ask(
        self, frame: Buffer, api_version: int, correlation_id: int, stream_above: int | None
    ) -> bytearray | None:
        self.kept += [sys.getrefcount(self.answers[n]) for n in range(len(self.answers))]
        whole = await self.answer(bytes(frame))
        assert whole is not None
        self.answers.append(bytearray(whole[4:]))
        if len(self.answers) == QUESTIONS:
            self._tier.gate.set()
        return self.answers[-1]

    async def ask_fetch(
        self, frame: Buffer, api_version: int, correlation_id: int, entries: FetchEntries
    ) -> bytearray | None:
        return await self.ask(frame, api_version, correlation_id, None)

    async def settled(self) -> None:
        """Nothing was asked before."""

    def go_on(self) -> None:
        """See `FetchUpstream`."""

    def beside(self, work: Coroutine[Any, None, None]) -> None:
        raise AssertionError("nothing is out of range")


async def test_h36_an_answer_is_let_go_before_the_broker_is_asked_again() -> None:
    """It would be held while the next one waits for the memory of answers."""
    tier, clock = FakeTier(partitions={0: tier_partition()}), SystemClock()
    broker = AskedBroker(tier)
    tier.gate.clear()
    dependencies = FetchDependencies(
        settings=ProxySettings(listen_host="", listen_port=0, upstream_host="", upstream_port=0),
        clock=clock,
        metrics=NoMetrics(),
        high_watermarks=HighWatermarks(),
        quota=NoQuota(),
        purgatory=RemoteFetchPurgatory(clock, NoMetrics()),
        node_addresses=keep_addresses,
    )
    counts = ClientCounts(ClientTable(), "", tier.partition)
    view = VisibleTiers(tier, HistoryRules()).client()
    handler = FetchHandler(dependencies, view, counts)
    asking = fetch_request(11, asked(40), asked(END_OFFSET, 1), max_wait_ms=60_000)
    frame = bytearray(encode_request(FETCH, 11, 7, "c", asking)[4:])
    taken = Taken(api_key=FETCH.key, api_version=11, correlation_id=7, frame=frame)
    assert await handler.handle(taken, broker) is not None
    assert len(broker.answers) >= QUESTIONS
    # The list, and the argument of getrefcount.
    assert set(broker.kept) == {2}

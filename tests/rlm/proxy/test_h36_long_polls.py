"""H36: long polls of very many partitions fill the bound of memory, and none waits for another."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from kafka_protocol.apis import ADD_PARTITIONS_TO_TXN, FETCH, SASL_AUTHENTICATE
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
from rlm.proxy.settling import BarrierLimit
from rlm.remote_log.tier import TierPartition, TopicRef
from rlm.remote_log.visible import VisibleTiers
from tests import waiting
from tests.rlm.proxy.fakes import (
    PLAIN,
    TOPIC,
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
from tests.rlm.proxy.test_pass_through import raw_request
from tests.rlm.proxy.uncounted import NoMetrics, NoQuota

until = partial(waiting.until, timeout_s=200)

MIB = 1 << 20
BOUND_BYTES = 4 * MIB
EACH = 500
"""Partitions of one request: its work takes a quarter of a MiB, of two that there are for work."""
FIT = 8
END_OFFSET = 200
QUESTIONS = 3
FOR_EVER_MS = 2**31 - 1
LONGEST_MS, BESIDE_OTHERS_MS = 60_000, 5_000


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


async def test_h36_what_the_broker_answers_at_once_waits_for_no_long_poll() -> None:
    """A login that is due would come too late, and a transaction would not go on."""
    async with polls(11) as p:
        known = p.w.proxy.memory
        await p.connect(FIT + 3)
        p.send(FIT + 3, max_wait_ms=FOR_EVER_MS)
        await until(lambda: len(known.work._waiting) >= 2)
        for key in (SASL_AUTHENTICATE.key, ADD_PARTITIONS_TO_TXN.key):
            p.w.broker.raw_answers[key] = b"done"
        client = await p.w.connect()
        client.writer.write(raw_request(SASL_AUTHENTICATE.key, 1, bytes(2_000)))
        client.writer.write(add_partitions(client, 3_000))
        async with asyncio.timeout(60):
            answers = [await client.frame() for _ in range(2)]
        assert [int.from_bytes(one[:4], "big") for one in answers] == [1, 101]
        assert p.w.metrics.causes == []
        asked_ms = {one["max_wait_ms"] for one in p.w.broker.requests(FETCH)[-FIT:]}
        assert asked_ms == {LONGEST_MS}


def add_partitions(client: RawClient, count: int) -> bytes:
    """Of a transaction."""
    topic = {"name": PLAIN, "partitions": list(range(count))}
    ids = {"v3_and_below_transactional_id": "tx", "v3_and_below_producer_id": 1}
    more = {"v3_and_below_producer_epoch": 0, "v3_and_below_topics": [topic]}
    return client.encode(ADD_PARTITIONS_TO_TXN, 3, ids | more)


@pytest.mark.parametrize("replica_id", [-1, 5], ids=["consumer", "replica"])
async def test_h36_a_long_poll_has_an_end_and_soon_where_others_wait_for_its_memory(
    replica_id: int,
) -> None:
    async with polls(11) as p:
        known, full, beyond = p.w.proxy.memory, Held(), Held()
        await p.connect(3)

        def waits_ms(number: int) -> int:
            """What the broker was asked for."""
            seen = p.w.broker.requests(FETCH)
            mine = [one for one in seen if first_partition(one) == number * EACH]
            return int(mine[-1]["max_wait_ms"])

        def send(number: int) -> None:
            asking = request(number, 11, FOR_EVER_MS) | {"replica_id": replica_id}
            client = p.clients[number]
            client.writer.write(client.encode(FETCH, 11, asking | {"min_bytes": FOR_EVER_MS}))

        send(0)
        await until(lambda: known.work.held_bytes > 0)
        hold(known, full, work=BOUND_BYTES)
        assert known.may_work(beyond, MIB)
        hold(known, beyond, work=MIB)
        send(1)
        await until(lambda: len(known.work._waiting) == 1)
        send(2)
        await until(lambda: len(known.work._waiting) == 2)
        before = len(p.w.broker.requests(FETCH))
        known.leave(beyond)
        await until(lambda: len(p.w.broker.requests(FETCH)) > before)
        assert [waits_ms(0), waits_ms(1)] == [LONGEST_MS, BESIDE_OTHERS_MS]


def first_partition(asking: Value) -> int:
    """The number of the first partition in a Fetch."""
    return int(asking["topics"][0]["partitions"][0]["partition"])


async def test_h36_a_client_that_sends_ahead_exceeds_the_bound_only_in_turn() -> None:
    async with polls(11) as p:
        known = p.w.proxy.memory
        await p.connect(2)
        ahead, other = p.clients
        hold(known, Held(), work=BOUND_BYTES)
        waits_ms = [60_000, 1, 1, 1, 1]
        for number, wait_ms in enumerate(waits_ms):
            ahead.writer.write(ahead.encode(FETCH, 11, request(number, 11, wait_ms)))
        await until(lambda: known.work._beyond is not None and known.received.held_bytes > 0)
        last = len(waits_ms)
        other.writer.write(other.encode(FETCH, 11, request(last, 11, 1)))
        await until(lambda: len(known.work._waiting) == 1)
        p.append([0])
        async with asyncio.timeout(30):
            await other.answer(FETCH, 11)
            for _ in waits_ms:
                await ahead.answer(FETCH, 11)
        order = [first_partition(one) // EACH for one in p.w.broker.requests(FETCH)[-last - 1 :]]
        assert sorted(order) == list(range(last + 1))
        assert order.index(last) < order.index(2)


@dataclass
class LateTier(FakeTier):
    """Its barriers wait until `may_pass`."""

    may_pass: asyncio.Event = field(default_factory=asyncio.Event)

    async def barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        await self.may_pass.wait()
        return await super().barrier(topic, partition, deadline_ms)


async def test_h36_a_client_whose_answer_is_let_go_is_answered_though_answers_fill_the_bound() -> (
    None
):
    """A barrier is waited for with an answer of one MiB; then the broker is asked once more."""
    tier = LateTier(partitions={0: tier_partition(remote_next_offset=80)})
    async with world(tier, memory_max_bytes=BOUND_BYTES) as w:
        known, beyond = w.proxy.memory, Held()
        w.broker.logs[TOPIC, 1] = Log(high_watermark=1_100, record_bytes=1_000)
        client = await w.connect()
        await client.call(FETCH, 12, fetch_request(12, asked(150), topic=PLAIN))
        rows = asked(100, 1, MIB, last_fetched_epoch=3), asked(90, 0)
        asking = fetch_request(12, *rows, max_bytes=2 * MIB, max_wait_ms=60_000)
        client.writer.write(client.encode(FETCH, 12, asking))
        await until(lambda: known.answers.held_bytes > 900_000)
        hold(known, Held(), answers=BOUND_BYTES)
        assert known.may_answer(beyond, 0, MIB) is Verdict.GO_ON
        hold(known, beyond, answers=MIB)
        [connection] = w.proxy.connections
        connection.flow()
        assert known.answers.lacking_bytes > 0
        w.broker.logs[TOPIC, 1] = Log(high_watermark=100)
        tier.may_pass.set()
        async with asyncio.timeout(60):
            answer = await client.answer(FETCH, 12)
        first, second = answer["responses"][0]["partitions"]
        assert (first["error_code"], first["records"]) == (0, b"")
        assert (second["error_code"], second["records"]) == (0, blob(100, 200))


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


@pytest.mark.usefixtures("short_first_moment")
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
        barrier_limit=BarrierLimit(clock, 5_000),
        node_addresses=keep_addresses,
        others_wait=lambda: False,
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

"""Sizes of a Fetch answer over both tiers, as the broker's own rule has them (KIP-74)."""

from dataclasses import dataclass, field

import pytest

from kafka_protocol.apis import FETCH
from rlm.proxy.fetch_plan import AnswerRoom, first_batch_bytes
from rlm.reading.values import RemoteRead, RemoteRecords
from tests.kip405.batch_builder import batch
from tests.rlm.proxy.fakes import (
    TOPIC,
    FakeBroker,
    FakeTier,
    Log,
    Value,
    asked,
    fetch_request,
    tier_partition,
    world,
)


@pytest.mark.parametrize(
    ("max_bytes", "partitions", "given"),
    [
        # (partition_max_bytes, bytes there are, size of the first batch) of each in its order
        (1_000, [(300, 500, 100), (300, 500, 100)], [300, 300]),
        (500, [(300, 500, 100), (300, 500, 100), (300, 9, 9)], [300, 200, 0]),
        (500, [(300, 500, 100), (300, 500, 201), (300, 9, 9)], [300, 0, 9]),
        (1_000, [(300, 200, 100), (300, 500, 301)], [200, 0]),
        (1_000, [(50, 100, 100), (50, 100, 100)], [100, 0]),
        (50, [(500, 700, 100), (500, 20, 20)], [100, 0]),
        (0, [(500, 700, 100), (500, 20, 20)], [100, 0]),
        (0, [(500, 0, 0), (500, 20, 20)], [0, 20]),
        (1_000, [(0, 100, 100), (0, 100, 100), (300, 100, 100)], [100, 0, 100]),
        (1_000, [(300, 0, 0), (50, 700, 100), (300, 100, 100)], [0, 100, 100]),
    ],
)
def test_bytes_that_each_partition_may_have(
    max_bytes: int, partitions: list[tuple[int, int, int]], given: list[int]
) -> None:
    room, found = AnswerRoom(max_bytes), []
    for partition_max_bytes, size_bytes, first_bytes in partitions:
        found.append(room.allowed(partition_max_bytes, size_bytes, first_bytes))
        room.take(found[-1])
    assert found == given


def test_the_first_batch_has_the_size_in_its_header() -> None:
    one = batch(0, 3)
    assert first_batch_bytes(one + batch(3, 5)) == len(one)
    assert first_batch_bytes(b"") == 0
    assert first_batch_bytes(one[:11]) > 11
    assert first_batch_bytes(memoryview(one)[:12]) == len(one)


LOG_START, LOG_END = 100, 200
BATCHES = {offset: batch(offset, 10) for offset in range(0, LOG_END, 10)}
ONE = len(BATCHES[0])


def stored(start: int, end: int) -> bytes:
    """Whole batches from the one that holds `start`."""
    return b"".join(data for base, data in BATCHES.items() if start - start % 10 <= base < end)


@dataclass
class BatchBroker(FakeBroker):
    """Batches of two segments, cut where the limits say, as LogSegment.read cuts them."""

    def _partition(self, log: Log, asked: Value, room: int, *, is_first: bool) -> Value:
        answered = super()._partition(log, asked, room, is_first=is_first)
        if answered["records"]:
            offset = asked["fetch_offset"]
            records = stored(offset, LOG_START if offset < LOG_START else LOG_END)
            limit = max(room, ONE) if is_first else room
            answered["records"] = records[:limit] if limit >= ONE else b""
        return answered


@dataclass
class BatchTier(FakeTier):
    """Whole batches of the remote tier."""

    asked_bytes: list[int] = field(default_factory=list)

    async def read(self, request: RemoteRead) -> RemoteRecords:
        await self.gate.wait()
        self.asked_bytes.append(request.max_bytes)
        records = stored(request.offset, request.upper_offset)
        count = request.max_bytes // ONE
        count = max(count, 1) if request.at_least_one else count
        given = records[: count * ONE]
        return RemoteRecords(
            records=(given,) if given else (),
            size_bytes=len(given),
            next_offset=request.offset - request.offset % 10 + len(given) // ONE * 10,
            aborted=((7, request.offset),) if given and request.read_committed else (),
            exhausted=len(given) == len(records),
        )


def batches_of(partition: Value) -> int:
    return len(partition["records"]) // ONE


async def both(request: Value, version: int = 12) -> tuple[list[Value], list[Value]]:
    """The answers of the proxy before a trimmed log, and of a broker with the whole one."""
    answers = []
    for start, view in ((LOG_START, tier_partition), (0, None)):
        broker = BatchBroker(logs={(TOPIC, n): Log(start=start) for n in range(4)})
        views = {n: view(partition=n) for n in range(4)} if view else {}
        async with world(BatchTier(partitions=views), broker) as w:
            client = await w.connect()
            answer = await client.call(FETCH, version, request)
            answers.append(
                sorted(answer["responses"][0]["partitions"], key=lambda p: p["partition_index"])
            )
    return answers[0], answers[1]


REMOTE, LOCAL = 40, 150


@pytest.mark.parametrize("max_bytes", [0, 1, ONE - 1, ONE, 2 * ONE + 5, 4 * ONE, 100 * ONE])
@pytest.mark.parametrize("partition_max_bytes", [1, ONE, 2 * ONE + 7, 50 * ONE])
@pytest.mark.parametrize(
    "offsets",
    [
        (REMOTE, LOCAL),
        (LOCAL, REMOTE),
        (REMOTE, LOCAL, REMOTE),
        (LOCAL, REMOTE, LOCAL),
        (REMOTE, REMOTE, LOCAL, LOCAL),
        (LOG_END, REMOTE, LOCAL),
        (90, LOCAL, REMOTE),
        (90, REMOTE, LOCAL),
        (90, 80, REMOTE, LOCAL),
    ],
)
async def test_partitions_have_what_a_broker_with_the_whole_log_gives(
    max_bytes: int, partition_max_bytes: int, offsets: tuple[int, ...]
) -> None:
    request = fetch_request(
        12,
        *(asked(offset, n, partition_max_bytes) for n, offset in enumerate(offsets)),
        max_bytes=max_bytes,
        max_wait_ms=20_000,
    )
    tiered, plain = await both(request)
    sizes = [batches_of(one) for one in tiered]
    assert sizes == [batches_of(one) for one in plain]
    over = sum(len(one["records"]) for one in tiered) - max_bytes
    assert over <= 0 or sum(sizes) == 1


async def test_max_bytes_zero_gives_the_first_batch() -> None:
    request = fetch_request(12, asked(REMOTE, 0), max_bytes=0)
    tiered, plain = await both(request)
    assert tiered[0]["records"] == plain[0]["records"] == BATCHES[REMOTE]


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
@pytest.mark.parametrize("offsets", [(0, 150, 40), (150, 60), (60, 150), (20, 60, 30)])
async def test_of_a_partition_named_twice_the_last_entry_counts(
    version: int, offsets: tuple[int, ...]
) -> None:
    request = fetch_request(version, *(asked(offset) for offset in offsets), max_wait_ms=20_000)
    views = {0: tier_partition()}
    broker = LastEntryBroker(logs={(TOPIC, 0): Log()})
    async with world(BatchTier(partitions=views), broker) as w:
        client = await w.connect()
        answer = await client.call(FETCH, version, request)
        [one] = answer["responses"][0]["partitions"]
        end = LOG_START if offsets[-1] < LOG_START else LOG_END
        assert one["records"] == stored(offsets[-1], end)


@dataclass
class LastEntryBroker(BatchBroker):
    """Answers a partition once, as FetchRequest.fetchData understands the request."""

    def _fetch_now(self, version: int, request: Value) -> tuple[Value, int, bool]:
        topics = [
            {**topic, "partitions": list({p["partition"]: p for p in topic["partitions"]}.values())}
            for topic in request["topics"]
        ]
        return super()._fetch_now(version, {**request, "topics": topics})


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_aborted_transactions_are_null_where_a_broker_says_null(version: int) -> None:
    views = {n: tier_partition(partition=n) for n in range(5)}
    views[3] = tier_partition(partition=3, frozen=True)
    broker = BatchBroker(logs={(TOPIC, n): Log() for n in range(5)})
    async with world(BatchTier(partitions=views), broker) as w:
        for isolation, wanted in (
            (0, [None, None, None, None]),
            # records; a first batch that does not fit; no room at all; an error
            (1, [[(7, 40)], None, [], None]),
        ):
            client = await w.connect()
            request = fetch_request(
                version,
                asked(REMOTE, 0, 3 * ONE),
                asked(REMOTE, 1, ONE - 1),
                asked(REMOTE, 2, 0),
                asked(REMOTE, 3, ONE),
                isolation_level=isolation,
                max_wait_ms=20_000,
            )
            answer = await client.call(FETCH, version, request)
            found = [
                one["aborted_transactions"]
                and [(t["producer_id"], t["first_offset"]) for t in one["aborted_transactions"]]
                for one in answer["responses"][0]["partitions"]
            ]
            assert found == wanted


@pytest.mark.parametrize("version", [4, 12])
async def test_a_short_wait_gives_what_is_at_hand(version: int) -> None:
    """A request that passes a barrier first has no time left when its read begins."""
    async with world(BatchTier(partitions={0: tier_partition()}), BatchBroker()) as w:
        client = await w.connect()
        request = fetch_request(version, asked(REMOTE), max_wait_ms=0)
        answer = await client.call(FETCH, version, request)
        assert answer["responses"][0]["partitions"][0]["records"] == stored(REMOTE, LOG_START)

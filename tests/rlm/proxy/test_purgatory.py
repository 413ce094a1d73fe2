"""Remote fetches in the purgatory: how each is completed, when it is tried again, what counts."""

import asyncio
import time
from collections.abc import Callable

import pytest

from kafka_protocol.apis import FETCH
from kip405.errors import Busy, Corrupt, OffsetOutOfRange, RemoteStorageError, Unavailable
from rlm.proxy.purgatory import Outcome, RemoteFetch, RemoteFetchPurgatory
from rlm.reading.values import RemoteRead, RemoteRecords
from rlm.remote_log.tier import ChangedMeanwhile
from tests.builders.clock import ManualClock
from tests.rlm.proxy.fakes import FakeTier, asked, blob, fetch_request, only, tier_partition, world
from tests.rlm.proxy.uncounted import Counting

RECORDS = RemoteRecords(records=(b"r",), size_bytes=1, next_offset=1, aborted=())
AWAY, CHANGED = Unavailable("away"), ChangedMeanwhile("deleted")


class Held:
    """One remote fetch whose attempts give these outcomes, the last of them for ever."""

    def __init__(self, *outcomes: Outcome, max_wait_ms: int = 10_000) -> None:
        self.clock, self.metrics = ManualClock(), Counting()
        self.began_ms = self.clock.now
        self.purgatory = RemoteFetchPurgatory(self.clock, self.metrics)
        self.changed = asyncio.Event()
        self.left, self.tried_ms, self.sizes = list(outcomes), list[int](), list[int]()
        deadline_ms = self.clock.now + max_wait_ms
        self.fetch = RemoteFetch(self.purgatory, self._attempt, deadline_ms, self.changed)

    async def _attempt(self) -> Outcome:
        self.tried_ms.append(self.clock.now - self.began_ms)
        self.sizes.append(self.purgatory.size)
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    @property
    def waits_ms(self) -> list[int]:
        return [two - one for one, two in zip(self.tried_ms, self.tried_ms[1:], strict=False)]


async def test_what_fails_for_now_is_tried_again_less_and_less_often() -> None:
    held = Held(*[AWAY] * 8, RECORDS, max_wait_ms=12_000)  # all jitter upwards: 10,920 ms
    assert await held.fetch.complete() is RECORDS
    expected_ms = (100, 200, 400, 800, 1_600, 2_000, 2_000, 2_000)
    for waited_ms, wait_ms in zip(held.waits_ms, expected_ms, strict=True):
        assert 0.8 * wait_ms - 1 <= waited_ms <= 1.2 * wait_ms
    assert held.changed.is_set()
    assert held.metrics.completions == ["records"]
    assert (set(held.sizes), held.purgatory.size) == ({1}, 0)


@pytest.mark.parametrize(
    ("outcome", "completion"),
    [
        (RECORDS, "records"),
        (Corrupt("damaged"), "failed"),
        (OffsetOutOfRange("below", log_start_offset=5), "ended"),
    ],
)
async def test_what_needs_to_wait_for_nothing_needs_no_task(
    outcome: Outcome, completion: str
) -> None:
    held = Held(outcome)
    assert held.fetch.begin() is outcome
    assert (held.metrics.completions, held.purgatory.size) == ([completion], 0)


async def test_what_fails_for_now_at_once_is_tried_again_like_any_other() -> None:
    held = Held(AWAY, AWAY, RECORDS)
    assert held.fetch.begin() is None
    assert held.metrics.completions == []
    assert await held.fetch.complete() is RECORDS
    assert len(held.tried_ms) == 3 and held.waits_ms[0] >= 80
    assert held.metrics.completions == ["records"]


async def test_an_attempt_that_has_to_wait_goes_on_and_is_not_made_again() -> None:
    held, ready, attempts = Held(RECORDS), asyncio.Event(), []

    async def attempt() -> Outcome:
        attempts.append("begun")
        await ready.wait()
        return RECORDS

    fetch = RemoteFetch(held.purgatory, attempt, held.clock.now + 10_000, held.changed)
    assert fetch.begin() is None and attempts == ["begun"]
    task = asyncio.ensure_future(fetch.complete())
    await asyncio.sleep(0)
    assert not task.done()
    ready.set()
    assert await task is RECORDS
    assert attempts == ["begun"]


async def test_two_that_fail_together_do_not_stay_in_step() -> None:
    first, second = Held(*[AWAY] * 6, RECORDS), Held(*[AWAY] * 6, RECORDS)
    await asyncio.gather(first.fetch.complete(), second.fetch.complete())
    assert first.waits_ms != second.waits_ms


async def test_what_was_deleted_meanwhile_is_looked_up_again_at_once_and_then_backs_off() -> None:
    held = Held(CHANGED, CHANGED, RECORDS)
    assert await held.fetch.complete() is RECORDS
    assert held.waits_ms[0] == 0 < held.waits_ms[1]


@pytest.mark.parametrize(
    ("outcome", "completion"),
    [
        (Corrupt("damaged"), "failed"),
        (OffsetOutOfRange("below", log_start_offset=5), "ended"),
    ],
)
async def test_a_lasting_error_completes_at_once(
    outcome: RemoteStorageError, completion: str
) -> None:
    held = Held(outcome)
    assert await held.fetch.complete() is outcome
    assert (held.tried_ms, held.metrics.completions) == ([0], [completion])


async def test_at_its_deadline_it_expires() -> None:
    held = Held(AWAY)
    found = await held.fetch.complete()
    assert isinstance(found, Unavailable)
    assert held.tried_ms[-1] < 10_050 <= held.clock.now - held.began_ms
    assert held.metrics.completions == ["expired"]


@pytest.mark.parametrize(("at_ms", "completion"), [(9_999, "abandoned"), (10_000, "expired")])
async def test_one_that_its_fetch_leaves_is_abandoned_or_was_late(
    at_ms: int, completion: str
) -> None:
    held, hangs = Held(RECORDS), asyncio.Event()

    async def hang() -> Outcome:
        await hangs.wait()
        return RECORDS

    fetch = RemoteFetch(held.purgatory, hang, held.clock.now + 10_000, held.changed)
    task = asyncio.ensure_future(fetch.complete())
    await asyncio.sleep(0)
    held.clock.advance(at_ms)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (held.metrics.completions, held.purgatory.size) == ([completion], 0)


def failing_once(tier: FakeTier, error: RemoteStorageError, then: Callable[[], object]) -> None:
    """The first read raises the error after something has happened; what has ended stays so."""
    read, left = tier.read, [then]

    async def failing(request: RemoteRead) -> RemoteRecords:
        if left:
            left.pop()()
            raise error
        if request.offset < tier.partitions[request.partition].remote_log_start_offset:
            raise CHANGED  # by the view that a worker has had before
        return await read(request)

    tier.read = failing  # type: ignore[method-assign]


async def test_h02_a_fetch_whose_data_is_deleted_meanwhile_learns_the_new_start_at_once() -> None:
    async with world() as w:

        def end() -> None:
            w.tier.partitions[0] = tier_partition(remote_log_start_offset=60)

        failing_once(w.tier, CHANGED, end)
        client = await w.connect()
        began = time.monotonic()
        request = fetch_request(12, asked(40), max_wait_ms=60_000)
        assert only(await client.call(FETCH, 12, request))["error_code"] == 1
        assert time.monotonic() - began < 30
        assert (w.tier.barriers, w.metrics.completions) == (1, ["ended"])


@pytest.mark.parametrize("error", [CHANGED, Busy("queue full")])
async def test_h02_above_the_remote_start_deleted_data_is_looked_up_again(
    error: RemoteStorageError,
) -> None:
    async with world() as w:

        def move() -> None:
            w.tier.partitions[0] = tier_partition(remote_log_start_offset=40)

        failing_once(w.tier, error, move)
        client = await w.connect()
        request = fetch_request(12, asked(40), max_wait_ms=60_000)
        answer = only(await client.call(FETCH, 12, request))
        assert (answer["error_code"], answer["records"]) == (0, blob(40, 100))
        assert (w.tier.barriers, w.metrics.completions) == (0, ["records"])


async def test_records_of_one_partition_do_not_wait_for_another_that_fails_for_now() -> None:
    tier = FakeTier(partitions={n: tier_partition(partition=n) for n in range(2)})
    read = tier.read

    async def failing(request: RemoteRead) -> RemoteRecords:
        if request.partition == 0:
            raise AWAY
        await asyncio.sleep(0.05)
        return await read(request)

    tier.read = failing  # type: ignore[method-assign]
    async with world(tier) as w:
        client = await w.connect()
        parts = asked(40, 0), asked(40, 1)
        request = fetch_request(12, *parts, max_wait_ms=60_000, min_bytes=1_000_000)
        answer = await asyncio.wait_for(client.call(FETCH, 12, request), 60)
        first, second = answer["responses"][0]["partitions"]
        assert (first["error_code"], first["records"]) == (0, b"")
        assert second["records"] == blob(40, 100)
        assert w.metrics.completions == ["records", "abandoned"]

"""A second request where the first is late: when there is one, which answer counts, what ends."""

import asyncio
from collections.abc import Sequence
from operator import itemgetter

import pytest

from kip405.errors import Busy, NotFound, Unavailable
from rlm.stores.hedging import MOST_BYTES, HedgeCounts, HedgedReads

PERCENT = 5
USUAL_MS = 100
MIB = 1 << 20


class SteppedClock:
    """Time that only `pass_ms` moves; sleepers wake in the order of their time."""

    def __init__(self) -> None:
        self.now = 1_000
        self._sleepers: list[tuple[int, asyncio.Event]] = []

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    async def sleep_ms(self, duration_ms: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self.now + int(duration_ms), woken))
        await woken.wait()

    async def pass_ms(self, duration_ms: int) -> None:
        """Those whose time is the same wake in the same turn of the loop."""
        end = self.now + duration_ms
        await settled()
        while due := [one for one in sorted(self._sleepers, key=itemgetter(0)) if one[0] <= end]:
            self.now = due[0][0]
            for one in (one for one in due if one[0] == self.now):
                self._sleepers.remove(one)
                one[1].set()
            await settled()
        self.now = end
        await settled()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Store:
    """Each request waits for its turn: `answers` has how long it takes and what comes then."""

    def __init__(self, clock: SteppedClock) -> None:
        self._clock = clock
        self.answers: list[tuple[int, bytes | BaseException]] = []
        self.requests = 0
        self.given_up: list[int] = []

    async def ask(self) -> bytes:
        number, self.requests = self.requests, self.requests + 1
        taken_ms, answer = self.answers.pop(0)
        try:
            await self._clock.sleep_ms(taken_ms)
        except asyncio.CancelledError:
            self.given_up.append(number)
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Bench:
    """Reads of one size from one store that is known to take `USUAL_MS`."""

    def __init__(self, percent: float = PERCENT) -> None:
        self.clock = SteppedClock()
        self.store = Store(self.clock)
        self.counts = HedgeCounts()
        self.reads = HedgedReads(self.clock, self.counts, percent)

    async def usual(self, times: int = 100) -> None:
        for _ in range(times):
            assert await self.run([(USUAL_MS, b"usual")], USUAL_MS) == b"usual"
        self.store.requests = 0

    async def run(
        self, answers: Sequence[tuple[int, bytes | BaseException]], after_ms: int, size: int = MIB
    ) -> bytes | BaseException:
        reading = self.begin(answers, size)
        await self.clock.pass_ms(after_ms)
        assert reading.done()
        return (await asyncio.gather(reading, return_exceptions=True))[0]

    def begin(
        self, answers: Sequence[tuple[int, bytes | BaseException]], size: int = MIB
    ) -> asyncio.Task[bytes]:
        self.store.answers = list(answers)
        return asyncio.create_task(self.reads.read(size, self.store.ask))


async def test_a_late_read_is_asked_for_again_and_the_first_answer_counts() -> None:
    bench = Bench()
    await bench.usual()
    assert await bench.run([(9_000, b"slow"), (80, b"quick")], 200) == b"quick"
    assert bench.store.given_up == [0]
    assert bench.counts == HedgeCounts(asked_twice=1, second_was_first=1)


async def test_the_first_request_may_still_win() -> None:
    bench = Bench()
    await bench.usual()
    assert await bench.run([(150, b"first"), (9_000, b"second")], 200) == b"first"
    assert bench.store.given_up == [1]
    assert bench.counts == HedgeCounts(asked_twice=1, second_was_first=0)


async def test_a_read_in_time_is_asked_for_once() -> None:
    bench = Bench()
    await bench.usual()
    assert await bench.run([(USUAL_MS, b"only")], USUAL_MS) == b"only"
    assert bench.store.requests == 1


@pytest.mark.parametrize(
    ("percent", "known", "size"),
    [(PERCENT, 10, MIB), (PERCENT, 100, 16 * MIB), (0, 100, MIB)],
    ids=["too little is known", "another size", "switched off"],
)
async def test_no_second_request_where_nothing_says_that_the_first_is_late(
    percent: float, known: int, size: int
) -> None:
    bench = Bench(percent)
    await bench.usual(known)
    assert await bench.run([(9_000, b"slow")], 9_000, size) == b"slow"
    assert bench.store.requests == 1


async def test_quick_stores_are_not_asked_twice_for_a_few_milliseconds() -> None:
    bench = Bench()
    for _ in range(100):
        await bench.run([(1, b"usual")], 1)
    assert await bench.run([(19, b"slow")], 19) == b"slow"
    assert bench.counts.asked_twice == 0


async def test_only_a_small_share_of_reads_is_asked_for_twice() -> None:
    bench = Bench()
    await bench.usual()
    for _ in range(400):  # the store has become slow for everyone
        await bench.run([(180, b"first"), (180, b"second")], 180)
    assert bench.counts.asked_twice <= (100 + 400) * PERCENT / 100


async def test_a_store_that_stands_still_gets_few_second_requests() -> None:
    bench = Bench()
    await bench.usual(300)
    readings = [bench.begin([]) for _ in range(64)]
    bench.store.answers = [(9_000, b"slow")] * 128
    await bench.clock.pass_ms(8_000)
    assert 64 < bench.store.requests <= 64 + 10
    await bench.clock.pass_ms(2_000)
    assert await asyncio.gather(*readings) == [b"slow"] * 64


async def test_an_error_of_one_request_waits_for_the_other() -> None:
    bench = Bench()
    await bench.usual()
    lost = NotFound("gone")
    assert await bench.run([(150, lost), (80, b"there")], 200) == b"there"
    assert await bench.run([(300, b"there"), (10, lost)], 300) == b"there"


async def test_when_both_fail_the_error_is_the_first_requests() -> None:
    bench = Bench()
    await bench.usual()
    first, second = Unavailable("first"), Unavailable("second")
    assert await bench.run([(180, first), (20, second)], 200) is first


async def test_a_store_that_answers_errors_is_not_asked_twice_for_a_while() -> None:
    bench = Bench()
    await bench.usual()
    await bench.run([(10, Unavailable("too many requests"))], 10)
    await bench.run([(9_000, b"slow")], 9_000)
    assert bench.counts.asked_twice == 0
    await bench.clock.pass_ms(30_000)
    assert await bench.run([(9_000, b"slow"), (80, b"quick")], 200) == b"quick"


async def test_an_error_of_the_second_request_counts_although_the_first_answers() -> None:
    bench = Bench()
    await bench.usual()
    busy = Busy("too many requests")
    assert await bench.run([(180, b"first"), (20, busy)], 200) == b"first"
    assert await bench.run([(9_000, b"slow")], 9_000) == b"slow"
    assert bench.counts.asked_twice == 1


async def test_h36_second_requests_hold_little_memory_at_a_time() -> None:
    """The memory of the read path counts one request for each range."""
    bench = Bench()
    size = MOST_BYTES // 4
    for _ in range(300):
        await bench.run([(USUAL_MS, b"usual")], USUAL_MS, size)
    bench.store.requests = 0
    readings = [bench.begin([], size) for _ in range(8)]
    bench.store.answers = [(9_000, b"slow")] * 16
    await bench.clock.pass_ms(1_000)
    assert bench.store.requests == 8 + 4
    await bench.clock.pass_ms(8_000)
    assert await asyncio.gather(*readings) == [b"slow"] * 8
    assert await bench.run([(9_000, b"slow"), (80, b"quick")], 200, size) == b"quick"


async def test_a_range_that_is_larger_than_that_may_be_asked_for_twice_alone() -> None:
    bench = Bench()
    size = 2 * MOST_BYTES
    for _ in range(100):
        await bench.run([(USUAL_MS, b"usual")], USUAL_MS, size)
    bench.store.requests = 0
    readings = [bench.begin([], size) for _ in range(2)]
    bench.store.answers = [(9_000, b"slow")] * 4
    await bench.clock.pass_ms(10_000)
    assert await asyncio.gather(*readings) == [b"slow"] * 2
    assert bench.store.requests == 2 + 1


async def test_whoever_gives_up_ends_both_requests() -> None:
    bench = Bench()
    await bench.usual()
    reading = bench.begin([(9_000, b"slow"), (9_000, b"slow too")])
    await bench.clock.pass_ms(200)
    assert bench.store.requests == 2
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert bench.store.given_up == [0, 1]

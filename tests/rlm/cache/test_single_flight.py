"""Loads once for all who ask, outlives them, forgets failures, keeps within its bytes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import Busy, NotFound
from rlm.cache.single_flight import SingleFlightCache
from rlm.lanes.reader_pool import ReaderPool

Cache = SingleFlightCache[str, bytes]


class Source:
    """Counts loads; each waits until it is let go."""

    def __init__(self, value: bytes = b"value") -> None:
        self.value = value
        self.loads = 0
        self.error: Exception | None = None
        self.may_end = asyncio.Event()

    async def load(self) -> bytes:
        self.loads += 1
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return self.value


@pytest.fixture
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        yield group


def cache_of(
    tasks: asyncio.TaskGroup, *, capacity: int = 100, threads: int = 4, pending: int = 100
) -> Cache:
    pool = ReaderPool(tasks, threads=threads, max_pending_tasks=pending)
    return SingleFlightCache(capacity_bytes=capacity, weigh=len, pool=pool)


def giving(value: bytes) -> Callable[[], Awaitable[bytes]]:
    async def load() -> bytes:
        return value

    return load


async def steps(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_all_who_ask_at_once_share_one_load(tasks: asyncio.TaskGroup) -> None:
    cache, source = cache_of(tasks), Source()
    asking = [asyncio.ensure_future(cache.get("k", source.load)) for _ in range(5)]
    await steps()
    assert cache.knows("k") and cache.peek("k") is None
    source.may_end.set()
    assert await asyncio.gather(*asking) == [b"value"] * 5
    assert await cache.get("k", source.load) == b"value"
    assert (source.loads, cache.misses, cache.hits) == (1, 1, 1)


async def test_a_load_outlives_the_asker_that_began_it(tasks: asyncio.TaskGroup) -> None:
    cache, source = cache_of(tasks), Source()
    first = asyncio.ensure_future(cache.get("k", source.load))
    await steps()
    second = asyncio.ensure_future(cache.get("k", source.load))
    await steps()
    first.cancel()
    await steps()
    assert first.cancelled()
    source.may_end.set()
    assert await second == b"value"
    assert source.loads == 1
    assert cache.peek("k") == b"value"


async def test_a_load_nobody_waits_for_any_more_is_kept(tasks: asyncio.TaskGroup) -> None:
    cache, source = cache_of(tasks), Source()
    only = asyncio.ensure_future(cache.get("k", source.load))
    await steps()
    only.cancel()
    source.may_end.set()
    await steps()
    assert cache.peek("k") == b"value"


async def test_a_failure_goes_to_all_who_wait_and_is_not_remembered(
    tasks: asyncio.TaskGroup,
) -> None:
    cache, source = cache_of(tasks), Source()
    source.error = NotFound("gone")
    asking = [asyncio.ensure_future(cache.get("k", source.load)) for _ in range(3)]
    await steps()
    source.may_end.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(one) for one in results] == [NotFound] * 3
    assert not cache.knows("k")
    source.error = None
    assert await cache.get("k", source.load) == b"value"
    assert source.loads == 2


async def test_a_failure_after_the_asker_left_troubles_nobody(tasks: asyncio.TaskGroup) -> None:
    cache, source = cache_of(tasks), Source()
    source.error = NotFound("gone")
    only = asyncio.ensure_future(cache.get("k", source.load))
    await steps()
    only.cancel()
    source.may_end.set()
    await steps()
    assert not cache.knows("k")


async def test_a_full_pool_is_busy_and_leaves_nothing_behind(tasks: asyncio.TaskGroup) -> None:
    cache, source = cache_of(tasks, threads=1, pending=0), Source()
    asking = asyncio.ensure_future(cache.get("k", source.load))
    await steps()
    with pytest.raises(Busy):
        await cache.get("other", source.load)
    assert not cache.knows("other")
    source.may_end.set()
    await asking
    assert await cache.get("other", source.load) == b"value"


async def test_the_least_recently_used_leaves_first(tasks: asyncio.TaskGroup) -> None:
    cache = cache_of(tasks, capacity=10)
    for key in "abc":
        await cache.get(key, giving(b"xxx"))
    assert cache.peek("a") == b"xxx"
    await cache.get("d", giving(b"xxx"))
    assert [cache.knows(key) for key in "abcd"] == [True, False, True, True]
    assert cache.kept_bytes == 9


async def test_a_value_too_big_to_keep_is_given_and_drives_nothing_out(
    tasks: asyncio.TaskGroup,
) -> None:
    cache = cache_of(tasks, capacity=10)
    await cache.get("a", giving(b"xxx"))
    assert await cache.get("big", giving(b"x" * 11)) == b"x" * 11
    assert cache.knows("a") and not cache.knows("big")
    assert cache.kept_bytes == 3


async def test_forget_drops_those_that_belong(tasks: asyncio.TaskGroup) -> None:
    cache = cache_of(tasks)
    for key in ("a1", "a2", "b1"):
        await cache.get(key, giving(b"xxx"))
    cache.forget(lambda key: key.startswith("a"))
    assert [cache.knows(key) for key in ("a1", "a2", "b1")] == [False, False, True]
    assert cache.kept_bytes == 3


async def test_a_load_begun_again_over_a_kept_value_counts_once(tasks: asyncio.TaskGroup) -> None:
    cache = cache_of(tasks)
    await cache.get("a", giving(b"xxx"))
    await cache.start("a", giving(b"yyyy"))
    await steps()
    assert (cache.peek("a"), cache.kept_bytes) == (b"yyyy", 4)


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 12)), max_size=60),
    st.integers(1, 20),
)
def test_never_more_than_its_bytes_and_always_the_newest(
    asked: list[tuple[str, int]], capacity: int
) -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            cache = cache_of(tasks, capacity=capacity)
            for key, size in asked:
                value = await cache.get(key, giving(b"x" * size))
                assert cache.kept_bytes <= capacity
                assert cache.knows(key) == (len(value) <= capacity)
            kept = {key: found for key in "abcdefgh" if (found := cache.peek(key)) is not None}
            assert cache.kept_bytes == sum(map(len, kept.values()))

    asyncio.run(run())

"""All callers share one load, which outlives them; failures are forgotten; the bound is in
bytes.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import Busy, NotFound
from rlm.reading.chunk_cache import SingleFlightCache

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


Begin = Callable[[], asyncio.Future[bytes]]


def cache_of(*, capacity: int = 100) -> Cache:
    return SingleFlightCache(capacity_bytes=capacity, weigh=len)


def begin(load: Callable[[], Coroutine[Any, Any, bytes]]) -> Begin:
    """Runs the load in a task of its own, as a pool does."""

    def begun() -> asyncio.Future[bytes]:
        task = asyncio.ensure_future(load())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    return begun


def giving(value: bytes) -> Begin:
    async def load() -> bytes:
        return value

    return begin(load)


def busy() -> asyncio.Future[bytes]:
    raise Busy("too many")


async def value_of(cache: Cache, key: str, begin: Begin, reader: int = 0) -> bytes:
    """As the chunk loader asks: what is kept, else the load that all share."""
    value = cache.peek(key, reader)
    return await asyncio.shield(cache.start(key, begin, reader)) if value is None else value


async def steps(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_all_who_ask_at_once_share_one_load() -> None:
    cache, source = cache_of(), Source()
    asking = [asyncio.ensure_future(value_of(cache, "k", begin(source.load))) for _ in range(5)]
    await steps()
    assert source.loads == 1 and cache.peek("k", 0) is None
    source.may_end.set()
    assert await asyncio.gather(*asking) == [b"value"] * 5
    assert await value_of(cache, "k", begin(source.load)) == b"value"
    assert source.loads == 1


async def test_a_load_outlives_the_asker_that_began_it() -> None:
    cache, source = cache_of(), Source()
    first = asyncio.ensure_future(value_of(cache, "k", begin(source.load)))
    await steps()
    second = asyncio.ensure_future(value_of(cache, "k", begin(source.load)))
    await steps()
    first.cancel()
    await steps()
    assert first.cancelled()
    source.may_end.set()
    assert await second == b"value"
    assert source.loads == 1
    assert cache.peek("k", 0) == b"value"


async def test_a_load_nobody_waits_for_any_more_is_kept() -> None:
    cache, source = cache_of(), Source()
    only = asyncio.ensure_future(value_of(cache, "k", begin(source.load)))
    await steps()
    only.cancel()
    source.may_end.set()
    await steps()
    assert cache.peek("k", 0) == b"value"


async def test_a_failure_goes_to_all_who_wait_and_is_not_remembered() -> None:
    cache, source = cache_of(), Source()
    source.error = NotFound("gone")
    asking = [asyncio.ensure_future(value_of(cache, "k", begin(source.load))) for _ in range(3)]
    await steps()
    source.may_end.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(one) for one in results] == [NotFound] * 3
    assert cache.peek("k", 0) is None
    source.error = None
    assert await value_of(cache, "k", begin(source.load)) == b"value"
    assert source.loads == 2


async def test_a_failure_after_the_asker_left_troubles_nobody() -> None:
    cache, source = cache_of(), Source()
    source.error = NotFound("gone")
    only = asyncio.ensure_future(value_of(cache, "k", begin(source.load)))
    await steps()
    only.cancel()
    source.may_end.set()
    await steps()
    assert cache.peek("k", 0) is None


async def test_a_load_that_cannot_begin_leaves_nothing_behind() -> None:
    cache = cache_of()
    with pytest.raises(Busy):
        await value_of(cache, "k", busy)
    assert await value_of(cache, "k", giving(b"v")) == b"v"


async def test_what_another_reader_reads_again_stays() -> None:
    cache = cache_of(capacity=10)
    for key in "abc":
        await value_of(cache, key, giving(b"xxx"), reader=1)
    assert cache.peek("a", reader=2) == b"xxx"
    await value_of(cache, "d", giving(b"xxx"), reader=1)
    assert [cache.peek(key, 0) is not None for key in "abcd"] == [True, False, True, True]
    assert cache.kept_bytes == 9


async def test_a_value_too_big_to_keep_is_given_and_drives_nothing_out() -> None:
    cache = cache_of(capacity=10)
    await value_of(cache, "a", giving(b"xxx"))
    assert await value_of(cache, "big", giving(b"x" * 11)) == b"x" * 11
    assert cache.peek("a", 0) is not None and cache.peek("big", 0) is None
    assert cache.kept_bytes == 3


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 12)), max_size=60),
    st.integers(1, 20),
)
def test_never_more_than_its_bytes_and_always_the_newest(
    asked: list[tuple[str, int]], capacity: int
) -> None:
    async def run() -> None:
        cache = cache_of(capacity=capacity)
        for key, size in asked:
            value = await value_of(cache, key, giving(b"x" * size))
            await steps(2)
            assert cache.kept_bytes <= capacity
            assert (cache.peek(key, 0) is not None) == (len(value) <= capacity)
        kept = {key: found for key in "abcdefgh" if (found := cache.peek(key, 0)) is not None}
        assert cache.kept_bytes == sum(map(len, kept.values()))

    asyncio.run(run())

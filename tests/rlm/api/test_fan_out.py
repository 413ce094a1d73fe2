"""Rows of many services at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from rlm.api.fan_out import merged_rows


async def test_whoever_stops_ends_the_streams_without_an_error() -> None:
    ended: list[int] = []

    async def rows(node_id: int) -> AsyncIterator[int]:
        try:
            yield node_id
            await asyncio.Event().wait()
        finally:
            ended.append(node_id)

    async with aclosing(merged_rows({1: rows(1), 2: rows(2)}, {})) as merged:
        assert sorted([await anext(merged), await anext(merged)]) == [1, 2]
    assert sorted(ended) == [1, 2]

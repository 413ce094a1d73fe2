"""Tries that aiohttp ends by a cancellation of its own, and tries whose caller is cancelled."""

import asyncio
from typing import Any

import pytest

from rsm_plugins.s3.calls import Calls, Request
from tests.waiting import until

_LONG_MS = 60_000


class _NoConnection:
    async def client(self) -> None:
        return None


async def _no_pause(_seconds: float) -> None:
    """Waits for nothing."""


def _calls(attempt_timeout_ms: int = _LONG_MS) -> Calls:
    return Calls(
        _NoConnection(),
        max_connections=1,
        call_timeout_ms=_LONG_MS,
        attempt_timeout_ms=attempt_timeout_ms,
        pause=_no_pause,
    )


async def _failing() -> None:
    raise ValueError


async def _with_a_failed_group() -> None:
    """A group whose child fails while the group is waited for."""
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(_failing())


def _first_try_loses_its_writer(tries: list[int]) -> Request[str]:
    """As aiohttp's ClientResponse: it awaits its cancelled writer, and raises if the task counts as
    cancelled.
    """

    async def request(_client: Any) -> str:
        tries.append(1)
        if len(tries) == 1:
            writer = asyncio.get_running_loop().create_task(asyncio.Event().wait())
            writer.cancel()
            await writer
        return "stored"

    return request


async def test_a_writer_that_aiohttp_cancels_ends_no_task() -> None:
    await _with_a_failed_group()
    tries: list[int] = []
    assert await _calls().run("put", "it", _first_try_loses_its_writer(tries)) == "stored"
    assert len(tries) == 2


async def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    tries: list[int] = []

    async def request(_client: Any) -> None:
        tries.append(1)
        await asyncio.Event().wait()

    async def call() -> None:
        await _with_a_failed_group()
        await _calls().run("put", "it", request)

    caller = asyncio.get_running_loop().create_task(call())
    await until(lambda: bool(tries))
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert len(tries) == 1


async def test_a_try_whose_time_is_over_is_repeated() -> None:
    await _with_a_failed_group()
    tries: list[int] = []

    async def request(_client: Any) -> str:
        tries.append(1)
        if len(tries) == 1:
            await asyncio.Event().wait()
        return "stored"

    assert await _calls(attempt_timeout_ms=50).run("put", "it", request) == "stored"
    assert len(tries) == 2

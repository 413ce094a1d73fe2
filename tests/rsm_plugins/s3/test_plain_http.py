"""Connections that wait for their next request, and those that nobody waits for any more."""

import asyncio

import pytest

from rsm_plugins.s3 import plain_http
from rsm_plugins.s3.plain_http import IdleConnections

ORIGIN = ("http", "127.0.0.1", 80)


class Connection:
    """One that knows whether it was ended."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self.ended = asyncio.Event()

    @property
    def is_ended(self) -> bool:
        """Whether it was."""
        return self.ended.is_set()

    def abort(self) -> None:
        """See OneConnection."""
        self.ended.set()


async def test_one_that_is_made_for_a_cancelled_caller_is_ended() -> None:
    idle, connection, may_connect = (
        IdleConnections[Connection](),
        Connection(),
        asyncio.Event(),
    )

    async def connect() -> Connection:
        await may_connect.wait()
        return connection

    caller = asyncio.ensure_future(idle.made(connect()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not connection.is_ended
    may_connect.set()
    async with asyncio.timeout(60):
        await connection.ended.wait()


async def test_the_one_that_was_used_last_is_taken_first() -> None:
    idle, first, second = IdleConnections[Connection](), Connection(), Connection()
    idle.keep(ORIGIN, first)
    idle.keep(ORIGIN, second)
    assert [idle.take(ORIGIN) for _ in range(3)] == [second, first, None]
    assert not first.is_ended and not second.is_ended


async def test_one_that_was_idle_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_http, "_IDLE_SECONDS", -1.0)
    idle, old = IdleConnections[Connection](), Connection()
    idle.keep(ORIGIN, old)
    assert idle.take(ORIGIN) is None and old.is_ended


async def test_what_becomes_idle_after_the_end_is_ended() -> None:
    idle, waits, comes_late = IdleConnections[Connection](), Connection(), Connection()
    idle.keep(ORIGIN, waits)
    idle.close()
    idle.keep(ORIGIN, comes_late)
    assert waits.is_ended and comes_late.is_ended

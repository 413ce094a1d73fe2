"""Makes requests to the store, with retries until one succeeds, is refused, or time runs out.

The retries are this plugin's: the client library tries once, so that waits do not multiply. Every
attempt has a deadline of its own that includes the body, and needs one of a bounded number of
connections. Only this module of the S3 store waits: back-off, jitter, and work that must end
although its caller is gone. Several calls can run at once: the result is all answers, or the first
error itself with the others cancelled.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import structlog

from rsm_plugins.s3.connection import Connection
from rsm_plugins.s3.errors import FOREIGN_ERRORS, error_of_s3, verdict_of

T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]
"""Waits for so many seconds."""

BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MOST_SECONDS = 5.0


async def pause(seconds: float) -> None:
    """Real time passes."""
    await asyncio.sleep(seconds)  # noqa: TID251 - this module wraps it for the package


def backoff_seconds(attempt: int) -> float:
    """Wait before try `attempt` + 1, doubling from try to try, with jitter (half to whole)."""
    whole = min(BACKOFF_MOST_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** min(attempt - 1, 16))
    return whole * (0.5 + int.from_bytes(os.urandom(4)) / 2**33)


async def to_its_end(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """The result of work that goes on when the caller is cancelled, at most so many seconds."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=seconds)
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # no caller is left to receive it
        raise


Request = Callable[[Any], Awaitable[T]]
"""Gets botocore's client, makes one try."""

log = structlog.get_logger(__name__)


class Calls:
    """Makes requests through a connection; safe to use concurrently."""

    def __init__(
        self,
        connection: Connection,
        *,
        max_connections: int,
        call_timeout_ms: int,
        attempt_timeout_ms: int,
        pause: Pause,
    ) -> None:
        self._connection = connection
        self._slots = asyncio.Semaphore(max_connections)
        self._call_seconds = call_timeout_ms / 1000
        self._attempt_seconds = attempt_timeout_ms / 1000
        self._pause = pause

    @property
    def pause(self) -> Pause:
        """What waits between tries."""
        return self._pause

    @property
    def call_seconds(self) -> float:
        """Longest time a call takes."""
        return self._call_seconds

    async def run(self, operation: str, place: str, request: Request[T], *, patience: int = 1) -> T:
        """The answer; errors are ours, with the last foreign one as their cause.

        A try may take `patience` times the attempt timeout.
        """
        loop = asyncio.get_running_loop()
        ends_at: float | None = None
        tried = 0
        while True:
            tried += 1
            try:
                client = await self._connection.client()
                ends_at = ends_at or loop.time() + self._call_seconds
                return await self._try(client, request, ends_at, self._attempt_seconds * patience)
            except FOREIGN_ERRORS as error:
                wait = backoff_seconds(tried)
                if tried >= verdict_of(error).tries or loop.time() + wait >= (ends_at or 0.0):
                    raise error_of_s3(error, operation, place) from error
                log.info("s3_retry", operation=operation, place=place, tried=tried, wait_s=wait)
            await self._pause(wait)

    async def _try(self, client: Any, request: Request[T], ends_at: float, seconds: float) -> T:
        async with asyncio.timeout_at(ends_at), self._slots:
            async with asyncio.timeout(seconds):
                return await request(client)


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers in the order of the calls."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise first_of(errors) from errors
    return [task.result() for task in tasks]


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that a group of tasks failed with."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

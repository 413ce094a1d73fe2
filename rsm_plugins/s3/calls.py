"""One request to the store, tried until it succeeds, is refused, or its time is over.

Retries are ours: the client library is told to try once, so that nobody waits twice. Every try has
a deadline of its own with the body included, and needs one of a bounded number of connections.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from rsm_plugins.s3.connection import Connection
from rsm_plugins.s3.errors import FOREIGN_ERRORS, error_of_s3, verdict_of
from rsm_plugins.s3.pauses import Pause, backoff_seconds

T = TypeVar("T")
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

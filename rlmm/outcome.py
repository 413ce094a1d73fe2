"""A publish whose outcome is unknown, and deadlines as our errors (H10)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from kip405.errors import Unavailable


class OutcomeUnknown(Unavailable):
    """The record may or may not be in the log: pass a barrier, then look at the state; until then
    nothing.
    """

    outcome_unknown = True


@contextlib.asynccontextmanager
async def deadline(limit_ms: int, what: str) -> AsyncIterator[None]:
    """Unavailable where the block takes longer than `limit_ms`."""
    try:
        async with asyncio.timeout(limit_ms / 1000):
            yield
    except TimeoutError as error:
        raise Unavailable(f"{what} took more than {limit_ms} ms") from error

"""The quota of copies: bytes a second that this service uploads, over all partitions (KIP-956).

A segment is charged whole before its upload begins, since a plugin cannot be stopped in the middle.
So a large segment puts the quota into debt, and the next one waits until it is repaid; over time
the rate is exact. Attempts wait in the order in which they come, so no partition is left behind.
The wait counts neither to an attempt's deadline nor as its failure.
"""

import asyncio
from collections.abc import Callable

from rlm.clock import Clock
from rlm.reading.throttle import Bucket


class CopyQuota:
    """`throttled` is called with each wait, in ms."""

    def __init__(
        self,
        bytes_per_second: int,
        clock: Clock,
        throttled: Callable[[int], None] = lambda _wait_ms: None,
    ) -> None:
        self._clock = clock
        self._bucket = Bucket(bytes_per_second, clock.monotonic_ms())
        self._throttled = throttled
        self._turn = asyncio.Lock()

    async def take(self, size_bytes: int) -> None:
        """Return once so many bytes may be uploaded, after all who came earlier."""
        async with self._turn:
            wait_ms = self._bucket.wait_ms(self._clock.monotonic_ms())
            if wait_ms:
                self._throttled(wait_ms)
                await self._clock.sleep_ms(wait_ms)
            self._bucket.take(size_bytes, self._clock.monotonic_ms())

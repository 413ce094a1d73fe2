"""The quota of copies: bytes a second that this service uploads, over all partitions (KIP-956).

A segment is charged whole before its upload begins, since a plugin cannot be stopped in the middle.
So a large segment puts the quota into debt, and the next one waits until it is repaid; over time
the rate is exact. Attempts wait in the order in which they come, so no partition is left behind.
The wait counts neither to an attempt's deadline nor as its failure.

The rate may change at any time (`rlm copy-limit`). What was charged stays charged, and is repaid at
the new rate: an attempt that waits already looks for a change once a second.
"""

import asyncio
from collections.abc import Callable

from rlm.clock import Clock
from rlm.reading.throttle import Bucket

_LONGEST_SLEEP_MS = 1_000


class CopyQuota:
    """`bytes_per_second` is asked for the rate in effect. `throttled` is called during a wait with
    the time that has passed, in ms.
    """

    def __init__(
        self,
        bytes_per_second: Callable[[], int],
        clock: Clock,
        throttled: Callable[[int], None] = lambda _wait_ms: None,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._bucket = Bucket(bytes_per_second(), clock.monotonic_ms())
        self._throttled = throttled
        self._turn = asyncio.Lock()

    async def take(self, size_bytes: int) -> None:
        """Return once so many bytes may be uploaded, after all who came earlier."""
        async with self._turn:
            while wait_ms := self._wait_ms():
                slept_ms = min(wait_ms, _LONGEST_SLEEP_MS)
                await self._clock.sleep_ms(slept_ms)
                self._throttled(slept_ms)
            self._bucket.take(size_bytes, self._clock.monotonic_ms())

    def _wait_ms(self) -> int:
        """How long until the debt is paid at the rate in effect now."""
        now_ms = self._clock.monotonic_ms()
        self._bucket.change_rate(self._bytes_per_second(), now_ms)
        return self._bucket.wait_ms(now_ms)

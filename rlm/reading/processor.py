"""What a byte costs the processor, measured, and a quota on what historical reads may take of it.

The processor's time of this process, with all its threads, is divided by all bytes that came or
went meanwhile, those of producers and local reads through the proxy included: that is the price of
a byte now, and what a read through the API is charged for its own. Where nothing but the API is at
work the sum is exact. Work without such bytes, copying above all, is counted among the reads', who
wait the sooner; a bound on the price keeps that from stopping them. A plugin is another process and
not counted. Pure.
"""

from collections.abc import Callable

from rlm.reading.quota import Bucket

ProcessorClock = Callable[[], float]
"""Milliseconds of the processor that this process took since it began."""

MOST_PER_BYTE_MS = 20 / (1 << 20)  # several times what a read was ever measured to take
_LEAST_WINDOW_MS = 200
_MOST_WINDOW_MS = 2_000  # in a longer one there was a pause: what it took is nobody's
_OLD_PRICE = 0.5  # after a pause the price is that of another time


class BytePrice:
    """Milliseconds of the processor for a byte, of the window before the running one."""

    def __init__(self, now_ms: int, processor_ms: float) -> None:
        self.per_byte_ms = 0.0
        self._begin(now_ms, processor_ms)

    def moved(self, size_bytes: int) -> None:
        """So many bytes came or went, by whichever way."""
        self._bytes += size_bytes

    def settle(self, now_ms: int, processor_ms: float) -> None:
        """Find the price anew where enough time is over."""
        gone_ms = now_ms - self._began_ms
        if gone_ms > _MOST_WINDOW_MS:
            self.per_byte_ms *= _OLD_PRICE
            self._begin(now_ms, processor_ms)
        elif gone_ms >= _LEAST_WINDOW_MS and self._bytes:
            found_ms = (processor_ms - self._processor_ms) / self._bytes
            self.per_byte_ms = min(MOST_PER_BYTE_MS, max(0.0, found_ms))
            self._begin(now_ms, processor_ms)

    def _begin(self, now_ms: int, processor_ms: float) -> None:
        self._began_ms = now_ms
        self._processor_ms = processor_ms
        self._bytes = 0


class ProcessorQuota:
    """Cores that reads may take on average; like bytes they may run into debt."""

    def __init__(self, *, cores: float, now_ms: int, processor_ms: float) -> None:
        self._price = BytePrice(now_ms, processor_ms)
        self._bucket = Bucket(cores * 1000, now_ms)

    def moved(self, size_bytes: int) -> None:
        """Bytes of whatever way and tier, those of reads included."""
        self._price.moved(size_bytes)

    def wait_ms(self, now_ms: int) -> int:
        """How long a read has to wait."""
        return self._bucket.wait_ms(now_ms)

    def take(self, size_bytes: int, now_ms: int, processor_ms: float) -> None:
        """Charge a read of so many bytes, which were or will be told as moved."""
        self._price.settle(now_ms, processor_ms)
        self._bucket.take(size_bytes * self._price.per_byte_ms, now_ms)

"""Holds historical reads to their quotas, over proxy and API, and counts bytes by tier.

A Kafka client is told to wait (`throttle_time_ms`), a stream of the API waits here. Reads of the
local tier, and whatever producers do, are counted and never held. Must not know frames nor gRPC.
"""

from dataclasses import dataclass, field

from rlm.clock import Clock
from rlm.reading.processor import ProcessorClock, ProcessorQuota
from rlm.reading.quota import Bucket, ByteQuota, Wait

_LONGEST_SLEEP_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleLimits:
    """Bytes a second of the whole service, bytes a second of one client, and cores."""

    service_bytes_per_second: int
    client_bytes_per_second: int
    cores: float


@dataclass(slots=True, kw_only=True)
class ThrottleCounts:
    """Totals since the start: milliseconds by kind of quota, bytes by (way, tier)."""

    throttled_ms: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("service", "client", "processor"), 0)
    )
    given_bytes: dict[tuple[str, str], int] = field(
        default_factory=lambda: {
            (way, tier): 0 for way in ("proxy", "api") for tier in ("remote", "local")
        }
    )


class ReadThrottle:
    """The quotas of one service."""

    def __init__(self, limits: ThrottleLimits, clock: Clock, processor_ms: ProcessorClock) -> None:
        now_ms = clock.monotonic_ms()
        self.limits = limits
        self.counts = ThrottleCounts()
        self._clock = clock
        self._processor_ms = processor_ms
        self._bytes = ByteQuota(
            service_rate=limits.service_bytes_per_second,
            client_rate=limits.client_bytes_per_second,
            now_ms=now_ms,
        )
        self._processor = ProcessorQuota(
            cores=limits.cores, now_ms=now_ms, processor_ms=processor_ms()
        )

    def connection(self) -> "ConnectionThrottle":
        """Of a new connection of a Kafka client."""
        return ConnectionThrottle(self, self._clock)

    async def pace(self, principal: str, size_bytes: int, *, is_remote: bool) -> None:
        """Before so many bytes are given to a stream of the API: wait for its turn, if they are
        historical. What a stream that is cancelled meanwhile did not get is not counted.
        """
        if not is_remote:
            self._gave("api", "local", size_bytes)
            return
        name, now_ms = f"api {principal}", self._clock.monotonic_ms()
        wait = self._bytes.wait(name, now_ms)
        processor_wait_ms = self._processor.wait_ms(now_ms)
        if processor_wait_ms > wait.duration_ms:
            wait = Wait(duration_ms=processor_wait_ms, kind="processor")
        self._bytes.take(name, size_bytes, now_ms)
        self._processor.take(size_bytes, now_ms, self._processor_ms())
        if wait.duration_ms:
            try:
                await self._sleep(wait)
            except BaseException:
                self._bytes.take(name, -size_bytes, self._clock.monotonic_ms())
                raise
        self._gave("api", "remote", size_bytes)

    def took(self, principal: str, size_bytes: int) -> None:
        """Historical bytes that a call of the API was given without waiting, because it holds what
        others wait for: its next one waits for them, by a `pace` of none.
        """
        now_ms = self._clock.monotonic_ms()
        self._bytes.take(f"api {principal}", size_bytes, now_ms)
        self._processor.take(size_bytes, now_ms, self._processor_ms())
        self._gave("api", "remote", size_bytes)

    async def _sleep(self, wait: Wait) -> None:
        left_ms = wait.duration_ms
        while left_ms > 0:
            slept_ms = min(left_ms, _LONGEST_SLEEP_MS)
            await self._clock.sleep_ms(slept_ms)
            self.counts.throttled_ms[wait.kind] += slept_ms
            left_ms -= slept_ms

    # of the proxy's connections

    def wait(self, client_id: str) -> Wait:
        """What a Kafka client has to wait for."""
        return self._bytes.wait(f"kafka {client_id}", self._clock.monotonic_ms())

    def spliced(self, client_id: str, size_bytes: int) -> None:
        """Bytes of the remote tier in an answer to a Kafka client."""
        self._bytes.take(f"kafka {client_id}", size_bytes, self._clock.monotonic_ms())
        self._gave("proxy", "remote", size_bytes)

    def passed(self, size_bytes: int) -> None:
        """Bytes of the broker in an answer to a Kafka client."""
        self.counts.given_bytes["proxy", "local"] += size_bytes

    def moved(self, size_bytes: int) -> None:
        """Bytes that came from a Kafka client or from the broker, of whatever kind."""
        self._processor.moved(size_bytes)

    def _gave(self, way: str, tier: str, size_bytes: int) -> None:
        self.counts.given_bytes[way, tier] += size_bytes
        self._processor.moved(size_bytes)


class ConnectionThrottle:
    """One connection's part: a client's rate holds for each connection too, whatever ids it names
    on it (H23).
    """

    def __init__(self, throttle: ReadThrottle, clock: Clock) -> None:
        self._throttle = throttle
        self._clock = clock
        rate = throttle.limits.client_bytes_per_second
        self._bucket = Bucket(rate, clock.monotonic_ms())
        self._held_by = "client"

    def wait_ms(self, client_id: str) -> int:
        """How long before the next remote read of the client; 0 = now."""
        wait = self._throttle.wait(client_id)
        own_ms = self._bucket.wait_ms(self._clock.monotonic_ms())
        if own_ms >= wait.duration_ms:
            wait = Wait(duration_ms=own_ms, kind="client")
        if wait.duration_ms:
            self._held_by = wait.kind
        return wait.duration_ms

    def spliced(self, client_id: str, size_bytes: int) -> None:
        """Bytes of the remote tier in an answer."""
        self._bucket.take(size_bytes, self._clock.monotonic_ms())
        self._throttle.spliced(client_id, size_bytes)

    def passed(self, size_bytes: int) -> None:
        """Bytes of the broker in an answer."""
        self._throttle.passed(size_bytes)

    def held(self, duration_ms: int) -> None:
        """The reads that had to wait last were put off for so long."""
        self._throttle.counts.throttled_ms[self._held_by] += duration_ms

"""Applies the quotas on historical reads, for proxy and API, and counts bytes by tier.

A Kafka client receives a `throttle_time_ms`; a stream of the API waits here. Reads of the
local tier and all produce traffic are counted and never delayed. This module must not know frames
or gRPC.

Byte quotas are token buckets, one for the service and one for each client. The size of a read is
known only after it (KIP-956), so a bucket may go into debt: a client that took too much waits until
the debt is repaid, and over time the rate is exact. While the service's own bucket is in debt, a
client that took less than its fair share does not wait for those that took more. What passes this
way is bounded too; otherwise new client names would evade the quota.

The processor quota needs the price of a byte. The processor time of this process, over all its
threads, is divided by all bytes that came or went meanwhile, including those of producers and local
reads through the proxy. A read through the API is charged this price. Where only the API works, the
sum is exact. Work without such bytes, above all copying, is charged to reads, which then wait
sooner; a bound on the price keeps this from stopping them. A plugin is another process and is not
counted. The buckets and the price are pure.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from rlm.clock import Clock

MOST_CLIENTS = 10_000
_BURST_MS = 1_000  # what a bucket holds after a while without reads
_ACTIVE_MS = 5_000  # a client that took something this recently has a share of the service's rate


class Bucket:
    """Gains `rate` tokens a second, up to what it gains in one second; each call passes the
    time.
    """

    def __init__(self, rate: float, now_ms: int) -> None:
        self.rate = rate
        self._tokens = rate * _BURST_MS / 1000
        self._filled_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """How long until the debt is paid; 0 = there is none."""
        self._fill(now_ms)
        return 0 if self._tokens >= 0 else max(1, round(-self._tokens * 1000 / self.rate))

    def take(self, amount: float, now_ms: int) -> None:
        """Take tokens, also below zero; a negative amount returns tokens."""
        self._fill(now_ms)
        self._tokens -= amount

    def change_rate(self, rate: float, now_ms: int) -> None:
        """Gain so many tokens a second from now on; a debt stays."""
        self._fill(now_ms)
        self.rate = rate

    def _fill(self, now_ms: int) -> None:
        gone_ms = max(0, now_ms - self._filled_ms)
        self._filled_ms = now_ms
        full = self.rate * _BURST_MS / 1000
        self._tokens = min(full, self._tokens + self.rate * gone_ms / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How long a client has to wait, and for which quota: `service` or `client`."""

    duration_ms: int = 0
    kind: str = ""


@dataclass(slots=True)
class _Client:
    own: Bucket
    share: Bucket
    took_ms: int


class ByteQuota:
    """Bytes a second of all clients together, and of each client.

    A client is known by a name; the client that has taken nothing for longest is forgotten first.
    """

    def __init__(
        self, *, service_rate: int, client_rate: int, now_ms: int, most_clients: int = MOST_CLIENTS
    ) -> None:
        self._most_clients = most_clients
        self._service = Bucket(service_rate, now_ms)
        self._ahead = Bucket(service_rate, now_ms)
        self._client_rate = client_rate
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._active_count = 1
        self._counted_ms = now_ms

    def __len__(self) -> int:
        return len(self._clients)

    def change_rates(self, *, service_rate: int, client_rate: int, now_ms: int) -> None:
        """Other rates from now on; debts stay."""
        self._client_rate = client_rate
        for bucket in (self._service, self._ahead):
            bucket.change_rate(service_rate, now_ms)
        for client in self._clients.values():
            client.own.change_rate(client_rate, now_ms)

    def wait(self, name: str, now_ms: int) -> Wait:
        """How long the client has to wait before it takes more, and for which quota."""
        client = self._clients.get(name)
        own_ms = client.own.wait_ms(now_ms) if client else 0
        service_ms = self._service.wait_ms(now_ms)
        if service_ms and not self._ahead.wait_ms(now_ms):
            service_ms = min(service_ms, self._share_wait_ms(client, now_ms))
        if own_ms >= service_ms:
            return Wait(duration_ms=own_ms, kind="client") if own_ms else Wait()
        return Wait(duration_ms=service_ms, kind="service")

    def take(self, name: str, size_bytes: int, now_ms: int) -> None:
        """Count bytes that the client got; a negative size returns them."""
        client = self._clients.get(name)
        if client is None:
            if len(self._clients) >= self._most_clients:
                self._clients.popitem(last=False)
            self._clients[name] = client = _Client(
                Bucket(self._client_rate, now_ms), Bucket(self._share_rate(now_ms), now_ms), now_ms
            )
        self._clients.move_to_end(name)
        client.took_ms = now_ms
        goes_ahead = self._service.wait_ms(now_ms) and not self._share_wait_ms(client, now_ms)
        for bucket in (client.own, client.share, self._service):
            bucket.take(size_bytes, now_ms)
        if goes_ahead:
            self._ahead.take(size_bytes, now_ms)

    def _share_wait_ms(self, client: _Client | None, now_ms: int) -> int:
        if client is None:
            return 0
        client.share.rate = self._share_rate(now_ms)
        return client.share.wait_ms(now_ms)

    def _share_rate(self, now_ms: int) -> float:
        if now_ms - self._counted_ms >= _BURST_MS or not self._clients:
            self._counted_ms = now_ms
            count = 0
            for client in reversed(self._clients.values()):
                if now_ms - client.took_ms > _ACTIVE_MS:
                    break
                count += 1
            self._active_count = max(1, count)
        return self._service.rate / self._active_count


ProcessorClock = Callable[[], float]
"""Milliseconds of the processor that this process took since it began."""

MOST_PER_BYTE_MS = 20 / (1 << 20)  # several times the most that a read was ever measured to take
_LEAST_WINDOW_MS = 200
_MOST_WINDOW_MS = 2_000  # a longer window had a pause; its processor time is not charged
_OLD_PRICE = 0.5  # after a pause the old price no longer holds


class BytePrice:
    """Milliseconds of processor time for a byte, measured over the last complete window."""

    def __init__(self, now_ms: int, processor_ms: float) -> None:
        self.per_byte_ms = 0.0
        self._begin(now_ms, processor_ms)

    def moved(self, size_bytes: int) -> None:
        """Count bytes that were received or sent, by any connection."""
        self._bytes += size_bytes

    def settle(self, now_ms: int, processor_ms: float) -> None:
        """Compute the price again when the window is long enough."""
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
    """Cores that reads may take on average; like bytes, they may go into debt."""

    def __init__(self, *, cores: float, now_ms: int, processor_ms: float) -> None:
        self._price = BytePrice(now_ms, processor_ms)
        self._bucket = Bucket(cores * 1000, now_ms)

    def moved(self, size_bytes: int) -> None:
        """Count bytes of any connection and tier, those of reads included."""
        self._price.moved(size_bytes)

    def wait_ms(self, now_ms: int) -> int:
        """How long a read has to wait."""
        return self._bucket.wait_ms(now_ms)

    def change_cores(self, cores: float, now_ms: int) -> None:
        """Another limit from now on; a debt stays."""
        self._bucket.change_rate(cores * 1000, now_ms)

    def take(self, size_bytes: int, now_ms: int, processor_ms: float) -> None:
        """Charge a read for its bytes, which are counted by `moved` as well."""
        self._price.settle(now_ms, processor_ms)
        self._bucket.take(size_bytes * self._price.per_byte_ms, now_ms)


class PrincipalQuota:
    """Bytes a second of each principal. Principals are proved, so that new names evade nothing; the
    one that has taken nothing for longest is forgotten first.
    """

    def __init__(self, rate: int, most: int = MOST_CLIENTS) -> None:
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def wait_ms(self, principal: str, now_ms: int) -> int:
        """How long before the principal takes more."""
        bucket = self._buckets.get(principal)
        return 0 if bucket is None else bucket.wait_ms(now_ms)

    def change_rate(self, rate: int, now_ms: int) -> None:
        """Another rate of each from now on; debts stay."""
        self._rate = rate
        for bucket in self._buckets.values():
            bucket.change_rate(rate, now_ms)

    def take(self, principal: str, size_bytes: int, now_ms: int) -> None:
        """Count bytes that it got."""
        if principal not in self._buckets and len(self._buckets) >= self._most:
            self._buckets.popitem(last=False)
        bucket = self._buckets.setdefault(principal, Bucket(self._rate, now_ms))
        self._buckets.move_to_end(principal)
        bucket.take(size_bytes, now_ms)


_LONGEST_SLEEP_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleLimits:
    """Bytes a second of the whole service, of one client and of one principal, and cores."""

    service_bytes_per_second: int
    client_bytes_per_second: int
    cores: float
    principal_bytes_per_second: int = 1 << 30


@dataclass(slots=True, kw_only=True)
class ThrottleCounts:
    """Totals since the start: milliseconds by kind of quota, bytes by (way, tier)."""

    throttled_ms: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("service", "client", "principal", "processor"), 0)
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
        self._principals = PrincipalQuota(limits.principal_bytes_per_second)
        self._processor = ProcessorQuota(
            cores=limits.cores, now_ms=now_ms, processor_ms=processor_ms()
        )

    def change_limits(self, limits: ThrottleLimits) -> None:
        """Other quotas from now on, also for clients and connections that are known; debts stay."""
        now_ms = self._clock.monotonic_ms()
        self.limits = limits
        self._bytes.change_rates(
            service_rate=limits.service_bytes_per_second,
            client_rate=limits.client_bytes_per_second,
            now_ms=now_ms,
        )
        self._principals.change_rate(limits.principal_bytes_per_second, now_ms)
        self._processor.change_cores(limits.cores, now_ms)

    def connection(self) -> "ConnectionThrottle":
        """The quota of a new connection of a Kafka client."""
        return ConnectionThrottle(self, self._clock)

    async def pace(self, principal: str, size_bytes: int, *, is_remote: bool) -> None:
        """Called before bytes are given to a stream of the API: wait for the quotas if the bytes
        are historical. Bytes that a stream did not get, because it was cancelled meanwhile, are not
        counted.
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
        """Count historical bytes that a call of the API got without waiting, because it holds what
        other calls wait for. Its next call waits for them by a `pace` of 0 bytes.
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

    # Connections of the proxy.

    def wait(self, client_id: str) -> Wait:
        """How long a Kafka client has to wait, and for which quota."""
        return self._bytes.wait(f"kafka {client_id}", self._clock.monotonic_ms())

    def spliced(self, client_id: str, size_bytes: int) -> None:
        """Count bytes of the remote tier in an answer to a Kafka client."""
        self._bytes.take(f"kafka {client_id}", size_bytes, self._clock.monotonic_ms())
        self._gave("proxy", "remote", size_bytes)

    def principal_wait_ms(self, principal: str) -> int:
        """How long a principal has to wait, whatever its client ids are."""
        return self._principals.wait_ms(principal, self._clock.monotonic_ms())

    def principal_took(self, principal: str, size_bytes: int) -> None:
        """Count bytes of the remote tier for the principal alone; `spliced` counts them too."""
        self._principals.take(principal, size_bytes, self._clock.monotonic_ms())

    def passed(self, size_bytes: int) -> None:
        """Count bytes of the broker in an answer to a Kafka client."""
        self.counts.given_bytes["proxy", "local"] += size_bytes

    def held(self, kind: str, duration_ms: int) -> None:
        """Count the time by which a quota has delayed reads of Kafka clients."""
        self.counts.throttled_ms[kind] = self.counts.throttled_ms.get(kind, 0) + duration_ms

    def moved(self, size_bytes: int) -> None:
        """Count bytes of any kind that came from a Kafka client or from the broker."""
        self._processor.moved(size_bytes)

    def _gave(self, way: str, tier: str, size_bytes: int) -> None:
        self.counts.given_bytes[way, tier] += size_bytes
        self._processor.moved(size_bytes)


class ConnectionThrottle:
    """The quota of one connection: a client's rate also holds for each connection, whatever client
    ids the connection names, and a principal's for all that are known to be its own (H23).
    """

    def __init__(self, throttle: ReadThrottle, clock: Clock) -> None:
        self._throttle = throttle
        self._clock = clock
        rate = throttle.limits.client_bytes_per_second
        self._bucket = Bucket(rate, clock.monotonic_ms())
        self._held_by = "client"
        self._principal: str | None = None

    def known_as(self, principal: str) -> None:
        """Whose connection it is was proved."""
        self._principal = principal

    def wait_ms(self, client_id: str) -> int:
        """How long before the next remote read of the client; 0 = now."""
        wait = self._throttle.wait(client_id)
        now_ms, rate = self._clock.monotonic_ms(), self._throttle.limits.client_bytes_per_second
        if rate != self._bucket.rate:  # it was changed
            self._bucket.change_rate(rate, now_ms)
        own_ms = self._bucket.wait_ms(now_ms)
        if own_ms >= wait.duration_ms:
            wait = Wait(duration_ms=own_ms, kind="client")
        if self._principal is not None:
            all_ms = self._throttle.principal_wait_ms(self._principal)
            if all_ms > wait.duration_ms:
                wait = Wait(duration_ms=all_ms, kind="principal")
        if wait.duration_ms:
            self._held_by = wait.kind
        return wait.duration_ms

    def spliced(self, client_id: str, size_bytes: int) -> None:
        """Count bytes of the remote tier in an answer."""
        self._bucket.take(size_bytes, self._clock.monotonic_ms())
        self._throttle.spliced(client_id, size_bytes)
        if self._principal is not None:
            self._throttle.principal_took(self._principal, size_bytes)

    def passed(self, size_bytes: int) -> None:
        """Count bytes of the broker in an answer."""
        self._throttle.passed(size_bytes)

    def held(self, duration_ms: int) -> None:
        """Count the time by which the last delayed reads were delayed."""
        self._throttle.held(self._held_by, duration_ms)

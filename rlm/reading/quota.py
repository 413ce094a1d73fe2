"""Quotas on historical reads: token buckets of bytes for the service and for each client. Pure.

What a read gives is known after it only (KIP-956), so a bucket may go into debt: the one who took
too much waits until that is paid back, and over time the rate holds exactly. While the service's
own bucket is in debt, clients that took less than their fair share of it are not made to wait for
those that took more; what goes ahead so is bounded too, or new names would be a way around.
Must not know what is read, nor by which way.
"""

from collections import OrderedDict
from dataclasses import dataclass

MOST_CLIENTS = 10_000
_BURST_MS = 1_000  # what a bucket holds when nobody took anything for a while
_ACTIVE_MS = 5_000  # who took something so lately has a share of the service's rate


class Bucket:
    """Fills by `rate` a second up to what it fills in a second; time is given with each call."""

    def __init__(self, rate: float, now_ms: int) -> None:
        self.rate = rate
        self._tokens = rate * _BURST_MS / 1000
        self._filled_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """How long until the debt is paid; 0 = there is none."""
        self._fill(now_ms)
        return 0 if self._tokens >= 0 else max(1, round(-self._tokens * 1000 / self.rate))

    def take(self, amount: float, now_ms: int) -> None:
        """Take so much, below zero too; a negative amount gives back."""
        self._fill(now_ms)
        self._tokens -= amount

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
    """Bytes a second of all clients together, and of each one.

    Clients are told apart by a name; the one who took nothing for longest is forgotten first.
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

    def wait(self, name: str, now_ms: int) -> Wait:
        """What the client has to wait for before it takes more."""
        client = self._clients.get(name)
        own_ms = client.own.wait_ms(now_ms) if client else 0
        service_ms = self._service.wait_ms(now_ms)
        if service_ms and not self._ahead.wait_ms(now_ms):
            service_ms = min(service_ms, self._share_wait_ms(client, now_ms))
        if own_ms >= service_ms:
            return Wait(duration_ms=own_ms, kind="client") if own_ms else Wait()
        return Wait(duration_ms=service_ms, kind="service")

    def take(self, name: str, size_bytes: int, now_ms: int) -> None:
        """The client got so many bytes; a negative size gives back."""
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

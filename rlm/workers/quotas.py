"""The read quotas in a worker (H23): its clients' waits as the core has answered them.

The core counts for the whole service; a worker reports each answer with historical bytes at once,
and keeps the wait that the core answers. Until then a client may read on, so a quota can be
exceeded by one answer of each client, which it pays for with a longer wait. The rate of a
connection is counted here.
"""

from collections.abc import Callable

from rlm.clock import Clock
from rlm.proxy.reads import ConnectionQuota
from rlm.reading.throttle import Bucket
from rlm.workers.counts import WorkerCounts
from rlm.workers.v1 import core_pb2 as pb

_MOST_CLIENTS = 10_000
_CLIENT = "client"


class WorkerQuota:
    """Implements rlm.proxy.reads.FetchQuota. `report`: sends the counts soon."""

    def __init__(self, counts: WorkerCounts, clock: Clock, report: Callable[[], None]) -> None:
        self._counts = counts
        self.clock = clock
        self._report = report
        self._until_ms: dict[tuple[str, str], tuple[int, str]] = {}
        self.client_bytes_per_second = 0
        """Of one connection, 0 = the core has not said it yet."""

    def moved(self, size_bytes: int) -> None:
        """See FetchQuota. Nothing: the price of a byte is one of the core's CPU time."""

    def connection(self) -> ConnectionQuota:
        """See FetchQuota."""
        return _WorkerConnectionQuota(self)

    def answered(self, waits: pb.ClientWaits) -> None:
        """The core says how long clients have to wait."""
        now_ms = self.clock.monotonic_ms()
        for one in waits.waits:
            name = one.client_id, one.principal
            self._until_ms.pop(name, None)
            if one.duration_ms:
                self._until_ms[name] = now_ms + one.duration_ms, one.kind
        while len(self._until_ms) > _MOST_CLIENTS:
            self._until_ms.pop(next(iter(self._until_ms)))

    def wait(self, client_id: str, principal: str = "") -> tuple[int, str]:
        """In ms, and for which quota: the longer one of the client's and the principal's."""
        now_ms = self.clock.monotonic_ms()
        names = [(client_id, "")] + ([("", principal)] if principal else [])
        until_ms, kind = max(self._until_ms.get(name, (0, _CLIENT)) for name in names)
        return max(0, until_ms - now_ms), kind

    def gave(self, client_id: str, size_bytes: int, principal: str = "") -> None:
        """Historical bytes are in an answer."""
        self._counts.gave(client_id, size_bytes, principal)
        self._report()

    def passed(self, size_bytes: int) -> None:
        """Bytes of the broker are in an answer."""
        self._counts.passed_bytes += size_bytes

    def held(self, kind: str, duration_ms: int) -> None:
        """Reads were delayed by this time."""
        self._counts.held_ms[kind] += duration_ms


class _WorkerConnectionQuota:
    """Implements rlm.proxy.reads.ConnectionQuota."""

    def __init__(self, quota: WorkerQuota) -> None:
        self._quota = quota
        self._bucket: Bucket | None = None
        self._held_by = _CLIENT
        self._principal = ""

    def known_as(self, principal: str) -> None:
        self._principal = principal

    def wait_ms(self, client_id: str) -> int:
        wait_ms, kind = self._quota.wait(client_id, self._principal)
        now_ms = self._quota.clock.monotonic_ms()
        own_ms = 0 if self._bucket is None else self._bucket.wait_ms(now_ms)
        if max(wait_ms, own_ms):
            self._held_by = kind if wait_ms > own_ms else _CLIENT
        return max(wait_ms, own_ms)

    def spliced(self, client_id: str, size_bytes: int) -> None:
        now_ms, rate = self._quota.clock.monotonic_ms(), self._quota.client_bytes_per_second
        if self._bucket is None and rate:
            self._bucket = Bucket(rate, now_ms)
        if self._bucket is not None:
            if rate != self._bucket.rate:  # a core with another setting has started
                self._bucket.change_rate(rate, now_ms)
            self._bucket.take(size_bytes, now_ms)
        self._quota.gave(client_id, size_bytes, self._principal)

    def passed(self, size_bytes: int) -> None:
        self._quota.passed(size_bytes)

    def held(self, duration_ms: int) -> None:
        self._quota.held(self._held_by, duration_ms)

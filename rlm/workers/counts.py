"""What workers count, added up in the core: metrics, and historical bytes for the quotas.

A worker sends what it has counted since its last message, at once where a quota needs it. What a
worker has counted while the core is away it sends when the core is back; what a killed worker had
not sent is lost, as counters of any killed process are.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from rlm.plans.client_activity import ClientTable
from rlm.proxy.settings import ProxyMetrics
from rlm.reading.throttle import Wait
from rlm.workers.messages import client_of
from rlm.workers.v1 import core_pb2 as pb

_MOST_MEASURED = 10_000
"""Measured durations that are kept while the core is away."""
_MOST_NAMES = 10_000
"""Client ids, and principals, whose bytes are kept while the core is away."""
_OTHER_CLIENTS = ""


class Throttle(Protocol):
    """The quotas of the whole service (rlm.reading.throttle.ReadThrottle)."""

    def spliced(self, client_id: str, size_bytes: int) -> None: ...

    def passed(self, size_bytes: int) -> None: ...

    def held(self, kind: str, duration_ms: int) -> None: ...

    def wait(self, client_id: str) -> Wait: ...

    def principal_took(self, principal: str, size_bytes: int) -> None: ...

    def principal_wait_ms(self, principal: str) -> int: ...


class WorkerCounts:
    """Counts of one worker; implements ProxyMetrics."""

    def __init__(self) -> None:
        self._events: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._measured: list[tuple[str, tuple[str, ...], int]] = []
        self.spliced_by_client: Counter[str] = Counter()
        self.spliced_by_principal: Counter[str] = Counter()
        self.held_ms: Counter[str] = Counter()
        self.passed_bytes = 0

    def connection_opened(self) -> None:
        """See `ProxyMetrics`."""
        self._events["connection_opened", ()] += 1

    def connection_closed(self, cause: str) -> None:
        """See `ProxyMetrics`."""
        self._events["connection_closed", (cause,)] += 1

    def answered(self, api: str, outcome: str) -> None:
        """See `ProxyMetrics`."""
        self._events["answered", (api, outcome)] += 1

    def spliced(self, size_bytes: int) -> None:
        """See `ProxyMetrics`."""
        self._events["spliced", ()] += size_bytes

    def barrier_waited(self, duration_ms: int, *, passed: bool) -> None:
        """See `ProxyMetrics`."""
        self._measure("barrier_waited", "passed" if passed else "failed", duration_ms)

    def remote_fetch_completed(self, outcome: str, duration_ms: int) -> None:
        """See `ProxyMetrics`."""
        self._measure("remote_fetch_completed", outcome, duration_ms)

    def gave(self, client_id: str, size_bytes: int, principal: str) -> None:
        """Historical bytes are in an answer. Of clients that there is no room for one sum is kept,
        and for principals none: the core can forget them, too.
        """
        by_client, by_principal = self.spliced_by_client, self.spliced_by_principal
        is_kept = client_id in by_client or len(by_client) < _MOST_NAMES
        by_client[client_id if is_kept else _OTHER_CLIENTS] += size_bytes
        if principal and (principal in by_principal or len(by_principal) < _MOST_NAMES):
            by_principal[principal] += size_bytes

    def _measure(self, name: str, label: str, duration_ms: int) -> None:
        if len(self._measured) < _MOST_MEASURED:
            self._measured.append((name, (label,), duration_ms))

    def taken(self) -> pb.Counts:
        """All that was counted; counting begins again."""
        found = pb.Counts(
            passed_bytes=self.passed_bytes,
            spliced=(
                pb.ClientBytes(client_id=name, size_bytes=size)
                for name, size in self.spliced_by_client.items()
            ),
            held_ms=self.held_ms,
            events=(
                pb.CountedEvent(name=name, labels=labels, count=count)
                for (name, labels), count in self._events.items()
            ),
        )
        found.spliced.extend(
            pb.ClientBytes(principal=name, size_bytes=size)
            for name, size in self.spliced_by_principal.items()
        )
        found.events.extend(
            pb.CountedEvent(name=name, labels=labels, duration_ms=duration_ms)
            for name, labels, duration_ms in self._measured
        )
        self.spliced_by_client.clear()
        self.spliced_by_principal.clear()
        self.held_ms.clear()
        self._events.clear()
        self._measured.clear()
        self.passed_bytes = 0
        return found


class CountedMetrics(ProxyMetrics, Protocol):
    """The metrics of the service, to which a worker's counts of some seconds are added at once."""

    def connections_opened(self, count: int) -> None: ...

    def connections_closed(self, cause: str, count: int) -> None: ...

    def answers(self, api: str, outcome: str, count: int) -> None: ...


class CountTaker:
    """The core's sums of what its workers have counted. Workers are known by any object."""

    def __init__(self, metrics: CountedMetrics, throttle: Throttle, clients: ClientTable) -> None:
        self._throttle = throttle
        self._clients = clients
        self._events: Mapping[str, Callable[[pb.CountedEvent], None]] = _events_of(metrics)
        self._purgatory: dict[object, int] = {}

    @property
    def purgatory_size(self) -> int:
        """Remote reads of all workers that are not complete."""
        return sum(self._purgatory.values())

    def take(self, worker: object, counts: pb.Counts) -> pb.ClientWaits:
        """Add what a worker has counted; how long its clients have to wait now."""
        self._purgatory[worker] = counts.purgatory_size
        for event in counts.events:
            counted = self._events.get(event.name)
            if counted is not None:  # else only a later version knows it
                counted(event)
        self._clients.merge(worker, map(client_of, counts.clients))
        self._throttle.passed(counts.passed_bytes)
        for kind, duration_ms in counts.held_ms.items():
            self._throttle.held(kind, duration_ms)
        for one in counts.spliced:
            if one.principal:
                self._throttle.principal_took(one.principal, one.size_bytes)
            else:
                self._throttle.spliced(one.client_id, one.size_bytes)
        return pb.ClientWaits(waits=[self._wait(one) for one in counts.spliced])

    def left(self, worker: object) -> None:
        """The worker is gone."""
        self._purgatory.pop(worker, None)
        self._clients.left(worker)

    def _wait(self, given: pb.ClientBytes) -> pb.ClientWait:
        if given.principal:
            wait_ms = self._throttle.principal_wait_ms(given.principal)
            return pb.ClientWait(principal=given.principal, duration_ms=wait_ms, kind="principal")
        wait = self._throttle.wait(given.client_id)
        return pb.ClientWait(
            client_id=given.client_id, duration_ms=wait.duration_ms, kind=wait.kind
        )


def _events_of(metrics: CountedMetrics) -> Mapping[str, Callable[[pb.CountedEvent], None]]:
    return {
        "connection_opened": lambda one: metrics.connections_opened(one.count),
        "connection_closed": lambda one: metrics.connections_closed(one.labels[0], one.count),
        "answered": lambda one: metrics.answers(one.labels[0], one.labels[1], one.count),
        "spliced": lambda one: metrics.spliced(one.count),
        "barrier_waited": lambda one: metrics.barrier_waited(
            one.duration_ms, passed=one.labels[0] == "passed"
        ),
        "remote_fetch_completed": lambda one: metrics.remote_fetch_completed(
            one.labels[0], one.duration_ms
        ),
    }

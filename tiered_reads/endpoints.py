"""Which service a request goes to: discovery, order of preference, and the retry policy.

All services of a cluster are discovered from any one address. Requests for the remote tier alone go
to readers (services without a broker) first, spread by partition so that each partition's chunks
are cached by one reader. Requests that need the broker go to the leader's service if it is known.
An address that failed comes last for a while.

Only retriable kinds of failure are retried. After an unreachable service the next one is called at
once. A busy service is retried before others are loaded too. A leader that a service names is
called next. When every service has failed, the wait grows. After `patience_ms` without progress the
last failure is raised. Time is an argument. This module must not know what is requested.
"""

import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kip405.errors import ErrorKind
from tiered_reads import clock
from tiered_reads.errors import ServiceError
from tiered_reads.service_calls import Failure
from tiered_reads.values import TopicPartition

KNOWN_FOR_MS = 60_000
"""How long a description counts: a new reader is used within a minute."""
AVOIDED_FOR_MS = 30_000
_WITHOUT_HEARTBEAT_MS = 60_000
"""A service without a heartbeat for so long comes last: six heartbeats were missed."""
READER = "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One service as the cluster's heartbeats describe it."""

    address: str
    is_reader: bool
    heartbeat_age_ms: int = 0


class Endpoints:
    """The services behind some given addresses; thread-safe."""

    def __init__(
        self, given: Iterable[str], monotonic_ms: Callable[[], int] = clock.monotonic_ms
    ) -> None:
        self._given = tuple(dict.fromkeys(given))
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._described: tuple[Endpoint, ...] = ()
        self._described_at_ms: int | None = None
        self._avoided_until_ms: dict[str, int] = {}
        self._leaders: dict[TopicPartition, str] = {}

    @property
    def is_due(self) -> bool:
        """Whether the last description is too old."""
        at = self._described_at_ms
        return at is None or self._monotonic_ms() - at >= KNOWN_FOR_MS

    def described(self, endpoints: Iterable[Endpoint]) -> None:
        """Take a service's description; an empty one means that the given services are all."""
        with self._lock:
            self._described = tuple(endpoints)
            self._described_at_ms = self._monotonic_ms()

    def for_description(self) -> tuple[str, ...]:
        """Services to ask for a description, best first."""
        described = [endpoint.address for endpoint in self._described]
        return self._avoided_last([*self._given, *described])

    def for_remote(self, topic_partition: TopicPartition) -> tuple[str, ...]:
        """Services that can answer from the remote tier alone, best first."""
        readers = [endpoint.address for endpoint in self._alive() if endpoint.is_reader]
        return self._avoided_last(
            [*_spread(readers, topic_partition), *self._brokers(topic_partition), *self._all()]
        )

    def for_leader(self, topic_partition: TopicPartition) -> tuple[str, ...]:
        """Services that may lead the partition or know its leader, best first; no readers."""
        leader = self._leaders.get(topic_partition)
        first = [leader] if leader else []
        readers = {endpoint.address for endpoint in self._described if endpoint.is_reader}
        found = [address for address in self._all() if address not in readers]
        return self._avoided_last(
            [*first, *self._brokers(topic_partition), *(found or self._all())]
        )

    def leads(self, topic_partition: TopicPartition, address: str) -> None:
        """Remember the service that answered for a partition or was named as its leader."""
        self._leaders[topic_partition] = address

    def failed(self, address: str) -> None:
        """The service was unreachable or stalled: it comes last for a while."""
        with self._lock:
            self._avoided_until_ms[address] = self._monotonic_ms() + AVOIDED_FOR_MS

    def answered(self, address: str) -> None:
        """The service works again."""
        self._avoided_until_ms.pop(address, None)

    def _alive(self) -> list[Endpoint]:
        return [one for one in self._described if one.heartbeat_age_ms < _WITHOUT_HEARTBEAT_MS]

    def _brokers(self, topic_partition: TopicPartition) -> list[str]:
        brokers = [endpoint.address for endpoint in self._alive() if not endpoint.is_reader]
        return _spread(brokers, topic_partition)

    def _all(self) -> list[str]:
        return [*self._given, *(endpoint.address for endpoint in self._described)]

    def _avoided_last(self, addresses: Iterable[str]) -> tuple[str, ...]:
        now = self._monotonic_ms()
        with self._lock:
            avoided = {one for one, until in self._avoided_until_ms.items() if until > now}
        unique = dict.fromkeys(addresses)
        return tuple(sorted(unique, key=avoided.__contains__))


def _spread(addresses: list[str], topic_partition: TopicPartition) -> list[str]:
    """The addresses rotated by the partition, in the same order in every process."""
    ordered = sorted(addresses)
    if not ordered:
        return []
    first = zlib.crc32(str(topic_partition).encode()) % len(ordered)
    return ordered[first:] + ordered[:first]


_RETRIED = (ErrorKind.UNAVAILABLE, ErrorKind.BUSY, ErrorKind.FENCED)
_BUSY_BEFORE_NEXT = 3
"""Full queues of a reader are its own; asking brokers at once would move its load to them."""


class RetryPolicy:
    """The attempts of one call or stream. `candidates` is evaluated again for every attempt."""

    def __init__(
        self,
        endpoints: Endpoints,
        candidates: Callable[[], tuple[str, ...]],
        *,
        patience_ms: int,
        monotonic_ms: Callable[[], int] = clock.monotonic_ms,
        backoff_ms: Callable[[int], float] = clock.backoff_ms,
    ) -> None:
        self._endpoints = endpoints
        self._candidates = candidates
        self._patience_ms = patience_ms
        self._monotonic_ms = monotonic_ms
        self._backoff_ms = backoff_ms
        self._asked: set[str] = set()
        self._hint = ""
        self._failed_passes = 0
        self._busy = 0
        self._progress_at_ms = monotonic_ms()

    def address(self) -> str:
        """The service to call now."""
        if self._hint:
            return self._hint
        candidates = self._candidates()
        return next((one for one in candidates if one not in self._asked), candidates[0])

    def progressed(self, address: str) -> None:
        """The service answered: all counts start again."""
        self._endpoints.answered(address)
        self._asked.clear()
        self._hint = ""
        self._failed_passes = 0
        self._busy = 0
        self._progress_at_ms = self._monotonic_ms()

    def failed(self, address: str, failure: Failure) -> float:
        """How many ms to wait before the next attempt. ServiceError if there is none."""
        if failure.kind not in _RETRIED:
            raise _error(failure)
        if failure.kind is ErrorKind.UNAVAILABLE:
            self._endpoints.failed(address)
        wait_ms = self._wait_ms(address, failure)
        idle_ms = self._monotonic_ms() - self._progress_at_ms
        if idle_ms + wait_ms > self._patience_ms:
            raise _error(failure, f"; gave up after {idle_ms} ms")
        return wait_ms

    def _wait_ms(self, address: str, failure: Failure) -> float:
        if failure.kind is ErrorKind.BUSY:
            self._busy += 1
            if self._busy % _BUSY_BEFORE_NEXT:
                return self._backoff_ms(self._busy - 1)
        self._asked.add(address)
        self._hint = ""
        return self._next_wait_ms(failure.leader_address)

    def _next_wait_ms(self, leader_address: str) -> float:
        if leader_address and leader_address not in self._asked:
            self._hint = leader_address
            return 0
        if any(one not in self._asked for one in self._candidates()):
            return 0
        self._asked.clear()
        self._hint = leader_address
        self._failed_passes += 1
        return self._backoff_ms(self._failed_passes - 1)


def _error(failure: Failure, more: str = "") -> ServiceError:
    return ServiceError(failure.kind.name, failure.what + more)

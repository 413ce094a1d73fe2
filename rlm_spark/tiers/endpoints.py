"""Discovers all services of a cluster from any one address, and orders them for a request.

Requests for the remote tier alone go to readers (services without a broker) first, spread by
partition so that each partition's chunks are cached in one place. Requests that need the broker go
to the leader's service if it is known. An address that failed comes last for a while. This module
must not know gRPC.
"""

import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rlm_spark import clock
from rlm_spark.values import TopicPartition

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
        """Whether a description is wanted."""
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

    def for_remote(self, place: TopicPartition) -> tuple[str, ...]:
        """Services that can answer from the remote tier alone, best first."""
        readers = [endpoint.address for endpoint in self._alive() if endpoint.is_reader]
        return self._avoided_last([*_spread(readers, place), *self._brokers(place), *self._all()])

    def for_leader(self, place: TopicPartition) -> tuple[str, ...]:
        """Services that may lead the partition or know its leader, best first; no readers."""
        leader = self._leaders.get(place)
        first = [leader] if leader else []
        readers = {endpoint.address for endpoint in self._described if endpoint.is_reader}
        found = [address for address in self._all() if address not in readers]
        return self._avoided_last([*first, *self._brokers(place), *(found or self._all())])

    def leads(self, place: TopicPartition, address: str) -> None:
        """Remember the service that answered for a partition or was named as its leader."""
        self._leaders[place] = address

    def failed(self, address: str) -> None:
        """The service was unreachable or stalled: it comes last for a while."""
        with self._lock:
            self._avoided_until_ms[address] = self._monotonic_ms() + AVOIDED_FOR_MS

    def answered(self, address: str) -> None:
        """It works again."""
        self._avoided_until_ms.pop(address, None)

    def _alive(self) -> list[Endpoint]:
        return [one for one in self._described if one.heartbeat_age_ms < _WITHOUT_HEARTBEAT_MS]

    def _brokers(self, place: TopicPartition) -> list[str]:
        brokers = [endpoint.address for endpoint in self._alive() if not endpoint.is_reader]
        return _spread(brokers, place)

    def _all(self) -> list[str]:
        return [*self._given, *(endpoint.address for endpoint in self._described)]

    def _avoided_last(self, addresses: Iterable[str]) -> tuple[str, ...]:
        now = self._monotonic_ms()
        with self._lock:
            avoided = {one for one, until in self._avoided_until_ms.items() if until > now}
        unique = dict.fromkeys(addresses)
        return tuple(sorted(unique, key=avoided.__contains__))


def _spread(addresses: list[str], place: TopicPartition) -> list[str]:
    """Rotated by the partition: the same order in every process."""
    ordered = sorted(addresses)
    if not ordered:
        return []
    first = zlib.crc32(str(place).encode()) % len(ordered)
    return ordered[first:] + ordered[:first]

"""Lists the services of the cluster that answer the API, by their heartbeats.

A client that knows one service finds all. This service itself is always in the list. This module
must not know gRPC and sends no request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from rlm.clock import Clock
from rlmm.settings_view import SettingsView

BROKER = "broker"
READER = "reader"
NO_NODE = -1
_ALIVE_BEATS = 3
_REMEMBERED_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One service. `node_id` is -1 for a reader; the heartbeat's age is None if unknown."""

    grpc_address: str
    role: str
    node_id: int
    version: str
    heartbeat_age_ms: int | None = 0


class _Settings(Protocol):
    @property
    def view(self) -> SettingsView: ...


class Endpoints:
    """Reads the settings view; `own` is this service's own endpoint."""

    def __init__(
        self, *, own: Endpoint, settings: _Settings, clock: Clock, heartbeat_interval_ms: int
    ) -> None:
        self._own = own
        self._settings = settings
        self._clock = clock
        self.alive_ms = _ALIVE_BEATS * heartbeat_interval_ms

    def all(self) -> tuple[Endpoint, ...]:
        """Every service that ever published a heartbeat, brokers' first, by address."""
        view, now_ms = self._settings.view, self._clock.monotonic_ms()
        found = [self._own]
        for service, _ in view.services():
            found.append(
                Endpoint(
                    grpc_address=_grpc(service.advertised, service.listen),
                    role=BROKER,
                    node_id=service.node_id,
                    version=service.version,
                    heartbeat_age_ms=view.least_age_ms(service.key, now_ms),
                )
            )
        for reader, _ in view.readers():
            found.append(
                Endpoint(
                    grpc_address=reader.grpc_address,
                    role=READER,
                    node_id=NO_NODE,
                    version=reader.version,
                    heartbeat_age_ms=view.least_age_ms(reader.key, now_ms),
                )
            )
        once = {
            one.grpc_address: one for one in found[1:] if one.grpc_address and not self._is_own(one)
        }
        rows = [*once.values(), self._own]
        return tuple(sorted(rows, key=lambda one: (one.role, one.node_id, one.grpc_address)))

    def alive(self) -> tuple[Endpoint, ...]:
        """The services whose last heartbeat is younger than three intervals."""
        return tuple(one for one in self.all() if self.is_alive(one))

    def readers(self) -> tuple[Endpoint, ...]:
        """Readers with a heartbeat within the last day: older ones have moved or were removed."""
        return tuple(
            one for one in self.all() if one.role == READER and _is_younger(one, _REMEMBERED_MS)
        )

    def is_alive(self, endpoint: Endpoint) -> bool:
        """Whether the last heartbeat is younger than three intervals."""
        return _is_younger(endpoint, self.alive_ms)

    def _is_own(self, other: Endpoint) -> bool:
        if self._own.role == BROKER:
            return other.role == BROKER and other.node_id == self._own.node_id
        return replace(other, heartbeat_age_ms=0, version="") == replace(self._own, version="")


def _is_younger(endpoint: Endpoint, age_ms: int) -> bool:
    return endpoint.heartbeat_age_ms is not None and endpoint.heartbeat_age_ms < age_ms


def _grpc(advertised: Mapping[str, str], listen: Mapping[str, str]) -> str:
    return advertised.get("grpc") or listen.get("grpc") or ""

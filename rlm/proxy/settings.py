"""Settings and counters of the proxy, as values and as a narrow Protocol.

The composition root provides both; the proxy knows neither the settings file nor Prometheus.
"""

from dataclasses import dataclass, field
from typing import Protocol

from rlm.plans.client_history import HistoryRules

_CUT_OFF_MS = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """Where the proxy listens, where the listener behind it is, and a limit on everything (G10).

    `listen_port` 0 means any free port. `barrier_wait_ms` bounds how long requests wait for the
    ledger view (H17); a Fetch with a longer max_wait waits for that. `memory_max_bytes` bounds what
    all connections hold together. The timeouts in ms end a client that does not complete its TLS
    handshake, that sends no first request, that does not complete a request, or that is idle (H36).
    A client in the middle of a request has to send `stalled_request_min_bytes` within
    `stalled_request_timeout_ms`. `history`: how much of the past each client is shown.
    `sasl_oauthbearer_sub_claim_name`: the claim of a token that is its owner's principal to the
    broker.
    """

    listen_host: str
    listen_port: int
    upstream_host: str
    upstream_port: int
    max_frame_bytes: int = 104_857_600
    max_connections: int = 10_000
    max_connections_per_address: int = 10_000
    max_connections_per_principal: int = 10_000
    memory_max_bytes: int = 536_870_912
    unauthenticated_frame_max_bytes: int = 524_288
    read_request_max_bytes: int = 2_097_152
    first_request_timeout_ms: int = 30_000
    stalled_request_timeout_ms: int = 60_000
    max_idle_ms: int = 600_000
    handshake_timeout_ms: int = 10_000
    stalled_request_min_bytes: int = 1_024
    connect_timeout_ms: int = 5_000
    shutdown_timeout_ms: int = 5_000
    barrier_wait_ms: int = 5_000
    history: HistoryRules = field(default_factory=HistoryRules)
    sasl_oauthbearer_sub_claim_name: str = "sub"

    @property
    def answers_end_within_ms(self) -> int:
        """At the end: closing the connections that are left takes some of the time, too."""
        return self.shutdown_timeout_ms - min(_CUT_OFF_MS, self.shutdown_timeout_ms // 10)


class ProxyMetrics(Protocol):
    """What the proxy counts. Calls are cheap and never fail."""

    def connection_opened(self) -> None:
        """A client connected and was accepted."""
        ...

    def connection_closed(self, cause: str) -> None:
        """A connection ended; `cause` is one of few snake_case words."""
        ...

    def answered(self, api: str, outcome: str) -> None:
        """One answer (per partition where it has any) of an API the proxy reads."""
        ...

    def spliced(self, size_bytes: int) -> None:
        """Record bytes of the remote tier given to a client."""
        ...

    def barrier_waited(self, duration_ms: int, *, passed: bool) -> None:
        """One wait for the settings and ledger view (H17)."""
        ...

    def remote_fetch_completed(self, outcome: str, duration_ms: int) -> None:
        """One remote fetch left the purgatory; `outcome` is one of few words."""
        ...

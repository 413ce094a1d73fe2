"""Metrics and a quota that count nothing, and metrics that can be looked at."""

from dataclasses import dataclass, field

from rlm.proxy.reads import ConnectionQuota


class NoMetrics:
    """Counts nothing."""

    def connection_opened(self) -> None:
        """See `ProxyMetrics`."""

    def connection_closed(self, cause: str) -> None:
        """See `ProxyMetrics`."""

    def answered(self, api: str, outcome: str) -> None:
        """See `ProxyMetrics`."""

    def spliced(self, size_bytes: int) -> None:
        """See `ProxyMetrics`."""

    def barrier_waited(self, duration_ms: int, *, passed: bool) -> None:
        """See `ProxyMetrics`."""

    def remote_fetch_completed(self, outcome: str, duration_ms: int) -> None:
        """See `ProxyMetrics`."""


class NoQuota:
    """Counts nothing and delays no client."""

    def connection(self) -> ConnectionQuota:
        """See `FetchQuota`."""
        return self

    def moved(self, size_bytes: int) -> None:
        """See `FetchQuota`."""

    def known_as(self, principal: str) -> None:
        """See `ConnectionQuota`."""

    def wait_ms(self, client_id: str) -> int:
        """See `ConnectionQuota`."""
        return 0

    def spliced(self, client_id: str, size_bytes: int) -> None:
        """See `ConnectionQuota`."""

    def passed(self, size_bytes: int) -> None:
        """See `ConnectionQuota`."""

    def held(self, duration_ms: int) -> None:
        """See `ConnectionQuota`."""


@dataclass
class Counting(NoMetrics):
    """Metrics that can be looked at."""

    opened: int = 0
    causes: list[str] = field(default_factory=list)
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    spliced_bytes: int = 0
    completions: list[str] = field(default_factory=list)

    def remote_fetch_completed(self, outcome: str, duration_ms: int) -> None:
        self.completions.append(outcome)

    def connection_closed(self, cause: str) -> None:
        self.causes.append(cause)

    def answered(self, api: str, outcome: str) -> None:
        self.outcomes.append((api, outcome))

    def connections_opened(self, count: int) -> None:
        """See rlm.workers.counts.CountedMetrics."""
        self.opened += count

    def connections_closed(self, cause: str, count: int) -> None:
        """See CountedMetrics."""
        self.causes += [cause] * count

    def answers(self, api: str, outcome: str, count: int) -> None:
        """See CountedMetrics."""
        self.outcomes += [(api, outcome)] * count

    def spliced(self, size_bytes: int) -> None:
        self.spliced_bytes += size_bytes

"""Applies the remote read quota to a Fetch: delays reads within max_wait, throttles clients (H23).

Spliced bytes bypass the broker's own quotas. A partition whose read is delayed is answered empty
and error-free with the real watermarks, as Kafka's remote fetch quota does (KIP-956). A client that
reads only such partitions also gets a `throttle_time_ms`. A Fetch that also asks for records of the
broker gets none, because the client would pause those too. This module must not know how quotas are
counted.
"""

from typing import Protocol

from rlm.clock import Clock

_LONGEST_THROTTLE_MS = 1_000  # in one answer; the connection's other requests wait too


class ConnectionQuota(Protocol):
    """The quota of one connection. Calls are cheap and never fail."""

    def wait_ms(self, client_id: str) -> int:
        """How long before the next remote read of the client; 0 = now."""
        ...

    def spliced(self, client_id: str, size_bytes: int) -> None:
        """Record bytes of the remote tier in an answer."""
        ...

    def passed(self, size_bytes: int) -> None:
        """Record bytes of the broker in an answer."""
        ...

    def held(self, duration_ms: int) -> None:
        """Reads that had to wait were put off for so long."""
        ...


class FetchQuota(Protocol):
    """The quota of all connections."""

    def moved(self, size_bytes: int) -> None:
        """So many bytes came from a client or from the broker."""
        ...

    def connection(self) -> ConnectionQuota:
        """Of a new connection."""
        ...


class NoQuota:
    """Counts nothing and delays nobody."""

    def connection(self) -> ConnectionQuota:
        """See `FetchQuota`."""
        return self

    def moved(self, size_bytes: int) -> None:
        """See `FetchQuota`."""

    def wait_ms(self, client_id: str) -> int:
        """See `ConnectionQuota`."""
        return 0

    def spliced(self, client_id: str, size_bytes: int) -> None:
        """See `ConnectionQuota`."""

    def passed(self, size_bytes: int) -> None:
        """See `ConnectionQuota`."""

    def held(self, duration_ms: int) -> None:
        """See `ConnectionQuota`."""


class Permit:
    """The quota for one Fetch of a client."""

    def __init__(self, quota: ConnectionQuota, client_id: str, clock: Clock) -> None:
        self._quota = quota
        self._client_id = client_id
        self._clock = clock
        self._held_since_ms: int | None = None

    def may_read(self) -> bool:
        """Whether a remote read may begin now."""
        if self._quota.wait_ms(self._client_id):
            if self._held_since_ms is None:
                self._held_since_ms = self._clock.monotonic_ms()
            return False
        self.end()
        return True

    def gave(self, spliced_bytes: int, broker_bytes: int) -> None:
        """What an answer holds of either tier."""
        self._quota.spliced(self._client_id, spliced_bytes)
        self._quota.passed(broker_bytes)

    def throttle_time_ms(self) -> int:
        """The throttle time for a client whose reads were delayed."""
        told_ms = min(self._quota.wait_ms(self._client_id), _LONGEST_THROTTLE_MS)
        if told_ms:
            self._quota.held(told_ms)
        return told_ms

    def end(self) -> None:
        """Whatever was put off is not any more."""
        if self._held_since_ms is not None:
            held_ms = self._clock.monotonic_ms() - self._held_since_ms
            self._quota.held(held_ms)
            self._held_since_ms = None

"""Decides which service to call after a failed call, how long to wait first, and when to give up.

Pure except for the clock, which is an argument. Only retriable kinds of failure are retried. After
an unreachable service the next one is called at once. A busy service is retried before others are
loaded too. A leader that a service names is called next. When every service has failed, the wait
grows. After `patience_ms` without progress the last failure is raised.
"""

from collections.abc import Callable

from kip405.errors import ErrorKind
from rlm_spark import clock
from rlm_spark.errors import ServiceError
from rlm_spark.tiers.call_errors import Failure
from rlm_spark.tiers.endpoints import Endpoints

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
        self._rounds = 0
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
        self._rounds = 0
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
        self._rounds += 1
        return self._backoff_ms(self._rounds - 1)


def _error(failure: Failure, more: str = "") -> ServiceError:
    return ServiceError(failure.kind.name, failure.what + more)

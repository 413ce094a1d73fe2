"""Quotas of reads, for tests that are not about them."""

from rlm.clock import Clock
from rlm.reading.throttle import ReadThrottle, ThrottleLimits

NO_LIMITS = ThrottleLimits(
    service_bytes_per_second=1 << 40, client_bytes_per_second=1 << 40, cores=1_000
)


def throttle(clock: Clock, limits: ThrottleLimits = NO_LIMITS) -> ReadThrottle:
    """Quotas of a process that takes no time."""
    return ReadThrottle(limits, clock, lambda: 0.0)

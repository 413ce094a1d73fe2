"""How much longer work takes on a machine that has other work, for tests that limit a time."""

import os


def busy_factor() -> float:
    """How many processes there have been lately for each core; 1 where cores were free."""
    return max(1.0, max(os.getloadavg()[:2]) / (os.cpu_count() or 1))

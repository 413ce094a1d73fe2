"""How many clients of librdkafka this process has open."""

import contextlib
import time
from pathlib import Path


def open_clients() -> int:
    """How many clients of librdkafka this process has open: each has one thread of this name, and
    an admin client is one too. None are seen where there is no /proc.
    """
    found = 0
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            found += path.read_text().strip() == "rdk:main"
    return found


def clients_come_to(count: int, timeout_s: float = 5) -> bool:
    """Whether that many are open soon; a client's thread starts and ends a moment after it."""
    deadline = time.monotonic() + timeout_s
    while open_clients() != count:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True  # seen once: a thread that begins has its parent's name for a moment

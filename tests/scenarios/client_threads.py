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


def clients_come_to(count: int, timeout_s: float = 60) -> bool:
    """Whether no more than that are open soon; a client's thread ends a moment after it, and those
    that it starts have its name for a moment.
    """
    deadline = time.monotonic() + timeout_s
    while open_clients() > count:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True

"""What every process of this software has: a version, and settings of its memory.

`--version`, GetInfo, heartbeats and objects show the version. The malloc settings keep glibc from
returning freed memory to the system after every message. Each read allocates and frees chunks,
messages and batches of megabytes. By default glibc maps each block of that size, faults it in page
by page and unmaps it, and returns the top of an arena as soon as it is free: that costs more than
reading the data. Only glibc has these settings; on other systems nothing is done.

Python's collector of reference cycles has a setting too. It begins after 700 more objects were made
than freed. Snapshots of many partitions at a time make tens of thousands that are freed a moment
later, and those that it meets alive count as old objects, all of which it then visits: an idle
service of 1,000 partitions spent a tenth of its processor time so. What has no cycles is freed at
once in any case. A program that has not begun to collect when it imports spends a quarter less
processor time on its start: modules stay, and each new collection would visit them again. This
module must not know what the memory is for.
"""

import ctypes
import gc
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

KEPT_BY_A_SERVICE_BYTES = 256 << 20
"""A process of its own, whose read path may hold more than this at once."""
KEPT_BY_A_TASK_BYTES = 64 << 20
"""A worker of Spark is one of many on a host, and the limit holds for each arena of it."""
LEDGER_BYTES_OF_SEGMENT = 300
"""Memory of each service for a remote segment, rounded up: docs/design/figures.md, "The ledger of a
million segments"."""
CYCLES_AFTER_OBJECTS = 10_000
"""More than a group of 100 snapshots has at a time; at most some megabytes of cycles wait."""
# malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_BLOCK_BYTES = 32 << 20  # the maximum that glibc accepts on 64 bits


@cache
def software_version() -> str:
    """Version of the installed distribution; `0+unknown` when run from a bare tree."""
    for distribution in ("kafka-rlm", "kafka-rlm-spark"):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return "0+unknown"


def software_name() -> str:
    """What manifests record: `kafka-rlm <version>`."""
    return f"kafka-rlm {software_version()}"


def keep_freed_memory(kept_bytes: int, library: str | None = None) -> bool:
    """Let malloc reuse blocks up to 32 MiB and keep up to `kept_bytes` at the top of each arena.

    False without glibc, or where it refuses (`library`: another C library, for tests).
    """
    try:
        mallopt = ctypes.CDLL(library).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    is_reusing = mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK_BYTES)
    return bool(is_reusing and mallopt(_M_TRIM_THRESHOLD, kept_bytes))


def collect_cycles_from_now() -> None:
    """Where a program has disabled the collection of reference cycles while it imports, begin it,
    and never collect among the objects that are there now. Elsewhere nothing is done.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def collect_cycles_less_often() -> None:
    """Have Python collect reference cycles after `CYCLES_AFTER_OBJECTS` new objects, and never
    among those that are there now: the modules of the process, which stay.
    """
    gc.freeze()
    gc.set_threshold(CYCLES_AFTER_OBJECTS, *gc.get_threshold()[1:])
    gc.enable()

"""What every process of this software has: a version, and malloc settings for large messages.

`--version`, GetInfo, heartbeats and objects show the version. The malloc settings keep glibc from
returning freed memory to the system after every message. Each read allocates and frees chunks,
messages and batches of megabytes. By default glibc maps each block of that size, faults it in page
by page and unmaps it, and returns the top of an arena as soon as it is free: that costs more than
reading the data. Only glibc has these settings; on other systems nothing is done. This module must
not know what the memory is for.
"""

import ctypes
from functools import cache
from importlib.metadata import PackageNotFoundError, version

KEPT_BY_A_SERVICE_BYTES = 256 << 20
"""A process of its own, whose read path may hold more than this at once."""
KEPT_BY_A_TASK_BYTES = 64 << 20
"""A worker of Spark is one of many on a host, and the limit holds for each arena of it."""
# malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_BLOCK_BYTES = 32 << 20  # the maximum that glibc accepts on 64 bits


@cache
@cache
def software_version() -> str:
    """Version of the installed distribution; `0+unknown` when run from a bare tree."""
    try:
        return version("kafka-rlm")
    except PackageNotFoundError:
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

"""Keeps glibc from giving large blocks back to the system after every read.

Chunks of a megabyte come and go with each fetch; by default each is mapped, faulted in page by page
and unmapped, which costs more than reading it. Only glibc has the means; elsewhere nothing is done.
"""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BLOCK_BYTES = 32 << 20  # the most that glibc accepts on 64 bits
_KEPT_TOP_BYTES = 256 << 20


def keep_large_blocks(library: str | None = None) -> bool:
    """Tell malloc to reuse blocks up to 32 MiB; False without glibc (`library`: tests)."""
    try:
        mallopt = ctypes.CDLL(library).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    kept = mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
    return bool(kept and mallopt(_M_TRIM_THRESHOLD, _KEPT_TOP_BYTES))

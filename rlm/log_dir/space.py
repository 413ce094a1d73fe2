"""How much space a log directory has: that of its file system, or of a quota. Thin IO; it blocks.

With a quota (disk.quota.bytes) the directory counts as a disk of that size, and what its files take
is summed up: log.dirs may share a file system with others, or have a project quota that the file
system does not show.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_BLOCK_BYTES = 512  # of st_blocks, by POSIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Size of a disk, and what is free of it."""

    size_bytes: int
    free_bytes: int


def space_of(directory: Path, quota_bytes: int) -> Space:
    """`quota_bytes` 0 = none. OSError: it cannot be read."""
    disk = shutil.disk_usage(directory)
    if not quota_bytes:
        return Space(size_bytes=disk.total, free_bytes=disk.free)
    left_bytes = max(0, quota_bytes - _used_bytes(str(directory)))
    return Space(size_bytes=min(disk.total, quota_bytes), free_bytes=min(disk.free, left_bytes))


def _used_bytes(directory: str) -> int:
    """Allocated, not declared: the index of an active segment is a sparse file of 10 MiB."""
    used = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    used += _used_bytes(entry.path)
                else:
                    used += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
            except FileNotFoundError:
                continue  # the broker deleted it meanwhile
    return used

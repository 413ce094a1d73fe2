"""What of the machine this process may use: memory, by the least limit of its cgroups or the
machine's own, and processors.

Version 2 of cgroups is read from the process's own group up to the root, version 1 where its
controller for memory is mounted. In a container the group is the root of what it sees. Elsewhere
than on Linux there are no cgroups. What cannot be read is no limit.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = "proc/self/cgroup"
_MOUNT = "sys/fs/cgroup"
_MOST_WORKERS = 4
"""Of those that are counted by processors: the broker needs them, too."""


def usable_memory_bytes(root: Path = Path("/")) -> int:
    """`root`: where /proc and /sys are."""
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min((machine_bytes, *_limits(root)))


def usable_processors() -> int:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_count(wanted: int | str, processors: int) -> int:
    """How many proxy workers a service has. `wanted`: proxy.workers, a number or auto."""
    return wanted if isinstance(wanted, int) else max(1, min(processors // 2, _MOST_WORKERS))


def _limits(root: Path) -> Iterator[int]:
    for line in _text(root / _GROUPS).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            mount, file = root / _MOUNT, "memory.max"
        elif "memory" in controllers.split(","):
            mount, file = root / _MOUNT / "memory", "memory.limit_in_bytes"
        else:
            continue
        below = Path(group.lstrip("/"))
        for folder in (below, *below.parents):
            text = _text(mount / folder / file).strip()
            if text.isdecimal():
                yield int(text)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""

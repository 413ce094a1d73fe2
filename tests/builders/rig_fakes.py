"""What the tasks of a rig ask beside broker, ledger and store: share groups, the retention of other
brokers, a log directory that changes after a scan, and the page cache.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kip405.errors import RemoteStorageError
from rlm.log_dir.scanner import LogDirs, PartitionLog
from rsm_plugins.files.page_cache import PageCache


class ShareGroupsAt:
    """`lowest` None = there is no share group; `begun` = a later one."""

    def __init__(self) -> None:
        self.lowest: int | None = None
        self.begun: int | None = None

    async def start_offset(self, topic: str, partition: int) -> int | None:
        return self.lowest

    async def starts_now(self, topic: str) -> Mapping[int, int]:
        found = self.lowest if self.begun is None else self.begun
        return {} if found is None else {0: found}


class RetentionAt:
    """What all brokers say of their own retention: None = it is off. An error set = no answer."""

    def __init__(self) -> None:
        self.answer: str | None = None
        self.error: RemoteStorageError | None = None
        self.after_answer: Callable[[], None] = lambda: None
        self.asked = 0

    async def bounded(self, topic: str) -> str | None:
        self.asked, found = self.asked + 1, self.answer
        if self.error is not None:
            raise self.error
        self.after_answer()
        return found


class WatchedLogDirs:
    """`after_scan` is called once the disk was read: what changes then, the scan does not know."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._log_dirs = LogDirs(paths)
        self.after_scan: Callable[[], None] = lambda: None

    def scan(self, topic: str, partition: int) -> PartitionLog:
        found = self._log_dirs.scan(topic, partition)
        self.after_scan()
        return found


class MemoryPageCache(PageCache):
    """Holds the files whose base offset is in `cached`; None = all. `dropped`: base offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.cached: set[int] | None = None
        self.dropped: list[int] = []

    def holds(self, path: str) -> bool:
        return self.cached is None or int(Path(path).stem) in self.cached

    def drop(self, path: str) -> None:
        self.dropped.append(int(Path(path).stem))

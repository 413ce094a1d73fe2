"""Measures the free space of the broker's log directories (H18).

Only the file systems are asked. What a full disk would be filled with is reported by others.
"""

from collections.abc import Sequence
from pathlib import Path

from rlm.clock import Clock
from rlm.log_dir.space import Space, space_of
from rlm.plans.disk import (
    LogDirReport,
    SpaceSample,
    full_in_ms,
    growth_bytes_per_second,
    under_pressure,
    with_sample,
)
from rsm_plugins.threads import Threads


class DiskWatch:
    """`quota_bytes` is disk.quota.bytes, `floor_bytes` disk.min.free.bytes (0 = no floor)."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        quota_bytes: int,
        floor_bytes: int,
        threads: Threads,
        clock: Clock,
    ) -> None:
        self.floor_bytes = floor_bytes
        self._quota_bytes = quota_bytes
        self._threads = threads
        self._clock = clock
        self._dirs = {str(path): _LogDir(path) for path in log_dirs}

    async def measure(self) -> None:
        """All of them once. A directory that cannot be read is remembered as unknown."""
        for one in self._dirs.values():
            try:
                found = await self._threads.run(space_of, one.path, self._quota_bytes)
            except OSError as error:
                one.unread(str(error))
            else:
                one.read(found, self._clock.monotonic_ms(), self.floor_bytes)

    def has_space(self, directory: str) -> bool:
        """Whether the log directory of this partition directory is known not to be nearly full, by
        the last time that it could be read: what is held open there may be the only copy (H14).
        """
        one = self._dirs.get(str(Path(directory).parent))
        return one is not None and one.has_space

    def reports(self) -> tuple[LogDirReport, ...]:
        """As last measured, without bytes of partitions; nothing before the first measurement."""
        return tuple(one.report(path) for path, one in self._dirs.items() if one.is_measured)


class _LogDir:
    """One directory and its samples; after a failure it has no free space that is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_measured = False
        self._samples: tuple[SpaceSample, ...] = ()
        self._space: Space | None = None
        self._error = ""
        self._under_pressure = False

    @property
    def has_space(self) -> bool:
        return bool(self._samples) and not self._under_pressure

    def read(self, space: Space, now_ms: int, floor_bytes: int) -> None:
        sample = SpaceSample(at_ms=now_ms, free_bytes=space.free_bytes)
        self._samples = with_sample(self._samples, sample)
        self._space, self._error, self.is_measured = space, "", True
        before = self._under_pressure
        self._under_pressure = under_pressure(before, space.free_bytes, floor_bytes)

    def unread(self, error: str) -> None:
        self._space, self._error, self.is_measured = None, error, True

    def report(self, path: str) -> LogDirReport:
        space = self._space
        growth = growth_bytes_per_second(self._samples) if space is not None else None
        return LogDirReport(
            path=path,
            size_bytes=None if space is None else space.size_bytes,
            free_bytes=None if space is None else space.free_bytes,
            growth_bytes_per_second=growth,
            full_in_ms=None if space is None else full_in_ms(space.free_bytes, growth),
            under_pressure=self._under_pressure,
            error=self._error,
        )

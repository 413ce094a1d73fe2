"""Notices that partitions got a new segment, by the times of their directories: thin IO, read-only.

A roll makes files, which changes the directory's modification time. One stat of each directory is
so cheap that a thousand of them several times a second cost less than a hundredth of a core, on any
platform and file system, without a watch that a kernel may drop. A directory is listed only when
its time has changed, and once more after that: two changes within one tick of the file system's
clock have one time. This module must not know who leads a partition.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_SUFFIX = ".log"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """`newest`: name of the newest segment; `is_settled`: listed twice under `modified_ns`."""

    directory: str
    modified_ns: int
    newest: str
    is_settled: bool


class Rolls:
    """What was seen of each partition. It blocks, and serves one call at a time."""

    def __init__(self, log_dirs: Sequence[str]) -> None:
        self._log_dirs = tuple(log_dirs)
        self._seen: dict[tuple[str, int], _Seen] = {}

    def new(self, partitions: Collection[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        """Those of the partitions (topic, number) whose newest segment is another one than before.

        One that was not named in the call before is only remembered. What cannot be read is seen as
        not there: whoever scans it gets the error.
        """
        before, seen, found = self._seen, dict[tuple[str, int], _Seen](), []
        for partition in partitions:
            old = before.get(partition)
            if (
                old is not None
                and old.is_settled
                and _modified_ns(old.directory) == old.modified_ns
            ):
                seen[partition] = old  # nearly always, so nothing else is done for it
                continue
            now = self._see(partition, old)
            if now is not None:
                seen[partition] = now
                if old is not None and old.newest != now.newest:
                    found.append(partition)
        self._seen = seen
        return tuple(found)

    def _see(self, partition: tuple[str, int], old: _Seen | None) -> _Seen | None:
        directories = [old.directory] if old is not None else self._candidates(partition)
        for directory in directories:
            try:
                modified_ns = os.stat(directory).st_mtime_ns
                segments = (name for name in os.listdir(directory) if name.endswith(_SUFFIX))
                newest = max(segments, default="")
            except OSError:
                continue
            return _Seen(
                directory=directory,
                modified_ns=modified_ns,
                newest=newest,
                is_settled=old is not None and old.modified_ns == modified_ns,
            )
        return None

    def _candidates(self, partition: tuple[str, int]) -> list[str]:
        name = f"{partition[0]}-{partition[1]}"
        return [os.path.join(path, name) for path in self._log_dirs]


def _modified_ns(directory: str) -> int | None:
    try:
        return os.stat(directory).st_mtime_ns
    except OSError:
        return None

"""Notices new segments, and directories that cannot be read any more: thin IO, read-only.

A roll makes files, which changes the directory's modification time. One stat of each directory is
so cheap that a thousand of them several times a second cost less than a hundredth of a core, on any
platform and file system, without a watch that a kernel may drop. A directory is listed only when
its time has changed, and once more after that: two changes within one tick of the file system's
clock have one time. Modes and owners count as times do, so that a directory that nobody may list is
found although nothing in it has changed. This module must not know who leads a partition.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_SUFFIX = ".log"

_Stamp = tuple[int, int, int, int]
"""Modification time in ns, mode, owner and group of a directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """`newest`: name of the newest segment; `is_settled`: listed twice under `stamp`."""

    directory: str
    stamp: _Stamp
    newest: str
    is_settled: bool


class Rolls:
    """What was seen of each partition. It blocks, and serves one call at a time."""

    def __init__(self, log_dirs: Sequence[str]) -> None:
        self._log_dirs = tuple(log_dirs)
        self._seen: dict[tuple[str, int], _Seen] = {}

    def new(self, partitions: Collection[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        """Those of the partitions (topic, number) whose newest segment is another one than before,
        and those whose directory is there and cannot be read any more, once: whoever scans it gets
        the error.

        One that was not named in the call before is only remembered. What is gone is not there.
        """
        before, seen, found = self._seen, dict[tuple[str, int], _Seen](), []
        for partition in partitions:
            old = before.get(partition)
            if old is not None and old.is_settled and _stamp(old.directory) == old.stamp:
                seen[partition] = old  # nearly always, so nothing else is done for it
                continue
            now = self._see(partition, old)
            if now is not None:
                seen[partition] = now
                if old is not None and old.newest != now.newest:
                    found.append(partition)
            elif old is not None and _is_unreadable(old.directory):
                found.append(partition)
        self._seen = seen
        return tuple(found)

    def _see(self, partition: tuple[str, int], old: _Seen | None) -> _Seen | None:
        directories = [old.directory] if old is not None else self._candidates(partition)
        for directory in directories:
            try:
                stamp = _stamp_of(os.stat(directory))
                segments = (name for name in os.listdir(directory) if name.endswith(_SUFFIX))
                newest = max(segments, default="")
            except OSError:
                continue
            return _Seen(
                directory=directory,
                stamp=stamp,
                newest=newest,
                is_settled=old is not None and old.stamp == stamp,
            )
        return None

    def _candidates(self, partition: tuple[str, int]) -> list[str]:
        name = f"{partition[0]}-{partition[1]}"
        return [os.path.join(path, name) for path in self._log_dirs]


def _stamp(directory: str) -> _Stamp | None:
    try:
        return _stamp_of(os.stat(directory))
    except OSError:
        return None


def _stamp_of(found: os.stat_result) -> _Stamp:
    return found.st_mtime_ns, found.st_mode, found.st_uid, found.st_gid


def _is_unreadable(directory: str) -> bool:
    """Not of a directory that was deleted or renamed, as those of deleted topics are."""
    try:
        os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return False

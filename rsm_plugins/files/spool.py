"""Temporary files for logs that arrive as bytes, for stores that need a file; bounded in number."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from kip405.errors import Busy, Unavailable
from rsm_plugins.files.durable import error_of_os, write_at
from rsm_plugins.files.store_tree import temporary_name
from rsm_plugins.threads import FileThreads

SPOOLED_COPIES_DEFAULT = 8


class SpoolFile:
    """One file that is written in order."""

    def __init__(self, path: Path, threads: FileThreads) -> None:
        self.path = path
        self.size_bytes = 0
        self._threads = threads
        self._is_removed = False

    async def append(self, chunk: bytes) -> None:
        """Unavailable where the disk is full."""
        await self._threads.run(self._write, chunk)
        self.size_bytes += len(chunk)

    def _write(self, chunk: bytes) -> None:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if self._is_removed:  # the writer was cancelled before this thread began
                    self.path.unlink(missing_ok=True)
                    return
                write_at(descriptor, chunk, self.size_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise error_of_os(error, "write the spool file", str(self.path)) from error

    def remove(self) -> None:
        """For good, also where a write that was given up is still to come."""
        self._is_removed = True
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class Spool:
    """A folder of spool files; their names end like those of all temporary files, so that the sweep
    finds them.
    """

    def __init__(
        self,
        folder: Path,
        threads: FileThreads,
        max_files: int = SPOOLED_COPIES_DEFAULT,
        *,
        needed: Path | None = None,
    ) -> None:
        self._folder = folder
        self._threads = threads
        self._max_files = max_files
        self._needed = needed
        self._files = 0

    @asynccontextmanager
    async def file(self) -> AsyncIterator[SpoolFile]:
        """A fresh file, removed at the end.

        Busy where too many copies arrive as bytes already, Unavailable while the needed file is
        away: nothing is written into a mount point without its volume.
        """
        if self._needed is not None and not await self._threads.run(self._needed.exists):
            raise Unavailable(f"{self._needed} is not there: the store is away or not yet created")
        if self._files >= self._max_files:
            raise Busy(f"{self._files} copies arrive as bytes already; come back later")
        self._files += 1
        spooled = SpoolFile(self._folder / temporary_name("spool"), self._threads)
        try:
            yield spooled
        finally:
            self._files -= 1
            spooled.remove()

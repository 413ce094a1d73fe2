"""The scratch files of one client: bounded in number and size, made when first needed, removed at
the end; those of a crashed process are removed by the next one.

Without a free slot, or where none can be made now, bytes travel instead.
"""

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kip405.errors import RemoteStorageError
from rsm_plugins.file_threads import FileThreads
from rsm_plugins.owned_folder import OwnedFolder
from rsm_plugins.scratch_files import Slot

_MEMORY = Path("/dev/shm")  # noqa: S108 # a private folder is made below it


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchSettings:
    """Where scratch files are and how much they may take: `slots` files of `slot_bytes` each, of
    which `kept` stay for the next fetches.

    `folder` None is one of this user's in memory where there is such a file system, else below the
    folder for temporary files.
    """

    folder: Path | None = None
    slots: int = 16
    kept: int = 8
    slot_bytes: int = 16 * 1024 * 1024
    min_range_bytes: int = 256 * 1024


class ScratchSlots:
    """Slots for one plugin; `close` by the one who made them."""

    def __init__(self, settings: ScratchSettings, threads: FileThreads) -> None:
        self._settings = settings
        self._threads = threads
        self._owned: OwnedFolder | None = None
        self._free: list[Slot] = []
        self._taken = 0
        self._lock = threading.Lock()

    @asynccontextmanager
    async def slot(self, range_bytes: int) -> AsyncIterator[Slot | None]:
        """A slot of one's own for one fetch, None where bytes are to travel.

        A slot whose fetch failed or was given up is never used again: a plugin may still write to
        it. Nor is one that was not filled: it may be gone from its folder.
        """
        if range_bytes < self._settings.min_range_bytes or self._taken >= self._settings.slots:
            yield None
            return
        self._taken += 1
        slot: Slot | None = None
        try:
            if not self._free:
                await self._threads.run(self._make)
            slot = self._free.pop() if self._free else None
            if slot is not None:
                slot.was_read = False
            yield slot
            if slot is not None and slot.was_read and len(self._free) < self._settings.kept:
                self._free.append(slot)
                slot = None
        finally:
            if slot is not None:
                slot.remove()
            self._taken -= 1

    def _make(self) -> None:
        # Straight into the list: who asked for it may have gone meanwhile.
        with suppress(OSError, RemoteStorageError), self._lock:
            self._free.append(Slot(self._folder(), self._settings.slot_bytes))

    def _folder(self) -> Path:
        if self._owned is None or not self._owned.path.is_dir():
            owned = _owned_folder(self._settings.folder)
            if self._owned is not None:
                self._owned.close()
            self._owned = owned
        return self._owned.path

    def close(self) -> None:
        for slot in self._free:
            slot.remove()
        self._free.clear()
        if self._owned is not None:
            self._owned.close()
            self._owned = None


def _owned_folder(folder: Path | None) -> OwnedFolder:
    if folder is not None:
        return OwnedFolder.create(folder)
    return OwnedFolder.create_private(_MEMORY if os.access(_MEMORY, os.W_OK) else None)

"""The files that a client shares with a plugin: scratch files, and proofs of a shared volume.

Scratch files are bounded in number and size. They are created when first needed and removed at the
end; the next process removes those of a crashed one. Without a free slot, or where no file can be
created now, bytes are sent instead. What a client has proved about a shared volume is forgotten
when the plugin restarts. This module must not know what is copied or fetched.
"""

import os
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kip405.errors import RemoteStorageError
from kip405.segments import FileSlice
from rsm_plugins.contract.messages import slice_message
from rsm_plugins.files.owned_folder import OwnedFolder
from rsm_plugins.files.segment_files import Keeper, Slot, source_head
from rsm_plugins.files.shared_volume import FileHead, read_nonce
from rsm_plugins.threads import FileThreads
from rsm_plugins.v1 import identity_pb2 as idpb
from rsm_plugins.v1 import storage_pb2 as pb

_MEMORY = Path("/dev/shm")  # noqa: S108 # a private folder is made below it


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchSettings:
    """Where scratch files are and how much they may take: `slots` files of `slot_bytes` each, of
    which `kept` stay for the next fetches.

    With `folder` None it is a folder of this user on a memory file system where one exists,
    otherwise below the folder for temporary files.
    """

    folder: Path | None = None
    slots: int = 16
    kept: int = 8
    slot_bytes: int = 16 * 1024 * 1024
    min_range_bytes: int = 256 * 1024


class ScratchSlots:
    """Slots for one plugin; their creator calls `close`."""

    def __init__(self, settings: ScratchSettings, threads: FileThreads) -> None:
        self._settings = settings
        self._threads = threads
        self._owned: OwnedFolder | None = None
        self._free: deque[Slot] = deque()
        self._taken: set[Slot] = set()
        self._asked = 0
        self._is_closed = False
        self._lock = threading.Lock()

    @asynccontextmanager
    async def slot(self, range_bytes: int) -> AsyncIterator[Slot | None]:
        """A slot for one fetch; None if bytes must be sent.

        A slot whose fetch failed or was abandoned is never used again, because a plugin may still
        write to it. A slot that was not lent is not used again either, because its file may be gone
        from its folder.
        """
        slot = await self._take(range_bytes)
        if slot is None:
            yield None
            return
        try:
            yield slot
        finally:
            if not slot.is_lent:
                self._taken.discard(slot)
                slot.remove()

    async def _take(self, range_bytes: int) -> Slot | None:
        taken = self._asked + len(self._taken)
        if range_bytes < self._settings.min_range_bytes or taken >= self._settings.slots:
            return None
        self._asked += 1
        try:
            if not self._free:
                await self._threads.run(self._make)
        finally:
            self._asked -= 1
        if not self._free:
            return None
        slot = self._free.pop()
        slot.is_lent = False
        self._taken.add(slot)
        return slot

    def lent(self, slot: Slot, size_bytes: int) -> FileSlice:
        """What a plugin has put into the slot, which is used again once nothing refers to the slice
        any more. Corrupt where it is less than the plugin says.
        """
        keeper = Keeper()
        found = slot.filled(size_bytes, keeper)
        slot.is_lent = True
        gone = weakref.finalize(keeper, self._returned, slot)
        gone.atexit = False
        return found

    def _returned(self, slot: Slot) -> None:
        """Called in whichever thread drops the last reference, so every step is atomic."""
        self._taken.discard(slot)
        if self._is_closed or len(self._free) >= self._settings.kept:
            slot.remove()
        else:
            self._free.append(slot)

    def _make(self) -> None:
        # Directly into the list: the task that asked for it may have ended meanwhile.
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
        """Remove all files; those that are lent, once they are returned."""
        self._is_closed = True
        while self._free:
            self._free.pop().remove()
        if self._owned is not None:
            self._owned.close()
            self._owned = None


def _owned_folder(folder: Path | None) -> OwnedFolder:
    if folder is not None:
        return OwnedFolder.create(folder)
    return OwnedFolder.create_private(_MEMORY if os.access(_MEMORY, os.W_OK) else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeCalls:
    """The two calls that the proofs need."""

    get_info: Callable[[], Awaitable[idpb.GetInfoResponse]]
    check_path: Callable[[pb.CheckPathRequest], Awaitable[pb.CheckPathResponse]]


class ClientVolume:
    """Proofs for one plugin; with `wanted` False nothing is ever shared."""

    def __init__(self, calls: VolumeCalls, threads: FileThreads, *, wanted: bool) -> None:
        self._calls = calls
        self._threads = threads
        self._wanted = wanted
        self._instance = ""
        self._nonce: str | None = None
        self._fills_scratch = False
        self._seen_folders: dict[str, bool] = {}

    def saw_instance(self, instance: str) -> None:
        """Record which instance answered; a new instance knows nothing of the former proofs."""
        if instance != self._instance:
            self._instance = instance
            self._nonce = None
            self._fills_scratch = False
            self._seen_folders.clear()

    async def nonce(self) -> str:
        """The nonce that this side has read in the plugin's store, "" if it cannot read it: then
        only bytes are sent.

        Concurrent callers each ask, so that a plugin that hangs does not make them queue.
        """
        if not self._wanted:
            return ""
        if self._nonce is None:
            self._nonce = await self._read_nonce()
        return self._nonce or ""

    async def offers_scratch(self) -> bool:
        """Whether to name a scratch file: the plugin can fill one, and does not hand over its own
        files.
        """
        return not await self.nonce() and self._fills_scratch

    async def _read_nonce(self) -> str | None:
        info = await self._calls.get_info()
        self.saw_instance(info.instance)
        self._fills_scratch = idpb.CAPABILITY_SCRATCH in info.capabilities
        shared = info.shared_volume
        if not shared.nonce:
            # The plugin could share, but could not write its probe file now: ask again next time.
            return None if idpb.CAPABILITY_SHARED_VOLUME in info.capabilities else ""
        seen = await self._threads.run(read_nonce, shared.path)
        return shared.nonce if seen == shared.nonce else ""

    async def plugin_sees(self, file_slice: FileSlice) -> bool:
        """Whether the plugin sees the same file; asked once per folder. Fenced if the file is
        gone.
        """
        if not self._wanted:
            return False
        folder = os.path.dirname(file_slice.path)
        seen = self._seen_folders.get(folder)
        if seen is None:
            seen = await self._ask(file_slice)
            self._seen_folders[folder] = seen
        return seen

    async def _ask(self, file_slice: FileSlice) -> bool:
        ours = await self._threads.run(source_head, file_slice)
        request = pb.CheckPathRequest(file=slice_message(file_slice))
        answer = await self._calls.check_path(request)
        self.saw_instance(answer.instance)
        if not answer.readable:
            # A file that vanished meanwhile proves nothing about its folder.
            await self._threads.run(source_head, file_slice)
            return False
        return ours == FileHead(
            file_size_bytes=answer.file_size_bytes, head_crc32c=answer.head_crc32c
        )

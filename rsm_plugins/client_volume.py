"""What a client has proven about the volume it may share with a plugin; forgotten when the plugin
restarts.

Must not know what is copied or fetched.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kip405.segments import FileSlice
from rsm_plugins.file_threads import FileThreads
from rsm_plugins.messages import slice_message
from rsm_plugins.shared_volume import FileHead, read_nonce
from rsm_plugins.source_files import source_head
from rsm_plugins.v1 import identity_pb2 as idpb
from rsm_plugins.v1 import storage_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeCalls:
    """The two calls the proofs need."""

    get_info: Callable[[], Awaitable[idpb.GetInfoResponse]]
    check_path: Callable[[pb.CheckPathRequest], Awaitable[pb.CheckPathResponse]]


class ClientVolume:
    """Proofs for one plugin; with `wanted` false nothing is ever shared."""

    def __init__(self, calls: VolumeCalls, threads: FileThreads, *, wanted: bool) -> None:
        self._calls = calls
        self._threads = threads
        self._wanted = wanted
        self._instance = ""
        self._nonce: str | None = None
        self._fills_scratch = False
        self._seen_folders: dict[str, bool] = {}

    def saw_instance(self, instance: str) -> None:
        """Note which instance answered; another one than before knows nothing of our proofs."""
        if instance != self._instance:
            self._instance = instance
            self._nonce = None
            self._fills_scratch = False
            self._seen_folders.clear()

    async def nonce(self) -> str:
        """The nonce this side has read in the plugin's store, "" where it cannot: then bytes only.

        Callers that come at once each ask: a plugin that hangs must not make them queue up.
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
            # It could share but not write its probe file now: ask again next time.
            return None if idpb.CAPABILITY_SHARED_VOLUME in info.capabilities else ""
        seen = await self._threads.run(read_nonce, shared.path)
        return shared.nonce if seen == shared.nonce else ""

    async def plugin_sees(self, file_slice: FileSlice) -> bool:
        """Whether the plugin sees the same file; asked once per folder. Fenced where it is gone."""
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
            # A file that is gone meanwhile says nothing about its folder.
            await self._threads.run(source_head, file_slice)
            return False
        return ours == FileHead(
            file_size_bytes=answer.file_size_bytes, head_crc32c=answer.head_crc32c
        )

"""A relay between workers and a core that makes either of another version."""

import asyncio
from pathlib import Path

from rlm.workers.frames import FrameLink, RawBytes
from rlm.workers.socket_paths import socket_address
from tests.rlm.workers.later_messages import Rewrite, unchanged
from tests.waiting import until


class Relay:
    """Stands between workers and a core, and changes what either says."""

    def __init__(self, path: Path, core: Path) -> None:
        self._path, self._core = path, core
        self.to_core: Rewrite = unchanged
        self.to_worker: Rewrite = unchanged
        self.pairs: list[_Pair] = []
        self._server: asyncio.Server | None = None
        self._connecting: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        with socket_address(self._path) as address:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._accepted, address)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for pair in self.pairs:
            pair.close()

    def _accepted(self) -> FrameLink:
        pair = _Pair(self)
        self.pairs.append(pair)
        task = asyncio.ensure_future(pair.connect(self._core))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return pair.worker


class _Pair:
    """A worker's connection, and the one to the core that stands for it."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._is_connected = asyncio.Event()
        self._early: list[tuple[bytes, RawBytes]] = []
        self.worker = FrameLink(self._from_worker, self.close)
        self.core = FrameLink(self._from_core, self.close)

    async def connect(self, path: Path) -> None:
        await until(lambda: self.worker.is_open)
        try:
            with socket_address(path) as address:
                loop = asyncio.get_running_loop()
                await loop.create_unix_connection(lambda: self.core, address)
        except OSError:
            self.close()
            return
        self._is_connected.set()
        for message, raw in self._early:
            self._from_worker(message, raw)

    def close(self) -> None:
        self.worker.close()
        self.core.close()

    def _from_worker(self, message: bytes, raw: RawBytes) -> None:
        if not self._is_connected.is_set():
            self._early.append((message, raw))
            return
        self.core.send(self._relay.to_core(message), raw)

    def _from_core(self, message: bytes, raw: RawBytes) -> None:
        self.worker.send(self._relay.to_worker(message), raw)

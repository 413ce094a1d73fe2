"""A TCP proxy that delays, stalls and cuts, for protocols it knows nothing of (gRPC, HDFS)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PIECE_BYTES = 64 * 1024


class CuttingTcp:
    """Listens on a free loopback port while the `async with` block runs.

    `delay_seconds` is added to every piece in each direction. `cut_after_bytes` resets a connection
    once so many bytes went from the server to the client (`answers`) or the other way (`requests`).
    """

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._server: asyncio.Server | None = None
        self._handlers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.port = 0
        self.delay_seconds = 0.0
        self.cut_requests_after: int | None = None
        self.cut_answers_after: int | None = None
        self.connections = 0

    async def __aenter__(self) -> "CuttingTcp":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        handlers = tuple(self._handlers)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    @property
    def open_connections(self) -> int:
        return len(self._handlers)

    def cut(self) -> None:
        """Reset every connection there is now."""
        for writer in self._handlers.values():
            writer.transport.abort()

    @asynccontextmanager
    async def stalled(self) -> AsyncIterator[None]:
        """While the block runs connections are taken and kept, and nothing flows."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers[task] = writer
        self.connections += 1
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._pump(reader, up_writer, self.cut_requests_after))
                    tasks.create_task(self._pump(up_reader, writer, self.cut_answers_after))
            finally:
                up_writer.transport.abort()
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._handlers.pop(task, None)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None
    ) -> None:
        passed = 0
        while piece := await reader.read(PIECE_BYTES):
            await self._flowing.wait()
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            if limit is not None and passed + len(piece) > limit:
                writer.write(piece[: limit - passed])
                await writer.drain()
                raise ConnectionResetError
            writer.write(piece)
            await writer.drain()
            passed += len(piece)
        raise ConnectionResetError  # one side ended: so does the other

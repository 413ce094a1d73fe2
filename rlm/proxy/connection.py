"""Joins one client connection to a broker connection of its own.

Bytes that need no inspection go from socket to socket in callbacks, long runs of them within the
kernel. A side is read only once the other one has taken everything, so that no more than one read
is held between them. Intercepted requests are handled one at a time while later requests wait: a
broker also works on one request of a connection at a time. A handler that waits for nothing but the
broker needs no task. This module must not know what a handler decides.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import structlog

from kafka_protocol.primitives import Buffer, WireError
from rlm.proxy.account import Account
from rlm.proxy.asked import AskedAnswer
from rlm.proxy.begun import Steps, complete, or_broken_off
from rlm.proxy.client_login import ClientLogin
from rlm.proxy.introductions import Introduced
from rlm.proxy.memory import SMALL_BYTES
from rlm.proxy.responses import Assembled, Output, ResponseCutter, Streamed
from rlm.proxy.session import (
    Cut,
    Expected,
    FetchEntries,
    Intercept,
    RequestCutter,
    SessionError,
    Taken,
    expected_by_us,
)
from rlm.proxy.shared import Shared
from rlm.proxy.sides import BrokerSide, ClientSide, Side
from rlm.proxy.splicing import LEAST_RUN_BYTES
from rlm.proxy.topic_changes import RefusedProduce
from rlm.proxy.upstream import connect_broker

log = structlog.get_logger(__name__)

_DIRECT_READ_BYTES = 32_768
_PIECES_OF_ONE_FRAME = 2  # the length and the answer itself; a spliced answer has more pieces

Handle = Callable[[Taken, "Connection"], Awaitable[list[Buffer] | None]]
"""Answers one intercepted request: the pieces of the answer, None if the broker's was passed on."""


class Connection:
    """Both sides, the order of answers, and the one request that is being handled."""

    def __init__(
        self,
        shared: Shared,
        handlers: Mapping[int, Handle],
        on_made: Callable[["Connection"], bool],
        introduced: Introduced,
        login: ClientLogin | None = None,
    ) -> None:
        """`handlers` by API key, of all that is intercepted. `introduced`: see RequestCutter."""
        self.shared = shared
        self._handlers = handlers
        self._on_made = on_made
        self._login = login
        self.client = ClientSide(self)
        self._broker: BrokerSide | None = None
        settings = shared.settings
        self.requests = RequestCutter(
            settings.max_frame_bytes,
            settings.unauthenticated_frame_max_bytes,
            read_request_bytes=settings.read_request_max_bytes,
            rewrites=shared.node_addresses() is not None,
            own_topics=shared.own_topics,
            introduced=introduced,
        )
        self._account = Account(shared.memory, self)
        self.responses = ResponseCutter(settings.max_frame_bytes, self._account.may_assemble)
        self.received_bytes = 0
        """All bytes that came from the client so far."""
        self.is_over = False
        self._cause = ""
        self._is_draining = False
        self._tasks = asyncio.TaskGroup()
        self._work = Steps(self._tasks.create_task, self._go_on)
        self._beside: set[asyncio.Task[None]] = set()
        self._put_off: Taken | None = None  # until there is memory for it
        self._is_settling = False
        self._asked = AskedAnswer(self.responses, self._work)
        loop = asyncio.get_running_loop()
        self._over, self._client_gone = loop.create_future(), loop.create_future()
        self._is_direct, self._spliced_up_to = False, 0
        self._refusals = RefusedProduce(shared.metrics)

    # What `rlm.proxy.limits` reads of the client (`Client` there).

    @property
    def peer(self) -> str:
        """The client's address, for the log."""
        return str(self.client.transport.get_extra_info("peername"))

    @property
    def untaken_bytes(self) -> int:
        """Answered bytes that the client's socket has not taken yet, if any of them are of the
        remote tier. Bytes of the broker hold no room of reads (G6).
        """
        writer = self.client.writer
        return writer.untaken_bytes if writer.taken_bytes < self._spliced_up_to else 0

    @property
    def taken_bytes(self) -> int:
        """All bytes that the client's socket has taken so far."""
        return self.client.writer.taken_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes of the broker that the client's socket has not taken yet, at most."""
        untaken_bytes, most_bytes = self.client.writer.untaken_bytes, self._account.frame_bytes
        return min(untaken_bytes, most_bytes) if self.untaken_bytes else untaken_bytes

    @property
    def held_for_client_bytes(self) -> int:
        """All memory that it holds while its client has to take bytes; 0 while it has not."""
        splicing = None if self._broker is None else self._broker.splicing
        is_untaken = splicing is not None and not splicing.waits_for_source
        return self._account.held_bytes if is_untaken or self.unsent_bytes else 0

    # What the memory bound (`Holder`) and the deadlines read of the connection.

    @property
    def is_admitted(self) -> bool:
        """Whether the broker has answered a request that needs authentication."""
        return self.responses.has_admitted

    def memory_freed(self) -> None:
        """See `rlm.proxy.memory.Holder`."""
        asyncio.get_running_loop().call_soon(self._try_again)

    def _try_again(self) -> None:
        if self.is_over:
            return
        if self._put_off is not None:
            self._take_up(self._put_off)
        if self.responses.is_waiting:
            self._take_outputs(self.responses.resume)
        self.flow()

    @property
    def is_idle(self) -> bool:
        """Whether neither a request nor an answer is in flight."""
        return self.responses.is_idle and not self._is_settling

    @property
    def is_read(self) -> bool:
        """Whether bytes of the client are wanted now."""
        splicing = self.client.splicing
        is_spliced = splicing is not None and splicing.waits_for_source
        return is_spliced or not self.client.is_paused

    def _report(self) -> None:
        self._account.report(
            received_bytes=self.requests.held_bytes,
            to_broker_bytes=self._to_broker_bytes,
            assembled_bytes=self.responses.held_bytes,
            unsent_bytes=self.unsent_bytes,
        )

    @property
    def _to_broker_bytes(self) -> int:
        return 0 if self._broker is None else self._broker.writer.untaken_bytes

    # Callbacks of the client's side (`rlm.proxy.sides.Joined`).

    def client_made(self) -> None:
        """Accept or refuse the client; nothing is read before the broker is connected."""
        self.client.is_paused = True
        # Reading must not begin here: older asyncio (Python 3.11.2) resumes it after this call.
        asyncio.get_running_loop().call_soon(self._hold_client)
        if not self._on_made(self):
            self.client.transport.abort()

    def _hold_client(self) -> None:
        if self.client.is_paused:
            self.client.transport.pause_reading()

    def client_lost(self, error: Exception | None) -> None:
        """The client's socket was closed."""
        complete(self._client_gone)
        self.client.writer.drop()
        self.end("client_closed" if error is None else "client_error")

    def client_room(self) -> memoryview:
        """The read buffer, or a small part of it for a stranger, or if much is held. The last
        request of a client that is drained is read to its end and no further.
        """
        is_free = self.is_admitted and not self._account.is_full
        room = self.shared.read_buffer[: None if is_free else SMALL_BYTES]
        return room[: self.requests.unpassed_bytes or None] if self._is_draining else room

    def client_data(self, size_bytes: int) -> None:
        """Bytes of the client are in the read buffer; after the end nobody needs them."""
        if self.is_over:
            return
        self.shared.moved(size_bytes)
        self.received_bytes += size_bytes
        if self._login is not None and self._login.is_due():
            self.requests.stop()
        self._pass_requests(lambda: self.requests.feed(self.shared.read_buffer[:size_bytes]))
        self.flow()

    def _pass_requests(self, cut_more: Callable[[], Cut]) -> None:
        broker = self._broker
        try:
            cut = cut_more()
        except SessionError as error:
            self._fail(error)
            return
        if broker is None or self.is_over:
            return
        for expected in cut.expected:
            self.responses.expect(expected)
        broker.writer.pass_on(cut.passed)
        if cut.refused_partitions:
            self._refusals.add(cut.refused_partitions, self.peer)
        if cut.taken is not None:
            self._take_up(cut.taken)
        elif cut.is_stopped and self._login is not None:
            self._is_settling = True
            self._work.start(self._settle(partial(self._log_in_again, self._login)))

    def _take_up(self, taken: Taken) -> None:
        """Begin to handle a request; without memory for the work it waits until there is."""
        self._is_settling = True
        may_work = self._account.may_work(taken.api_key, len(taken.frame))
        self._put_off = None if may_work else taken
        if not may_work:
            return
        self._report()
        self._work.start(self._settle(partial(self._handlers[taken.api_key], taken, self)))

    async def _log_in_again(self, login: ClientLogin) -> None:
        """Once, although bytes that come meanwhile ask for it again."""
        await login.again(self)
        self.requests.stop(wanted=False)

    # Callbacks of the broker's side.

    def broker_made(self, transport: asyncio.Transport) -> None:
        """The broker is connected, perhaps too late."""
        if self.is_over:
            transport.close()

    def broker_lost(self, error: Exception | None) -> None:
        """The broker's socket was closed."""
        self.end("broker_closed" if error is None else "broker_error")

    def broker_room(self) -> memoryview:
        """The frame that is being assembled, or the read buffer."""
        room = self.responses.room(_DIRECT_READ_BYTES)
        self._is_direct = room is not None
        if room is not None:
            return room
        is_full = self.shared.memory.answers.is_full
        return self.shared.read_buffer[: SMALL_BYTES if is_full else None]

    def broker_data(self, size_bytes: int) -> None:
        """Bytes of the broker are in the read buffer, or already in the frame being assembled."""
        self.shared.moved(size_bytes)
        self._take_outputs(lambda: self._outputs(size_bytes))
        self.flow()

    def _outputs(self, size_bytes: int) -> list[Output]:
        if not self._is_direct:
            return self.responses.feed(self.shared.read_buffer[:size_bytes])
        whole = self.responses.filled(size_bytes)
        return [] if whole is None else [whole]

    def _take_outputs(self, outputs: Callable[[], list[Output]]) -> None:
        pieces: list[Buffer] = []
        failed: SessionError | WireError | None = None
        try:
            for output in outputs():
                if isinstance(output, memoryview):
                    pieces.append(output)
                elif isinstance(output, Assembled):
                    pieces += self._assembled(output)
                elif isinstance(output, Streamed):
                    self._asked.came(None)
            if self.responses.has_admitted:
                self.requests.admit()
        except (SessionError, WireError) as error:
            failed = error
        self.client.writer.pass_all(pieces)
        if failed is not None:
            self._fail(failed)
        self._asked.go_on()
        self._check_settled()

    def _assembled(self, whole: Assembled) -> list[Buffer]:
        """What the client gets of an answer now."""
        if whole.expected.intercept is Intercept.ASKED:
            self._account.answered(len(whole.frame))
            self._asked.came(whole.frame)
            return []
        return self.shared.altered(whole)

    def _check_settled(self) -> None:
        self._asked.check_settled()
        is_done = self._is_draining and self.is_idle and not self._to_broker_bytes
        if is_done and not self.requests.unpassed_bytes:
            self.end("shutdown")

    # What a handler may do (`Upstream`).

    async def ask(
        self,
        frame: Buffer,
        api_version: int,
        correlation_id: int,
        stream_above: int | None,
        *,
        admits: bool = True,
    ) -> bytearray | None:
        """See `rlm.proxy.reads.Upstream`."""
        expected = expected_by_us(api_version, correlation_id, stream_above, admits=admits)
        return await self._ask(frame, expected)

    async def ask_fetch(
        self, frame: Buffer, api_version: int, correlation_id: int, entries: FetchEntries
    ) -> bytearray | None:
        """See `rlm.proxy.reads.FetchUpstream`."""
        expected = expected_by_us(api_version, correlation_id, LEAST_RUN_BYTES, entries)
        return await self._ask(frame, expected)

    def go_on(self) -> None:
        """See `rlm.proxy.reads.FetchUpstream`."""
        self.memory_freed()

    def beside(self, work: Coroutine[Any, None, None]) -> None:
        """See `rlm.proxy.reads.FetchUpstream`."""
        task = self._tasks.create_task(or_broken_off(work))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def _ask(self, frame: Buffer, expected: Expected) -> Awaitable[bytearray | None]:
        if self._account.asks():
            self.flow()  # what it answered before may be why it is not read
        return self._asked.ask(None if self.is_over else self._broker, frame, expected)

    async def settled(self) -> None:
        """See `rlm.proxy.reads.Upstream`."""
        await self._asked.settled()

    # The connection's task.

    async def run(self) -> None:
        """Connect to the broker and handle intercepted requests until either side ends."""
        try:
            async with self._tasks:
                try:
                    self.beside(self._connect())
                    await self._over
                finally:  # a task that crashed ends this wait, too
                    self.end("crashed")
                    self._work.stop()
                    for task in self._beside:
                        task.cancel()
            await self._flush()
        finally:
            self.client.transport.abort()
            if self._login is not None:
                self._login.close()
            self.shared.metrics.connection_closed(self._cause)
            log.debug("connection_closed", cause=self._cause)

    async def _flush(self) -> None:
        """Give a client that still reads the time to take what was already answered."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.shared.settings.shutdown_timeout_ms / 1000):
                await self._client_gone

    async def _settle(self, handle: Callable[[], Awaitable[list[Buffer] | None]]) -> None:
        """Answer one request, or log in again; `_go_on` follows. Nothing refers to request and
        answer while the connection waits for the next request, which may never come.
        """
        try:
            pieces = await handle()
        except* (WireError, SessionError, ConnectionError) as errors:
            self._fail(errors.exceptions[0])
            pieces = None
        if self.is_over:
            return
        self._account.settled()
        if pieces is not None:
            self.client.writer.write_all(pieces)
            if len(pieces) > _PIECES_OF_ONE_FRAME:
                self._spliced_up_to = self.client.writer.accepted_bytes
        self._is_settling = False
        self._check_settled()

    def _go_on(self) -> None:
        """Pass on the requests that arrived while one was being settled."""
        if self.is_over or self._is_draining:
            return
        self._pass_requests(self.requests.resume)
        self.flow()

    async def _connect(self) -> None:
        broker = BrokerSide(self)
        shared = self.shared
        cause = await connect_broker(broker, shared.settings, shared.tls, self._login)
        if cause is not None:
            self.end(cause)
        elif self.is_over:  # since the broker was connected
            broker.transport.abort()
        else:
            self._broker = broker
        self.flow()

    # Backpressure and the end of the connection.

    def flow(self) -> None:
        """Read from a side only while the other one keeps up. The broker's answer to a request in
        work waits for no memory that requests hold, because it frees some.
        """
        broker, requests, responses = self._broker, self.requests, self.responses
        if self.is_over or broker is None:
            return
        self._report()
        to_broker_bytes = self._to_broker_bytes
        try:
            may = self._account.may_read(requests.queued_bytes, has_request=self._is_settling)
        except SessionError as error:
            self._fail(error)
            return
        self.client.read(
            wanted=may.of_client
            and not to_broker_bytes
            and not (self._is_draining and not requests.unpassed_bytes),
        )
        has_room = may.of_broker and not self.client.writer.untaken_bytes
        broker.read(wanted=(has_room or responses.is_assembling) and not responses.is_waiting)
        if requests.passing_bytes >= LEAST_RUN_BYTES and self.is_admitted:
            self._splice(self.client, broker, requests.passing_bytes)
        if responses.passing_bytes >= LEAST_RUN_BYTES and not responses.is_waiting:
            self._splice(broker, self.client, responses.passing_bytes)
        if self._is_draining:
            self._check_settled()

    def _splice(self, source: Side, target: Side, run_bytes: int) -> None:
        """Move a run of bytes that pass unread within the kernel, if that is possible."""
        if self.is_over:
            return
        moved = self._requests_moved if source is self.client else self._answers_moved
        if source.splice_to(target, run_bytes, self.shared.pipes, moved) and source.splicing:
            source.read(wanted=False)
            source.splicing.start()

    def _requests_moved(self, size_bytes: int) -> None:
        self.shared.moved(size_bytes)
        self.received_bytes += size_bytes
        self.requests.skip(size_bytes)

    def _answers_moved(self, size_bytes: int) -> None:
        self.shared.moved(size_bytes)
        self._take_outputs(lambda: self.responses.skip(size_bytes))

    def drain(self) -> None:
        """Take no more requests but one that has begun; end once what is in flight was answered."""
        self._is_draining = True
        if self._broker is None:
            self.end("shutdown")
        self.flow()

    def _fail(self, error: BaseException) -> None:
        cause = error.cause if isinstance(error, SessionError) else "bad_frame"
        log.warning("connection_failed", cause=cause, error=str(error), peer=self.peer)
        self.end(cause)

    def end(self, cause: str) -> None:
        """Close both sides once; bytes given to the client's socket are still flushed."""
        if self.is_over:
            return
        self.is_over = True
        self._cause = cause
        self.shared.memory.leave(self)
        complete(self._over)
        for side in (self.client, self._broker):
            if side is not None and side.splicing is not None:
                side.splicing.stop()
        if self._broker is not None:
            self._broker.transport.abort()
        self.client.writer.finish()

    def abort(self, cause: str) -> None:
        """Close both sides at once, whatever is queued."""
        self.end(cause)
        self.client.transport.abort()

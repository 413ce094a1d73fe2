"""The core's side of its proxy workers: a unix socket, calls of the tier, views, counts (H24).

A worker that goes away ends its calls; what a raise of a remote log start has begun goes on
(rlm.remote_log.client_deletions). A call that fails is answered with its error, a bug too.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from kafka_protocol.primitives import Buffer
from kip405.errors import Invalid, RemoteStorageError
from kip405.ids import PartitionKey, Uuid
from kip405.process import software_version
from rlm.clock import Clock
from rlm.proxy.client_tokens import ClientTokens
from rlm.remote_log.tier import Deletions, Tier
from rlm.workers.core_tokens import WorkerLeases
from rlm.workers.counts import CountTaker
from rlm.workers.frames import FrameLink, RawBytes
from rlm.workers.messages import (
    NEWEST_PROTOCOL,
    OLDEST_PROTOCOL,
    common_protocol,
    error_message,
    marks_message,
    read_of,
    records_message,
    timestamp_message,
    topic_of,
    view_message,
    view_of,
)
from rlm.workers.processes import KnownProcesses
from rlm.workers.socket_paths import socket_address
from rlm.workers.v1 import core_pb2 as pb
from rlm.workers.views import ViewFeed

log = structlog.get_logger(__name__)
_Answer = tuple[pb.ToWorker, tuple[Buffer, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTerms:
    """The settings of a worker that change while it runs; see CoreHello."""

    client_bytes_per_second: int
    log_level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreParts:
    """What a core gives its workers, and takes from them. `tasks`: calls run there, and its owner
    ends them. `terms`: those in force now. `tokens` None: certificates are nobody's identity.
    """

    tier: Tier
    deletions: Deletions
    views: ViewFeed
    counts: CountTaker
    processes: KnownProcesses
    tasks: asyncio.TaskGroup
    terms: Callable[[], WorkerTerms]
    tokens: ClientTokens | None
    clock: Clock


class CoreServer:
    """Serves the workers of one service at `path`; the folder is the service's own."""

    def __init__(self, parts: CoreParts, path: Path) -> None:
        self._parts = parts
        self._path = path
        self._server: asyncio.Server | None = None
        self._links: set[_WorkerLink] = set()

    @property
    def worker_count(self) -> int:
        """Workers that are connected."""
        return len(self._links)

    async def start(self) -> None:
        """Listen. Invalid: the socket cannot be made."""
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(
                self._linked, sock=_bound(self._path)
            )
        except OSError as error:
            raise Invalid(f"cannot listen on {self._path}: {error.strerror or error}") from error

    def terms_changed(self) -> None:
        """Send every worker the terms that are in force now."""
        for link in self._links:
            link.send_terms()

    async def close(self) -> None:
        """Stop listening, and end the connections of all workers with their calls."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for link in tuple(self._links):
            link.frames.close()

    def _linked(self) -> FrameLink:
        link = _WorkerLink(self._parts, self._links.discard)
        self._links.add(link)
        return link.frames


def _bound(path: Path) -> socket.socket:
    """A socket of nobody but this user, from the first moment on; one of an earlier core is
    removed.
    """
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with socket_address(path) as address:
            made.bind(address)
    except OSError:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


class _WorkerLink:
    """One connection of a worker."""

    def __init__(self, parts: CoreParts, over: Callable[["_WorkerLink"], None]) -> None:
        self._parts = parts
        self._over = over
        self.frames = FrameLink(self._received, self._closed)
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._worker: int | None = None
        self._leases = WorkerLeases(parts.tokens, parts.clock)
        self._has_missed_views = False

    def _closed(self) -> None:
        self._over(self)
        self._parts.views.forget(self._show)
        for call in self._calls.values():
            call.cancel()
        self._leases.close()
        if self._worker is not None:
            self._parts.counts.left(self)
            log.info("worker_disconnected", worker=self._worker, problem=self.frames.problem)

    def _received(self, message: bytes, _: RawBytes) -> None:
        asked = pb.ToCore.FromString(message)
        what = asked.WhichOneof("body")
        if what == "hello":
            self._greet(asked.hello)
        elif self._worker is None:
            self.frames.close("a call before the greeting")
        elif what == "cancel":
            call = self._calls.get(asked.cancel.cancelled_call_id)
            if call is not None:
                call.cancel()
        elif what == "token_left":
            self._leases.left(asked.token_left.subject)
        elif what == "counts":
            self._parts.processes.heard(self._worker)
            waits = self._parts.counts.take(self, asked.counts)
            if waits.waits:
                self._send(pb.ToWorker(waits=waits))
        else:
            task = self._parts.tasks.create_task(self._call(asked, what))
            self._calls[asked.call_id] = task
            task.add_done_callback(lambda _: self._calls.pop(asked.call_id, None))

    def _greet(self, hello: pb.WorkerHello) -> None:
        protocol = common_protocol(hello.oldest_protocol, hello.newest_protocol)
        if protocol is None:
            log.error("worker_refused", worker=hello.worker, version=hello.software_version)
            return self.frames.close(f"protocols {hello.oldest_protocol}..{hello.newest_protocol}")
        self._worker = hello.worker
        self._parts.processes.greeted(hello.worker, hello.recent_ends)
        log.info("worker_connected", worker=hello.worker, version=hello.software_version)
        self.send_terms()
        self._send(pb.ToWorker(views=self._parts.views.listen(self._show)))
        return None

    def send_terms(self) -> None:
        """The greeting; a worker that has had it goes by the terms of the newest one."""
        if self._worker is None:
            return
        terms = self._parts.terms()
        greeting = pb.CoreHello(
            oldest_protocol=OLDEST_PROTOCOL,
            newest_protocol=NEWEST_PROTOCOL,
            software_version=software_version(),
            client_bytes_per_second=terms.client_bytes_per_second,
            log_level=terms.log_level,
        )
        self._send(pb.ToWorker(hello=greeting))

    def _show(self, views: pb.Views) -> None:
        """A worker that takes nothing, as a stopped one, gets all views once it takes bytes."""
        if not self.frames.is_full:
            self._send(pb.ToWorker(views=views))
        elif not self._has_missed_views:
            self._has_missed_views = True
            self._parts.tasks.create_task(self._show_missed())

    async def _show_missed(self) -> None:
        await self.frames.drained()
        if self._has_missed_views and self.frames.is_open:
            self._has_missed_views = False
            self._send(pb.ToWorker(views=self._parts.views.listen(self._show)))

    def _send(self, message: pb.ToWorker, raw: tuple[Buffer, ...] = ()) -> None:
        self.frames.send(message.SerializeToString(), raw)

    async def _call(self, asked: pb.ToCore, what: str | None) -> None:
        try:
            answer, raw = await self._answer(asked, what)
        except Exception as error:
            if not isinstance(error, RemoteStorageError):
                log.exception("worker_call_failed", call=what)
            answer, raw = pb.ToWorker(error=error_message(error)), ()
        answer.call_id = asked.call_id
        await self._show_missed()  # before an answer that may carry one of them
        self._send(answer, raw)

    async def _answer(self, asked: pb.ToCore, what: str | None) -> _Answer:
        if what == "token":
            return pb.ToWorker(token=await self._leases.answer(asked.token)), ()
        handler = _HANDLERS.get(what or "")
        if handler is None:
            raise Invalid("this version of the core does not know the call")
        return await handler(self._parts, asked)


async def _barrier(parts: CoreParts, asked: pb.ToCore) -> _Answer:
    call = asked.barrier
    view = await parts.tier.barrier(topic_of(call.topic), call.partition, call.deadline_ms)
    if view is None:
        return pb.ToWorker(barrier=pb.BarrierAnswer()), ()
    return pb.ToWorker(barrier=pb.BarrierAnswer(view=view_message(parts.views.seen(view)))), ()


async def _watermarks(parts: CoreParts, asked: pb.ToCore) -> _Answer:
    call = asked.watermarks
    found = await parts.tier.watermarks(topic_of(call.topic), call.partition, call.deadline_ms)
    return pb.ToWorker(watermarks=marks_message(found)), ()


async def _read(parts: CoreParts, asked: pb.ToCore) -> _Answer:
    records = await parts.tier.read(read_of(asked.read))
    return pb.ToWorker(read=records_message(records)), records.records


async def _timestamp(parts: CoreParts, asked: pb.ToCore) -> _Answer:
    call = asked.timestamp
    found = await parts.tier.offset_for_timestamp(
        Uuid(call.topic_id), call.partition, call.timestamp_ms, call.start_offset
    )
    return pb.ToWorker(timestamp=timestamp_message(found)), ()


async def _raise_start(parts: CoreParts, asked: pb.ToCore) -> _Answer:
    call = asked.raise_start
    view = view_of(call.view).view
    start = await parts.deletions.raise_start(view, call.offset)
    parts.views.changed(PartitionKey(view.topic_id, view.partition))
    return pb.ToWorker(raise_start=pb.RaiseStartAnswer(remote_log_start_offset=start)), ()


_HANDLERS: Mapping[str, Callable[[CoreParts, pb.ToCore], Awaitable[_Answer]]] = {
    "barrier": _barrier,
    "watermarks": _watermarks,
    "read": _read,
    "timestamp": _timestamp,
    "raise_start": _raise_start,
}

"""Makes requests to the store, with retries until one succeeds, is refused, or time runs out.

The client is created when first needed, with address, style, credentials and limits. It tries once
and signs no payloads: the CRC-32C of every object and part is in a signed header, and hashing
SHA-256 besides would cost 0.6 CPU s/GB. It checks no checksums of answers, because each reader
knows the CRC-32C of what it requested.

The retries are this module's, so that waits do not multiply. Every attempt has a deadline of its
own that includes the body, and needs one of a bounded number of connections. Only this module of
the S3 store waits: back-off, jitter, and work that must end although its caller is gone. Several
calls can run at once: the result is all answers, or the first error itself with the others
cancelled.
"""

import asyncio
import base64
import hashlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from functools import partial
from io import BytesIO
from typing import Any, Protocol, TypeVar

import aiohttp
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.exceptions import BotoCoreError

from kip405.crc import ByteBuffer
from rsm_plugins.event_log import EventLog
from rsm_plugins.s3.bodies import Body, BodyConnections, Pieces, StreamedBody
from rsm_plugins.s3.credentials import give_credentials, profile_of
from rsm_plugins.s3.errors import FOREIGN_ERRORS, error_of_s3, verdict_of
from rsm_plugins.s3.ranges import PARTIAL_CONTENT, RangeBody, RangeConnections
from rsm_plugins.s3.settings import S3Settings
from rsm_plugins.threads import Threads

CONNECT_TIMEOUT_SECONDS_MAX = 10.0
READ_BUFFER_BYTES = 1024 * 1024
THREAD_BYTES_MIN = 1024 * 1024
"""A smaller body is in memory, and is sent by the event loop before a thread would have begun."""
OPEN_SECONDS = 60.0
"""Longest time until the credentials are there; the caller may have no deadline."""
_REGION_DEFAULT = "us-east-1"
_CHATTY = ("aiobotocore", "botocore")


class BulkSession(AIOHTTPSession):  # type: ignore[misc] # published without types
    """The HTTP session of aiobotocore, for bodies of megabytes.

    aiohttp stops and resumes the socket whenever twice its read buffer of 64 KiB is full; with 1
    MiB, reading a GB costs a quarter less CPU.
    """

    def __init__(
        self,
        *args: Any,
        uploads: Threads | None = None,
        patience_seconds: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        connect_seconds = self._timeout.sock_connect
        self._ranges = RangeConnections(connect_seconds=connect_seconds)
        self._bodies = None
        if uploads is not None:
            self._bodies = BodyConnections(
                uploads, connect_seconds=connect_seconds, patience_seconds=patience_seconds
            )
        self._context: ssl.SSLContext | None = None

    async def __aexit__(self, *error: Any) -> None:
        self._ranges.close()
        if self._bodies is not None:
            self._bodies.close()
        await super().__aexit__(*error)

    async def send(self, request: Any) -> Any:
        """One try of a signed request; a body goes at once, without asking for leave first, which
        would cost a round trip for each part (the header is not among the signed ones).
        """
        if isinstance(request.body, BytesIO):
            request.body = Pieces((request.body.getvalue(),))
        if isinstance(request.body, Body):
            del request.headers["Expect"]
        answer = await self._transferred(request)
        if answer is not None:
            return answer
        if not isinstance(request.body, Body):
            return await super().send(request)
        body = request.body = await request.body.for_aiohttp()
        try:
            return await super().send(request)
        except BotoCoreError:
            if isinstance(body, StreamedBody) and body.error is not None:
                raise body.error from None
            raise

    async def _transferred(self, request: Any) -> Any:
        """The answer, if a transport of our own can get it; None behind an HTTP proxy."""
        max_bytes = None
        if request.method == "GET":
            max_bytes = range_bytes(request.headers.get("Range"))
        if max_bytes is None and not self._is_large(request):
            return None
        if self._proxy_config.proxy_url_for(request.url):
            return None
        if self._context is None:
            await self._get_session(None)  # which builds it
        if max_bytes is None:
            return await self._sent(request)
        return await self._received(request, max_bytes)

    def _is_large(self, request: Any) -> bool:
        is_body = request.method == "PUT" and isinstance(request.body, Body)
        return is_body and len(request.body) >= THREAD_BYTES_MIN

    async def _sent(self, request: Any) -> Any:
        """The answer to an upload whose body goes through a thread."""
        if self._bodies is None:
            return None
        answer = await self._bodies.send(
            request.url, texts(request.headers), request.body, self._context
        )
        if answer is None:
            return None
        text = AnswerText(answer.text, request.url)
        return AioAWSResponse(request.url, answer.status, dict(answer.headers), text)

    async def _received(self, request: Any, max_bytes: int) -> Any:
        """The answer to a ranged GET, if it can be received into memory that is used again."""
        body = await self._ranges.receive(
            request.url, texts(request.headers), max_bytes, self._context
        )
        if body is None:
            return None
        raw = RangeStream(body, request.url)
        return AioAWSResponse(request.url, body.status, dict(body.headers), raw)

    def _build_ssl_contexts(self, proxy_url: str | None) -> Any:
        """Called in a thread when a session is opened; ranges trust the same certificates."""
        found = super()._build_ssl_contexts(proxy_url)
        if proxy_url is None:
            self._context = found[0]
        return found

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)
        session._read_bufsize = READ_BUFFER_BYTES
        return session


class RangeStream:
    """What aiobotocore's StreamingBody reads from; whole or not at all."""

    def __init__(self, body: RangeBody, url: str) -> None:
        self.url = url
        self._body = body

    @property
    def content(self) -> "RangeStream":
        """aiohttp has the body's methods in an object of their own."""
        return self

    async def read(self, _size: int = -1) -> ByteBuffer:
        body = await self._body.read()
        return body if self._body.status == PARTIAL_CONTENT else bytes(body)

    def close(self) -> None:
        self._body.close()


class AnswerText:
    """What aiobotocore reads the text of an answer from."""

    def __init__(self, text: bytes, url: str) -> None:
        self.url = url
        self._text = text

    @property
    def content(self) -> "AnswerText":
        """aiohttp has the methods of a text in an object of their own."""
        return self

    async def read(self, _size: int = -1) -> bytes:
        return self._text

    def close(self) -> None:
        """Nothing is open."""


def range_bytes(header: Any) -> int | None:
    """How many bytes a Range header of one bounded range asks for; None for any other."""
    if isinstance(header, bytes):
        header = header.decode("latin-1")
    if not isinstance(header, str):
        return None
    unit, _, wanted = header.partition("=")
    first, _, last = wanted.partition("-")
    if unit != "bytes" or not (first.isdecimal() and last.isdecimal()):
        return None
    return int(last) + 1 - int(first)


def texts(headers: Any) -> dict[str, str]:
    """Headers of a prepared request, some of whose values are bytes."""
    return {
        name: value.decode("latin-1") if isinstance(value, bytes) else str(value)
        for name, value in headers.items()
    }


class Connection:
    """Owns the client; its creator calls `close`."""

    def __init__(self, settings: S3Settings, *, open_seconds: float = OPEN_SECONDS) -> None:
        self._settings = settings
        self._open_seconds = open_seconds
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._uploads = Threads(
            "s3-upload", settings.upload_concurrency, hang_ms=settings.call_timeout_ms
        )
        self._client: Any = None
        self._closed = False

    async def client(self) -> Any:
        """botocore's client of S3. Raises botocore's errors if there are no credentials, and
        TimeoutError if they do not come in time (a process or service that supplies them may hang).
        """
        if self._client is None:
            async with self._lock, asyncio.timeout(self._open_seconds):
                if self._client is None:
                    self._client = await self._open()
        return self._client

    async def _open(self) -> Any:
        if self._closed:
            raise OSError("the store was closed")
        settings = self._settings
        session = AioSession(profile=profile_of(settings.credentials))
        region = settings.region or session.get_config_variable("region") or _REGION_DEFAULT
        give_credentials(session, settings.credentials, region)
        context = session.create_client(
            "s3",
            region_name=region,
            endpoint_url=settings.endpoint,
            config=client_config(settings, self._uploads),
        )
        client = await self._stack.enter_async_context(context)
        client.meta.events.register("before-sign.s3.DeleteObjects", _add_content_md5)
        return client

    async def close(self) -> None:
        """Close the connections; calls that are under way fail."""
        self._closed = True
        await self._stack.aclose()
        self._uploads.close()
        self._client = None


def client_config(settings: S3Settings, uploads: Threads) -> AioConfig:
    """The configuration of botocore; `uploads` send large bodies."""
    attempt_seconds = settings.attempt_timeout_ms / 1000
    return AioConfig(
        connect_timeout=min(attempt_seconds, CONNECT_TIMEOUT_SECONDS_MAX),
        read_timeout=None,  # an attempt has a deadline; a timer renewed at every read costs CPU
        max_pool_connections=settings.max_connections,
        retries={"total_max_attempts": 1},
        signature_version="s3v4",
        s3={
            "addressing_style": "path" if settings.path_style else "virtual",
            "payload_signing_enabled": False,
        },
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        http_session_cls=partial(
            BulkSession, uploads=uploads, patience_seconds=settings.call_timeout_ms / 1000
        ),
    )


def _add_content_md5(request: Any, **_: Any) -> None:
    """Beside the CRC32 of botocore, because many servers ask for just this header. Both are signed:
    no key of the list can change on its way.
    """
    digest = hashlib.md5(request.data, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = base64.b64encode(digest).decode("ascii")


def quiet_library() -> None:
    """botocore's debug log has tokens and signatures in it: it is switched off for good."""
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.INFO)


T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]
"""Waits for so many seconds."""

BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MOST_SECONDS = 5.0


async def pause(seconds: float) -> None:
    """Wait in real time."""
    await asyncio.sleep(seconds)  # noqa: TID251 - this module wraps it for the package


def backoff_seconds(attempt: int) -> float:
    """Wait before try `attempt` + 1, doubling from try to try, with jitter (half to whole)."""
    whole = min(BACKOFF_MOST_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** min(attempt - 1, 16))
    return whole * (0.5 + int.from_bytes(os.urandom(4)) / 2**33)


async def to_its_end(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """The result of work that continues if the caller is cancelled, for at most so many seconds."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=seconds)
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # no caller is left to receive it
        raise


Request = Callable[[Any], Awaitable[T]]
"""Gets botocore's client, makes one try."""

log = EventLog(__name__)


class Clients(Protocol):
    """Gives botocore's client (Connection)."""

    async def client(self) -> Any: ...


class Calls:
    """Makes requests through a connection; safe to use concurrently."""

    def __init__(
        self,
        connection: Clients,
        *,
        max_connections: int,
        call_timeout_ms: int,
        attempt_timeout_ms: int,
        pause: Pause,
    ) -> None:
        self._connection = connection
        self._slots = asyncio.Semaphore(max_connections)
        self._call_seconds = call_timeout_ms / 1000
        self._attempt_seconds = attempt_timeout_ms / 1000
        self._pause = pause

    @property
    def pause(self) -> Pause:
        """What waits between tries."""
        return self._pause

    @property
    def call_seconds(self) -> float:
        """Longest time a call takes."""
        return self._call_seconds

    async def run(
        self, operation: str, location: str, request: Request[T], *, patience: int = 1
    ) -> T:
        """The answer; errors are kip405's, with the last foreign error as their cause. A try may
        take `patience` times the attempt timeout.
        """
        loop = asyncio.get_running_loop()
        ends_at: float | None = None
        tried = 0
        while True:
            tried += 1
            try:
                client = await self._connection.client()
                ends_at = ends_at or loop.time() + self._call_seconds
                return await self._try(client, request, ends_at, self._attempt_seconds * patience)
            except FOREIGN_ERRORS as error:
                wait = backoff_seconds(tried)
                if tried >= verdict_of(error).tries or loop.time() + wait >= (ends_at or 0.0):
                    raise error_of_s3(error, operation, location) from error
                log.info(
                    "s3_retry", operation=operation, location=location, tried=tried, wait_s=wait
                )
            await self._pause(wait)

    async def _try(self, client: Any, request: Request[T], ends_at: float, seconds: float) -> T:
        async with asyncio.timeout_at(ends_at), self._slots:
            async with asyncio.timeout(seconds):
                return await _of_this_task(request(client))


async def _of_this_task(answer: Awaitable[T]) -> T:
    """The answer; a try that fails where this task was not cancelled is one to repeat.

    Where a server has answered before the end of a body was noticed, aiohttp cancels its own task
    that writes the body, and passes that on if this task counts as cancelled (`cancelling`). A task
    does so for ever in Python 3.11 and 3.12, once a TaskGroup of it has ended with an error.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        return await answer
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        raise aiohttp.ClientConnectionError("the answer came before the body was sent") from error


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers in the order of the calls."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise first_of(errors) from errors
    return [task.result() for task in tasks]


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that a group of tasks failed with."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

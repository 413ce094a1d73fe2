"""Calls to services: their channels, the errors of failed calls, and the watchdog of streams.

A channel is opened on first use, with TLS and credentials as configured; the metadata of calls
(principal, token) is here too. A stream can run longer than certificates and tokens are valid: when
their files change, later calls use the new ones. A failed call is described by rlm.v1.ErrorDetail,
or by the gRPC status if there is no detail. gRPC has deadlines for whole calls only, so the
watchdog cancels a stream when no message arrives in time. It watches a stream only while the
consumer waits for a message; a slow consumer never counts as a stalled service. This module must
not know what is requested.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import grpc

from kip405.bytes_field import split_bytes_field
from kip405.errors import Elsewhere, ErrorKind, OffsetOutOfRange, is_tls_refusal
from rlm.v1 import fetch_pb2, fetch_pb2_grpc
from rsm_plugins.contract.status import error_of_call, sent_error
from tiered_reads import clock
from tiered_reads.errors import ConnectorError
from tiered_reads.values import ServiceConnection, token_of

_MOST_MESSAGE_BYTES = 256 << 20
"""A message holds one batch at least, however large; Kafka's own limits are far below."""
_MOST_FRAME_BYTES = 1 << 20
"""A message comes in few pieces, of which each is copied into it by itself."""
_CONNECT_LIMIT_MS = 5_000
_FETCH = f"/{fetch_pb2.DESCRIPTOR.services_by_name['FetchService'].full_name}/Fetch"
_NOT_LET_IN = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_log: Final = logging.getLogger(__name__)

Stamps = tuple[tuple[int, int, int] | None, ...]


class Received(NamedTuple):
    """A FetchResponse: its batches, which are not copied, and all the rest."""

    batches: memoryview
    rest: fetch_pb2.FetchResponse


class Channels:
    """Stubs by address (host:port); thread-safe. ConnectorError: a TLS file cannot be read."""

    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._outdated: list[grpc.Channel] = []
        self._files = tuple(
            file
            for file in (connection.tls_ca_file, connection.tls_cert_file, connection.tls_key_file)
            if file is not None
        )
        self._stamps: Stamps = ()
        self._credentials: grpc.ChannelCredentials | None = None
        self._token = _Token(connection)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a call that begins now sends: the principal, and the token as it is now."""
        rows = [("rlm-principal", self._connection.principal)]
        token = self._token.current()
        if token is not None:
            rows.append(("authorization", f"Bearer {token}"))
        return tuple(rows)

    def stub(self, address: str) -> fetch_pb2_grpc.FetchServiceStub:
        """The fetch API of one service."""
        return fetch_pb2_grpc.FetchServiceStub(self._channel(address))

    def fetch(self, address: str, request: fetch_pb2.FetchRequest) -> Any:
        """The call of Fetch, whose answers are Received."""
        call = self._channel(address).unary_stream(
            _FETCH,
            request_serializer=fetch_pb2.FetchRequest.SerializeToString,
            response_deserializer=_received,
        )
        return call(request, metadata=self.metadata)

    def _channel(self, address: str) -> grpc.Channel:
        with self._lock:
            credentials = self._renewed() if self._connection.has_tls else None
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = self._open(address, credentials)
        return channel

    def close(self) -> None:
        """Close all; calls under way end."""
        with self._lock:
            channels = [*self._channels.values(), *self._outdated]
            self._channels, self._outdated = {}, []
        for channel in channels:
            channel.close()

    def _renewed(self) -> grpc.ChannelCredentials:
        """Credentials of the present files; calls under way continue with the old ones. If the
        files cannot be read any more, the old credentials stay.
        """
        stamps = tuple(_stamp(file) for file in self._files)
        if self._credentials is not None and stamps == self._stamps:
            return self._credentials
        connection = self._connection
        try:
            credentials = grpc.ssl_channel_credentials(
                root_certificates=_read(connection.tls_ca_file),
                private_key=_read(connection.tls_key_file),
                certificate_chain=_read(connection.tls_cert_file),
            )
        except ConnectorError as error:
            if self._credentials is None:
                raise
            _log.warning("event=tls_files_not_renewed error=%s", error)
            return self._credentials
        self._outdated += self._channels.values()
        self._channels = {}
        self._credentials, self._stamps = credentials, stamps
        return credentials

    def _open(self, address: str, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", _MOST_MESSAGE_BYTES),
            ("grpc.min_reconnect_backoff_ms", _CONNECT_LIMIT_MS),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", _CONNECT_LIMIT_MS),
            ("grpc.enable_http_proxy", 0),
            ("grpc.http2.max_frame_size", _MOST_FRAME_BYTES),
        ]
        connection = self._connection
        if credentials is None:
            return grpc.insecure_channel(address, options)
        if connection.tls_server_name:
            options.append(("grpc.ssl_target_name_override", connection.tls_server_name))
        return grpc.secure_channel(address, credentials, options)


def _received(message: bytes) -> Received:
    batches, rest = split_bytes_field(message, fetch_pb2.FetchResponse.BATCHES_FIELD_NUMBER)
    return Received(batches, fetch_pb2.FetchResponse.FromString(rest))


class _Token:
    """The token of a connection; thread-safe. A file that cannot be used leaves the former token,
    at first that of the driver, in force.
    """

    def __init__(self, connection: ServiceConnection) -> None:
        self._file = connection.token_file
        self._token = connection.token
        self._stamp: tuple[int, int, int] | None = None

    def current(self) -> str | None:
        """The token as it is now; None: none is sent."""
        if self._file is None:
            return self._token
        stamp = _stamp(self._file)
        if stamp is None or stamp == self._stamp:
            return self._token
        try:
            token = token_of(Path(self._file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            token = None
        if token is None:
            _log.warning("event=token_not_renewed file=%s", self._file)
        else:
            self._token = token
        self._stamp = stamp  # of before reading: what changes meanwhile is read again
        return self._token


def _stamp(file: str) -> tuple[int, int, int] | None:
    """Values that change with the file; None while it does not exist."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(file: str | None) -> bytes | None:
    if file is None:
        return None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConnectorError(f"cannot read {file}: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed call. `leader_address`: the service to call instead, empty if none was named.

    `log_start_offset`, `high_watermark`: the bound of the log that the requested offset violates,
    None where the service names none. `is_answered`: a service has let the caller in, and refused
    the call; otherwise gRPC has failed it, or the caller has no right to it.
    """

    kind: ErrorKind
    what: str
    leader_address: str = ""
    log_start_offset: int | None = None
    high_watermark: int | None = None
    is_answered: bool = False

    @property
    def lacks_bounds(self) -> bool:
        """Whether the offset may be outside the log: a service of an older version refuses it as
        INVALID without the bound.
        """
        return (
            self.is_answered
            and self.kind is ErrorKind.INVALID
            and self.log_start_offset is None
            and self.high_watermark is None
        )


def failure_of(error: grpc.RpcError, address: str) -> Failure:
    """The failure in the error's detail; without a detail, the one of the status code."""
    sent = sent_error(error)
    found = error_of_call(error, f"service at {address}") if sent is None else sent
    kind, what = found.kind, str(found)
    if sent is None:
        details = cast(grpc.Call, error).details() or ""
        if details.endswith("Socket closed"):
            what += " (rlm.tls.ca.file)"
        if kind is ErrorKind.UNAVAILABLE and is_tls_refusal(details):
            kind = ErrorKind.INVALID
    bounds = sent if isinstance(sent, OffsetOutOfRange) else None
    return Failure(
        kind=kind,
        what=what,
        leader_address=found.leader_address if isinstance(found, Elsewhere) else "",
        log_start_offset=None if bounds is None else bounds.log_start_offset,
        high_watermark=None if bounds is None else bounds.high_watermark,
        is_answered=sent is not None and cast(grpc.Call, error).code() not in _NOT_LET_IN,
    )


@dataclass(slots=True, eq=False)
class Watched:
    """One stream. `was_stalled`: the watchdog has cancelled it."""

    cancel: Callable[[], object]
    limit_ms: int
    since_ms: int | None = None
    was_stalled: bool = False

    def waits(self) -> None:
        """The consumer waits for the next message from now on."""
        self.since_ms = clock.monotonic_ms()

    def rests(self) -> None:
        """The consumer does not wait."""
        self.since_ms = None


class StallWatchdog:
    """Cancels a stream that waits longer than its limit, at most a quarter of the limit late."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextlib.contextmanager
    def watching(self, cancel: Callable[[], object], limit_ms: int) -> Iterator[Watched]:
        """Watch a stream while the block runs."""
        watched = Watched(cancel=cancel, limit_ms=limit_ms)
        with self._condition:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="rlm-stall-watchdog", daemon=True
                )
                self._thread.start()
            self._condition.notify()
        try:
            yield watched
        finally:
            with self._condition:
                self._watched.discard(watched)

    def close(self) -> None:
        """End the thread; streams are no longer watched."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                if self._closed:
                    return
                limits = [watched.limit_ms for watched in self._watched]
                self._condition.wait(min(limits) / 4000 if limits else None)
                watched = list(self._watched)
            now = clock.monotonic_ms()
            for one in watched:
                since = one.since_ms
                if since is not None and now - since >= one.limit_ms and not one.was_stalled:
                    one.was_stalled = True
                    one.cancel()

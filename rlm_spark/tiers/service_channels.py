"""Channels to services, opened on first use, with TLS and credentials as configured.

The metadata of calls (principal, token) is here too. A stream can run longer than certificates are
valid: when the TLS files change, later calls use the new ones. This module must not know what is
requested.
"""

import logging
import threading
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from kip405.bytes_field import split_bytes_field
from rlm.v1 import fetch_pb2, fetch_pb2_grpc
from rlm_spark.errors import ConnectorError
from rlm_spark.values import ServiceConnection

_MOST_MESSAGE_BYTES = 256 << 20
"""A message holds one batch at least, however large; Kafka's own limits are far below."""
_MOST_FRAME_BYTES = 1 << 20
"""A message comes in few pieces, of which each is copied into it by itself."""
_CONNECT_LIMIT_MS = 5_000
_FETCH = f"/{fetch_pb2.DESCRIPTOR.services_by_name['FetchService'].full_name}/Fetch"
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
        self.metadata = _metadata(connection)

    @property
    def size(self) -> int:
        """How many channels are open."""
        return len(self._channels)

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
        """Credentials of the files as they are now; calls under way go on by the old ones. Files
        that cannot be read any more leave what there is.
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


def _metadata(connection: ServiceConnection) -> tuple[tuple[str, str], ...]:
    rows = [("rlm-principal", connection.principal)]
    if connection.token is not None:
        rows.append(("authorization", f"Bearer {connection.token}"))
    return tuple(rows)


def _stamp(file: str) -> tuple[int, int, int] | None:
    """What changes with the file; None while it is not there."""
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

"""Single requests to a broker, on one short blocking connection.

A client library would retry, log and cache, and none that the sandbox has can create ACLs. SASL is
PLAIN here, which has no rounds.
"""

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_protocol.frames import encode_request, parse_response_header
from kafka_protocol.schema import Api, Value, decode
from rlm_sandbox.security.clients import ClientIdentity

_HOST = "127.0.0.1"
_CLIENT_ID = "rlm-sandbox"
_CORRELATION_ID = 1
_MAX_ANSWER_BYTES = 1 << 20


class NotAuthenticated(OSError):
    """The broker refused the principal."""


class BrokerCalls:
    """An open connection; answers are decoded. OSError, EOFError and WireError where it fails."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def call(self, request: Api, version: int, body: Mapping[str, Any]) -> Value:
        self._connection.sendall(
            encode_request(request, version, _CORRELATION_ID, _CLIENT_ID, body)
        )
        (size_bytes,) = struct.unpack(">i", self._receive(4))
        if not 0 < size_bytes <= _MAX_ANSWER_BYTES:
            raise EOFError(f"an answer of {size_bytes} bytes")
        frame = self._receive(size_bytes)
        _, position = parse_response_header(frame, request, version)
        value, _ = decode(request.response, version, frame, position)
        return value

    def authenticate(self, username: str, password: str) -> None:
        """SASL PLAIN; raises NotAuthenticated."""
        answer = self.call(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        if not answer["error_code"]:
            proof = f"\0{username}\0{password}".encode()
            answer = self.call(SASL_AUTHENTICATE, 0, {"auth_bytes": proof})
        if answer["error_code"]:
            raise NotAuthenticated(f"the broker refuses {username}: error {answer['error_code']}")

    def _receive(self, size_bytes: int) -> bytes:
        received = bytearray()
        while len(received) < size_bytes:
            piece = self._connection.recv(size_bytes - len(received))
            if not piece:
                raise EOFError
            received += piece
        return bytes(received)


@contextlib.contextmanager
def broker_calls(
    port: int, identity: ClientIdentity | None = None, *, timeout_s: float
) -> Iterator[BrokerCalls]:
    """A connection to a loopback port, as a principal or as nobody; raises OSError."""
    with contextlib.ExitStack() as opened:
        connection = opened.enter_context(socket.create_connection((_HOST, port), timeout_s))
        connection.settimeout(timeout_s)
        if identity is not None and identity.ca is not None:
            context = ssl.create_default_context(cafile=identity.ca)
            if identity.certificate is not None and identity.key is not None:
                context.load_cert_chain(identity.certificate, identity.key)
            wrapped = context.wrap_socket(connection, server_hostname=_HOST)
            connection = opened.enter_context(wrapped)
        calls = BrokerCalls(connection)
        if identity is not None and identity.username and identity.password:
            calls.authenticate(identity.username, identity.password)
        yield calls

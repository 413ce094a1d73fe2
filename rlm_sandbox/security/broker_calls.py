"""Single requests to a broker, on one short blocking connection.

A client library would retry, log and cache, and none that the sandbox has can create ACLs. SASL is
PLAIN here, which has no rounds.
"""

import contextlib
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_clients.security import TlsFiles
from kafka_clients.tls_context import make_tls_context
from kafka_protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_protocol.frames import FrameAssembler, decode_response, encode_request
from kafka_protocol.primitives import WireError
from kafka_protocol.sasl import PlainExchange
from kafka_protocol.schema import Api, Value
from rlm_sandbox.security.clients import ClientIdentity

_HOST = "127.0.0.1"
_CLIENT_ID = "rlm-sandbox"
_READ_BYTES = 65_536
_MAX_ANSWER_BYTES = 1 << 20


class NotAuthenticated(OSError):
    """The broker refused the principal."""


class BrokerCalls:
    """An open connection; answers are decoded. OSError, EOFError and WireError where it fails."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._assembler = FrameAssembler(_MAX_ANSWER_BYTES)
        self._last_id = 0

    def call(self, request: Api, version: int, body: Mapping[str, Any]) -> Value:
        self._last_id += 1
        frame = encode_request(request, version, self._last_id, _CLIENT_ID, body)
        self._connection.sendall(frame)
        answered_id, value = decode_response(request, version, self._frame())
        if answered_id != self._last_id:
            raise WireError(f"the answer is to request {answered_id}, not to {self._last_id}")
        return value

    def authenticate(self, username: str, password: str) -> None:
        """SASL PLAIN; raises NotAuthenticated."""
        exchange = PlainExchange(username, password)
        answer = self.call(SASL_HANDSHAKE, 1, {"mechanism": exchange.mechanism})
        if not answer["error_code"]:
            answer = self.call(SASL_AUTHENTICATE, 0, {"auth_bytes": exchange.first()})
        if answer["error_code"]:
            raise NotAuthenticated(f"the broker refuses {username}: error {answer['error_code']}")

    def _frame(self) -> bytearray:
        """The next answer: no further one comes before the next request."""
        while data := self._connection.recv(_READ_BYTES):
            for frame in self._assembler.feed(data):
                return frame
        raise EOFError


@contextlib.contextmanager
def broker_calls(
    port: int, identity: ClientIdentity | None = None, *, timeout_s: float
) -> Iterator[BrokerCalls]:
    """A connection to a loopback port, as a principal or as nobody; raises OSError, and Invalid
    where the files of the identity cannot be used.
    """
    with contextlib.ExitStack() as opened:
        connection = opened.enter_context(socket.create_connection((_HOST, port), timeout_s))
        connection.settimeout(timeout_s)
        if identity is not None and identity.ca is not None:
            context = make_tls_context(_tls_files(identity))
            wrapped = context.wrap_socket(connection, server_hostname=_HOST)
            connection = opened.enter_context(wrapped)
        calls = BrokerCalls(connection)
        if identity is not None and identity.username and identity.password:
            calls.authenticate(identity.username, identity.password)
        yield calls


def _tls_files(identity: ClientIdentity) -> TlsFiles:
    has_both = identity.certificate is not None and identity.key is not None
    return TlsFiles(
        ca_file=str(identity.ca),
        cert_file=str(identity.certificate) if has_both else None,
        key_file=str(identity.key) if has_both else None,
    )

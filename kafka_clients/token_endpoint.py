"""Fetches a token over HTTP: one request on a connection of its own, which the server then closes.

It needs no HTTP library, so that an executor of the connector needs none either.
"""

import asyncio
import http.client
import ssl
from io import BytesIO

from kafka_clients.bearer_tokens import (
    BearerToken,
    TokenAddress,
    TokenRefused,
    read_token_answer,
    shown_secrets,
    token_address,
    token_request,
)
from kafka_clients.security import CLIENT_SECRET_KEY, TlsFiles, TokenEndpoint
from kafka_clients.tls_context import make_tls_context, read_secret

_TIMEOUT_S = 10.0
"""Kafka's sasl.login.connect.timeout.ms and read.timeout.ms together."""
_MOST_ANSWER_BYTES = 256 << 10


async def fetch_token(login: TokenEndpoint, tls: TlsFiles) -> BearerToken:
    """A new token. TokenRefused: the endpoint gives none. OSError, TimeoutError: it does not
    answer. Invalid: a file of the settings cannot be read.
    """
    address = token_address(login.url)
    secret = read_secret(login.client_secret, f"{CLIENT_SECRET_KEY}.file")
    request = token_request(
        address,
        client_id=login.client_id,
        client_secret=secret,
        scope=login.scope,
        urlencodes_header=login.urlencodes_header,
    )
    async with asyncio.timeout(_TIMEOUT_S):
        status, body = _read_http(await _exchange(address, request, tls))
    return read_token_answer(status, body, shown_secrets(login.client_id, secret))


def shown_endpoint(url: str) -> str:
    """The URL without its query, fit for a log."""
    return url.partition("?")[0]


async def _exchange(address: TokenAddress, request: bytes, tls: TlsFiles) -> bytes:
    context = _context(tls) if address.is_tls else None
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    try:
        writer.write(request)
        received = bytearray()
        while data := await reader.read(64 << 10):
            received += data
            if len(received) > _MOST_ANSWER_BYTES:
                raise TokenRefused("its answer is too large")
        return bytes(received)
    finally:
        writer.close()


def _context(tls: TlsFiles) -> ssl.SSLContext:
    """The authorities of the brokers' certificates and the system's; never the client's own
    certificate, and the host name is always checked.
    """
    context = make_tls_context(TlsFiles(ca_file=tls.ca_file, ca_text=tls.ca_text))
    context.load_default_certs()
    return context


class _Received:
    """What http.client takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self._data)


def _read_http(data: bytes) -> tuple[int, bytes]:
    """Status and body of a whole answer."""
    answer = http.client.HTTPResponse(_Received(data))  # type: ignore[arg-type] # see _Received
    try:
        answer.begin()
        return answer.status, answer.read()
    except (http.client.HTTPException, ValueError) as error:
        raise TokenRefused(f"its answer is not HTTP: {type(error).__name__}") from None

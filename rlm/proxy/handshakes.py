"""TLS handshakes of the proxy, and why those of clients fail.

A client costs nothing at the broker before its handshake is complete, and has one deadline for all
of it. The text of a failure is OpenSSL's, or ours; it never has a byte that the peer has sent.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_HANDSHAKE_RECORD = 0x16  # the first byte of a ClientHello; of a Kafka request it is 0
_CAUSES = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "tls_no_certificate",
    "CERTIFICATE_VERIFY_FAILED": "tls_certificate_refused",
    "NO_SHARED_CIPHER": "tls_no_shared_cipher",
    "UNSUPPORTED_PROTOCOL": "tls_version",
    "UNKNOWN_PROTOCOL": "tls_version",
    "TLSV1_ALERT_PROTOCOL_VERSION": "tls_version",
}
_REFUSED_BY_PEER = "_ALERT_"


class HandshakeFailed(Exception):
    """There is no TLS connection; `cause` is the name for logs and metrics."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


async def accept(client: socket.socket, context: ssl.SSLContext, timeout_ms: int) -> ssl.SSLSocket:
    """The client's socket after its handshake. HandshakeFailed: it was closed."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await _require_hello(client)
            return await secured(
                lambda: context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
            )
    except TimeoutError as error:
        text = f"no TLS handshake within {timeout_ms} ms (proxy.handshake.timeout.ms)"
        raise HandshakeFailed("tls_timeout", text) from error
    except OSError as error:
        raise HandshakeFailed(cause_of(error), str(error)) from error
    finally:
        client.close()  # nothing, once its descriptor is that of the socket that is returned


def refuse_expired(resumed: ssl.SSLSocket, now_ms: int) -> None:
    """Certificates are verified in full handshakes, and sessions can be resumed for hours after
    them. HandshakeFailed: the client's certificate has expired since.
    """
    shown = resumed.getpeercert() if resumed.session_reused else None
    if shown and now_ms >= 1_000 * ssl.cert_time_to_seconds(str(shown["notAfter"])):
        text = f"the client's certificate has expired ({shown['notAfter']})"
        raise HandshakeFailed("tls_certificate_refused", text)


def cause_of(error: OSError) -> str:
    """A snake_case word for a failed handshake of a client."""
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "client_closed"
    reason = str(error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if reason in _CAUSES:
        return _CAUSES[reason]
    return "tls_refused_by_client" if _REFUSED_BY_PEER in reason else "tls_failed"


async def _require_hello(client: socket.socket) -> None:
    """A client without TLS is told from one whose TLS fails."""
    await _ready(client.fileno(), is_write=False)
    first = client.recv(1, socket.MSG_PEEK)
    if not first:
        raise HandshakeFailed("client_closed", "the client has closed its connection")
    if first[0] != _HANDSHAKE_RECORD:
        text = "the client speaks no TLS, and proxy.tls.cert.file asks for it: set its "
        raise HandshakeFailed("plain_on_tls", text + "security.protocol to SSL or SASL_SSL")


async def secured(wrap: Callable[[], ssl.SSLSocket]) -> ssl.SSLSocket:
    """The socket that `wrap` makes of a connected one, after its handshake. OSError, of which
    ssl.SSLError is one: it was closed.
    """
    wrapped = wrap()
    try:
        await done(wrapped, wrapped.do_handshake, is_write=False)
    except BaseException:
        wrapped.close()
        raise
    return wrapped


async def done(connected: socket.socket, call: Callable[[], T], *, is_write: bool) -> T:
    """What a call of a socket that does not block answers. `is_write`: what it waits for where
    there is no TLS, which says so itself.
    """
    while True:
        try:
            return call()
        except ssl.SSLWantReadError:
            await _ready(connected.fileno(), is_write=False)
        except (ssl.SSLWantWriteError, BlockingIOError) as error:
            await _ready(
                connected.fileno(), is_write=is_write or isinstance(error, ssl.SSLWantWriteError)
            )


async def _ready(fd: int, *, is_write: bool) -> None:
    """Until the socket can be read, or written."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    if is_write:
        loop.add_writer(fd, ready.set)
    else:
        loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(fd) if is_write else loop.remove_reader(fd)

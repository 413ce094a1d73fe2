"""Connects with the broker for one client, plain or with TLS, and logs in for one that is known by
its certificate. This module must not know frames.
"""

import asyncio
import socket
import ssl

import structlog

from kafka_protocol.primitives import WireError
from rlm.proxy.client_login import ClientLogin
from rlm.proxy.handshakes import secured
from rlm.proxy.session import SessionError
from rlm.proxy.settings import ProxySettings
from rlm.proxy.tls_files import TlsContexts
from rlm.proxy.tls_transport import TlsTransport

log = structlog.get_logger(__name__)


async def connect_broker(
    broker: asyncio.BufferedProtocol,
    settings: ProxySettings,
    tls: TlsContexts,
    login: ClientLogin | None = None,
) -> str | None:
    """Returns why the broker cannot be reached, as a word for metrics; None: the protocol has its
    connection. The cause is logged.
    """
    host, port = settings.upstream_host, settings.upstream_port
    try:
        if login is not None:
            await login.prepare()  # without a token no broker is connected
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            found = await _logged_in(settings, tls, login)
            if isinstance(found, ssl.SSLSocket):
                TlsTransport(found, broker).begin()
            else:
                await asyncio.get_running_loop().create_connection(lambda: broker, sock=found)
    except (SessionError, WireError) as error:
        cause = error.cause if isinstance(error, SessionError) else "bad_frame"
        who = {} if login is None else {"address": login.address, "subject": login.subject}
        log.warning("client_not_logged_in", cause=cause, error=str(error), **who)
        return cause
    except OSError as error:
        cause = "broker_tls_failed" if isinstance(error, ssl.SSLError) else "broker_unreachable"
        log.warning(cause, host=host, port=port, error=str(error))
        return cause
    return None


async def _logged_in(
    settings: ProxySettings, tls: TlsContexts, login: ClientLogin | None
) -> socket.socket:
    """A connection that takes requests of the client."""
    while True:
        found = await _reached(settings, tls)
        try:
            if login is None or await login.first(found):
                return found
        except BaseException:
            found.close()
            raise
        found.close()


async def _reached(settings: ProxySettings, tls: TlsContexts) -> socket.socket:
    host, port = settings.upstream_host, settings.upstream_port
    if tls.upstream is None:
        return await _connected(host, port)
    name = tls.upstream_name or host
    return await _connect_tls(host, port, tls.upstream.current(), name)


async def _connect_tls(
    host: str, port: int, context: ssl.SSLContext, server_name: str
) -> ssl.SSLSocket:
    """After the handshake. OSError, of which ssl.SSLError is one."""
    plain = await _connected(host, port)
    try:
        return await secured(
            lambda: context.wrap_socket(
                plain, do_handshake_on_connect=False, server_hostname=server_name
            )
        )
    finally:
        plain.close()  # nothing, once its descriptor is that of the socket that is returned


async def _connected(host: str, port: int) -> socket.socket:
    """To the first address of the host that takes the connection."""
    loop = asyncio.get_running_loop()
    failure = OSError(f"{host} has no address")
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, number, _, address in found:
        plain = socket.socket(family, kind, number)
        try:
            plain.setblocking(False)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(plain, address)
        except BaseException as error:
            plain.close()
            if not isinstance(error, OSError):
                raise
            failure = error
        else:
            return plain
    raise failure

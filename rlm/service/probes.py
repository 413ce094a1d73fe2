"""What a supervisor asks of one running service of this machine, with Kubernetes' names.

None of the checks depends on ledger or store: a service that waits for these still passes bytes
(G6), and to restart it or to take it away from its clients would help nobody. This module must not
know who supervises.
"""

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_protocol.apis import API_VERSIONS
from kafka_protocol.frames import FrameAssembler, decode_response, encode_request
from kafka_protocol.primitives import WireError
from kip405.addresses import Address
from kip405.errors import Unavailable
from rlm.config import CommonConfig, ServiceConfig, load, load_reader

STARTUP, READINESS, LIVENESS = "startup", "readiness", "liveness"
_CLIENT_ID = "rlm-probe"
_VERSION = 0
_CORRELATION_ID = 1
_MOST_BYTES = 1 << 20
_OK = 200


def probe_reader(check: str, path: Path, timeout_s: float) -> None:
    """Ask the reader with the settings at `path`. Unavailable: it is not so. `timeout_s`: of each
    step.
    """
    _http(load_reader(path), "/readyz" if check == READINESS else "/healthz", timeout_s)


def probe_service(check: str, path: Path, timeout_s: float) -> None:
    """Likewise of a broker's service."""
    config = load(path)
    if check == LIVENESS:
        _http(config, "/healthz", timeout_s)
    elif check == STARTUP or _asks_for_certificates(config):
        _listens(config, timeout_s)
    else:
        _passes(config, timeout_s)


def _asks_for_certificates(config: ServiceConfig) -> bool:
    """Then nobody without one gets through the proxy, and the probe has none."""
    return config.serves_tls and config.proxy_tls_client_auth == "required"


def _http(config: CommonConfig, path: str, timeout_s: float) -> None:
    here = _reachable(config.http_listen)
    if config.http_tls_cert_file is None:
        connection = http.client.HTTPConnection(here.host, here.port, timeout=timeout_s)
    else:
        context = _any_certificate()
        connection = http.client.HTTPSConnection(
            here.host, here.port, timeout=timeout_s, context=context
        )
    with _named(f"http://{here}{path}"):
        try:
            connection.request("GET", path)
            status = connection.getresponse().status
        finally:
            connection.close()
    if status != _OK:
        raise Unavailable(f"{here}{path}: status {status}")


def _listens(config: ServiceConfig, timeout_s: float) -> None:
    here = _reachable(config.proxy_listen)
    with _named(f"proxy at {here}"):
        socket.create_connection((here.host, here.port), timeout_s).close()


def _passes(config: ServiceConfig, timeout_s: float) -> None:
    """ApiVersions is what every broker answers before anybody has said who he is."""
    here = _reachable(config.proxy_listen)
    request = encode_request(API_VERSIONS, _VERSION, _CORRELATION_ID, _CLIENT_ID, {})
    with (
        _named(f"{API_VERSIONS.name} through the proxy at {here}"),
        socket.create_connection((here.host, here.port), timeout_s) as plain,
        _secured(plain, config) as stream,
    ):
        stream.sendall(request)
        decode_response(API_VERSIONS, _VERSION, _frame_of(stream))


def _secured(plain: socket.socket, config: ServiceConfig) -> socket.socket:
    return _any_certificate().wrap_socket(plain) if config.serves_tls else plain


def _any_certificate() -> ssl.SSLContext:
    """The probe asks an address of its own machine, which no certificate has, and sends no
    secret.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _frame_of(stream: socket.socket) -> bytearray:
    assembler = FrameAssembler(_MOST_BYTES)
    while True:
        received = stream.recv(_MOST_BYTES)
        if not received:
            raise Unavailable("the connection was closed before the answer was complete")
        frames = assembler.feed(received)
        if frames:
            return frames[0]


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        raise Unavailable(f"{what}: {error}") from error
    except (OSError, http.client.HTTPException, WireError) as error:
        raise Unavailable(f"{what}: {str(error) or type(error).__name__}") from error


def _reachable(address: Address) -> Address:
    """An address that listens everywhere is asked on loopback."""
    if not address.is_wildcard:
        return address
    return Address(host="::1" if ":" in address.host else "127.0.0.1", port=address.port)

"""Reads when the certificates in this service's PEM files expire: every minute, off the event loop.

TLS itself gives no warning: the first sign of an expired certificate is a failed handshake. Of a
certificate that the service presents, the whole chain must be valid. Of a file of trusted
authorities, one valid certificate is enough. Files of the proxy are tried together, too: those that
do not fit each other were replaced, but are not in use.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kip405.errors import Invalid
from rlm.clock import Clock
from rlm.config import CommonConfig, ServiceConfig
from rlm.config.proxy_tls import ProxyTlsConfig
from rlm.plans.problem_rules import CertificateFile
from rlm.proxy.tls_files import ProxyTls
from rsm_plugins.threads import Threads

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION = 0x30, 0xA0
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_CENTURY_TURNS_AT = 50
_CHECK_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePath:
    """A file and its purpose. `is_shown`: the chain is presented to others; else it is trusted."""

    path: Path
    use: str
    is_shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesTogether:
    """Files that are used together. `use_them` raises Invalid where that is not possible."""

    path: Path
    use: str
    use_them: Callable[[], object]


def certificate_paths(config: CommonConfig) -> tuple[CertificatePath, ...]:
    """Every file of certificates that the configuration names; keys do not expire."""
    rows: list[tuple[Path | None, str, bool]] = [
        (config.grpc_tls_cert_file, "certificate of the gRPC API (grpc.tls.cert.file)", True),
        (config.grpc_tls_client_ca_file, "who may call (grpc.tls.client.ca.file)", False),
        (config.grpc_tls_ca_file, "authorities of the peers (grpc.tls.ca.file)", False),
        (config.http_tls_cert_file, "certificate of HTTP (http.tls.cert.file)", True),
        (
            config.kafka_ssl_keystore_location,
            "certificate of the Kafka clients (kafka.ssl.keystore.location)",
            True,
        ),
        (
            config.kafka_ssl_truststore_location,
            "authorities of the brokers (kafka.ssl.truststore.location)",
            False,
        ),
    ]
    if isinstance(config, ProxyTlsConfig):
        rows += _of_listener(config)
    if isinstance(config, ServiceConfig):
        rows += _of_upstream(config)
    for store in config.stores:
        if store.tls is not None:
            owner = f"store {store.name}"
            rows.append((store.tls.cert_file, f"{owner}: plugin.tls.cert.file", True))
            rows.append((store.tls.ca_file, f"{owner}: plugin.tls.ca.file", False))
    return tuple(
        CertificatePath(path=path, use=use, is_shown=is_shown)
        for path, use, is_shown in rows
        if path is not None
    )


def _of_listener(config: ProxyTlsConfig) -> list[tuple[Path | None, str, bool]]:
    clients = "proxy.tls"
    return [
        (config.proxy_tls_cert_file, f"certificate of the proxy ({clients}.cert.file)", True),
        (config.proxy_tls_client_ca_file, f"Kafka clients ({clients}.client.ca.file)", False),
    ]


def _of_upstream(config: ServiceConfig) -> list[tuple[Path | None, str, bool]]:
    broker = "broker.tiered.tls"
    return [
        (config.broker_tiered_tls_ca_file, f"the broker ({broker}.ca.file)", False),
        (config.broker_tiered_tls_cert_file, f"the proxy to it ({broker}.cert.file)", True),
    ]


def files_together(tls: ProxyTls) -> tuple[FilesTogether, ...]:
    """Those of the proxy. Its processes read them by themselves, so they are tried here again."""
    found = []
    if tls.listener is not None:
        path, use = Path(tls.listener.cert_file), "TLS of the proxy (proxy.tls.*)"
        found.append(FilesTogether(path=path, use=use, use_them=tls.listener.context))
    if tls.upstream is not None:
        path, use = Path(tls.upstream.ca_file), "TLS to the broker (broker.tiered.tls.*)"
        found.append(FilesTogether(path=path, use=use, use_them=tls.upstream.context))
    return tuple(found)


class Certificates:
    """Checks the files periodically. `files` is the result of the last check."""

    def __init__(
        self,
        paths: Sequence[CertificatePath],
        clock: Clock,
        threads: Threads,
        together: Sequence[FilesTogether] = (),
    ) -> None:
        self._paths = tuple(paths)
        self._together = tuple(together)
        self._clock = clock
        self._threads = threads
        self.files: tuple[CertificateFile, ...] = ()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.check()
            await self._clock.sleep_ms(_CHECK_EVERY_MS)

    async def check(self) -> None:
        """Read all files now."""
        found = [await self._threads.run(read_file, path) for path in self._paths]
        tried = [await self._threads.run(try_files, one) for one in self._together]
        self.files = (*found, *(one for one in tried if one is not None))


def try_files(files: FilesTogether) -> CertificateFile | None:
    """Why they cannot be used as they are now; None: they can. Blocking."""
    try:
        files.use_them()
    except Invalid as error:
        return CertificateFile(
            path=str(files.path),
            use=files.use,
            ends_at_ms=None,
            error=str(error),
            is_in_use=False,
        )
    return None


def read_file(file: CertificatePath) -> CertificateFile:
    """When the certificates of the file expire, or why that is not known. Blocking."""
    ends: list[int] = []
    error = None
    try:
        ends = list(ends_of(file.path.read_bytes()))
    except OSError as failed:
        error = f"cannot be read: {failed.strerror}"
    except Invalid as failed:
        error = str(failed)
    of_all = min if file.is_shown else max
    return CertificateFile(
        path=str(file.path),
        use=file.use,
        ends_at_ms=of_all(ends) if ends else None,
        error=error,
    )


def ends_of(pem: bytes) -> Iterator[int]:
    """The expiry (wall ms) of each certificate in a PEM file; Invalid where there is none."""
    for block in _BLOCK.findall(pem):
        try:
            der = base64.b64decode(b"".join(block.split()), validate=True)
            yield _end_of(der)
        except (binascii.Error, ValueError, IndexError) as error:
            raise Invalid(f"a certificate of it is damaged: {error}") from error


def _end_of(der: bytes) -> int:
    """notAfter of one X.509 certificate. Source: RFC 5280, 4.1: the fields of TBSCertificate."""
    to_be_signed = _value(_value(der))
    fields = [tag_and_value for tag_and_value in _values(to_be_signed)]
    if fields[0][0] == _VERSION:
        del fields[0]
    _serial, _algorithm, _issuer, (tag, validity), *_rest = fields
    if tag != _SEQUENCE:
        raise ValueError("there is no validity")
    _begin, (tag, text) = _values(validity)
    return _time_ms(tag, text.decode("ascii"))


def _time_ms(tag: int, text: str) -> int:
    if tag == _UTC_TIME:
        century = "20" if int(text[:2]) < _CENTURY_TURNS_AT else "19"
        text = century + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"tag {tag} is no time")
    moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _value(data: bytes) -> bytes:
    """The content of the SEQUENCE that data begins with."""
    tag, value = next(_values(data))
    if tag != _SEQUENCE:
        raise ValueError(f"tag {tag} where a sequence must be")
    return value


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each DER value in a sequence of values."""
    at = 0
    while at < len(data):
        tag, size, at = data[at], data[at + 1], at + 2
        if size & 0x80:
            width = size & 0x7F
            size, at = int.from_bytes(data[at : at + width], "big"), at + width
        if at + size > len(data):
            raise ValueError("it ends too early")
        yield tag, data[at : at + size]
        at += size

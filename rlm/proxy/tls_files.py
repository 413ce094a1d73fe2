"""TLS of the proxy as values, towards clients and towards the broker, and contexts made of them.

A value has paths only, so that it can be given to a worker and logged. A context is made of the
files as they are now; whoever holds the value decides when it is made again. A connection keeps the
context with which it began, so a renewal cuts none. This module must not know connections.
"""

import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from kafka_clients.security import TlsFiles
from kafka_clients.tls_context import TRUSTS_EACH, TlsNames, make_tls_context
from kip405.errors import Invalid

CLIENT_AUTH: Mapping[str, ssl.VerifyMode] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
VERSIONS: Mapping[str, ssl.TLSVersion] = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_PASSWORD_KEY = "broker.tiered.tls.key.password.file"  # noqa: S105 - a name
_UPSTREAM_NAMES = TlsNames(
    truststore="broker.tiered.tls.ca.file",
    keystore="broker.tiered.tls.cert.file",
    key_password=_PASSWORD_KEY,
    key_password_file=_PASSWORD_KEY,
)
_REFUSED_OPTIONS = ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTls:
    """What the proxy shows to clients and asks of them: `proxy.tls.*`; an empty path is none."""

    cert_file: str
    key_file: str
    key_password_file: str = ""
    client_ca_file: str = ""
    client_auth: str = "none"
    min_version: str = "TLSv1.2"
    ciphers: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files to check for a renewal."""
        return _paths(self.cert_file, self.key_file, self.key_password_file, self.client_ca_file)

    def context(self) -> ssl.SSLContext:
        """Of the files as they are now. Invalid names what cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= _REFUSED_OPTIONS
        context.minimum_version = VERSIONS[self.min_version]
        if self.ciphers:
            _choose_ciphers(context, self.ciphers)
        _show(context, self.cert_file, self.key_file, self.key_password_file)
        if self.client_ca_file:
            _trust(context, self.client_ca_file)
        context.verify_mode = CLIENT_AUTH[self.client_auth]
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTls:
    """Which brokers the proxy trusts and what it shows to them: `broker.tiered.tls.*`.

    `server_name` is the name expected in the broker's certificate if it is not the dialled host.
    """

    ca_file: str
    cert_file: str = ""
    key_file: str = ""
    key_password_file: str = ""
    server_name: str = ""
    checks_name: bool = True

    @property
    def files(self) -> tuple[Path, ...]:
        """The files to check for a renewal."""
        return _paths(self.ca_file, self.cert_file, self.key_file, self.key_password_file)

    def context(self) -> ssl.SSLContext:
        """Of the files as they are now, made as for all clients of brokers. Invalid names what
        cannot be used.
        """
        files = TlsFiles(
            ca_file=self.ca_file,
            cert_file=self.cert_file or None,
            key_file=self.key_file or None,
            key_password=Path(self.key_password_file) if self.key_password_file else None,
            checks_host_name=self.checks_name,
        )
        context = make_tls_context(files, _UPSTREAM_NAMES)
        context.options |= _REFUSED_OPTIONS
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyTls:
    """TLS of both sides; None = plain."""

    listener: ListenerTls | None = None
    upstream: UpstreamTls | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "ProxyTls":
        """What `asdict` has made of one; what a later version has added is left out."""
        listener, upstream = content.get("listener"), content.get("upstream")
        return cls(
            listener=None if listener is None else ListenerTls(**_known(ListenerTls, listener)),
            upstream=None if upstream is None else UpstreamTls(**_known(UpstreamTls, upstream)),
        )

    def as_json(self) -> dict[str, Any]:
        """For the settings of a worker."""
        return asdict(self)


class Contexts(Protocol):
    """A context that is renewed with its files."""

    def current(self) -> ssl.SSLContext:
        """Of the files as they are, or as they last could be used."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsContexts:
    """The contexts of both sides; None = plain. `upstream_name`: see `UpstreamTls.server_name`."""

    listener: Contexts | None = None
    upstream: Contexts | None = None
    upstream_name: str = ""


PLAIN = TlsContexts()


def _known(kind: type[Any], content: Mapping[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in content.items() if name in names}


def _paths(*names: str) -> tuple[Path, ...]:
    return tuple(Path(name) for name in names if name)


def _choose_ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError as error:
        raise Invalid(f"proxy.tls.ciphers: OpenSSL knows none of {ciphers!r}") from error


def _show(context: ssl.SSLContext, cert_file: str, key_file: str, password_file: str) -> None:
    password = ""  # never asked for on a terminal
    if password_file:
        password = _text(password_file).rstrip("\r\n")
    for name in (cert_file, key_file):
        _text(name)
    try:
        context.load_cert_chain(cert_file, key_file, password=password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM, or of two keys"
        raise Invalid(
            f"{cert_file} and {key_file} are not a certificate and its key ({reason})"
            + ("" if password_file else "; a key with a password needs its password file")
        ) from None


def _trust(context: ssl.SSLContext, ca_file: str) -> None:
    _text(ca_file)
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise Invalid(f"{ca_file} is not a PEM file of certificates ({reason})") from error
    context.verify_flags |= TRUSTS_EACH


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise Invalid(f"{name} is not PEM") from None

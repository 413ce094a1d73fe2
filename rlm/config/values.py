"""Kinds of values of a setting, and `Setting`, a row of a table of settings. Pure.

Each kind reads a YAML value or says what is allowed. `ConfigError` is the only error of a
configuration.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kip405.addresses import Address
from kip405.errors import Invalid


class ValueRefused(Exception):
    """The value is not of the kind; the message is what follows `got`."""


Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of value: `allowed` completes the words `must be`; `read` converts or refuses."""

    allowed: str
    read: Reader


def integer(least: int, most: int | None = None) -> Kind:
    """A whole number within [least, most]."""

    def read(value: Any) -> int:
        if type(value) is not int or value < least or (most is not None and value > most):
            raise ValueRefused(repr(value))
        return value

    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    return Kind(allowed=f"a whole number {limits}", read=read)


def number(least: float) -> Kind:
    """A number, whole or not, of at least `least`."""

    def read(value: Any) -> float:
        if type(value) not in (int, float) or not least <= value < math.inf:
            raise ValueRefused(repr(value))
        return float(value)

    return Kind(allowed=f"a number of at least {least:g}", read=read)


def choice(*names: str | int) -> Kind:
    """One of the given values."""

    def read(value: Any) -> str | int:
        for name in names:
            if type(value) is type(name) and value == name:
                return name
        raise ValueRefused(repr(value))

    listed = " or ".join(str(name) for name in names)
    return Kind(allowed=listed, read=read)


def not_alone(allowed: str) -> Kind:
    """A value that makes sense together with others only: the loader reads it."""

    def read(value: Any) -> Any:
        return value

    return Kind(allowed=allowed, read=read)


def _read_flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueRefused(repr(value))
    return value


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueRefused(repr(value))
    return value.strip()


def _read_words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueRefused(repr(value))
    return tuple(_read_text(item) for item in value)


def _read_path(value: Any) -> Path:
    path = Path(_read_text(value)).expanduser()
    if not path.is_absolute():
        raise ValueRefused(f"{value!r}, which is not absolute")
    return path


def _read_paths(value: Any) -> tuple[Path, ...]:
    """A YAML list, or Kafka's comma-separated text."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise ValueRefused(repr(value))
    paths = tuple(_read_path(item) for item in items)
    if len(set(paths)) != len(paths):
        raise ValueRefused(f"{value!r}, which names a directory twice")
    return paths


def _read_tcp(value: Any) -> Address:
    address = _read_any_address(value)
    if address.is_unix:
        raise ValueRefused(repr(value))
    return address


def _read_any_address(value: Any) -> Address:
    text = _read_text(value)
    try:
        return Address.parse(text)
    except Invalid as error:
        raise ValueRefused(str(error)) from error


def _read_addresses(value: Any) -> tuple[Address, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise ValueRefused(repr(value))
    return tuple(_read_tcp(item) for item in items)


FLAG = Kind(allowed="true or false", read=_read_flag)
TEXT = Kind(allowed="a text", read=_read_text)
WORDS = Kind(allowed="a list of words", read=_read_words)
PATH = Kind(allowed="an absolute path", read=_read_path)
PATHS = Kind(allowed="a list of different absolute paths", read=_read_paths)
TCP = Kind(allowed="host:port", read=_read_tcp)
ADDRESS = Kind(allowed="host:port or unix:/path", read=_read_any_address)
ADDRESSES = Kind(allowed="a list of host:port", read=_read_addresses)


REQUIRED = object()
"""Default of a setting that must be given (or found in the broker's files)."""

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table. `default_doc` describes a default that is computed."""

    key: str
    kind: Kind
    default: Any
    doc: str
    unit: str = ""
    secret: bool = False
    default_doc: str = ""


def _not_yet(key: str, doc: str, *, secret: bool = False) -> Setting:
    return Setting(key=key, kind=TEXT, default=None, doc=doc, secret=secret)


NOT_YET = (
    _not_yet("kafka.security.protocol", "Protocol of the Kafka clients, which speak PLAINTEXT."),
    _not_yet("kafka.sasl.mechanism", "SASL mechanism."),
    _not_yet("kafka.sasl.username", "User name for SASL."),
    _not_yet("kafka.sasl.password", "Password for SASL.", secret=True),
    _not_yet("kafka.ssl.truststore.location", "PEM file of trusted certificates."),
    _not_yet("kafka.ssl.keystore.location", "PEM file of the client's certificate and key."),
    _not_yet("kafka.ssl.key.password", "Password of that key.", secret=True),
)
"""Settings of secured Kafka clients: named, and refused until they work."""


class ConfigError(Exception):
    """One line that names the setting and what is allowed."""

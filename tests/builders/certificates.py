"""Throwaway certificates for TLS tests, made with nothing but Python: ECDSA over P-256, X.509 v3.

Fit for tests only: the arithmetic takes no care of side channels.
"""

import base64
import hashlib
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Point = tuple[int, int] | None

_EC_PUBLIC_KEY = "1.2.840.10045.2.1"
_PRIME256V1 = "1.2.840.10045.3.1.7"
_ECDSA_SHA256 = "1.2.840.10045.4.3.2"
_COMMON_NAME = "2.5.4.3"
_BASIC_CONSTRAINTS = "2.5.29.19"
_ALTERNATIVE_NAMES = "2.5.29.17"
_PAST, _FUTURE = b"210101000000Z", b"491231235959Z"


def _add(a: _Point, b: _Point) -> _Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % _P == 0:
        return None
    if a == b:
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, _P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P)
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _times(factor: int) -> tuple[int, int]:
    total: _Point = None
    step: _Point = _G
    while factor:
        if factor & 1:
            total = _add(total, step)
        step = _add(step, step)
        factor >>= 1
    assert total is not None
    return total


def der(tag: int, *parts: bytes) -> bytes:
    """One value in DER."""
    body = b"".join(parts)
    size = len(body)
    if size < 128:
        return bytes((tag, size)) + body
    width = (size.bit_length() + 7) // 8
    return bytes((tag, 0x80 | width)) + size.to_bytes(width, "big") + body


def _integer(value: int) -> bytes:
    return der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _oid(text: str) -> bytes:
    first, second, *others = (int(part) for part in text.split("."))
    out = bytes((40 * first + second,))
    for part in others:
        digits = [part & 0x7F]
        while part := part >> 7:
            digits.append(0x80 | part & 0x7F)
        out += bytes(reversed(digits))
    return der(0x06, out)


def _bits(data: bytes) -> bytes:
    return der(0x03, b"\0", data)


def _sequence(*parts: bytes) -> bytes:
    return der(0x30, *parts)


def _name(text: str) -> bytes:
    return _sequence(der(0x31, _sequence(_oid(_COMMON_NAME), der(0x0C, text.encode()))))


def _pem(label: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


class _Key:
    def __init__(self) -> None:
        self._secret = int.from_bytes(os.urandom(40), "big") % (_N - 1) + 1
        x, y = _times(self._secret)
        self._point = b"\4" + x.to_bytes(32, "big") + y.to_bytes(32, "big")

    @property
    def public(self) -> bytes:
        return _sequence(_sequence(_oid(_EC_PUBLIC_KEY), _oid(_PRIME256V1)), _bits(self._point))

    @property
    def pem(self) -> str:
        encoded = _sequence(
            _integer(1),
            der(0x04, self._secret.to_bytes(32, "big")),
            der(0xA0, _oid(_PRIME256V1)),
            der(0xA1, _bits(self._point)),
        )
        return _pem("EC PRIVATE KEY", encoded)

    @property
    def pkcs8(self) -> str:
        """As Java reads it."""
        inner = _sequence(
            _integer(1),
            der(0x04, self._secret.to_bytes(32, "big")),
            der(0xA1, _bits(self._point)),
        )
        algorithm = _sequence(_oid(_EC_PUBLIC_KEY), _oid(_PRIME256V1))
        return _pem("PRIVATE KEY", _sequence(_integer(0), algorithm, der(0x04, inner)))

    def sign(self, data: bytes) -> bytes:
        digest = int.from_bytes(hashlib.sha256(data).digest(), "big")
        once = int.from_bytes(os.urandom(40), "big") % (_N - 1) + 1
        r = _times(once)[0] % _N
        s = pow(once, -1, _N) * (digest + r * self._secret) % _N
        return _sequence(_integer(r), _integer(s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """PEM files of one certificate."""

    cert_file: Path
    key_file: Path
    both_file: Path
    """Key (PKCS 8) and certificate, as Kafka's PEM key stores have them."""


class Authority:
    """A certificate authority; its own certificate is `ca_file`, of `issuer` or of itself."""

    def __init__(
        self, folder: Path, name: str = "authority", issuer: "Authority | None" = None
    ) -> None:
        self._folder = folder
        self._name = name
        self._key = _Key()
        constraints = _sequence(der(0x01, b"\xff"))
        self.ca_file = folder / f"{name}.pem"
        self.ca_file.write_text(
            (issuer or self)._certificate(name, self._key, _BASIC_CONSTRAINTS, constraints),
            encoding="ascii",
        )

    def issue(
        self, name: str, *alternatives: str, is_expired: bool = False, end: bytes = _FUTURE
    ) -> Certificate:
        """A certificate for the names (DNS names or IP addresses). `end` as X.509 writes times."""
        key = _Key()
        names = _sequence(*(_alternative(text) for text in alternatives or (name,)))
        found = Certificate(
            cert_file=self._folder / f"{self._name}-{name}.pem",
            key_file=self._folder / f"{self._name}-{name}.key",
            both_file=self._folder / f"{self._name}-{name}-both.pem",
        )
        end = _PAST if is_expired else end
        text = self._certificate(name, key, _ALTERNATIVE_NAMES, names, end)
        found.cert_file.write_text(text, encoding="ascii")
        found.key_file.write_text(key.pem, encoding="ascii")
        found.both_file.write_text(key.pkcs8 + text, encoding="ascii")
        return found

    def _certificate(
        self, name: str, key: _Key, extension: str, value: bytes, end: bytes = _FUTURE
    ) -> str:
        algorithm = _sequence(_oid(_ECDSA_SHA256))
        extensions = _sequence(_sequence(_oid(extension), der(0x01, b"\xff"), der(0x04, value)))
        tbs = _sequence(
            der(0xA0, _integer(2)),
            _integer(int.from_bytes(os.urandom(8), "big")),
            algorithm,
            _name(self._name),
            _sequence(der(0x17, b"200101000000Z"), _time(end)),
            _name(name),
            key.public,
            der(0xA3, extensions),
        )
        return _pem("CERTIFICATE", _sequence(tbs, algorithm, _bits(self._key.sign(tbs))))


def _time(text: bytes) -> bytes:
    """UTCTime, or GeneralizedTime where the year has four digits."""
    return der(0x17 if len(text) == len(_PAST) else 0x18, text)


def _alternative(text: str) -> bytes:
    try:
        return der(0x87, ipaddress.ip_address(text).packed)
    except ValueError:
        return der(0x82, text.encode("ascii"))

"""Certificates of a secured sandbox: an authority that is made at the first start, and what it
signs. ECDSA over P-256, keys in PKCS#8, all in PEM.

Tests may issue more (expired ones, other names) from the authority's files.
"""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rlm_sandbox.files import write_atomically
from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.principals import BROKER, PRINCIPALS, SERVICE, SUBJECT_ORGANISATION

_LIFETIME = timedelta(days=3650)
_SLACK = timedelta(hours=1)
"""Clocks of containers and hosts differ."""

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """PEM texts of a certificate and its private key."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, *, now: datetime) -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject("authority")
        builder = _builder(name, name, key, begin=now - _SLACK, end=now + _LIFETIME)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, False)
        builder = builder.add_extension(_key_usage(signs_certificates=True), True)
        return cls(certificate=builder.sign(key, hashes.SHA256()), key=key)

    @classmethod
    def load(cls, files: SecurityFiles) -> Self:
        key = serialization.load_pem_private_key(files.ca_key.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{files.ca_key} has no key of an elliptic curve")
        return cls(certificate=x509.load_pem_x509_certificate(files.ca.read_bytes()), key=key)

    @property
    def pem(self) -> str:
        """Its certificate."""
        return _pem(self.certificate)

    def issue(
        self,
        name: str,
        *,
        begin: datetime,
        end: datetime,
        server_names: tuple[str, ...] = (),
    ) -> Issued:
        """A certificate for a client, and with `server_names` for a server too."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(name), self.certificate.subject, key, begin=begin, end=end)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(authority, False)
        builder = builder.add_extension(_key_usage(signs_certificates=False), True)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if server_names:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_alternative(text) for text in server_names])
            builder = builder.add_extension(names, False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False)
        signed = builder.sign(self.key, hashes.SHA256())
        return Issued(certificate=_pem(signed), key=_key_pem(key))


def make_certificates(files: SecurityFiles, *, now_ms: int) -> None:
    """Write authority and certificates where there are none."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if not files.ca.exists():
        made = Authority.make(now=now)
        write_atomically(files.ca_key, _key_pem(made.key), private=True)
        write_atomically(files.ca, made.pem)
    authority = Authority.load(files)
    for name in PRINCIPALS:
        if files.keystore(name).exists():
            continue
        issued = authority.issue(
            name,
            begin=now - _SLACK,
            end=now + _LIFETIME,
            server_names=_LOOPBACK_NAMES if name in (BROKER, SERVICE) else (),
        )
        write_issued(issued, files.certificate(name), files.key(name))
        write_atomically(files.keystore(name), issued.key + issued.certificate, private=True)


def write_issued(issued: Issued, certificate: Path, key: Path) -> None:
    """The key can be read by its owner only."""
    write_atomically(certificate, issued.certificate)
    write_atomically(key, issued.key, private=True)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _subject(name: str) -> x509.Name:
    """Kafka shows it in the reverse order: `CN=reader,O=kafka-rlm sandbox`."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, SUBJECT_ORGANISATION),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode("ascii")

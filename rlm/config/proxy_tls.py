"""Settings of TLS towards Kafka clients, of the proxy beside a broker and of an attached reader's.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kip405.errors import Invalid
from kip405.settings import PATH, TEXT, choice, rows_of, setting
from rlm.config.common import CommonConfig
from rlm.config.common import milliseconds as _ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyTlsConfig(CommonConfig):
    """What the proxy shows to Kafka clients and asks of them."""

    proxy_tls_cert_file: Path | None = setting(
        "proxy.tls.cert.file",
        PATH,
        "PEM file with the certificate chain that the proxy shows to Kafka clients, its own "
        "certificate first. With it the proxy speaks TLS at proxy.listen, and nothing else. Files "
        "are read again when they change; open connections stay.",
        default=None,
    )
    proxy_tls_key_file: Path | None = setting(
        "proxy.tls.key.file", PATH, "PEM file with the key of that certificate.", default=None
    )
    proxy_tls_key_password_file: Path | None = setting(
        "proxy.tls.key.password.file",
        PATH,
        "File with the password of that key, if it has one; a line end at its end does not count.",
        default=None,
    )
    proxy_tls_client_ca_file: Path | None = setting(
        "proxy.tls.client.ca.file",
        PATH,
        "PEM file with the authorities of clients' certificates.",
        default=None,
    )
    proxy_tls_client_auth: str = setting(
        "proxy.tls.client.auth",
        choice("none", "requested", "required"),
        "Whether clients show a certificate, as ssl.client.auth of a broker. The broker does not "
        "see it: see proxy.tls.client.identity.",
        default="none",
    )
    proxy_tls_min_version: str = setting(
        "proxy.tls.min.version",
        choice("TLSv1.2", "TLSv1.3"),
        "The lowest version of TLS that clients may speak.",
        default="TLSv1.2",
    )
    proxy_tls_ciphers: str = setting(
        "proxy.tls.ciphers",
        TEXT,
        "Ciphers of TLS 1.2 as OpenSSL writes such lists. Those of TLS 1.3 are always OpenSSL's.",
        default="",
        default_doc="those of Python and OpenSSL",
    )
    proxy_handshake_timeout_ms: int = _ms(
        "proxy.handshake.timeout.ms",
        10_000,
        "A client whose TLS handshake is not complete after this time is disconnected. No "
        "connection to the broker is made before.",
    )

    @property
    def serves_tls(self) -> bool:
        """Whether clients of the proxy speak TLS."""
        return self.proxy_tls_cert_file is not None


def check_proxy_tls(config: ProxyTlsConfig) -> None:
    """Invalid for settings of which one lacks the other. Files are read later."""
    check_pairs("proxy.tls", "proxy.tls.cert.file", config)
    auth, authority = config.proxy_tls_client_auth, "proxy.tls.client.ca.file"
    has_authority = config.proxy_tls_client_ca_file is not None
    if auth != "none" and not has_authority:
        raise Invalid(f"proxy.tls.client.auth: {auth} needs {authority}")
    if auth == "none" and has_authority:
        raise Invalid(f"{authority}: goes with proxy.tls.client.auth requested or required")


def check_pairs(prefix: str, needed: str, config: CommonConfig) -> None:
    """Invalid: a setting below the prefix without the one that all of them need, or a certificate
    without its key.
    """
    given = _given(config)
    for key in given:
        if key.startswith(f"{prefix}.") and needed not in given:
            raise Invalid(f"{key}: is given without {needed}")
    cert, key = f"{prefix}.cert.file", f"{prefix}.key.file"
    for one, other in ((cert, key), (key, cert), (f"{prefix}.key.password.file", key)):
        if one in given and other not in given:
            raise Invalid(f"{one}: is given without {other}")


def _given(config: CommonConfig) -> Mapping[str, Any]:
    """What differs from its default, by key."""
    values = {row.key: (getattr(config, name), row) for name, row in rows_of(type(config)).items()}
    return {key: value for key, (value, row) in values.items() if value != row.default}

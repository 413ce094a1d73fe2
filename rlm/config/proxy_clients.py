"""Settings of who may connect to the proxy and how: TLS towards clients and towards the broker's
tiered listener, limits for each address and principal, and how much of the past is shown. Pure.

The rest of the settings of the proxy is in `rlm/config/service.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_clients.security import KEYSTORE_KEY, PLAINTEXT, PROTOCOL_KEY, TOKEN_MECHANISM_KEY
from kip405.errors import Invalid
from kip405.history import FULL, History, HistoryRule, windows_of
from kip405.settings import FLAG, PATH, TEXT, checked_later, choice, rows_of, setting
from rlm.config.common import CommonConfig
from rlm.config.common import count as _count
from rlm.config.common import milliseconds as _ms
from rlm.config.common import size_bytes as _size
from rlm.config.history import HISTORY, HISTORY_RULES_ALLOWED, check_windows

DELEGATION_TOKEN = "delegation-token"  # noqa: S105 - a name
_LISTENER, _UPSTREAM = "proxy.tls.cert.file", "broker.tiered.tls.ca.file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyClientsConfig(CommonConfig):
    """The part of a broker's service that is about the connections of its proxy."""

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
    proxy_tls_client_identity: str = setting(
        "proxy.tls.client.identity",
        choice("sasl", DELEGATION_TOKEN),
        "Who a client with a certificate is to the broker. `sasl`: who it is by SASL. "
        "`delegation-token`: the principal that ssl.principal.mapping.rules make of its "
        "certificate. The service has the broker make a short-lived delegation token of that "
        "principal, by which the proxy logs in for the client, as for a client of a listener with "
        "SSL. The brokers need delegation.token.secret.key, and the service the right CreateTokens "
        "on these principals.",
        default="sasl",
    )
    proxy_token_sasl_mechanism: str = setting(
        TOKEN_MECHANISM_KEY,
        choice("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "Mechanism by which the proxy logs in with a delegation token. The tiered listener has to "
        "have it in sasl.enabled.mechanisms.",
        default="SCRAM-SHA-512",
    )
    proxy_token_max_lifetime_ms: int = _ms(
        "proxy.token.max.lifetime.ms",
        3_600_000,
        "How long a delegation token lives at most. A new one is made when four fifths of its life "
        "are over, and one whose last connection has ended is ended too, after some seconds.",
        least=10_000,
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
    proxy_max_connections_per_address: int = _count(
        "proxy.max.connections.per.address",
        10_000,
        "Client connections at a time from one address, so that one machine cannot use up "
        "proxy.max.connections. The default adds no limit to that: clients behind a load balancer "
        "have one address. Each proxy worker has its share of the limit.",
        most=1_000_000,
    )
    proxy_max_connections_per_principal: int = _count(
        "proxy.max.connections.per.principal",
        10_000,
        "Client connections at a time of one principal, from all addresses: the SASL user of PLAIN "
        "and SCRAM, or the owner of a token of OAUTHBEARER, once the broker has accepted it, or "
        "the subject of the client's certificate where there is no SASL. Each proxy worker has its "
        "share of the limit.",
        most=1_000_000,
    )
    proxy_sasl_oauthbearer_sub_claim_name: str = setting(
        "proxy.sasl.oauthbearer.sub.claim.name",
        TEXT,
        "Claim of a token of OAUTHBEARER that names its owner: what the tiered listener has as "
        "sasl.oauthbearer.sub.claim.name. Limits, rules and counts by principal take the owner "
        "from there, once the broker has accepted the token. Owners of tokens without this claim, "
        "and of opaque ones, have no name at the proxy.",
        default="sub",
    )
    proxy_stalled_request_min_bytes: int = _size(
        "proxy.stalled.request.min.bytes",
        1_024,
        "What a client in the middle of a request has to send, at least, in each "
        "proxy.stalled.request.timeout.ms, so that single bytes do not hold a connection for ever.",
        least=1,
    )
    proxy_history: History = setting(
        "proxy.history",
        HISTORY,
        "How much of the past clients at proxy.listen are shown for whom no rule says more: `full` "
        "= both tiers, `local` = what the broker itself has, or a duration: the remote segments "
        "whose newest record is not older than it as well. What lies before is out of range for "
        "them, as deleted records are.",
        default=FULL,
        default_doc="full",
    )
    proxy_history_rules: tuple[HistoryRule, ...] = setting(
        "proxy.history.rules",
        checked_later(HISTORY_RULES_ALLOWED),
        "Rules that choose this by principal or client id. The first one that matches the "
        "client's principal decides; without one, the first one that matches its client id.",
        default=(),
        default_doc="none",
    )
    broker_tiered_tls_ca_file: Path | None = setting(
        "broker.tiered.tls.ca.file",
        PATH,
        "PEM file with the authorities of the broker's certificate. With it the proxy speaks TLS "
        "to broker.tiered.address, whose listener is then SSL or SASL_SSL. Files are read again "
        "when they change.",
        default=None,
    )
    broker_tiered_tls_cert_file: Path | None = setting(
        "broker.tiered.tls.cert.file",
        PATH,
        "PEM file with the certificate chain that the proxy shows to the broker, where that asks "
        "for one (ssl.client.auth).",
        default=None,
    )
    broker_tiered_tls_key_file: Path | None = setting(
        "broker.tiered.tls.key.file",
        PATH,
        "PEM file with the key of that certificate.",
        default=None,
    )
    broker_tiered_tls_key_password_file: Path | None = setting(
        "broker.tiered.tls.key.password.file",
        PATH,
        "File with the password of that key, if it has one.",
        default=None,
    )
    broker_tiered_tls_server_name: str = setting(
        "broker.tiered.tls.server.name",
        TEXT,
        "Name in the broker's certificate, if it is not the host of broker.tiered.address.",
        default="",
        default_doc="that host",
    )
    broker_tiered_tls_check_name: bool = setting(
        "broker.tiered.tls.check.name",
        FLAG,
        "Whether the broker's certificate must have that name. Without the check, any certificate "
        "of these authorities is a broker's: an empty ssl.endpoint.identification.algorithm.",
        default=True,
    )

    @property
    def has_client_tokens(self) -> bool:
        """Whether certificates of clients are their identity to the broker."""
        return self.proxy_tls_client_identity == DELEGATION_TOKEN

    @property
    def serves_tls(self) -> bool:
        """Whether clients of the proxy speak TLS."""
        return self.proxy_tls_cert_file is not None

    @property
    def dials_tls(self) -> bool:
        """Whether the proxy speaks TLS to the broker's tiered listener."""
        return self.broker_tiered_tls_ca_file is not None


def check_proxy_clients(config: ProxyClientsConfig) -> None:
    """Invalid for settings of which one lacks the other. Files are looked at later."""
    check_windows(windows_of(config.proxy_history, config.proxy_history_rules))
    given = _given(config)
    for prefix, needed in (("proxy.tls.", _LISTENER), ("broker.tiered.tls.", _UPSTREAM)):
        for key in given:
            if key.startswith(prefix) and needed not in given:
                raise Invalid(f"{key}: is given without {needed}")
    for prefix in ("proxy.tls", "broker.tiered.tls"):
        cert, key = f"{prefix}.cert.file", f"{prefix}.key.file"
        for one, other in ((cert, key), (key, cert), (f"{prefix}.key.password.file", key)):
            if one in given and other not in given:
                raise Invalid(f"{one}: is given without {other}")
    auth, authority = config.proxy_tls_client_auth, "proxy.tls.client.ca.file"
    if auth != "none" and authority not in given:
        raise Invalid(f"proxy.tls.client.auth: {auth} needs {authority}")
    if auth == "none" and authority in given:
        raise Invalid(f"{authority}: goes with proxy.tls.client.auth requested or required")
    _check_tokens(config)
    if config.broker_tiered_tls_server_name and not config.broker_tiered_tls_check_name:
        raise Invalid("broker.tiered.tls.server.name: goes with broker.tiered.tls.check.name true")


def _check_tokens(config: ProxyClientsConfig) -> None:
    key = "proxy.tls.client.identity"
    if not config.has_client_tokens:
        return
    if config.proxy_tls_client_auth == "none":
        raise Invalid(f"{key}: {DELEGATION_TOKEN} needs proxy.tls.client.auth")
    protocol = config.kafka_security_protocol
    has_certificate = config.kafka_ssl_keystore_location is not None
    if protocol == PLAINTEXT or (protocol == "SSL" and not has_certificate):
        raise Invalid(
            f"{key}: {DELEGATION_TOKEN} needs a service that Kafka knows: {PROTOCOL_KEY} with SASL "
            f"or with {KEYSTORE_KEY}"
        )


def _given(config: ProxyClientsConfig) -> Mapping[str, Any]:
    """What differs from its default, by key."""
    values = {row.key: (getattr(config, name), row) for name, row in rows_of(type(config)).items()}
    return {key: value for key, (value, row) in values.items() if value != row.default}

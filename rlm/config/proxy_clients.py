"""Settings of who may connect to the proxy and how: TLS towards clients and towards the broker's
tiered listener, limits for each address and principal, and how much of the past is shown. Pure.

The rest of the settings of the proxy is in `rlm/config/service.py`.
"""

from dataclasses import dataclass
from pathlib import Path

from kafka_clients.security import KEYSTORE_KEY, PLAINTEXT, PROTOCOL_KEY, TOKEN_MECHANISM_KEY
from kip405.errors import Invalid
from kip405.history import FULL, History, HistoryRule, windows_of
from kip405.settings import FLAG, PATH, TEXT, checked_later, choice, setting
from rlm.config.common import count as _count
from rlm.config.common import milliseconds as _ms
from rlm.config.common import size_bytes as _size
from rlm.config.history import HISTORY, HISTORY_RULES_ALLOWED, check_windows
from rlm.config.proxy_tls import ProxyTlsConfig, check_pairs, check_proxy_tls

DELEGATION_TOKEN = "delegation-token"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyClientsConfig(ProxyTlsConfig):
    """The part of a broker's service that is about the connections of its proxy."""

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
    def dials_tls(self) -> bool:
        """Whether the proxy speaks TLS to the broker's tiered listener."""
        return self.broker_tiered_tls_ca_file is not None


def check_proxy_clients(config: ProxyClientsConfig) -> None:
    """Invalid for settings of which one lacks the other. Files are looked at later."""
    check_windows(windows_of(config.proxy_history, config.proxy_history_rules))
    check_proxy_tls(config)
    check_pairs("broker.tiered.tls", "broker.tiered.tls.ca.file", config)
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

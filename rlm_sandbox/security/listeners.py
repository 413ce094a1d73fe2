"""What `--security` means for the listeners of brokers and controllers. Pure.

    --security       DIRECT           CONTROLLER       TIERED
    plaintext        PLAINTEXT        PLAINTEXT        PLAINTEXT
    sasl_plaintext   SASL_PLAINTEXT   SASL_PLAINTEXT   SASL_PLAINTEXT
    sasl_ssl         SASL_SSL         SASL_SSL         SASL_SSL
    mtls             SSL              SSL              SASL_SSL

TIERED has the proxy before it, which speaks the same protocol with its clients: it passes SASL
through, and has TLS of its own on either side. In mtls both sides of it ask for certificates, and a
client is who it is by SASL besides: the proxy cannot show a certificate of its client. Brokers are
User:broker among themselves, by SCRAM, and towards controllers by PLAIN: controllers learn SCRAM
users from the log that they have yet to read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.principals import (
    BROKER,
    PRINCIPAL_MAPPING_RULES,
    SUPER_USERS,
    Secrets,
)

SCRAM = "SCRAM-SHA-512"
MECHANISMS = (SCRAM, "PLAIN", "OAUTHBEARER")
AUDIENCE = "kafka-rlm-sandbox"
ISSUER = "rlm-sandbox"

_OF_CLIENTS = {
    "plaintext": "PLAINTEXT",
    "sasl_plaintext": "SASL_PLAINTEXT",
    "sasl_ssl": "SASL_SSL",
    "mtls": "SSL",
}
_MODULES = "org.apache.kafka.common.security"
_OAUTH_VALIDATOR = f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocols:
    """The security protocol of each listener."""

    direct: str
    controller: str
    tiered: str


def protocols(security: str) -> Protocols:
    of_clients = _OF_CLIENTS[security]
    tiered = "SASL_SSL" if has_tls(of_clients) else of_clients
    return Protocols(direct=of_clients, controller=of_clients, tiered=tiered)


def has_sasl(protocol: str) -> bool:
    return protocol.startswith("SASL_")


def has_tls(protocol: str) -> bool:
    return protocol.endswith("SSL")


def protocol_map(security: str, *, controller: bool = True) -> str:
    """`listener.security.protocol.map`; a broker with ZooKeeper has no controller listener."""
    known = protocols(security)
    rows = [f"DIRECT:{known.direct}", f"TIERED:{known.tiered}"]
    if controller:
        rows.append(f"CONTROLLER:{known.controller}")
    return ",".join(rows)


def security_properties(security: str, files: SecurityFiles, secrets: Secrets) -> dict[str, str]:
    """What server.properties of every node has besides; the same for brokers and controllers."""
    known = protocols(security)
    properties = {
        "authorizer.class.name": _AUTHORIZER,
        "allow.everyone.if.no.acl.found": "false",
        "super.users": ";".join(f"User:{name}" for name in SUPER_USERS),
        "delegation.token.secret.key": secrets.delegation_token_key,
    }
    for listener, protocol in (
        ("direct", known.direct),
        ("tiered", known.tiered),
        ("controller", known.controller),
    ):
        if has_sasl(protocol):
            properties |= _sasl(listener, secrets)
    properties |= {
        "sasl.mechanism.inter.broker.protocol": SCRAM,
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.oauthbearer.jwks.endpoint.url": files.jwks.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    if has_tls(known.direct):
        properties |= _tls(files, client_auth=security == "mtls")
    return properties


def _sasl(listener: str, secrets: Secrets) -> dict[str, str]:
    """A controller is asked by nodes alone, which use PLAIN."""
    prefix = f"listener.name.{listener}"
    mechanisms = ("PLAIN",) if listener == "controller" else MECHANISMS
    users = " ".join(f'user_{name}="{word}"' for name, word in secrets.passwords.items())
    own = f'username="{BROKER}" password="{secrets.passwords[BROKER]}"'
    configs = {
        "PLAIN": f"{_MODULES}.plain.PlainLoginModule required {own} {users};",
        SCRAM: f"{_MODULES}.scram.ScramLoginModule required {own};",
        "OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
    }
    properties = {f"{prefix}.sasl.enabled.mechanisms": ",".join(mechanisms)}
    for mechanism in mechanisms:
        properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = configs[mechanism]
    if "OAUTHBEARER" in mechanisms:
        key = f"{prefix}.oauthbearer.sasl.server.callback.handler.class"
        properties[key] = _OAUTH_VALIDATOR
    return properties


def _tls(files: SecurityFiles, *, client_auth: bool) -> dict[str, str]:
    """PEM files, as Kafka reads them since KIP-651. A listener with SASL asks for certificates only
    where its own setting says so (KIP-684).
    """
    auth = "required" if client_auth else "none"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.keystore(BROKER)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.ca),
        "ssl.client.auth": auth,
        "listener.name.tiered.ssl.client.auth": auth,
        "ssl.principal.mapping.rules": PRINCIPAL_MAPPING_RULES,
    }


def jvm_options(files: SecurityFiles) -> tuple[str, ...]:
    """Kafka reads keys of OAUTHBEARER from files that its JVM was told of, and from no others."""
    return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={files.jwks.as_uri()}",)


def scram_options(secrets: Mapping[str, str]) -> tuple[str, ...]:
    """Options of `kafka-storage format` that make the SCRAM users."""
    options: list[str] = []
    for name, password in secrets.items():
        options += ["--add-scram", f"{SCRAM}=[name={name},password={password}]"]
    return tuple(options)

"""The value that says how connections to brokers are secured, by Kafka's client settings. Pure.

The names in refusals are Kafka's behind `kafka.`, as the service and the connector both have them.
There is no JAAS: user, password and token settings are settings of their own. A secret is a
`Secret`, or the path of a file that is read for each authentication.
"""

from dataclasses import dataclass, field
from pathlib import Path

from kafka_clients.bearer_tokens import token_address
from kafka_protocol.sasl import GSSAPI, MECHANISMS, OAUTHBEARER
from kip405.acls import ANONYMOUS
from kip405.addresses import Address
from kip405.errors import Invalid
from kip405.settings import RefusedAs, Secret

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
FILE_URL = "file://"

PROTOCOL_KEY = "kafka.security.protocol"
MECHANISM_KEY = "kafka.sasl.mechanism"
USERNAME_KEY = "kafka.sasl.username"
PASSWORD_KEY = "kafka.sasl.password"  # noqa: S105 - a name
TOKEN_URL_KEY = "kafka.sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - a name
CLIENT_ID_KEY = "kafka.sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET_KEY = "kafka.sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a name
TRUSTSTORE_KEY = "kafka.ssl.truststore.location"
KEYSTORE_KEY = "kafka.ssl.keystore.location"
KEY_PASSWORD_KEY = "kafka.ssl.key.password"  # noqa: S105 - a name
TOKEN_MECHANISM_KEY = "proxy.token.sasl.mechanism"  # noqa: S105 - a name
HOST_NAME_KEY = "kafka.ssl.endpoint.identification.algorithm"

SecretSource = Secret | Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM: a file by name, or the text itself. A keystore may hold certificate and key together."""

    ca_file: str | None = None
    ca_text: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    cert_text: str | None = None
    key_text: Secret | None = None
    key_password: SecretSource | None = None
    checks_host_name: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordLogin:
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""

    mechanism: str
    username: str
    password: SecretSource


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFile:
    """OAUTHBEARER with the token that a file holds, which somebody else renews."""

    path: Path
    mechanism: str = field(default=OAUTHBEARER, init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """OAUTHBEARER with tokens that an endpoint gives for a client's id and secret."""

    url: str
    client_id: str
    client_secret: SecretSource
    scope: str = ""
    urlencodes_header: bool = False
    mechanism: str = field(default=OAUTHBEARER, init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationLogin:
    """SCRAM with a delegation token of Kafka's own (KIP-48): its id, and its HMAC in base64."""

    mechanism: str
    token_id: str
    hmac: Secret


Login = PasswordLogin | TokenFile | TokenEndpoint | DelegationLogin


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSecurity:
    """How connections to brokers are secured: one value for all clients of a process."""

    protocol: str = PLAINTEXT
    tls: TlsFiles = TlsFiles()
    login: Login | None = None

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise Invalid(f"{PROTOCOL_KEY}: must be {' or '.join(PROTOCOLS)}")
        if self.has_sasl != (self.login is not None):
            raise Invalid(f"{MECHANISM_KEY}: goes with {PROTOCOL_KEY} SASL_PLAINTEXT or SASL_SSL")

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def principal(self) -> str | None:
        """Whom brokers take these clients for, by Kafka's own rules. None: only they know, as it
        follows from a certificate or a token.
        """
        if isinstance(self.login, PasswordLogin):
            return f"User:{self.login.username}"
        return ANONYMOUS if self.protocol == PLAINTEXT else None


def checked_mechanism(value: object) -> str:
    """One of the mechanisms that clients have, in upper case; ValueError as of a Kind."""
    name = value.strip().upper() if isinstance(value, str) else ""
    if name == GSSAPI:
        raise RefusedAs(
            "is GSSAPI (Kerberos), which these clients do not have: add SCRAM-SHA-512 to the "
            "broker's sasl.enabled.mechanisms, give this client a user there with `kafka-configs "
            "--entity-type users`, and set SCRAM-SHA-512; or use a listener of protocol SSL"
        )
    if name not in MECHANISMS:
        raise ValueError
    return name


def password_login(
    mechanism: str, username: str | None, password: SecretSource | None
) -> PasswordLogin:
    """Invalid: something is missing."""
    if not username or password is None:
        raise Invalid(
            f"{USERNAME_KEY if not username else PASSWORD_KEY}: missing; {mechanism} needs a user "
            "and a password"
        )
    return PasswordLogin(mechanism=mechanism, username=username, password=password)


def token_login(
    url: str | None,
    client_id: str | None,
    client_secret: SecretSource | None,
    *,
    scope: str = "",
    urlencodes_header: bool = False,
    allow_insecure: bool = False,
) -> TokenFile | TokenEndpoint:
    """A token file for a `file:///` URL, as Kafka has it; else an endpoint, over TLS beyond this
    machine unless that is allowed. Invalid: what is wrong or missing.
    """
    if not url:
        raise Invalid(f"{TOKEN_URL_KEY}: missing; it is file:///path of a token, or an https URL")
    if url.startswith(FILE_URL):
        path = Path(url.removeprefix(FILE_URL))
        if not path.is_absolute():
            raise Invalid(f"{TOKEN_URL_KEY}: must be file:/// and an absolute path")
        return TokenFile(path=path)
    try:
        address = token_address(url)
    except ValueError as error:
        raise Invalid(f"{TOKEN_URL_KEY}: {error}") from None
    if not address.is_tls and not allow_insecure and not _is_private(address.host):
        raise Invalid(
            f"{TOKEN_URL_KEY}: it would send the client secret in clear; use https, or set "
            "allow_insecure: true"
        )
    if not client_id or client_secret is None:
        missing = CLIENT_ID_KEY if not client_id else CLIENT_SECRET_KEY
        raise Invalid(f"{missing}: missing; the token endpoint asks for an id and a secret")
    return TokenEndpoint(
        url=url,
        client_id=client_id,
        client_secret=client_secret,
        scope=scope,
        urlencodes_header=urlencodes_header,
    )


def _is_private(host: str) -> bool:
    return Address(host=host, port=1).is_private

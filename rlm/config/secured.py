"""Settings that secure the service's own Kafka clients, by Kafka's names behind `kafka.`, and what
follows from them. Pure, but for the environment that is passed in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_clients.security import (
    CLIENT_ID_KEY,
    CLIENT_SECRET_KEY,
    HOST_NAME_KEY,
    KEY_PASSWORD_KEY,
    KEYSTORE_KEY,
    MECHANISM_KEY,
    PASSWORD_KEY,
    PROTOCOL_KEY,
    PROTOCOLS,
    TOKEN_URL_KEY,
    TRUSTSTORE_KEY,
    USERNAME_KEY,
    KafkaSecurity,
    Login,
    SecretSource,
    TlsFiles,
    checked_mechanism,
    password_login,
    token_login,
)
from kafka_protocol.sasl import MECHANISMS, OAUTHBEARER
from kip405.errors import Invalid
from kip405.settings import (
    FLAG,
    PATH,
    SECRET,
    TEXT,
    Kind,
    Secret,
    choice,
    rows_of,
    setting,
)

ENVIRONMENT_PREFIX = "RLM_"


def environment_name(key: str) -> str:
    """The variable of a setting: RLM_KAFKA_SASL_PASSWORD of kafka.sasl.password."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_").replace("-", "_")


_MECHANISM = Kind(allowed=" or ".join(MECHANISMS), read=checked_mechanism)
_ALGORITHM = choice("https", "")


def _of_secret(key: str, doc: str) -> str:
    return f"{doc} Or {key}.file, or {environment_name(key)} in the environment."


def _of_file(key: str) -> str:
    return f"File with {key}."


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaClientConfig:
    """Settings of TLS and SASL, the same in every role."""

    kafka_security_protocol: str = setting(
        PROTOCOL_KEY,
        choice(*PROTOCOLS),
        "Protocol of the listeners at broker.direct.address and kafka.bootstrap.servers.",
        default="PLAINTEXT",
    )
    kafka_ssl_truststore_location: Path | None = setting(
        TRUSTSTORE_KEY,
        PATH,
        "PEM file with the authorities of the brokers' certificates. Read again for each "
        "connection, like all files here.",
        default=None,
        default_doc="the system's authorities",
    )
    kafka_ssl_keystore_location: Path | None = setting(
        KEYSTORE_KEY,
        PATH,
        "PEM file with the certificate that the service shows, its chain, and its key unless "
        "kafka.ssl.key.location names that.",
        default=None,
    )
    kafka_ssl_key_location: Path | None = setting(
        "kafka.ssl.key.location", PATH, "PEM file with the key of that certificate.", default=None
    )
    kafka_ssl_key_password: Secret | None = setting(
        KEY_PASSWORD_KEY,
        SECRET,
        _of_secret(KEY_PASSWORD_KEY, "Password of that key."),
        default=None,
        secret=True,
    )
    kafka_ssl_key_password_file: Path | None = setting(
        f"{KEY_PASSWORD_KEY}.file", PATH, _of_file(KEY_PASSWORD_KEY), default=None
    )
    kafka_ssl_endpoint_identification_algorithm: str = setting(
        HOST_NAME_KEY,
        Kind(allowed='https or ""', read=_ALGORITHM.read),
        'With https a broker\'s certificate must have the host that is dialled. "": it need not.',
        default="https",
    )
    kafka_sasl_mechanism: str | None = setting(
        MECHANISM_KEY,
        _MECHANISM,
        "SASL mechanism, where the protocol is SASL_PLAINTEXT or SASL_SSL.",
        default=None,
    )
    kafka_sasl_username: str | None = setting(
        USERNAME_KEY, TEXT, "User of PLAIN and SCRAM.", default=None
    )
    kafka_sasl_password: Secret | None = setting(
        PASSWORD_KEY,
        SECRET,
        _of_secret(PASSWORD_KEY, "Password of that user."),
        default=None,
        secret=True,
    )
    kafka_sasl_password_file: Path | None = setting(
        f"{PASSWORD_KEY}.file", PATH, _of_file(PASSWORD_KEY), default=None
    )
    kafka_sasl_oauthbearer_token_endpoint_url: str | None = setting(
        TOKEN_URL_KEY,
        TEXT,
        "Where OAUTHBEARER gets tokens: an https URL that gives them for client credentials "
        "(http on this machine), or `file:///path` of a token that something else renews.",
        default=None,
    )
    kafka_sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        CLIENT_ID_KEY, TEXT, "The client's id at that URL.", default=None
    )
    kafka_sasl_oauthbearer_client_credentials_client_secret: Secret | None = setting(
        CLIENT_SECRET_KEY,
        SECRET,
        _of_secret(CLIENT_SECRET_KEY, "The client's secret there."),
        default=None,
        secret=True,
    )
    kafka_sasl_oauthbearer_client_credentials_client_secret_file: Path | None = setting(
        f"{CLIENT_SECRET_KEY}.file", PATH, _of_file(CLIENT_SECRET_KEY), default=None
    )
    kafka_sasl_oauthbearer_scope: str = setting(
        "kafka.sasl.oauthbearer.scope", TEXT, "The scope that is asked for there.", default=""
    )
    kafka_sasl_oauthbearer_header_urlencode: bool = setting(
        "kafka.sasl.oauthbearer.header.urlencode",
        FLAG,
        "Encode id and secret as RFC 6749 has it. Kafka's clients do not by default.",
        default=False,
    )

    def secured_by(self, *, allow_insecure: bool) -> KafkaSecurity:
        """How the clients connect. Invalid: settings that do not go together."""
        password = self.kafka_ssl_key_password or self.kafka_ssl_key_password_file
        tls = TlsFiles(
            ca_file=_text(self.kafka_ssl_truststore_location),
            cert_file=_text(self.kafka_ssl_keystore_location),
            key_file=_text(self.kafka_ssl_key_location),
            key_password=password if self.kafka_ssl_keystore_location else None,
            checks_host_name=self.kafka_ssl_endpoint_identification_algorithm == "https",
        )
        has_sasl = self.kafka_security_protocol.startswith("SASL_")
        login = self._login(allow_insecure) if has_sasl else None
        return KafkaSecurity(protocol=self.kafka_security_protocol, tls=tls, login=login)

    def _login(self, allow_insecure: bool) -> Login:
        mechanism = self.kafka_sasl_mechanism
        if mechanism is None:
            raise Invalid(f"{MECHANISM_KEY}: missing; must be {_MECHANISM.allowed}")
        if mechanism == OAUTHBEARER:
            return token_login(
                self.kafka_sasl_oauthbearer_token_endpoint_url,
                self.kafka_sasl_oauthbearer_client_credentials_client_id,
                self.kafka_sasl_oauthbearer_client_credentials_client_secret
                or self.kafka_sasl_oauthbearer_client_credentials_client_secret_file,
                scope=self.kafka_sasl_oauthbearer_scope,
                urlencodes_header=self.kafka_sasl_oauthbearer_header_urlencode,
                allow_insecure=allow_insecure,
            )
        source: SecretSource | None = self.kafka_sasl_password or self.kafka_sasl_password_file
        return password_login(mechanism, self.kafka_sasl_username, source)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


_ROWS = {row.key: row for row in rows_of(KafkaClientConfig).values()}
_KAFKA_HAS = {
    "kafka.sasl.jaas.config": f"there is no JAAS here: give {USERNAME_KEY} and "
    f"{PASSWORD_KEY}.file, or {TOKEN_URL_KEY}",
    "kafka.sasl.kerberos.service.name": f"there is no GSSAPI (Kerberos) here: see {MECHANISM_KEY}",
    "kafka.ssl.truststore.password": f"{TRUSTSTORE_KEY} is PEM, which has no password",
    "kafka.ssl.truststore.type": f"{TRUSTSTORE_KEY} is always PEM",
    "kafka.ssl.keystore.password": f"{KEYSTORE_KEY} is PEM: give {KEY_PASSWORD_KEY}.file",
    "kafka.ssl.keystore.type": f"{KEYSTORE_KEY} is always PEM",
}


def refuse_what_kafka_has(key: str) -> None:
    """Invalid for a setting of Kafka's clients that has another place here."""
    if key in _KAFKA_HAS:
        raise Invalid(f"{key}: {_KAFKA_HAS[key]}")


def check_kafka_clients(given: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Invalid for what is given twice, or has no effect with the protocol, but for a secret of the
    environment, which may be there for others too.
    """
    for key in given:
        if f"{key}.file" in given:
            raise Invalid(f"{key}.file: {key} is given too; give one of them")
    protocol = given.get(PROTOCOL_KEY, "PLAINTEXT")
    for key in given:
        if key in _ROWS and _ROWS[key].secret and environment.get(environment_name(key)):
            continue
        fits = "SASL_PLAINTEXT or SASL_SSL" if key.startswith("kafka.sasl.") else "SSL or SASL_SSL"
        if key in _ROWS and key != PROTOCOL_KEY and not _has_effect(key, protocol):
            raise Invalid(f"{key}: goes with {PROTOCOL_KEY} {fits}, which is {protocol}")
    if "kafka.ssl.key.location" in given and KEYSTORE_KEY not in given:
        raise Invalid(f"kafka.ssl.key.location: goes with {KEYSTORE_KEY}")


def _has_effect(key: str, protocol: str) -> bool:
    if key == TRUSTSTORE_KEY and protocol == "SASL_PLAINTEXT":
        return True  # for a token endpoint
    if key.startswith("kafka.sasl."):
        return protocol.startswith("SASL_")
    return protocol in ("SSL", "SASL_SSL")

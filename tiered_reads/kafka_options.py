"""Translates Kafka's consumer properties for the connector's own consumer.

The properties of a Java consumer work where this consumer has them. Properties that only tune
another client are ignored with one warning. Properties that decide the principal or the records,
and that this consumer cannot honour, are an error. TLS files are PEM. No message contains a secret.
Pure except for the check of a file's first bytes.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafka_clients.security import (
    MECHANISM_KEY,
    PLAINTEXT,
    PROTOCOLS,
    KafkaSecurity,
    Login,
    TlsFiles,
    checked_mechanism,
    password_login,
    token_login,
)
from kafka_protocol.sasl import GSSAPI, MECHANISMS, OAUTHBEARER
from kip405.errors import Invalid
from kip405.settings import PATH, SECRET, Kind, RefusedAs, Secret, Setting, Table
from tiered_reads.errors import KafkaClientError

_log: Final = logging.getLogger(__name__)

_PEM: Final = b"-----BEGIN"
_JAAS: Final = re.compile(
    r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_ESCAPED: Final = re.compile(r"\\(.)")

# Other modules of the connector read these, or they mean nothing without a group.
_KNOWN_ELSEWHERE: Final = frozenset(
    {
        "isolation.level",
        "group.id",
        "group.instance.id",
        "auto.offset.reset",
        "enable.auto.commit",
        "key.deserializer",
        "value.deserializer",
        "max.poll.records",
        "ssl.truststore.type",
        "ssl.keystore.type",
        "ssl.truststore.password",
        "ssl.protocol",
    }
)
# The handler of Kafka's own that asks a token endpoint, in whichever package; no other is known.
_TOKEN_HANDLER: Final = "OAuthBearerLoginCallbackHandler"  # noqa: S105 - a name
_OTHER_CLASS: Final = (
    "kafka.sasl.login.callback.handler.class: a Java class would decide the principal, and this "
    "connector's consumer is not Java"
)
# Java code of the user that changes the principal or the records.
_CANNOT: Final = frozenset(
    {
        "interceptor.classes",
        "ssl.engine.factory.class",
        "security.providers",
        "config.providers",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The connector's own consumer, times in ms. A value, so that clients are shared by it."""

    bootstrap_servers: tuple[str, ...]
    client_id: str
    security: KafkaSecurity
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    request_timeout_ms: int
    receive_buffer_bytes: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    retry_backoff_ms: int


def _servers(value: str) -> tuple[str, ...]:
    return tuple(server.strip() for server in value.split(",") if server.strip())


def _number(least: int) -> Kind:
    def read(value: str) -> int:
        if int(value) < least:
            raise ValueError
        return int(value)

    return Kind(allowed=f"a whole number of at least {least}", read=read)


def _one_of(*names: str) -> Kind:
    def read(value: str) -> str:
        if value.strip().upper() not in names:
            raise RefusedAs(
                f"'{value}' cannot be used by this connector's consumer: it has {', '.join(names)}"
            )
        return value.strip().upper()

    return Kind(allowed=" or ".join(names), read=read)


def _pem_file(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            head = file.read(64 << 10)
    except OSError as error:
        raise RefusedAs(f"cannot be read: {path}: {error.strerror}") from error
    if _PEM not in head:
        raise RefusedAs(
            f"names {path}, which is not a PEM file; export the store with `openssl pkcs12` or "
            "`keytool -exportcert -rfc` (PEM is ssl.truststore.type=PEM in Java too)"
        )
    return path


_TEXT: Final = Kind(allowed="a text", read=str)
# Checked only where the protocol is SASL's: other protocols ignore it.
_MECHANISM: Final = Setting(
    key=MECHANISM_KEY, kind=Kind(allowed=" or ".join(MECHANISMS), read=checked_mechanism)
)
_CONSUMER: Final = Table(
    Setting(
        key="bootstrap.servers",
        kind=Kind(allowed="a list of host:port", read=_servers),
        default=(),
    ),
    Setting(key="client.id", kind=_TEXT, default="kafka-rlm-spark"),
    Setting(
        key="security.protocol",
        kind=_one_of(*PROTOCOLS),
        default=PLAINTEXT,
    ),
    # Java's 1 MiB a partition costs a round trip for each: one partition is all we ask for.
    Setting(key="max.partition.fetch.bytes", kind=_number(1), default=4 << 20),
    Setting(key="fetch.max.bytes", kind=_number(1), default=50 << 20),
    Setting(key="fetch.min.bytes", kind=_number(0), default=1),
    Setting(key="fetch.max.wait.ms", kind=_number(0), default=500),
    Setting(key="request.timeout.ms", kind=_number(1), default=30_000),
    Setting(key="receive.buffer.bytes", kind=_number(-1), default=-1),
    Setting(key="connections.max.idle.ms", kind=_number(1), default=540_000),
    Setting(key="metadata.max.age.ms", kind=_number(1), default=300_000),
    Setting(key="retry.backoff.ms", kind=_number(0), default=100),
    Setting(key="sasl.mechanism", kind=_TEXT, default=GSSAPI),
    Setting(key="sasl.jaas.config", kind=_TEXT, secret=True),
    Setting(key="sasl.plain.username", kind=_TEXT, aliases=("sasl.username",)),
    Setting(key="sasl.plain.password", kind=SECRET, aliases=("sasl.password",), secret=True),
    Setting(key="sasl.password.file", kind=PATH),
    Setting(key="sasl.oauthbearer.token.endpoint.url", kind=_TEXT),
    Setting(key="sasl.oauthbearer.client.credentials.client.id", kind=_TEXT),
    Setting(key="sasl.oauthbearer.client.credentials.client.secret", kind=SECRET, secret=True),
    Setting(key="sasl.oauthbearer.client.credentials.client.secret.file", kind=PATH),
    Setting(key="sasl.oauthbearer.scope", kind=_TEXT, default=""),
    Setting(key="sasl.oauthbearer.header.urlencode", kind=_one_of("TRUE", "FALSE"), default=""),
    Setting(key="sasl.login.callback.handler.class", kind=_TEXT),
    Setting(
        key="ssl.truststore.location",
        kind=Kind(allowed="a PEM file", read=_pem_file),
        aliases=("ssl.ca.location", "ssl.cafile"),
    ),
    Setting(key="ssl.truststore.certificates", kind=_TEXT),
    Setting(key="ssl.keystore.location", kind=Kind(allowed="a PEM file", read=_pem_file)),
    Setting(key="ssl.certificate.location", kind=_TEXT, aliases=("ssl.certfile",)),
    Setting(key="ssl.key.location", kind=_TEXT, aliases=("ssl.keyfile",)),
    Setting(key="ssl.keystore.certificate.chain", kind=_TEXT),
    Setting(key="ssl.keystore.key", kind=SECRET, secret=True),
    Setting(key="ssl.key.password", kind=SECRET, secret=True),
    Setting(key="ssl.key.password.file", kind=PATH),
    Setting(key="ssl.keystore.password", kind=SECRET, secret=True),
    Setting(key="ssl.endpoint.identification.algorithm", kind=_TEXT, default="https"),
)
"""Java's names first. The aliases are those of librdkafka and of Python's clients."""


def kafka_settings(properties: Mapping[str, str]) -> KafkaSettings:
    """The consumer that `properties` (by Kafka's names) describe. KafkaClientError: they cannot be
    met.
    """
    try:
        settings = _settings(properties)
    except Invalid as error:
        raise KafkaClientError(str(error)) from None
    _check_rest(properties)
    return settings


def _settings(properties: Mapping[str, str]) -> KafkaSettings:
    filled = {name: value for name, value in properties.items() if value}
    given = _CONSUMER.values(filled, "kafka.")
    if not given["bootstrap.servers"]:
        raise Invalid("kafka.bootstrap.servers is not given")
    security = KafkaSecurity(
        protocol=given["security.protocol"], tls=_tls(given, properties), login=_login(given)
    )
    return KafkaSettings(
        bootstrap_servers=given["bootstrap.servers"],
        client_id=given["client.id"],
        security=security,
        max_partition_fetch_bytes=given["max.partition.fetch.bytes"],
        fetch_max_bytes=given["fetch.max.bytes"],
        fetch_min_bytes=given["fetch.min.bytes"],
        fetch_max_wait_ms=given["fetch.max.wait.ms"],
        request_timeout_ms=given["request.timeout.ms"],
        receive_buffer_bytes=given["receive.buffer.bytes"],
        connections_max_idle_ms=given["connections.max.idle.ms"],
        metadata_max_age_ms=given["metadata.max.age.ms"],
        retry_backoff_ms=given["retry.backoff.ms"],
    )


def _check_rest(properties: Mapping[str, str]) -> None:
    rest = sorted(
        name for name in properties if name not in _KNOWN_ELSEWHERE and not _CONSUMER.row(name)
    )
    cannot = [name for name in rest if name in _CANNOT and properties[name]]
    if cannot:
        raise KafkaClientError(
            f"{_names(cannot)}: Java classes would decide the principal or the records, and "
            "this connector's consumer is not Java"
        )
    unknown = [name for name in rest if name not in _CANNOT]
    if unknown:
        _log.warning("event=kafka_options_ignored names=%s", _names(unknown))


def _names(names: list[str]) -> str:
    return ", ".join(f"kafka.{name}" for name in names)


def _login(given: Mapping[str, Any]) -> Login | None:
    """Who the consumer is; None where the protocol has no SASL."""
    if not given["security.protocol"].startswith("SASL_"):
        return None
    mechanism = _MECHANISM.read(given["sasl.mechanism"])
    jaas = _jaas(given["sasl.jaas.config"] or "")
    if mechanism == OAUTHBEARER:
        return _token_login(given, jaas)
    if given["sasl.login.callback.handler.class"]:
        raise Invalid(_OTHER_CLASS)
    username, password = given["sasl.plain.username"], given["sasl.plain.password"]
    if given["sasl.jaas.config"] is not None:
        username, password = jaas.get("username"), _optional_secret(jaas.get("password"))
    source = password if password is not None else given["sasl.password.file"]
    if not username or source is None:
        raise Invalid(
            "SASL needs a user and a password: kafka.sasl.jaas.config, or "
            "kafka.sasl.plain.username and kafka.sasl.plain.password"
        )
    return password_login(mechanism, username, source)


def _token_login(given: Mapping[str, Any], jaas: Mapping[str, str]) -> Login:
    """The client credentials of Kafka 4.1 (KIP-1139), or those of JAAS before."""
    handler = given["sasl.login.callback.handler.class"]
    if handler and handler.rpartition(".")[2] != _TOKEN_HANDLER:
        raise Invalid(_OTHER_CLASS)
    own = "sasl.oauthbearer.client.credentials.client"
    secret = given[f"{own}.secret"] or _optional_secret(jaas.get("clientSecret"))
    return token_login(
        given["sasl.oauthbearer.token.endpoint.url"],
        given[f"{own}.id"] or jaas.get("clientId"),
        secret or given[f"{own}.secret.file"],
        scope=given["sasl.oauthbearer.scope"] or jaas.get("scope", ""),
        urlencodes_header=given["sasl.oauthbearer.header.urlencode"] == "TRUE",
    )


def _optional_secret(text: str | None) -> Secret | None:
    return None if text is None else Secret(text)


def _jaas(text: str) -> dict[str, str]:
    """The options of a login module's line."""
    return {
        match[1]: _ESCAPED.sub(r"\1", next(part for part in match.groups()[1:] if part is not None))
        for match in _JAAS.finditer(text)
    }


def _tls(given: Mapping[str, Any], properties: Mapping[str, str]) -> TlsFiles:
    check = "ssl.endpoint.identification.algorithm"
    return TlsFiles(
        ca_file=given["ssl.truststore.location"],
        ca_text=given["ssl.truststore.certificates"],
        cert_file=given["ssl.keystore.location"] or given["ssl.certificate.location"],
        key_file=given["ssl.key.location"],
        cert_text=given["ssl.keystore.certificate.chain"],
        key_text=given["ssl.keystore.key"],
        key_password=given["ssl.key.password"]
        or given["ssl.key.password.file"]
        or given["ssl.keystore.password"],
        # Given and empty, it is off.
        checks_host_name=properties.get(check) != "" and given[check].lower() == "https",
    )

"""Translates Kafka's consumer properties for the connector's own consumer.

The properties of a Java consumer work where this consumer has them. Properties that only tune
another client are ignored with one warning. Properties that decide the principal or the records,
and that this consumer cannot honour, are an error. TLS files are PEM. No message contains a secret.
Pure except for the check of a file's first bytes.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rlm_spark.errors import KafkaClientError

_log: Final = logging.getLogger(__name__)

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
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
# Java code of the user that changes the principal or the records.
_CANNOT: Final = frozenset(
    {
        "interceptor.classes",
        "ssl.engine.factory.class",
        "security.providers",
        "config.providers",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "sasl.login.callback.handler.class",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM: a file by name, or the text itself."""

    ca_file: str | None = None
    ca_text: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    cert_text: str | None = None
    key_text: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    checks_host_name: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The connector's own consumer, times in ms. A value, so that clients are shared by it."""

    bootstrap_servers: tuple[str, ...]
    client_id: str
    security_protocol: str
    tls: TlsFiles
    sasl_mechanism: str
    sasl_username: str | None
    sasl_password: str | None = field(repr=False)
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    request_timeout_ms: int
    receive_buffer_bytes: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    retry_backoff_ms: int
    exclude_internal_topics: bool

    @property
    def has_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")


class _Properties:
    """Reads properties and remembers which."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._read: set[str] = set()

    def text(self, *names: str) -> str | None:
        """The first that is given and not empty."""
        self._read.update(names)
        return next((self._given[name] for name in names if self._given.get(name)), None)

    def is_empty(self, name: str) -> bool:
        """Given, and empty."""
        return self._given.get(name) == ""

    def number(self, name: str, default: int, least: int = 0) -> int:
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text.strip())
        except ValueError:
            value = least - 1
        if value < least:
            raise KafkaClientError(f"kafka.{name} must be a number from {least} on, got '{text}'")
        return value

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        text = (self.text(name) or default).strip().upper()
        if text not in choices:
            raise KafkaClientError(
                f"kafka.{name} '{text}' cannot be used by this connector's consumer: it has "
                f"{', '.join(choices)}"
            )
        return text

    def rest(self) -> list[str]:
        return sorted(set(self._given) - self._read - _KNOWN_ELSEWHERE)


def kafka_settings(properties: Mapping[str, str]) -> KafkaSettings:
    """The consumer that `properties` (by Kafka's names) describe. KafkaClientError: they cannot be
    met.
    """
    given = _Properties(properties)
    servers = tuple(
        server.strip()
        for server in (given.text("bootstrap.servers") or "").split(",")
        if server.strip()
    )
    if not servers:
        raise KafkaClientError("kafka.bootstrap.servers is not given")
    protocol = given.choice("security.protocol", "PLAINTEXT", _PROTOCOLS)
    mechanism, username, password = _sasl(given, protocol)
    settings = KafkaSettings(
        bootstrap_servers=servers,
        client_id=given.text("client.id") or "kafka-rlm-spark",
        security_protocol=protocol,
        tls=_tls(given),
        sasl_mechanism=mechanism,
        sasl_username=username,
        sasl_password=password,
        # Java's 1 MiB a partition costs a round trip for each: one partition is all we ask for.
        max_partition_fetch_bytes=given.number("max.partition.fetch.bytes", 4 << 20, 1),
        fetch_max_bytes=given.number("fetch.max.bytes", 50 << 20, 1),
        fetch_min_bytes=given.number("fetch.min.bytes", 1),
        fetch_max_wait_ms=given.number("fetch.max.wait.ms", 500),
        request_timeout_ms=given.number("request.timeout.ms", 30_000, 1),
        receive_buffer_bytes=given.number("receive.buffer.bytes", -1, -1),
        connections_max_idle_ms=given.number("connections.max.idle.ms", 540_000, 1),
        metadata_max_age_ms=given.number("metadata.max.age.ms", 300_000, 1),
        retry_backoff_ms=given.number("retry.backoff.ms", 100),
        exclude_internal_topics=(given.text("exclude.internal.topics") or "true") != "false",
    )
    _check_rest(given.rest(), properties)
    return settings


def _check_rest(rest: list[str], properties: Mapping[str, str]) -> None:
    cannot = [name for name in rest if name in _CANNOT and properties[name]]
    if cannot:
        raise KafkaClientError(
            f"{_names(cannot)}: Java classes decide who asks or what is read there, and this "
            "connector's consumer is not Java"
        )
    unknown = [name for name in rest if name not in _CANNOT]
    if unknown:
        _log.warning("event=kafka_options_ignored names=%s", _names(unknown))


def _names(names: list[str]) -> str:
    return ", ".join(f"kafka.{name}" for name in names)


def _sasl(given: _Properties, protocol: str) -> tuple[str, str | None, str | None]:
    jaas = given.text("sasl.jaas.config")
    username = given.text("sasl.plain.username", "sasl.username")
    password = given.text("sasl.plain.password", "sasl.password")
    if not protocol.startswith("SASL_"):
        given.text("sasl.mechanism")
        return "PLAIN", None, None
    mechanism = given.choice("sasl.mechanism", "GSSAPI", _MECHANISMS)
    if jaas is not None:
        username, password = _jaas(jaas)
    if not username or password is None:
        raise KafkaClientError(
            "SASL needs a user and a password: kafka.sasl.jaas.config, or "
            "kafka.sasl.plain.username and kafka.sasl.plain.password"
        )
    return mechanism, username, password


def _jaas(text: str) -> tuple[str | None, str | None]:
    """User and password of a login module's line."""
    found = {
        match[1]: _ESCAPED.sub(r"\1", next(part for part in match.groups()[1:] if part is not None))
        for match in _JAAS.finditer(text)
    }
    return found.get("username"), found.get("password")


def _tls(given: _Properties) -> TlsFiles:
    host_check = given.text("ssl.endpoint.identification.algorithm")
    named_empty = given.is_empty("ssl.endpoint.identification.algorithm")
    keystore = _pem_file(given.text("ssl.keystore.location"), "ssl.keystore.location")
    return TlsFiles(
        ca_file=_pem_file(
            given.text("ssl.truststore.location", "ssl.ca.location", "ssl.cafile"),
            "ssl.truststore.location",
        ),
        ca_text=given.text("ssl.truststore.certificates"),
        cert_file=keystore or given.text("ssl.certificate.location", "ssl.certfile"),
        key_file=given.text("ssl.key.location", "ssl.keyfile"),
        cert_text=given.text("ssl.keystore.certificate.chain"),
        key_text=given.text("ssl.keystore.key"),
        key_password=given.text("ssl.key.password", "ssl.keystore.password"),
        checks_host_name=not named_empty and (host_check or "https").lower() == "https",
    )


def _pem_file(path: str | None, name: str) -> str | None:
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            head = file.read(64 << 10)
    except OSError as error:
        raise KafkaClientError(f"kafka.{name}: cannot read {path}: {error.strerror}") from error
    if _PEM not in head:
        raise KafkaClientError(
            f"kafka.{name}: {path} is no PEM file; export the store with `openssl pkcs12` or "
            "`keytool -exportcert -rfc` (PEM is ssl.truststore.type=PEM in Java too)"
        )
    return path

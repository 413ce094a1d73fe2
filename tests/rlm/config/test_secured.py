"""Settings of TLS and SASL of the service's own Kafka clients."""

from pathlib import Path
from typing import Any

import pytest

from kafka_clients.security import KafkaSecurity, PasswordLogin, TlsFiles, TokenEndpoint, TokenFile
from kip405.errors import Invalid
from kip405.settings import Secret
from rlm.config.loader import kafka_clients_from_mapping, reader_from_mapping

HIDDEN = "hidden-from-all"
SASL = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
USER = {**SASL, "kafka.sasl.username": "rlm"}
TOKENS = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
URL = "kafka.sasl.oauthbearer.token.endpoint.url"
CLIENT = "kafka.sasl.oauthbearer.client.credentials.client"
ENDPOINT = {**TOKENS, URL: "https://idp/token", f"{CLIENT}.id": "rlm"}


def config(tmp_path: Path, given: dict[str, Any], **environment: str) -> Any:
    base = {
        "cluster.id": "c1",
        "state.dir": str(tmp_path),
        "grpc.listen": "127.0.0.1:9095",
        "http.listen": "127.0.0.1:9096",
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "plugin": "local",
        "rsm.config.root": str(tmp_path),
    }
    return reader_from_mapping({**base, **given}, environment)


def security(tmp_path: Path, given: dict[str, Any], **environment: str) -> KafkaSecurity:
    found: KafkaSecurity = config(tmp_path, given, **environment).kafka_security()
    return found


def refusal(tmp_path: Path, given: dict[str, Any], **environment: str) -> str:
    with pytest.raises(Invalid) as refused:
        config(tmp_path, given, **environment)
    assert "\n" not in str(refused.value) and HIDDEN not in repr(refused.value)
    return str(refused.value)


def test_nothing_given_is_plaintext(tmp_path: Path) -> None:
    assert security(tmp_path, {}) == KafkaSecurity()


def test_files_of_tls(tmp_path: Path) -> None:
    given = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.keystore.location": "/etc/chain.pem",
        "kafka.ssl.key.location": "/etc/key.pem",
        "kafka.ssl.key.password.file": "/etc/password",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    assert security(tmp_path, given).tls == TlsFiles(
        ca_file="/etc/ca.pem",
        cert_file="/etc/chain.pem",
        key_file="/etc/key.pem",
        key_password=Path("/etc/password"),
        checks_host_name=False,
    )


@pytest.mark.parametrize(
    ("given", "environment", "source"),
    [
        ({"kafka.sasl.password": HIDDEN}, {}, Secret(HIDDEN)),
        ({"kafka.sasl.password.file": "/etc/pw"}, {}, Path("/etc/pw")),
        ({}, {"RLM_KAFKA_SASL_PASSWORD": HIDDEN}, Secret(HIDDEN)),
        (
            {"kafka.sasl.password.file": "/etc/pw"},
            {"RLM_KAFKA_SASL_PASSWORD": HIDDEN},
            Secret(HIDDEN),
        ),
        (
            {"kafka.sasl.password": "another"},
            {"RLM_KAFKA_SASL_PASSWORD_FILE": "/etc/pw"},
            Path("/etc/pw"),
        ),
    ],
)
def test_where_a_password_comes_from(
    tmp_path: Path, given: dict[str, Any], environment: dict[str, str], source: Secret | Path
) -> None:
    assert security(tmp_path, USER | given, **environment).login == PasswordLogin(
        mechanism="SCRAM-SHA-512", username="rlm", password=source
    )


def test_no_secret_is_shown(tmp_path: Path) -> None:
    made = config(tmp_path, USER | {"kafka.sasl.password": HIDDEN})
    assert made.shown()["kafka.sasl.password"] == "***"
    assert made.shown()["kafka.sasl.username"] == "rlm"
    assert HIDDEN not in f"{made!r}{made.shown()}{made.kafka_security()!r}"


def test_tokens(tmp_path: Path) -> None:
    assert security(tmp_path, TOKENS | {URL: "file:///run/token"}).login == TokenFile(
        path=Path("/run/token")
    )
    given = ENDPOINT | {f"{CLIENT}.secret": HIDDEN, "kafka.sasl.oauthbearer.scope": "kafka"}
    assert security(tmp_path, given).login == TokenEndpoint(
        url="https://idp/token", client_id="rlm", client_secret=Secret(HIDDEN), scope="kafka"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol: must be PLAINTEXT or SSL"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism: missing; must be PLAIN"),
        (SASL | {"kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism is GSSAPI .Kerberos."),
        (SASL | {"kafka.sasl.mechanism": "MD5"}, "kafka.sasl.mechanism: must be PLAIN or SCRAM"),
        (SASL, "kafka.sasl.username: missing"),
        (USER, "kafka.sasl.password: missing"),
        (USER | {"kafka.sasl.password": ""}, "kafka.sasl.password: must be a text$"),
        (
            USER | {"kafka.sasl.password": HIDDEN, "kafka.sasl.password.file": "/etc/pw"},
            "kafka.sasl.password.file: kafka.sasl.password is given too",
        ),
        ({"kafka.sasl.password": HIDDEN}, "goes with kafka.security.protocol SASL_PLAINTEXT or"),
        (
            {"kafka.ssl.truststore.location": "/etc/ca.pem"},
            "goes with kafka.security.protocol SSL or SASL_SSL, which is PLAINTEXT",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.key.location": "/etc/key.pem"},
            "kafka.ssl.key.location: goes with kafka.ssl.keystore.location",
        ),
        (TOKENS, "token.endpoint.url: missing"),
        (TOKENS | {URL: "file://run/token"}, "must be file:/// and an absolute path"),
        (TOKENS | {URL: "ldap://idp"}, "token.endpoint.url: not an http or https URL"),
        (ENDPOINT, "client.secret: missing"),
        (
            ENDPOINT | {URL: "http://idp/token", f"{CLIENT}.secret": HIDDEN},
            "would send the client secret in clear",
        ),
        ({"kafka.sasl.jaas.config": HIDDEN}, "kafka.sasl.jaas.config: there is no JAAS here"),
        ({"kafka.ssl.keystore.type": "JKS"}, "kafka.ssl.keystore.location is always PEM"),
        ({"kafka.sasl.kerberos.service.name": "k"}, "there is no GSSAPI"),
    ],
)
def test_what_is_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        config(tmp_path, given)
    refusal(tmp_path, given)


def test_a_token_endpoint_on_this_machine_or_allowed_needs_no_tls(tmp_path: Path) -> None:
    given = ENDPOINT | {f"{CLIENT}.secret": HIDDEN}
    assert security(tmp_path, given | {URL: "http://127.0.0.1:80/t"}).login is not None
    allowed = {URL: "http://idp/t", "allow_insecure": True}
    assert security(tmp_path, given | allowed).login is not None


def test_a_variable_without_use_is_no_error(tmp_path: Path) -> None:
    assert security(tmp_path, {}, RLM_KAFKA_SSL_KEY_PASSWORD=HIDDEN) == KafkaSecurity()


def test_a_command_needs_only_the_settings_of_kafka_clients(tmp_path: Path) -> None:
    """Neither the broker's files nor what the file says of other things is looked at."""
    content: dict[str, Any] = {
        "broker.server.properties": str(tmp_path / "missing"),
        "kafka.bootstrap.servers": ["b1:9092", "b2:9092"],
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "rlm",
    }
    environment = {"RLM_KAFKA_SASL_PASSWORD": "p"}
    addresses, security = kafka_clients_from_mapping(content, environment)
    assert [str(one) for one in addresses] == ["b1:9092", "b2:9092"]
    assert security.protocol == "SASL_PLAINTEXT" and security.login is not None
    assert kafka_clients_from_mapping({}, {})[0] == ()
    with pytest.raises(Invalid, match=r"kafka\.sasl\.password"):
        kafka_clients_from_mapping(content, {})
    with pytest.raises(Invalid, match=r"kafka\.sasl\.usernam"):
        kafka_clients_from_mapping({**content, "kafka.sasl.usernam": "x"}, environment)

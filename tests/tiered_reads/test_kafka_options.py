"""A Java user's consumer properties: what is taken over, ignored, refused."""

import logging
from pathlib import Path

import pytest

from kafka_clients.security import KafkaSecurity, PasswordLogin
from kip405.settings import Secret
from tests.builders.certificates import Authority
from tiered_reads.errors import KafkaClientError
from tiered_reads.kafka_options import KafkaSettings, kafka_settings


def settings(**properties: str) -> KafkaSettings:
    given = {name.replace("__", "."): value for name, value in properties.items()}
    return kafka_settings({"bootstrap.servers": "a:1, b:2", **given})


def test_names_as_in_java() -> None:
    found = settings(
        client__id="me",
        fetch__max__bytes="1000",
        max__partition__fetch__bytes="2000",
        fetch__min__bytes="3",
        fetch__max__wait__ms="4",
        request__timeout__ms="5",
        receive__buffer__bytes="65536",
    )
    assert found.bootstrap_servers == ("a:1", "b:2")
    assert (found.client_id, found.fetch_max_bytes, found.max_partition_fetch_bytes) == (
        "me",
        1000,
        2000,
    )
    assert (found.fetch_min_bytes, found.fetch_max_wait_ms, found.request_timeout_ms) == (3, 4, 5)
    assert found.receive_buffer_bytes == 65536
    assert found.security == KafkaSecurity()


JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="a\\"b;c=d" ;'
)


@pytest.mark.parametrize(
    ("given", "user", "password"),
    [
        ({"sasl__jaas__config": JAAS}, "alice", 'a"b;c=d'),
        (
            {"sasl__jaas__config": "x.PlainLoginModule required username='u' password=p-1;"},
            "u",
            "p-1",
        ),
        ({"sasl__plain__username": "u", "sasl__plain__password": "p-2"}, "u", "p-2"),
        ({"sasl__username": "u", "sasl__password": "p-3"}, "u", "p-3"),
    ],
)
def test_users_and_passwords(given: dict[str, str], user: str, password: str) -> None:
    found = settings(security__protocol="sasl_ssl", sasl__mechanism="SCRAM-SHA-512", **given)
    assert found.security.login == PasswordLogin(
        mechanism="SCRAM-SHA-512", username=user, password=Secret(password)
    )
    assert found.security.has_tls
    assert password not in repr(found)


def test_pem_files_and_texts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("client")
    both = tmp_path / "both.pem"
    both.write_text(pair.key_file.read_text() + pair.cert_file.read_text())
    found = settings(
        security__protocol="SSL",
        ssl__truststore__location=str(authority.ca_file),
        ssl__keystore__location=str(both),
        ssl__key__password="secret",
        ssl__endpoint__identification__algorithm="",
    )
    tls = found.security.tls
    assert (tls.ca_file, tls.cert_file) == (str(authority.ca_file), str(both))
    assert not tls.checks_host_name
    assert "secret" not in repr(found)
    assert settings(security__protocol="SSL").security.tls.checks_host_name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"security__protocol": "TLS"}, "it has PLAINTEXT"),
        ({"security__protocol": "SASL_SSL"}, "is GSSAPI .Kerberos."),
        (
            {"security__protocol": "SASL_SSL", "sasl__mechanism": "OAUTHBEARER"},
            "endpoint.url: missing",
        ),
        ({"security__protocol": "SASL_SSL", "sasl__mechanism": "PLAIN"}, "user and a password"),
        ({"fetch__max__bytes": "many"}, "must be a whole number of at least 1, got 'many'"),
        ({"fetch__min__bytes": "-1"}, "must be a whole number of at least 0"),
        (
            {"sasl__username": "a", "sasl__plain__username": "b"},
            "is another name of kafka.sasl.plain.username; give one of them",
        ),
        ({"interceptor__classes": "a.B"}, "kafka.interceptor.classes"),
        ({"ssl__engine__factory__class": "a.B"}, "kafka.ssl.engine.factory.class"),
        (
            {"ssl__truststore__location": "/nowhere"},
            "ssl.truststore.location cannot be read: /nowhere",
        ),
    ],
)
def test_what_cannot_be_met_is_an_error(given: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaClientError, match=message):
        settings(**given)


def test_a_java_key_store_is_refused_with_the_way_out(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(KafkaClientError, match=r"store\.jks, which is not a PEM file"):
        settings(security__protocol="SSL", ssl__truststore__location=str(store))


def test_no_servers() -> None:
    with pytest.raises(KafkaClientError, match=r"bootstrap\.servers"):
        kafka_settings({"client.id": "x"})


def test_one_warning_names_what_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        settings(metric__reporters="a.B", client__rack="r", group__id="g", isolation__level="x")
    [record] = caplog.records
    assert record.getMessage().endswith("names=kafka.client.rack, kafka.metric.reporters")

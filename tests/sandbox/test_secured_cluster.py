"""Secured sandboxes against a real Kafka: who may connect, and who may do what."""

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import aiokafka
import psutil
import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.security.broker_calls import NotAuthenticated, broker_calls
from rlm_sandbox.security.cluster_security import security_of
from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.principals import saved_secrets
from rlm_sandbox.spec import SandboxSpec
from tests.builders import secured_clients
from tests.builders.opened import opened
from tests.sandbox_fixtures import patient

pytestmark = pytest.mark.integration

_TIMEOUT_S = 120
NOTHING_S = 20
"""So long nothing comes where nothing may come."""
TOPIC = "secured"


@pytest.fixture(scope="module", params=["sasl_ssl", "mtls"])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    """One broker alone, with one topic of three records that admin has written."""
    root = tmp_path_factory.mktemp("secured")
    spec = SandboxSpec(security=request.param, services=False, jvm="quick")
    made = Sandbox.up(root, patient(spec))
    try:
        admin = secured_clients.librdkafka(made.json, "admin")
        create_topic(admin, TOPIC)
        assert written(admin, TOPIC, b"a", b"b", b"c") == [None, None, None]
        yield made
    finally:
        made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))


def create_topic(config: dict[str, Any], topic: str) -> None:
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(_TIMEOUT_S)


def written(config: dict[str, Any], topic: str, *values: bytes) -> list[str | None]:
    """Names of the errors of each record, None where it was acknowledged."""
    errors: list[str | None] = []

    def delivered(error: KafkaError | None, _message: Any) -> None:
        errors.append(None if error is None else error.name())

    producer = Producer({**config, "message.timeout.ms": _TIMEOUT_S * 1000})
    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(2 * _TIMEOUT_S) == 0
    return errors


def read(
    config: dict[str, Any], topic: str, count: int, *, timeout_s: float = _TIMEOUT_S
) -> list[bytes | str | None]:
    """Values from the start; the name of the error where reading ends with one."""
    consumer = Consumer({**config, "group.id": "readers", "enable.auto.commit": False})
    found: list[bytes | str | None] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(found) < count:
            message = consumer.poll(timeout_s)
            assert message is not None, found
            error = message.error()
            if error is not None:
                return [*found, error.name()]
            found.append(message.value())
    finally:
        consumer.close()
    return found


def mechanisms(document: dict[str, Any]) -> list[str | None]:
    security = document["security"]
    return security["mechanisms"] if security["mechanism"] else [None]


def test_every_mechanism_connects_and_is_the_same_principal(secured: Sandbox) -> None:
    for mechanism in mechanisms(secured.json):
        config = secured_clients.librdkafka(secured.json, "reader", mechanism=mechanism)
        assert read(config, TOPIC, 3) == [b"a", b"b", b"c"], mechanism
        assert written(config, TOPIC, b"x") == ["TOPIC_AUTHORIZATION_FAILED"], mechanism


def test_denied_gets_the_brokers_authorization_error(secured: Sandbox) -> None:
    config = secured_clients.librdkafka(secured.json, "denied")
    assert written(config, TOPIC, b"x") == ["TOPIC_AUTHORIZATION_FAILED"]
    # librdkafka asks for the group's coordinator first.
    assert read(config, TOPIC, 1) == ["GROUP_AUTHORIZATION_FAILED"]
    with pytest.raises(KafkaException) as caught:
        create_topic(config, "of-denied")
    assert caught.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"


def test_what_no_acl_names_is_denied(secured: Sandbox) -> None:
    """No ACL of the sandbox is about transactional ids: only the default decides."""

    def begin(name: str) -> None:
        config = secured_clients.librdkafka(secured.json, name)
        Producer({**config, "transactional.id": "of-nobody"}).init_transactions(_TIMEOUT_S)

    begin("admin")
    with pytest.raises(KafkaException) as caught:
        begin("reader")
    error = caught.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_aiokafka_is_the_same_principals(secured: Sandbox) -> None:
    async def values(name: str, mechanism: str | None) -> list[bytes | None]:
        arguments = secured_clients.aiokafka(secured.json, name, mechanism=mechanism)
        consumer = aiokafka.AIOKafkaConsumer(**arguments)
        async with opened(consumer):
            partition = aiokafka.TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            return [(await consumer.getone()).value for _ in range(3)]

    for mechanism in mechanisms(secured.json):
        assert await values("reader", mechanism) == [b"a", b"b", b"c"], mechanism
    for name in ("reader", "denied"):
        async with (
            opened(
                aiokafka.AIOKafkaProducer(**secured_clients.aiokafka(secured.json, name))
            ) as producer,
            asyncio.timeout(_TIMEOUT_S),
        ):
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait(TOPIC, b"x")


def test_nobody_connects_without_a_proof(secured: Sandbox) -> None:
    security = security_of(secured.layout, secured.state.spec)
    assert security is not None
    connects, ports = secured_clients.connects, secured.state.ports[1]
    right = security.identity("reader")
    assert connects(ports.direct, right)
    assert connects(ports.tiered, security.identity("reader", proxy=True))
    for port in (ports.direct, ports.tiered, secured.state.quorum_port):
        assert not connects(port, None)
    assert not connects(ports.direct, replace(right, certificate=None, username=None))
    if right.password is not None:
        with (
            pytest.raises(NotAuthenticated, match="the broker refuses reader"),
            broker_calls(ports.direct, replace(right, password="0" * 32), timeout_s=_TIMEOUT_S),
        ):
            pass


def test_kafkas_own_tools_take_the_properties_files(secured: Sandbox) -> None:
    def run(tool: str, name: str, *words: str) -> str:
        path = secured.json["security"][name]["client_properties"]
        where = ("--bootstrap-server", secured.direct_bootstrap, "--command-config", path)
        done = secured.dist.run_tool(tool, *where, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert TOPIC in run("topics", "reader", "--list").split()
    # A token for somebody else (KIP-48, KIP-373), which needs the brokers' secret key.
    tool, owner = "org.apache.kafka.tools.DelegationTokenCommand", "User:reader"
    words = ("--create", "--max-life-time-period", "-1", "--owner-principal", owner)
    assert owner in run(tool, "admin", *words)


def test_a_principal_comes_from_the_certificate(secured: Sandbox) -> None:
    """The authorizer's own line, whatever the kind of proof."""
    assert written(secured_clients.librdkafka(secured.json, "denied"), TOPIC, b"x")
    log = secured.layout.log("broker:1").read_text("utf-8")
    assert "Principal = User:denied is Denied" in log
    assert "User:CN=" not in log


def test_no_secret_is_in_a_log_or_on_a_command_line(secured: Sandbox) -> None:
    found = saved_secrets(SecurityFiles(folder=secured.layout.security).secrets)
    secrets = [*found.passwords.values(), found.delegation_token_key]
    texts = [path.read_text("utf-8") for path in (secured.layout.root / "logs").iterdir()]
    texts.append(secured.layout.state.read_text("utf-8"))
    running = psutil.process_iter(["cmdline"])
    texts.extend(" ".join(process.info["cmdline"] or ()) for process in running)
    assert texts
    assert not [secret for secret in secrets if any(secret in text for text in texts)]
    layout = secured.layout
    for path in (layout.document, layout.server_properties(1)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not layout.security.joinpath("format.args").exists()


def test_a_sandbox_that_comes_up_again_knows_the_same_principals(secured: Sandbox) -> None:
    before = secured.json["security"]
    secured.down()
    revived = Sandbox.up(secured.layout.root, secured.state.spec)
    assert revived.json["security"] == before
    reader = secured_clients.librdkafka(revived.json, "reader")
    assert read(reader, TOPIC, 3) == [b"a", b"b", b"c"]

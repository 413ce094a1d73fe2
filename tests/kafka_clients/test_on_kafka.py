"""Our clients and a real broker: every protocol and mechanism, sessions, and every refusal."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafka_clients.channel_security import ChannelSecurity
from kafka_clients.security import Login, TokenFile
from rlm.broker.own_broker import OwnBroker
from rlm.clock import SystemClock
from rlmm.clients import ConnectionSettings, make_producer
from rlmm.topic import create_topic, settings_spec
from tests.builders.secured_kafka import (
    SecuredKafka,
    alice,
    start_secured_kafka,
    unsecured_jws,
)

pytestmark = pytest.mark.integration

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
WAYS = [
    ("BARE", None),
    ("TLS", None),
    ("MUTUAL", None),
    *((listener, mechanism) for listener in ("SASL", "SASLTLS") for mechanism in MECHANISMS),
]


@pytest.fixture(scope="module")
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    made = start_secured_kafka(tmp_path_factory.mktemp("secured"))
    try:
        asyncio.run(made.wait_ready())
        yield made
    finally:
        made.down()


def login(mechanism: str | None, folder: Path, *, lifetime_s: float = 3_600) -> Login | None:
    if mechanism is None:
        return None
    if mechanism != "OAUTHBEARER":
        return alice(mechanism)
    file = folder / "token"
    file.write_text(unsecured_jws("alice", lifetime_s=lifetime_s))
    return TokenFile(path=file)


@asynccontextmanager
async def wire(
    kafka: SecuredKafka, listener: str, security: ChannelSecurity
) -> AsyncIterator[OwnBroker]:
    made = OwnBroker(kafka.address(listener), client_id="test", security=security)
    try:
        yield made
    finally:
        await made.close()


def connection(kafka: SecuredKafka, listener: str, security: ChannelSecurity) -> ConnectionSettings:
    return ConnectionSettings(
        bootstrap_servers=(str(kafka.address(listener)),), client_id="test", security=security
    )


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
async def test_both_layers_connect(
    kafka: SecuredKafka, tmp_path: Path, listener: str, mechanism: str | None
) -> None:
    security = kafka.security(listener, login(mechanism, tmp_path))
    async with wire(kafka, listener, security) as own:
        assert (await own.describe_cluster()).nodes[0].node_id == 1
    settings = connection(kafka, listener, security)
    await create_topic(settings_spec(1), settings, SystemClock().sleep_ms)
    producer = make_producer(settings)
    await producer.start()
    try:
        sent = await (await producer.send("__rlm_settings", b"v", key=b"k", partition=0))
        assert sent.offset >= 0
    finally:
        await producer.stop()

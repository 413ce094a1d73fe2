"""Our clients and a real broker: every protocol and mechanism, sessions, and every refusal."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, structs
from aiokafka.client import AIOKafkaClient

from kafka_clients.channel_security import ChannelSecurity
from kafka_clients.refusals import SecurityRefused
from kafka_clients.security import KafkaSecurity, Login, TlsFiles, TokenEndpoint, TokenFile
from kip405.errors import Unavailable
from kip405.settings import Secret
from rlm.broker.own_broker import OwnBroker
from rlm.clock import SystemClock
from rlmm.clients import ConnectionSettings, make_consumer, make_producer
from rlmm.topic import SETTINGS_TOPIC, create_topic, settings_spec
from tests.builders.certificates import Authority
from tests.builders.opened import opened
from tests.builders.secured_kafka import (
    ALICES,
    SESSION_MS,
    SecuredKafka,
    alice,
    start_secured_kafka,
    unsecured_jws,
)
from tests.waiting import succeeds_once
from tiered_reads.kafka_client import KafkaClient
from tiered_reads.kafka_options import KafkaSettings, kafka_settings
from tiered_reads.stopping import Stop

pytestmark = pytest.mark.integration

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
WAYS = [
    ("BARE", None),
    ("TLS", None),
    ("MUTUAL", None),
    *((listener, mechanism) for listener in ("SASL", "SASLTLS") for mechanism in MECHANISMS),
]
LONG_S = 3 * SESSION_MS / 1000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    made = start_secured_kafka(tmp_path_factory.mktemp("secured"))
    try:
        asyncio.run(made.wait_ready())
        asyncio.run(create_settings_topic(made))
        yield made
    finally:
        made.down()


async def create_settings_topic(kafka: SecuredKafka) -> None:
    settings = connection(kafka, "BARE", kafka.security("BARE"))
    await create_topic(settings_spec(1), settings, SystemClock().sleep_ms)


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


@asynccontextmanager
async def producing(settings: ConnectionSettings) -> AsyncIterator[AIOKafkaProducer]:
    async with opened(make_producer(settings)) as producer:
        yield producer


async def produce(producer: AIOKafkaProducer) -> int:
    sent = await (await producer.send(SETTINGS_TOPIC, b"v", key=b"k", partition=0))
    offset: int = sent.offset
    return offset


def ends_of(client: AIOKafkaClient) -> set[Any]:
    """This side's addresses of the open connections to brokers."""
    return {
        one._writer.get_extra_info("sockname") for one in client._conns.values() if one.connected()
    }


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
async def test_both_layers_connect(
    kafka: SecuredKafka, tmp_path: Path, listener: str, mechanism: str | None
) -> None:
    security = kafka.security(listener, login(mechanism, tmp_path))
    async with wire(kafka, listener, security) as own:
        assert (await own.describe_cluster()).nodes[0].node_id == 1
    async with producing(connection(kafka, listener, security)) as producer:
        assert await produce(producer) >= 0
    assert security.refusals == {}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
async def test_both_layers_keep_their_connections_while_the_broker_ends_sessions(
    kafka: SecuredKafka, tmp_path: Path, mechanism: str
) -> None:
    """Each connection outlives three sessions, the consumer's with long polls under way."""

    async def attempt() -> None:
        await _keep_their_connections(kafka, kafka.security("SASLTLS", login(mechanism, tmp_path)))

    await succeeds_once(attempt)  # a session is renewed 0.6 s before its end


async def _keep_their_connections(kafka: SecuredKafka, security: ChannelSecurity) -> None:
    settings = connection(kafka, "SASLTLS", security)
    consumer, seen = make_consumer(settings), 0
    partition = structs.TopicPartition(SETTINGS_TOPIC, 0)
    async with opened(consumer):
        consumer.assign([partition])
        await consumer.seek_to_end(partition)
        async with producing(settings) as producer, wire(kafka, "SASLTLS", security) as own:
            await own.describe_cluster()
            await produce(producer)
            await consumer.getmany(timeout_ms=1_000)
            clients = (producer.client, consumer._client)
            before = [ends_of(one) for one in clients]
            channel = own._quick._channel
            deadline, sent = asyncio.get_running_loop().time() + LONG_S, 0
            while asyncio.get_running_loop().time() < deadline:
                await own.describe_cluster()
                await produce(producer)
                sent += 1
                found = await consumer.getmany(timeout_ms=200)
                seen += sum(map(len, found.values()))
            assert [ends_of(one) for one in clients] == before
            assert own._quick._channel is channel
            async with asyncio.timeout(60):
                while seen < sent:  # a busy machine may not have brought the last ones yet
                    found = await consumer.getmany(timeout_ms=200)
                    seen += sum(map(len, found.values()))
            assert sent <= seen <= sent + 1
    assert security.refusals == {}


async def test_aiokafka_alone_is_cut_off_when_its_session_ends(kafka: SecuredKafka) -> None:
    """Why the connections are ours: when this fails, aiokafka has learnt KIP-368."""
    producer = AIOKafkaProducer(
        bootstrap_servers=str(kafka.address("SASL")),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="alice",
        sasl_plain_password=ALICES,
    )
    async with opened(producer):
        await produce(producer)
        before = ends_of(producer.client)
        await asyncio.sleep(1.2 * SESSION_MS / 1000)
        with contextlib.suppress(Exception):
            await produce(producer)
        assert not before & ends_of(producer.client)


async def test_a_token_is_renewed_before_its_end(kafka: SecuredKafka, tmp_path: Path) -> None:
    """The broker ends a session with its token; the file has a new one by then."""

    async def attempt() -> None:
        token = login("OAUTHBEARER", tmp_path, lifetime_s=3.5)
        security = kafka.security("SASL", token)
        async with wire(kafka, "SASL", security) as own:
            await own.describe_cluster()
            channel = own._quick._channel
            login("OAUTHBEARER", tmp_path)
            for _ in range(15):
                await asyncio.sleep(0.3)
                await own.describe_cluster()
            assert own._quick._channel is channel

    # Later than its token's end a client is refused.
    await succeeds_once(attempt, failures=(AssertionError, Unavailable))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_and_then_the_right_one(
    kafka: SecuredKafka, tmp_path: Path, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "password"
    file.write_text("never-this-one")
    security = kafka.security("SASL", replace(alice(mechanism), password=file))
    settings = connection(kafka, "SASL", security)
    async with wire(kafka, "SASL", security) as own:
        with pytest.raises(SecurityRefused, match="authentication failed") as refused:
            await own.describe_cluster()
        assert "look at kafka.sasl.username (alice)" in str(refused.value)
        with pytest.raises(SecurityRefused, match="authentication failed"):
            async with producing(settings):
                pass
        file.write_text(ALICES)
        await asyncio.sleep(0.6)
        await own.describe_cluster()
        async with producing(settings) as producer:
            await produce(producer)
    shown = f"{caplog.text}{refused.value!r}"
    assert "never-this-one" not in shown and ALICES not in shown


def other_tls(kafka: SecuredKafka, folder: Path, what: str) -> TlsFiles:
    other = Authority(folder, "another")
    tls = kafka.tls(with_certificate=True)
    if what == "authority":
        return replace(tls, ca_file=str(other.ca_file))
    return replace(tls, cert_file=str(other.issue("stranger").both_file))


@pytest.mark.parametrize(
    ("listener", "protocol", "mechanism", "what", "message"),
    [
        ("TLS", "SSL", None, "authority", r"of no authority that is trusted.*truststore"),
        ("MUTUAL", "SSL", None, "certificate", r"kafka\.ssl\.keystore\.location"),
        ("MUTUAL", "SSL", None, "none", r"kafka\.ssl\.keystore\.location"),
        ("BARE", "SSL", None, "", r"speak TLS.*kafka\.security\.protocol is SSL"),
        ("TLS", "PLAINTEXT", None, "", r"TLS.*kafka\.security\.protocol is PLAINTEXT"),
        (
            "SASL",
            "PLAINTEXT",
            None,
            "",
            r"want TLS or SASL .*protocol is PLAINTEXT",
        ),
        ("SASLTLS", "SASL_PLAINTEXT", "PLAIN", "", r"TLS.*protocol is SASL_PLAINTEXT"),
        ("BARE", "SASL_PLAINTEXT", "PLAIN", "", r"has no SASL.*protocol is SASL_PLAINTEXT"),
        ("SCRAMONLY", "SASL_PLAINTEXT", "PLAIN", "", r"mechanism is PLAIN, .* has SCRAM-SHA-512"),
    ],
)
async def test_what_does_not_fit_is_one_line_that_names_the_setting(
    kafka: SecuredKafka,
    tmp_path: Path,
    listener: str,
    protocol: str,
    mechanism: str | None,
    what: str,
    message: str,
) -> None:
    tls = kafka.tls() if what in ("", "none") else other_tls(kafka, tmp_path, what)
    security = ChannelSecurity(
        KafkaSecurity(protocol=protocol, tls=tls, login=login(mechanism, tmp_path))
    )
    async with wire(kafka, listener, security) as own:
        with pytest.raises(Unavailable, match=message) as failed:
            await own.describe_cluster()
    assert "\n" not in str(failed.value) and ALICES not in str(failed.value)
    await asyncio.sleep(0.3)
    with pytest.raises(OSError, match=r"kafka\.s(sl|asl|ecurity)\."):
        async with producing(connection(kafka, listener, security)):
            pass


async def test_another_host_than_the_certificates(kafka: SecuredKafka) -> None:
    address = replace(kafka.address("TLS"), host="127.0.0.2")
    for checks in (True, False):
        tls = replace(kafka.tls(), checks_host_name=checks)
        own = OwnBroker(address, client_id="test", security=kafka.security("TLS", tls=tls))
        try:
            if checks:
                with pytest.raises(SecurityRefused, match="does not have the host that was dial"):
                    await own.describe_cluster()
            else:
                await own.describe_cluster()
        finally:
            await own.close()


async def test_a_token_that_the_broker_does_not_take(kafka: SecuredKafka, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(unsecured_jws("alice", lifetime_s=-60))
    security = kafka.security("SASL", TokenFile(path=file))
    async with wire(kafka, "SASL", security) as own:
        with pytest.raises(SecurityRefused, match=r"look at kafka\.sasl\.oauthbearer\.token"):
            await own.describe_cluster()
        file.write_text(unsecured_jws("alice"))
        await asyncio.sleep(0.3)
        await own.describe_cluster()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
async def test_the_connectors_consumer_keeps_its_connection(
    kafka: SecuredKafka, tmp_path: Path, mechanism: str
) -> None:
    (tmp_path / "password").write_text(ALICES)
    (tmp_path / "token").write_text(unsecured_jws("alice"))
    properties = {
        "bootstrap.servers": str(kafka.address("SASLTLS")),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(kafka.authority.ca_file),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password.file": str(tmp_path / "password"),
        "sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token",
    }

    async def attempt() -> None:
        await asyncio.to_thread(_keeps_its_connection, kafka_settings(properties))

    await succeeds_once(attempt)  # a session is renewed 0.6 s before its end


def _keeps_its_connection(settings: KafkaSettings) -> None:
    client = KafkaClient(settings, patience_ms=60_000)
    try:
        ends: list[set[Any]] = []
        for _ in range(4):
            assert SETTINGS_TOPIC in client.topics(None, Stop())
            assert client._connections is not None
            ends.append(ends_of(client._connections))
            time.sleep(SESSION_MS / 1000)
        assert ends[0] and ends == [ends[0]] * 4
    finally:
        client.close()


async def test_tokens_of_an_endpoint_for_both_layers(kafka: SecuredKafka) -> None:
    """Client credentials: one token serves both, and is renewed over the open connections."""

    async def attempt() -> None:
        await _are_renewed(kafka)

    # A session is renewed 0.6 s before its end.
    await succeeds_once(attempt, failures=(AssertionError, Unavailable, OSError))


async def _are_renewed(kafka: SecuredKafka) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"scope=kafka"))
        # By the token a session may last longer than its clients keep the token, or sessions would
        # become as short as the rest of its life: too short for a busy machine.
        token = unsecured_jws("alice", lifetime_s=60)
        body = json.dumps({"access_token": token, "expires_in": 3}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        endpoint = TokenEndpoint(
            url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token",
            client_id="rlm",
            client_secret=Secret("the-clients-secret"),
            scope="kafka",
        )
        security = kafka.security("SASLTLS", endpoint)
        settings = connection(kafka, "SASLTLS", security)
        async with producing(settings) as producer, wire(kafka, "SASLTLS", security) as own:
            await asyncio.gather(produce(producer), own.describe_cluster())
            assert len(asked) == 1
            began = asyncio.get_running_loop().time()
            channel, before = own._quick._channel, ends_of(producer.client)
            for _ in range(12):
                await asyncio.sleep(0.4)
                await asyncio.gather(produce(producer), own.describe_cluster())
            assert own._quick._channel is channel and ends_of(producer.client) == before
            lasted_s = asyncio.get_running_loop().time() - began
            assert 2 <= len(asked) <= 2 + lasted_s / 2  # each is kept for more than two seconds
    assert security.refusals == {}

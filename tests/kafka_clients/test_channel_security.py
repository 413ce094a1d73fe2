"""What one object does for all connections of a process: secrets, tokens, sessions, refusals."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kafka_clients import channel_security
from kafka_clients.bearer_tokens import BearerToken, TokenRefused
from kafka_clients.channel_security import ChannelSecurity
from kafka_clients.refusals import NoTokenNow, SecurityRefused
from kafka_clients.security import (
    KafkaSecurity,
    Login,
    PasswordLogin,
    SecretSource,
    TlsFiles,
    TokenEndpoint,
    TokenFile,
)
from kafka_protocol.apis import DESCRIBE_CLUSTER, METADATA
from kip405.errors import Unavailable
from kip405.settings import Secret
from rlm.broker.connection import BrokerConnection
from rlmm.clients import ConnectionSettings, make_consumer, refresh_metadata
from tests.builders.fake_broker import FakeBroker
from tests.builders.sasl_broker import SaslBroker
from tests.waiting import pass_time, until

PASSWORD = "nobody-may-see-this"
PLAIN = f"\0rlm\0{PASSWORD}".encode()
SESSION_MS = 100_000
"""Longer than a busy machine needs for a few calls, as what follows."""
PAUSE_S = 100.0


def secured(login: Login, **more: object) -> ChannelSecurity:
    return ChannelSecurity(KafkaSecurity(protocol="SASL_PLAINTEXT", login=login), **more)  # type: ignore[arg-type]


def plain(password: SecretSource = Secret(PASSWORD)) -> PasswordLogin:  # noqa: B008 - a value
    return PasswordLogin(mechanism="PLAIN", username="rlm", password=password)


@asynccontextmanager
async def connected(
    broker: FakeBroker, security: ChannelSecurity
) -> AsyncIterator[Callable[[], "asyncio.Future[object]"]]:
    """Calls of the wire layer."""
    broker.on(DESCRIBE_CLUSTER, {"cluster_id": "c"})
    connection = BrokerConnection(broker.address, client_id="test", security=security)

    def ask() -> "asyncio.Future[object]":
        return asyncio.ensure_future(connection.call(DESCRIBE_CLUSTER, 0, {}, timeout_ms=60_000))

    try:
        yield ask
    finally:
        await connection.close()


async def test_a_changed_password_counts_for_the_next_connection(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    async with SaslBroker(lambda _: True).running() as broker:
        async with connected(broker, secured(plain(file))) as ask:
            await ask()
            file.write_text("second")
            await ask()
            await broker.cut()
            await ask()
        assert broker.authentications == [b"\0rlm\0first", b"\0rlm\0second"]


@pytest.mark.parametrize("content", [None, "", "\n"])
async def test_a_password_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_text(content)
    async with (
        SaslBroker(lambda _: True).running() as broker,
        connected(broker, secured(plain(file))) as ask,
    ):
        with pytest.raises(SecurityRefused, match=r"kafka\.sasl\.password\.file: .*password"):
            await ask()


async def test_a_session_is_renewed_on_its_connection_before_the_next_request() -> None:
    async with SaslBroker(lambda _: True, session_ms=SESSION_MS).running() as broker:
        async with connected(broker, secured(plain())) as ask:
            await ask()
            await ask()
            assert len(broker.authentications) == 1
            pass_time(0.9 * SESSION_MS / 1000)
            await asyncio.gather(*(ask() for _ in range(5)))
            assert len(broker.authentications) == 2
        assert broker.connections == 1


async def test_nothing_comes_between_the_messages_of_an_authentication() -> None:
    async with SaslBroker(lambda _: True, session_ms=SESSION_MS).running() as broker:
        async with connected(broker, secured(plain())) as ask:
            await ask()
            pass_time(1.05 * SESSION_MS / 1000)
            broker.gate.clear()
            before = len(broker.requests)
            waiting = [ask() for _ in range(3)]
            await until(lambda: len(broker.requests) >= before + 2)
            await asyncio.sleep(0.1)
            names = [name for name, _, _ in broker.requests[before:]]
            assert names == ["SaslHandshake", "SaslAuthenticate"]
            broker.gate.set()
            await asyncio.gather(*waiting)
        assert broker.connections == 1


async def test_a_call_given_up_in_mid_authentication_leaves_no_half_open_session() -> None:
    async with SaslBroker(lambda _: True, session_ms=SESSION_MS).running() as broker:
        async with connected(broker, secured(plain())) as ask:
            await ask()
            pass_time(1.05 * SESSION_MS / 1000)
            broker.gate.clear()
            call = ask()
            await until(lambda: len(broker.authentications) == 2)
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
            broker.gate.set()
            await ask()
        assert broker.connections == 2


async def test_a_refusal_is_one_line_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with SaslBroker(lambda _: False).running() as broker:
        security = secured(plain())
        async with connected(broker, security) as ask:
            with pytest.raises(SecurityRefused) as refused:
                await ask()
        text = str(refused.value)
        assert f"broker {broker.address}: authentication failed: Authentication failed" in text
        assert "look at kafka.sasl.username (rlm) and kafka.sasl.password" in text
        assert "\n" not in text and refused.value.retriable
        assert list(security.refusals) == [str(broker.address)]
    assert PASSWORD not in caplog.text + text + repr(security.refusals) + repr(security.settings)


async def test_after_a_refusal_nobody_dials_before_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel_security, "_FIRST_BACK_OFF_S", PAUSE_S)
    async with SaslBroker(lambda _: False).running() as broker:
        security = secured(plain())
        async with connected(broker, security) as ask, connected(broker, security) as other:
            for call in (ask, other, ask, other):
                with pytest.raises(SecurityRefused, match="authentication failed"):
                    await call()
            assert broker.connections == 1
            broker.accepts = lambda _: True
            pass_time(1.01 * PAUSE_S)
            await other()
            assert broker.connections == 2 and security.refusals == {}


async def test_a_mechanism_that_is_not_enabled_is_named_with_those_that_are() -> None:
    async with SaslBroker(lambda _: True).running() as broker:
        broker.mechanisms = ["SCRAM-SHA-512"]
        async with connected(broker, secured(plain())) as ask:
            with pytest.raises(
                SecurityRefused, match=r"kafka\.sasl\.mechanism is PLAIN, .* has SCRAM-SHA-512"
            ):
                await ask()


async def test_a_listener_that_closes_at_once_is_no_refusal_but_gives_a_hint() -> None:
    async with FakeBroker().running() as broker:  # it knows no SaslHandshake
        security = secured(plain())
        async with connected(broker, security) as ask:
            with pytest.raises(Unavailable, match="may want TLS or SASL") as failed:
                await ask()
        assert not isinstance(failed.value, SecurityRefused) and security.refusals == {}


class Tokens:
    """An endpoint; each token lives `lifetime_s`."""

    def __init__(self, lifetime_s: float | None) -> None:
        self.lifetime_s = lifetime_s
        self.fetched = 0
        self.error: Exception | None = None

    async def fetch(self, login: TokenEndpoint, tls: TlsFiles) -> BearerToken:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.fetched += 1
        return BearerToken(text=f"token-{self.fetched}", lifetime_s=self.lifetime_s)


ENDPOINT = TokenEndpoint(
    url="https://idp/token?secret=1", client_id="rlm", client_secret=Secret(PASSWORD)
)


async def test_one_token_serves_all_connections_until_most_of_its_life_is_over() -> None:
    tokens = Tokens(lifetime_s=300)
    async with SaslBroker(lambda _: True).running() as broker:
        security = secured(ENDPOINT, fetch=tokens.fetch)
        async with connected(broker, security) as one, connected(broker, security) as two:
            await asyncio.gather(one(), two())
            assert tokens.fetched == 1
            pass_time(0.85 * 300)
            await broker.cut()
            await asyncio.gather(one(), two())
            assert tokens.fetched == 2


async def test_a_token_of_unknown_life_or_that_a_broker_refused_is_not_used_again() -> None:
    tokens = Tokens(lifetime_s=None)
    async with SaslBroker(lambda _: True).running() as broker:
        async with connected(broker, secured(ENDPOINT, fetch=tokens.fetch)) as ask:
            await ask()
            await broker.cut()
            await ask()
            assert tokens.fetched == 2
        tokens.lifetime_s = 1_000
        broker.accepts = lambda message: b"token-4" in message
        async with connected(broker, secured(ENDPOINT, fetch=tokens.fetch)) as ask:
            with pytest.raises(SecurityRefused, match=r"look at kafka\.sasl\.oauthbearer"):
                await ask()
            pass_time(0.3)
            await ask()
            assert tokens.fetched == 4


@pytest.mark.parametrize(
    ("error", "message", "may_pass"),
    [
        (TokenRefused("it answers 401 invalid_client"), "it answers 401 invalid_client", False),
        (TimeoutError(), "no answer in time", True),
        (ConnectionRefusedError(111, "x"), "Connection refused", True),
        (ssl.SSLError(1, "x"), "TLS failed", False),
    ],
)
async def test_an_endpoint_that_gives_no_token(
    error: Exception, message: str, may_pass: bool
) -> None:
    tokens = Tokens(lifetime_s=1)
    tokens.error = error
    async with (
        SaslBroker(lambda _: True).running() as broker,
        connected(broker, secured(ENDPOINT, fetch=tokens.fetch)) as ask,
    ):
        with pytest.raises(SecurityRefused, match="no token from https://idp/token: ") as refused:
            await ask()
        assert isinstance(refused.value, NoTokenNow) == may_pass
        with pytest.raises(type(refused.value), match="no token from"):
            await ask()
    assert message in str(refused.value) and "secret=1" not in str(refused.value)


async def test_a_token_file_is_read_for_each_session(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    async with SaslBroker(lambda _: True, session_ms=SESSION_MS).running() as broker:
        async with connected(broker, secured(TokenFile(path=file))) as ask:
            await ask()
            file.write_text("two\n")
            pass_time(1.05 * SESSION_MS / 1000)
            await ask()
            file.write_text("two words\n")
            pass_time(1.05 * SESSION_MS / 1000)
            with pytest.raises(SecurityRefused, match=r"no token from .*there is no token"):
                await ask()
        sent = [message.split()[-1].strip(b"\x01") for message in broker.authentications]
        assert sent == [b"one", b"two"]


async def test_aiokafka_names_the_reason_and_hides_the_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with SaslBroker(lambda _: False).running() as broker:
        settings = ConnectionSettings(
            bootstrap_servers=(str(broker.address),),
            client_id="test",
            security=secured(plain()),
        )
        consumer = make_consumer(settings)
        with pytest.raises(SecurityRefused, match=r"failed.*kafka\.sasl\.username"):
            await consumer.start()
        await consumer.stop()
    assert PASSWORD not in caplog.text and "SaslAuthenticate" not in caplog.text


def node_of(broker: FakeBroker) -> dict[str, object]:
    node = {"node_id": 1, "host": broker.address.host, "port": broker.address.port, "rack": None}
    return {"brokers": [node], "controller_id": 1, "cluster_id": "c", "topics": []}


async def test_aiokafka_renews_a_session_on_its_connection() -> None:
    async with SaslBroker(lambda _: True, session_ms=SESSION_MS).running() as broker:
        broker.on(METADATA, lambda _: node_of(broker))
        settings = ConnectionSettings(
            bootstrap_servers=(str(broker.address),), client_id="test", security=secured(plain())
        )
        consumer = make_consumer(settings)
        try:
            await consumer.start()
            await refresh_metadata(consumer)
            assert (broker.connections, len(broker.authentications)) == (2, 2)
            pass_time(0.9 * SESSION_MS / 1000)
            broker.gate.clear()
            before = len(broker.requests)
            refreshed = asyncio.ensure_future(refresh_metadata(consumer))
            others = [asyncio.ensure_future(consumer._client.ready(1)) for _ in range(3)]
            await until(lambda: len(broker.requests) >= before + 2)
            await asyncio.sleep(0.1)
            names = [name for name, _, _ in broker.requests[before:]]
            assert names == ["SaslHandshake", "SaslAuthenticate"]
            broker.gate.set()
            await asyncio.gather(refreshed, *others)
            assert (broker.connections, len(broker.authentications)) == (2, 3)
        finally:
            await consumer.stop()


@pytest.mark.parametrize(
    ("security", "principal"),
    [
        (KafkaSecurity(), "User:ANONYMOUS"),
        (KafkaSecurity(protocol="SSL"), None),
        (
            KafkaSecurity(
                protocol="SASL_SSL",
                login=PasswordLogin(
                    mechanism="SCRAM-SHA-512", username="tiering", password=Path("password")
                ),
            ),
            "User:tiering",
        ),
        (
            KafkaSecurity(protocol="SASL_SSL", login=TokenFile(path=Path("token"))),
            None,
        ),
    ],
)
def test_who_the_clients_are_is_known_by_user_name_only(
    security: KafkaSecurity, principal: str | None
) -> None:
    assert security.principal == principal

"""A client with a certificate is its principal to the broker, by a token that the proxy has."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafka_clients.channel_security import AskBroker, ChannelSecurity, Session
from kafka_clients.security import DelegationLogin, KafkaSecurity
from kafka_protocol.apis import FETCH, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kip405.settings import Secret
from rlm.proxy.client_tokens import ClientToken, client_token
from rlm.proxy.session import SessionError
from tests.kafka_protocol.test_sasl import Server
from tests.rlm.proxy.border import ONE_PROCESS, WORKER
from tests.rlm.proxy.fakes import FakeBroker, Value, World, asked, blob, fetch_request, only, world
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.secured import Secured, secure, trusting
from tests.rlm.proxy.test_pass_through import ended, produce_request, raw_request
from tests.rlm.proxy.test_sasl import OPAQUE_KEY, asks, principals
from tests.waiting import until

MECHANISM = "SCRAM-SHA-512"
FAILED, UNKNOWN_MECHANISM, ILLEGAL_STATE = 58, 33, 34
LEAST_SESSION_S = 1.0
SUBJECT = "CN=alice"
borders = pytest.mark.parametrize("border", [ONE_PROCESS, WORKER], indirect=True)


@dataclass
class TokenBroker:
    """The part of a broker that knows delegation tokens, by id. As Kafka does it, a connection
    that has logged in again is not let do so once more within a second.
    """

    hmacs: dict[str, str] = field(default_factory=dict)
    now: Callable[[], float] = lambda: 0.0
    mechanisms: list[str] = field(default_factory=lambda: [MECHANISM])
    session_ms: int = 0
    logins: list[str] = field(default_factory=list)
    _server: Server | None = None
    _handshakes: dict[object, list[float]] = field(default_factory=dict)

    def handshake(self, version: int, request: Value) -> Value:
        earlier = self._handshakes.setdefault(asyncio.current_task(), [])
        is_again = len(earlier) > 1
        if is_again and self.now() - earlier[-1] < LEAST_SESSION_S:
            return {"error_code": ILLEGAL_STATE, "mechanisms": []}
        earlier.append(self.now())
        is_known = request["mechanism"] in self.mechanisms
        return {
            "error_code": 0 if is_known else UNKNOWN_MECHANISM,
            "mechanisms": self.mechanisms,
        }

    def authenticate(self, version: int, request: Value) -> Value:
        message = bytes(request["auth_bytes"])
        if self._server is None:
            assert message.endswith(b",tokenauth=true")
            token_id = message.decode().removeprefix("n,,n=").partition(",")[0]
            self.logins.append(token_id)
            if token_id not in self.hmacs:
                return self._answer(FAILED)
            self._server = Server(MECHANISM, self.hmacs[token_id])
            return self._answer(0, self._server.first(message))
        server, self._server = self._server, None
        final = server.final(message)
        return self._answer(FAILED if final.startswith(b"e=") else 0, final)

    def _answer(self, code: int, auth_bytes: bytes = b"") -> Value:
        return {
            "error_code": code,
            "error_message": "Authentication failed" if code else None,
            "auth_bytes": auth_bytes,
            "session_lifetime_ms": self.session_ms,
        }

    def as_broker(self) -> FakeBroker:
        return FakeBroker(
            script={
                SASL_HANDSHAKE.key: self.handshake,
                SASL_AUTHENTICATE.key: self.authenticate,
            },
            raw_answers={OPAQUE_KEY: b"yes"},
        )


@dataclass
class Lease:
    tokens: "Tokens"
    subject: str
    is_open: bool = True

    async def current(self, refused: str | None = None) -> ClientToken:
        assert self.is_open
        return await self.tokens.current(self.subject, refused)

    def close(self) -> None:
        self.is_open = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortSession(Session):
    """It is over after a second of `Tokens.now_s`."""

    tokens: "Tokens"
    end_s: float

    def is_due(self, now: float) -> bool:
        return self.tokens.now_s >= self.end_s


class ShortSessions(ChannelSecurity):
    """What a broker grants that lets nobody log in for longer than a second."""

    tokens: "Tokens"

    async def authenticate(self, ask: AskBroker) -> Session:
        await super().authenticate(ask)
        self.tokens.granted += 1
        return ShortSession(tokens=self.tokens, end_s=self.tokens.now_s + LEAST_SESSION_S)


@dataclass
class Tokens:
    """`ids`: of the tokens, one after the other whenever one is refused. With `is_short`, sessions
    end when the test lets time pass. While `gate` is closed nobody gets a token.
    """

    ids: list[str] = field(default_factory=lambda: ["one"])
    refusal: SessionError | None = None
    is_short: bool = False
    now_s: float = 0.0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0
    granted: int = 0
    leases: list[Lease] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    mechanism: str = MECHANISM

    def __post_init__(self) -> None:
        self.gate.set()

    def session_ends(self) -> None:
        self.now_s += LEAST_SESSION_S

    def lease(self, subject: str) -> Lease:
        self.leases.append(Lease(self, subject))
        return self.leases[-1]

    async def current(self, subject: str, refused: str | None) -> ClientToken:
        if refused is not None and refused == self.ids[0]:
            self.refused.append(refused)
            self.ids.pop(0)
        if self.refusal is not None:
            raise self.refusal
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        token = client_token(
            mechanism=self.mechanism,
            principal=subject.removeprefix("CN="),
            token_id=self.ids[0],
            hmac=Secret(hmac_of(self.ids[0])),
            lifetime_ms=60_000,
            made_at_ms=0,
        )
        if self.is_short:
            login = DelegationLogin(
                mechanism=self.mechanism, token_id=token.token_id, hmac=token.hmac
            )
            security = KafkaSecurity(protocol="SASL_PLAINTEXT", login=login)
            sessions = ShortSessions(security)
            sessions.tokens = self
            object.__setattr__(token, "session", sessions)
        return token


def hmac_of(token_id: str) -> str:
    return hashlib.sha256(token_id.encode()).hexdigest()


@dataclass
class Site:
    w: World
    broker: TokenBroker
    tokens: Tokens
    logs: list[Any]
    stranger: ssl.SSLContext


@asynccontextmanager
async def site(
    folder: Path, tokens: Tokens, *known: str, auth: str = "required", **settings: Any
) -> AsyncIterator[Site]:
    """A broker that knows these tokens, and clients with the certificate of `alice`."""
    secured = Secured.of(folder)
    secured.listener(client_auth=auth, client_ca_file=str(secured.authority.ca_file))
    secured.client = trusting(secured.authority, secured.authority.issue("alice"))
    broker = TokenBroker({one: hmac_of(one) for one in known}, lambda: tokens.now_s)
    with secure(secured), capture_logs() as logs:
        async with world(broker=broker.as_broker(), tokens=tokens, **settings) as w:
            yield Site(w, broker, tokens, logs, trusting(secured.authority))
    assert not [lease for lease in tokens.leases if lease.is_open]
    assert not [one for one in (*known, *tokens.ids) if hmac_of(one) in str(logs)]


def keys_at(s: Site) -> list[int]:
    return [header.api_key for header, _ in s.w.broker.seen]


LOGIN = [SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key, SASL_AUTHENTICATE.key]


@borders
async def test_h23_the_proxy_logs_in_before_any_byte_of_the_client(tmp_path: Path) -> None:
    async with site(tmp_path, Tokens(), "one") as s:
        client = await s.w.connect()
        fetched = await client.call(FETCH, 12, fetch_request(12, asked(0)))
        assert only(fetched)["records"] == blob(0, 100)
        assert keys_at(s)[:3] == LOGIN
        assert SASL_HANDSHAKE.key not in keys_at(s)[3:]
        assert s.broker.logins == ["one"]
        assert principals(s.w) == ["alice"]
        assert s.tokens.leases[0].subject == SUBJECT


@borders
async def test_who_gets_no_token_never_comes_to_the_broker(tmp_path: Path) -> None:
    why = "no rule of ssl.principal.mapping.rules makes a principal of 'CN=alice'"
    tokens = Tokens(refusal=SessionError("certificate_not_mapped", why))
    async with site(tmp_path, tokens, "one") as s:
        assert await ended(await s.w.connect())
        await until(lambda: s.w.metrics.causes == ["certificate_not_mapped"])
        assert s.w.broker.seen == []
        [line] = [one for one in s.logs if one["event"] == "client_not_logged_in"]
        assert (line["cause"], line["error"]) == ("certificate_not_mapped", why)
        assert (line["address"], line["subject"]) == ("127.0.0.1", SUBJECT)


@borders
async def test_a_refused_token_is_replaced_once(tmp_path: Path) -> None:
    async with site(tmp_path, Tokens(ids=["old", "new"]), "new") as s:
        assert await asks(await s.w.connect())
        assert s.broker.logins == ["old", "new"]
        assert s.tokens.refused == ["old"]
    async with site(tmp_path, Tokens(ids=["old", "older", "oldest"]), "new") as s:
        assert await ended(await s.w.connect())
        await until(lambda: s.w.metrics.causes == ["token_refused"])
        assert s.broker.logins == ["old", "older"]


@borders
async def test_a_listener_without_the_mechanism_is_named(tmp_path: Path) -> None:
    async with site(tmp_path, Tokens(mechanism="SCRAM-SHA-256"), "one") as s:
        assert await ended(await s.w.connect())
        await until(lambda: s.w.metrics.causes == ["token_refused"])
        assert "proxy.token.sasl.mechanism is SCRAM-SHA-256, and the listener has" in str(s.logs)


@borders
async def test_a_session_that_is_over_is_renewed_between_two_requests(tmp_path: Path) -> None:
    """Requests in one piece, cut anywhere, and behind one that waits: none comes in a login."""
    async with site(tmp_path, Tokens(is_short=True), "one") as s:
        client = await s.w.connect()
        await until(lambda: s.tokens.granted == 1)
        s.tokens.session_ends()
        assert await asks(client)
        assert keys_at(s) == [*LOGIN, *LOGIN, OPAQUE_KEY]
        frames = b"".join(
            (raw_request(OPAQUE_KEY, 1, b"a" * 70_000), raw_request(OPAQUE_KEY, 2, b"b"))
        )
        s.tokens.session_ends()
        client.writer.write(frames[:50_000])
        await client.writer.drain()
        await until(lambda: s.tokens.granted == 3)
        s.tokens.session_ends()
        client.writer.write(frames[50_000:])
        async with asyncio.timeout(60):
            assert await client.frame() == b"\0\0\0\1yes"
            assert await client.frame() == b"\0\0\0\2yes"
        assert len(s.broker.logins) == 4
        s.tokens.session_ends()
        fetched = await client.call(FETCH, 12, fetch_request(12, asked(0)))
        assert only(fetched)["records"] == blob(0, 100)
        sent = [value for header, value in s.w.broker.seen if header.api_key == OPAQUE_KEY]
        assert [value[-1:] for value in sent] == [b"?", b"a", b"b"]
        keys = keys_at(s)
        starts = [at for at, key in enumerate(keys) if key == SASL_HANDSHAKE.key]
        assert all(keys[at : at + 3] == LOGIN for at in starts)
        assert principals(s.w) == ["alice"]


@borders
async def test_what_comes_while_a_session_is_renewed_does_not_renew_it_again(
    tmp_path: Path,
) -> None:
    """Kafka refuses a second login within a second, and the connection would be lost."""
    async with site(tmp_path, Tokens(is_short=True), "one") as s:
        client = await s.w.connect()
        assert await asks(client)
        request = produce_request(9)
        request["topic_data"][0]["partition_data"][0]["records"] = b"r" * 100_000
        frames = client.encode(PRODUCE, 9, request) + b"".join(
            raw_request(OPAQUE_KEY, number, b"next") for number in range(3)
        )
        [connection] = s.w.proxy.connections
        before_bytes = connection.received_bytes
        s.tokens.session_ends()
        s.tokens.gate.clear()
        client.writer.write(frames[:70_000])
        await until(lambda: s.tokens.waiting == 1)
        client.writer.write(frames[70_000:])
        await until(lambda: connection.received_bytes == before_bytes + len(frames))
        s.tokens.gate.set()
        async with asyncio.timeout(60):
            answer = await client.answer(PRODUCE, 9)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
            for number in range(3):
                assert await client.frame() == number.to_bytes(4, "big") + b"yes"
        assert keys_at(s) == [*LOGIN, OPAQUE_KEY, *LOGIN, PRODUCE.key, *[OPAQUE_KEY] * 3]
        s.tokens.session_ends()
        assert await asks(client)
        assert keys_at(s)[-4:] == [*LOGIN, OPAQUE_KEY]


@borders
async def test_a_token_that_is_refused_in_mid_connection_ends_it(tmp_path: Path) -> None:
    async with site(tmp_path, Tokens(is_short=True), "one") as s:
        client = await s.w.connect()
        assert await asks(client)
        s.broker.hmacs.clear()
        s.tokens.session_ends()
        client.writer.write(raw_request(OPAQUE_KEY, 8, b"!"))
        assert await ended(client)
        await until(lambda: s.w.metrics.causes == ["token_refused"])
        assert b"!" not in [value[-1:] for _, value in s.w.broker.seen if isinstance(value, bytes)]


@borders
async def test_sasl_of_the_client_is_refused_and_never_comes_to_the_broker(tmp_path: Path) -> None:
    """It would log in as somebody else, or tell the broker a password of a client."""
    async with site(tmp_path, Tokens(), "one") as s:
        client = await s.w.connect()
        answer = await client.call(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert (answer["error_code"], answer["mechanisms"]) == (ILLEGAL_STATE, [])
        for version in (0, 1, 2):
            body = {"auth_bytes": b"\0bob\0secret"}
            answer = await client.call(SASL_AUTHENTICATE, version, body)
            assert answer["error_code"] == ILLEGAL_STATE
        assert await asks(client)
        assert keys_at(s) == [*LOGIN, OPAQUE_KEY]


@borders
async def test_a_principal_of_certificates_has_so_many_connections(tmp_path: Path) -> None:
    async with site(tmp_path, Tokens(), "one", max_connections_per_principal=1) as s:
        assert await asks(await s.w.connect())
        assert await ended(await s.w.connect())
        await until(lambda: s.w.metrics.causes == ["principal_connections"])


@borders
async def test_a_client_without_a_certificate_is_who_it_is_by_sasl(tmp_path: Path) -> None:
    async with site(tmp_path, Tokens(), "one", auth="requested") as s:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            s.w.proxy.port,
            ssl=s.stranger,
            server_hostname="proxy.test",
        )
        client = RawClient(reader, writer)
        answer = await client.call(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert answer["error_code"] == UNKNOWN_MECHANISM  # of the broker
        assert s.tokens.leases == []
        writer.close()


async def test_a_broker_that_sends_garbage_or_ends_is_no_crash(tmp_path: Path) -> None:
    async with site(tmp_path, Tokens(), "one") as s:
        s.w.broker.script = {}
        for raw in (b"", b"\0", b"\0\0\0\0\0\7"):
            s.w.broker.raw_answers[SASL_HANDSHAKE.key] = raw
            assert await ended(await s.w.connect())
        await until(lambda: s.w.metrics.causes == ["bad_frame"] * 3)

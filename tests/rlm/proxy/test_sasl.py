"""SASL through the proxy: every frame unchanged, and who a client is once the broker knows it."""

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from kafka_protocol.apis import FETCH, SASL_AUTHENTICATE, SASL_HANDSHAKE
from rlm.clock import SystemClock
from rlm.proxy.identities import Identities, Shares
from rlm.proxy.sasl import SaslWatch, name_in
from rlm.proxy.session import SessionError
from rlm.reading.throttle import ReadThrottle, ThrottleLimits
from tests.rlm.proxy.fakes import FakeBroker, Value, World, asked, blob, fetch_request, only, world
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.test_pass_through import ended, raw_request
from tests.waiting import until

ILLEGAL_STATE, FAILED = 34, 58
OPAQUE_KEY = 999
SECRET = "open sesame"
SIGNED = b"." + base64.urlsafe_b64encode(b"signed") + b"\x01"
INVALID_TOKEN = b'{"status":"invalid_token"}'


def bearer(
    claims: object, *, signature: bytes = b"signed", authzid: bytes = b"", more: bytes = b""
) -> bytes:
    """A client's message of OAUTHBEARER (RFC 7628); `claims` are JSON, or bytes as they are."""
    raw = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    parts = (b'{"alg":"RS256"}', raw, signature)
    token = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    return b"n," + authzid + b",\x01auth=Bearer " + token + b"\x01" + more + b"\x01"


@dataclass
class SaslBroker:
    """The part of a broker that knows users; it answers tokens with what they were, backwards."""

    passwords: dict[str, str] = field(default_factory=lambda: {"alice": SECRET, "bob": SECRET})
    has_sasl: bool = True
    session_ms: int = 3_600_000
    tokens: list[bytes] = field(default_factory=list)
    scram: list[bytes] = field(default_factory=list)

    def handshake(self, version: int, request: Value) -> Value:
        self.scram.clear()
        code = 0 if self.has_sasl else ILLEGAL_STATE
        return {"error_code": code, "mechanisms": ["PLAIN", "SCRAM-SHA-512"]}

    def authenticate(self, version: int, request: Value) -> Value:
        token = bytes(request["auth_bytes"])
        self.tokens.append(token)
        code = 0
        answer = token[::-1]
        if not self.has_sasl:
            code = ILLEGAL_STATE
        elif token.startswith(b"n,") and b"auth=" in token:
            answer = b"" if SIGNED in token else INVALID_TOKEN
        elif token == b"\x01":
            code = FAILED
        elif token.count(b"\0") == 2:
            _, user, password = token.decode().split("\0")
            code = 0 if self.passwords.get(user) == password else FAILED
        elif token.startswith(b"c=") and b"p=proof" not in token:
            code = FAILED
        return {
            "error_code": code,
            "error_message": None,
            "auth_bytes": answer,
            "session_lifetime_ms": self.session_ms,
        }

    def as_broker(self) -> FakeBroker:
        script: dict[int, Callable[[int, Value], Value]] = {
            SASL_HANDSHAKE.key: self.handshake,
            SASL_AUTHENTICATE.key: self.authenticate,
        }
        return FakeBroker(script=script, raw_answers={OPAQUE_KEY: b"yes"})


async def log_in(
    client: RawClient, user: str, mechanism: str = "PLAIN", version: int = 2, wrong: bool = False
) -> list[Value]:
    """The broker's answers to the tokens."""
    await client.call(SASL_HANDSHAKE, 1, {"mechanism": mechanism})
    tokens = [f"\0{user}\0{'wrong' if wrong else SECRET}".encode()]
    if mechanism.startswith("SCRAM"):
        proof = b"p=forged" if wrong else b"p=proof"
        tokens = [f"n,,n={user},r=fyko+d2lbbFgONRv9qkxdawL".encode(), b"c=biws,r=fyko," + proof]
    if mechanism == "OAUTHBEARER":
        forged = [bearer({"sub": user}, signature=b"forged"), b"\x01"]
        tokens = forged if wrong else [bearer({"sub": user})]
    return [
        await client.call(SASL_AUTHENTICATE, version, {"auth_bytes": token}) for token in tokens
    ]


async def asks(client: RawClient) -> bool:
    client.writer.write(raw_request(OPAQUE_KEY, 7, b"?"))
    async with asyncio.timeout(60):
        return await client.frame() == b"\0\0\0\7yes"


def principals(w: World) -> list[str]:
    return sorted(one.principal or "" for one in w.proxy.identities)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"])
async def test_tokens_and_answers_pass_as_they_are_first_and_again(
    version: int, mechanism: str
) -> None:
    sasl = SaslBroker()
    async with world(broker=sasl.as_broker()) as w:
        client = await w.connect()
        for _ in range(3):  # KIP-368: again on an open connection
            found = await log_in(client, "alice", mechanism, version)
            assert [answer["error_code"] for answer in found] == [0] * len(found)
            sent = sasl.tokens[-len(found) :]
            answers = [token[::-1] for token in sent]
            if mechanism == "OAUTHBEARER":
                assert sent == [bearer({"sub": "alice"})]
                answers = [b""]
            assert [bytes(answer["auth_bytes"]) for answer in found] == answers
            assert await asks(client)
            fetched = await client.call(FETCH, 12, fetch_request(12, asked(0)))
            assert only(fetched)["records"] == blob(0, 100)
        assert principals(w) == ["" if mechanism == "GSSAPI" else "alice"]


async def test_requests_before_and_behind_a_new_login_keep_their_order() -> None:
    sasl = SaslBroker()
    async with world(broker=sasl.as_broker()) as w:
        client = await w.connect()
        await log_in(client, "alice")
        token = f"\0alice\0{SECRET}".encode()
        frames = (
            raw_request(OPAQUE_KEY, 1, b"a" * 100_000),
            client.encode(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
            client.encode(SASL_AUTHENTICATE, 2, {"auth_bytes": token}),
            raw_request(OPAQUE_KEY, 2, b"b" * 100_000),
        )
        client.writer.write(b"".join(frames))
        async with asyncio.timeout(60):
            assert await client.frame() == b"\0\0\0\1yes"
            assert (await client.answer(SASL_HANDSHAKE, 1))["error_code"] == 0
            assert (await client.answer(SASL_AUTHENTICATE, 2))["error_code"] == 0
            assert await client.frame() == b"\0\0\0\2yes"


async def test_sasl_alone_admits_nobody() -> None:
    """A stranger may begin as often as it likes: what it may send stays small (H36)."""
    sasl = SaslBroker()
    async with world(broker=sasl.as_broker(), unauthenticated_frame_max_bytes=1_000) as w:
        client = await w.connect()
        await log_in(client, "alice", wrong=True)
        [connection] = w.proxy.connections
        assert not connection.is_admitted
        client.writer.write(client.encode(SASL_AUTHENTICATE, 2, {"auth_bytes": bytes(2_000)}))
        assert await ended(client)
        await until(lambda: w.metrics.causes == ["frame_too_large"])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_a_name_counts_only_when_the_broker_has_accepted_the_last_token(
    mechanism: str,
) -> None:
    sasl = SaslBroker()
    async with world(broker=sasl.as_broker(), max_connections_per_principal=1) as w:
        liar, other = await w.connect(), await w.connect()
        await log_in(liar, "alice", mechanism, wrong=True)
        await other.call(SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-512"})
        first = {"auth_bytes": b"n,,n=alice,r=fyko"}
        assert (await other.call(SASL_AUTHENTICATE, 2, first))["error_code"] == 0
        assert principals(w) == ["", ""]
        alice = await w.connect()
        await log_in(alice, "alice", mechanism)
        assert await asks(alice)
        assert principals(w) == ["", "", "alice"]


async def test_on_a_listener_without_sasl_nobody_takes_the_name_of_another() -> None:
    sasl = SaslBroker(has_sasl=False)
    async with world(broker=sasl.as_broker()) as w:
        client = await w.connect()
        await log_in(client, "alice")
        assert await asks(client)
        assert principals(w) == [""]


async def test_a_principal_has_so_many_connections_and_others_are_not_disturbed() -> None:
    sasl = SaslBroker()
    async with world(broker=sasl.as_broker(), max_connections_per_principal=2) as w:
        with capture_logs() as logs:
            alices = [await w.connect() for _ in range(3)]
            for client in alices[:2]:
                await log_in(client, "alice")
            client = alices[2]
            await client.call(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            token = f"\0alice\0{SECRET}".encode()
            client.writer.write(client.encode(SASL_AUTHENTICATE, 2, {"auth_bytes": token}))
            assert await ended(client)
        assert w.metrics.causes == ["principal_connections"]
        assert "alice has 2 connections (proxy.max.connections.per.principal)" in str(logs)
        assert SECRET not in str(logs)
        bob = await w.connect()
        await log_in(bob, "bob")
        assert await asks(bob) and await asks(alices[0])
        alices[0].writer.close()
        await until(lambda: principals(w) == ["alice", "bob"])
        again = await w.connect()
        await log_in(again, "alice")
        assert await asks(again)


async def test_an_address_has_so_many_connections() -> None:
    async with world(broker=SaslBroker().as_broker(), max_connections_per_address=2) as w:
        first, second = await w.connect(), await w.connect()
        assert await asks(first) and await asks(second)
        assert await ended(await w.connect())
        assert w.metrics.causes == ["address_connections"]
        first.writer.close()
        await until(lambda: len(w.proxy.connections) == 1)
        assert await asks(await w.connect())


async def test_h23_bytes_of_a_principal_count_over_its_client_ids_and_connections() -> None:
    limits = ThrottleLimits(
        service_bytes_per_second=1 << 40,
        client_bytes_per_second=1 << 40,
        principal_bytes_per_second=100,
        cores=100,
    )
    quota = ReadThrottle(limits, SystemClock(), lambda: 0.0)
    async with world(quota=quota, broker=SaslBroker().as_broker()) as w:
        clients = [await w.connect() for _ in range(3)]
        for number, (client, user) in enumerate(
            zip(clients, ("alice", "alice", "bob"), strict=True)
        ):
            client.client_id = f"client-{number}"
            await log_in(client, user)
        request = fetch_request(12, asked(0), max_wait_ms=0)
        assert only(await clients[0].call(FETCH, 12, request))["records"] == blob(0, 100)
        second = await clients[1].call(FETCH, 12, request)
        assert (only(second)["records"], second["throttle_time_ms"] > 0) == (b"", True)
        assert only(await clients[2].call(FETCH, 12, request))["records"] == blob(0, 100)
        assert quota.counts.throttled_ms["principal"] > 0


@pytest.mark.parametrize(
    ("mechanism", "token", "name"),
    [
        ("PLAIN", b"\0alice\0secret", "alice"),
        ("PLAIN", b"alice\0alice\0secret", "alice"),
        ("PLAIN", b"alice", None),
        ("PLAIN", b"\0\0secret", None),
        ("PLAIN", b"\0a\nb\0secret", None),
        ("PLAIN", b"\0\xff\xfe\0secret", None),
        ("PLAIN", b"\0" + b"a" * 250 + b"\0secret", None),
        ("SCRAM-SHA-256", b"n,,n=alice,r=nonce", "alice"),
        ("SCRAM-SHA-512", b"n,a=admin,n=a=2Cb=3Dc,r=nonce", "a,b=c"),
        ("SCRAM-SHA-512", b"n,,r=nonce", None),
        ("SCRAM-SHA-512", b"n,,n=token-id,r=nonce,tokenauth=true", None),
        ("SCRAM-SHA-256", b"n,,n=token-id,r=nonce,other=1,tokenauth=True", None),
        ("SCRAM-SHA-512", b"n,,n=alice,r=nonce,tokenauth=false", "alice"),
        ("SCRAM-SHA-512", b"n,,n=alice,r=nonce,tokenauth=true,tokenauth=no", "alice"),
        ("SCRAM-SHA-512", b"n,,n=alice,r=nonce,TOKENAUTH=true", "alice"),
        ("SCRAM-SHA-512", b"n,,n=tokenauth=3Dtrue,r=nonce", "tokenauth=true"),
        ("GSSAPI", b"n,,n=alice", None),
    ],
)
def test_the_name_in_a_first_token(mechanism: str, token: bytes, name: str | None) -> None:
    assert name_in(mechanism, token, "sub") == name


ALICE = bearer({"sub": "alice"})
AUTH = ALICE.removeprefix(b"n,,\x01").removesuffix(b"\x01")
BOBS = bearer({"sub": "bob"}).removeprefix(b"n,,\x01").removesuffix(b"\x01")


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (ALICE, "alice"),
        (ALICE.replace(b"Bearer ", b"bEARER   "), "alice"),
        (bearer({"azp": "bob", "sub": "a,b=c \xe9"}), "a,b=c \xe9"),
        (bearer({"sub": "\t alice\n"}), "alice"),
        (bearer({"sub": "alice"}, authzid=b"a=alice"), "alice"),
        (bearer({"sub": "alice"}, more=b"trace=auth\x01"), "alice"),
        (bearer({"sub": "alice"}, signature=b""), "alice"),
        # Kafka puts the pairs in a map: the last token counts.
        (bearer({"sub": "alice"}, more=BOBS), "bob"),
        (bearer({"sub": "alice"}, more=b"trace=x\x01" + BOBS + b"trace=y\x01"), "bob"),
        (bearer({"sub": "alice"}, more=b"Auth" + BOBS[4:]), "alice"),
        (b"n,,\x01" + AUTH + AUTH + b"\x01", "alice"),
        (b"n,,\x01auth=x\x01" + AUTH + b"\x01", "alice"),
        # What else of it Kafka reads.
        (bearer({"sub": "a=2Cb"}, authzid=b"a=a=2Cb"), "a=2Cb"),
        (bearer({"sub": "alice"}, more=b"trace=a=b \t\r\n\x01"), "alice"),
        # Not what the broker reads, or calls its principal.
        (bearer({"sub": "alice"}, authzid=b"a=bob"), None),
        (bearer({"sub": "alice"}, more=b"auth=x\x01"), None),
        (bearer({"sub": "alice"}, more=b"auth=\x01"), None),
        (ALICE.replace(b"n,,", b"y,,"), None),
        (ALICE.replace(b"auth=", b"Auth="), None),
        (ALICE.replace(b"auth=Bearer", b"auth=Bearer\x01x=y"), None),
        (ALICE[:-1], None),
        (ALICE + b"x", None),
        (b"x" + ALICE, None),
        # Opaque, encrypted, damaged.
        (b"n,,\x01auth=Bearer opaque\x01\x01", None),
        (b"n,,\x01auth=Bearer a.b.c.d.e\x01\x01", None),
        (b"n,,\x01auth=Bearer a..c\x01\x01", None),
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", None),
        (b"n,,\x01auth=Bearer a.\xff\xfe.c\x01\x01", None),
        (b"n,,n=alice\x01auth=Bearer x\x01\x01", None),
        (b"", None),
        (b"\x01", None),
        (bearer({}), None),
        (bearer({"sub": 7}), None),
        (bearer({"sub": ["alice"]}), None),
        (bearer({"sub": None}), None),
        (bearer({"sub": " "}), None),
        (bearer({"sub": "a\nb"}), None),
        (bearer({"sub": "\u00a0alice"}), None),
        (bearer({"sub": "a" * 250}), None),
        (bearer(b'{"sub":"\\ud800"}'), None),
        (bearer(b'{"sub":"\xff"}'), None),
        (bearer(b'{"sub":"alice"'), None),
        (bearer(b'["sub", "alice"]'), None),
        (bearer(b'"sub"'), None),
        (bearer(b"[" * 200_000), None),
        (bearer(b'{"sub":' * 100_000), None),
        (bearer(b'{"exp":' + b"9" * 100_000 + b',"sub":"alice"}'), None),
    ],
    ids=lambda value: str(value)[:60],
)
def test_the_owner_of_a_bearer_token(message: bytes, name: str | None) -> None:
    assert name_in("OAUTHBEARER", message, "sub") == name


def test_the_claim_that_names_the_owner_is_a_setting() -> None:
    message = bearer({"azp": "bob", "sub": "alice"})
    assert name_in("OAUTHBEARER", message, "azp") == "bob"
    assert name_in("OAUTHBEARER", message, "client_id") is None


async def test_the_setting_reaches_every_connection() -> None:
    broker = SaslBroker().as_broker()
    async with world(broker=broker, sasl_oauthbearer_sub_claim_name="azp") as w:
        client = await w.connect()
        await client.call(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        token = bearer({"azp": "bob", "sub": "alice"})
        await client.call(SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        assert principals(w) == ["bob"]


async def test_nothing_of_a_bearer_token_is_logged_but_the_name() -> None:
    broker = SaslBroker().as_broker()
    async with world(broker=broker, max_connections_per_principal=1) as w:
        with capture_logs() as logs:
            await log_in(await w.connect(), "alice", "OAUTHBEARER")
            refused = await w.connect()
            await refused.call(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
            refused.writer.write(refused.encode(SASL_AUTHENTICATE, 2, {"auth_bytes": ALICE}))
            assert await ended(refused)
        assert "alice has 1 connections" in str(logs)
        parts = AUTH.strip(b"\x01").removeprefix(b"auth=Bearer ").decode().split(".")
        assert not [part for part in parts if part in str(logs)]


def test_a_name_is_known_after_the_last_token_and_after_each_login() -> None:
    watch = SaslWatch("sub")
    assert watch.accepted(b"\0alice\0x", b"") is None  # no handshake was accepted
    watch.began("PLAIN")
    assert watch.accepted(b"\0alice\0x", b"") == "alice"
    assert watch.accepted(b"\0bob\0x", b"") is None
    watch.began("SCRAM-SHA-256")
    assert watch.accepted(b"n,,n=bob,r=1", b"r=12") is None
    assert watch.accepted(b"c=biws,n=carol,p=1", b"v=") == "bob"


def test_a_bearer_token_that_the_broker_refuses_by_a_challenge_proves_nothing() -> None:
    """An error follows only when the client has acknowledged it, or another token is accepted."""
    watch = SaslWatch("sub")
    watch.began("OAUTHBEARER")
    assert watch.accepted(bearer({"sub": "bob"}), INVALID_TOKEN) is None
    assert watch.accepted(ALICE, b"") == "alice"
    assert watch.accepted(bearer({"sub": "bob"}), b"") is None


def counted(most: int) -> Identities:
    return Identities(addresses=Shares(100), principals=Shares(most))


def test_a_connection_that_proves_one_name_twice_counts_once() -> None:
    """A client with a certificate is logged in by the proxy under the name of its subject."""
    identities = counted(1)
    one, other = identities.enter("a"), identities.enter("a")
    identities.prove(one, "CN=etl", by_sasl=False)
    identities.prove(one, "CN=etl", by_sasl=True)
    assert one.principal == "CN=etl" and one.is_by_sasl
    identities.prove(one, "bob", by_sasl=True)
    assert one.principal == "CN=etl"
    with pytest.raises(SessionError, match="CN=etl has 1 connections"):
        identities.prove(other, "CN=etl", by_sasl=False)
    identities.leave(one)
    assert len(identities.principals) == 0


def test_a_name_that_is_not_proved_yet_does_not_count_and_leaves_nothing() -> None:
    identities = counted(1)
    one, other = identities.enter("a"), identities.enter("a")
    for identity in (one, other):
        identity.principal = "CN=fleet"
    identities.prove(one, "CN=fleet", by_sasl=False)
    identities.leave(other)
    assert len(identities.principals) == 1
    third = identities.enter("a")
    with pytest.raises(SessionError, match="CN=fleet has 1 connections"):
        identities.prove(third, "CN=fleet", by_sasl=False)


def test_of_a_certificate_and_a_user_the_user_counts() -> None:
    identities = counted(1)
    one, other = identities.enter("a"), identities.enter("a")
    identities.prove(one, "CN=proxy", by_sasl=False)
    identities.prove(one, "alice", by_sasl=True)
    identities.prove(one, "bob", by_sasl=True)  # a broker refuses another name
    assert one.principal == "alice" and len(identities.principals) == 1
    identities.prove(other, "CN=proxy", by_sasl=False)
    with pytest.raises(SessionError, match="alice has 1 connections"):
        identities.prove(other, "alice", by_sasl=True)
    for identity in (one, other, one):
        identities.leave(identity)
    assert len(identities.principals) == len(identities.addresses) == 0
    identities.prove(one, "late", by_sasl=True)
    assert len(identities.principals) == 0

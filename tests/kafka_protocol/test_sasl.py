"""The SASL exchanges by the vectors of their RFCs, a server of our own, and aiokafka's code."""

import base64
import hashlib
import hmac
import itertools

import pytest
from aiokafka.conn import ScramAuthenticator
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.sasl import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    SCRAM_HASHES,
    OauthBearerExchange,
    PlainExchange,
    SaslError,
    ScramExchange,
)

# RFC 7677, 3: the example of SCRAM-SHA-256.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def of_rfc() -> ScramExchange:
    return ScramExchange("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)


def test_scram_of_rfc_7677() -> None:
    exchange = of_rfc()
    assert exchange.first() == f"n,,n=user,r={NONCE}".encode()
    assert exchange.answer(SERVER_FIRST.encode()) == CLIENT_FINAL.encode()
    assert exchange.answer(SERVER_FINAL.encode()) is None


@pytest.mark.parametrize("mechanism", sorted(SCRAM_HASHES))
def test_a_delegation_token_is_named_as_one_and_that_is_signed(mechanism: str) -> None:
    """KIP-48: an extension of the client's first message, behind the nonce (RFC 5802, 5.1)."""
    exchange = ScramExchange(mechanism, "id", "aG1hYw==", nonce="abc", is_token=True)
    assert exchange.first() == b"n,,n=id,r=abc,tokenauth=true"
    server = Server(mechanism, "aG1hYw==")
    final = exchange.answer(server.first(exchange.first()))
    assert final is not None
    assert exchange.answer(server.final(final)) is None


def test_plain_of_rfc_4616() -> None:
    exchange = PlainExchange("tim", "tanstaaftanstaaf")
    assert exchange.first() == b"\0tim\0tanstaaftanstaaf"
    exchange.answer(b"")
    with pytest.raises(SaslError, match="answers PLAIN with 2 bytes"):
        exchange.answer(b"no")


def test_oauthbearer_of_rfc_7628() -> None:
    """The example of 4.1 without authzid, host and port; 4.3 is a refusal."""
    token = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
    exchange = OauthBearerExchange(token)
    assert exchange.first() == f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    assert exchange.answer(b"") is None
    assert exchange.answer(b'{"status":"invalid_token"}') == b"\x01"


class Server:
    """The server's side of RFC 5802, written from its formulas."""

    def __init__(self, mechanism: str, password: str, iterations: int = LEAST_ITERATIONS) -> None:
        self.hash = SCRAM_HASHES[mechanism]
        self.salt = b"a salt of a user"
        self.iterations = iterations
        self.salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), self.salt, iterations)

    def first(self, client_first: bytes) -> bytes:
        self.bare = client_first.decode().removeprefix("n,,")
        nonce = self.bare.rpartition(",r=")[2].removesuffix(",tokenauth=true")
        salt = base64.b64encode(self.salt).decode()
        self.server_first = f"r={nonce}server,s={salt},i={self.iterations}"
        return self.server_first.encode()

    def final(self, client_final: bytes) -> bytes:
        without, _, proof = client_final.decode().rpartition(",p=")
        message = f"{self.bare},{self.server_first},{without}".encode()
        client_key = hmac.digest(self.salted, b"Client Key", self.hash)
        stored = hashlib.new(self.hash, client_key).digest()
        signature = hmac.digest(stored, message, self.hash)
        shown = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash, shown).digest() != stored:
            return b"e=invalid-proof"
        server_key = hmac.digest(self.salted, b"Server Key", self.hash)
        return b"v=" + base64.b64encode(hmac.digest(server_key, message, self.hash))


@given(
    mechanism=st.sampled_from(sorted(SCRAM_HASHES)),
    username=st.text(min_size=1, max_size=12),
    password=st.text(min_size=1, max_size=12),
)
def test_scram_with_any_user_and_password(mechanism: str, username: str, password: str) -> None:
    server = Server(mechanism, password)
    exchange = ScramExchange(mechanism, username, password, nonce="abc")
    challenge = server.first(exchange.first())
    assert username == server.bare[2:-6].replace("=2C", ",").replace("=3D", "=")
    final = exchange.answer(challenge)
    assert final is not None
    assert exchange.answer(server.final(final)) is None


@pytest.mark.parametrize("mechanism", sorted(SCRAM_HASHES))
def test_scram_is_that_of_aiokafka(mechanism: str) -> None:
    """A second opinion, above all for SHA-512, of which no RFC has an example."""
    other = ScramAuthenticator(
        loop=None, sasl_plain_password="p=,x", sasl_plain_username="a,b=c", sasl_mechanism=mechanism
    )
    ours = ScramExchange(mechanism, "a,b=c", "p=,x", nonce=other._nonce)
    sent, _ = other._step(None)
    assert ours.first() == sent
    server = Server(mechanism, "p=,x")
    challenge = server.first(sent)
    final, _ = other._step(challenge)
    assert ours.answer(challenge) == final
    assert ours.answer(server.final(final)) is None


def test_a_wrong_password_is_the_brokers_error() -> None:
    server = Server("SCRAM-SHA-256", "right")
    exchange = ScramExchange("SCRAM-SHA-256", "u", "wrong", nonce="abc")
    final = exchange.answer(server.first(exchange.first()))
    assert final is not None
    with pytest.raises(SaslError, match="the broker refuses: invalid-proof") as refused:
        exchange.answer(server.final(final))
    assert "wrong" not in f"{refused.value!r}"


@pytest.mark.parametrize(
    ("server_first", "message"),
    [
        (SERVER_FIRST.replace(NONCE, "another"), "does not continue the client's"),
        (SERVER_FIRST.replace(SERVER_NONCE, NONCE), "does not continue the client's"),
        (SERVER_FIRST.replace("i=4096", "i=4095"), "4095 iterations; 4096 to"),
        (SERVER_FIRST.replace("i=4096", f"i={MOST_ITERATIONS + 1}"), "iterations; 4096 to"),
        (SERVER_FIRST.replace("i=4096", "i=999999999999999999999"), "no good attribute i"),
        (SERVER_FIRST.replace("i=4096", "i=-1"), "no good attribute i"),
        (SERVER_FIRST.replace("i=4096", "i=٤٠٩٦"), "no good attribute i"),
        (SERVER_FIRST.replace(",i=4096", ""), "no good attribute i"),
        (SERVER_FIRST.replace("s=W22", "s=*22"), "no good attribute s"),
        (f"m=extension,{SERVER_FIRST}", "not one of RFC 5802"),
        (f"{SERVER_FIRST},i=4097", "not one of RFC 5802"),
        ("", "not one of RFC 5802"),
        ("nonsense", "not one of RFC 5802"),
        ("r=" + "x" * 70_000, "sends 70002 bytes"),
    ],
)
def test_what_no_server_may_send_first(server_first: str, message: str) -> None:
    exchange = of_rfc()
    exchange.first()
    with pytest.raises(SaslError, match=message):
        exchange.answer(server_first.encode())


@pytest.mark.parametrize(
    ("server_final", "message"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "does not prove that it knows the password"),
        (b"v=", "does not prove that it knows the password"),
        (b"x=1", "no good attribute v"),
        (b"\xff\xff", "not UTF-8"),
        (b"", "not one of RFC 5802"),
    ],
)
def test_a_server_must_prove_itself(server_final: bytes, message: str) -> None:
    exchange = of_rfc()
    exchange.answer(SERVER_FIRST.encode())
    with pytest.raises(SaslError, match=message):
        exchange.answer(server_final)


def test_an_exchange_ends_once() -> None:
    exchange = of_rfc()
    exchange.answer(SERVER_FIRST.encode())
    exchange.answer(SERVER_FINAL.encode())
    with pytest.raises(SaslError, match="goes on after the end"):
        exchange.answer(SERVER_FINAL.encode())


@given(messages=st.lists(st.binary(max_size=40), min_size=1, max_size=3))
def test_no_bytes_of_a_server_do_more_than_end_scram(messages: list[bytes]) -> None:
    exchange = of_rfc()
    for message in itertools.chain(messages, [SERVER_FIRST.encode()]):
        try:
            exchange.answer(message)
        except SaslError:
            return


def test_no_exchange_shows_its_secret() -> None:
    exchanges = (PlainExchange("u", "hidden"), OauthBearerExchange("hidden"), of_rfc())
    assert "hidden" not in f"{exchanges!r}" and "pencil" not in f"{exchanges!r}"

"""The client's side of the SASL mechanisms PLAIN (RFC 4616), OAUTHBEARER (RFC 7628) and
SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677): which bytes follow which, and nothing of how they
travel.

An exchange is for one authentication. Nothing secret is in an error's text, and no exchange has a
`repr` of its fields. As Kafka does, user names and passwords are UTF-8 without SASLprep. This
module must not know Kafka's requests, sockets, or where secrets come from.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Protocol

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *SCRAM_HASHES, OAUTHBEARER)

LEAST_ITERATIONS = 4_096
"""Of Kafka's ScramMechanism: fewer would make it cheap to guess the password."""
MOST_ITERATIONS = 1 << 16
"""Kafka's brokers take 16,384 at most. A server that names more could keep a client busy."""
_MOST_CHALLENGE_BYTES = 64 << 10
_HAS_FAILED = b"\x01"
_BY_TOKEN = ",tokenauth=true"  # noqa: S105 - no secret


class SaslError(Exception):
    """The server's side of the exchange is not what the mechanism prescribes, or it refuses."""


class SaslExchange(Protocol):
    """One authentication by one mechanism."""

    @property
    def mechanism(self) -> str:
        """The name of the mechanism, as in SaslHandshake."""
        ...

    def first(self) -> bytes:
        """What the client sends first."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """What the client sends next; None: the exchange is complete. SaslError: give it up."""
        ...


class PlainExchange:
    """RFC 4616: one message, with the password in clear."""

    mechanism = PLAIN

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> None:
        """The server has nothing to add."""
        if challenge:
            raise SaslError(f"the broker answers PLAIN with {len(challenge)} bytes")


class OauthBearerExchange:
    """RFC 7628: one message with a token. A refusal comes as JSON, which the client acknowledges;
    then the server ends the exchange with an error.
    """

    mechanism = OAUTHBEARER

    def __init__(self, token: str) -> None:
        self._token = token

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        return _HAS_FAILED if challenge else None


SaltedPassword = Callable[[str, bytes, bytes, int], bytes]
"""(hash name, password, salt, iterations) -> SaltedPassword of RFC 5802; it takes milliseconds."""


class ScramExchange:
    """RFC 5802 without channel binding: client-first, server-first, client-final, server-final."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        *,
        nonce: str,
        salted_password: SaltedPassword = hashlib.pbkdf2_hmac,
        is_token: bool = False,
    ) -> None:
        """`nonce` is random, printable, without a comma, and used once. `is_token`: user and
        password are those of a delegation token (KIP-48).
        """
        self.mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={_escaped(username)},r={nonce}{_BY_TOKEN if is_token else ''}"
        self._salted_password = salted_password
        self._signature: bytes | None = None
        self._is_over = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._is_over:
            raise SaslError("the broker goes on after the end of SCRAM")
        text = _text(challenge)
        if self._signature is None:
            return self._final(text)
        self._is_over = True
        self._check_signature(_attributes(text))
        return None

    def _final(self, server_first: str) -> bytes:
        given = _attributes(server_first)
        nonce = given.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the broker's SCRAM nonce does not continue the client's")
        salt, iterations = _base64(given, "s"), _iterations(given)
        salted = self._salted_password(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{server_first},{without_proof}".encode()
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        proof = bytes(
            one ^ other
            for one, other in zip(client_key, self._hmac(stored_key, signed), strict=True)
        )
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_signature(self, given: dict[str, str]) -> None:
        if "e" in given:
            raise SaslError(f"the broker refuses: {given['e'][:80]}")
        if self._signature is None or not hmac.compare_digest(_base64(given, "v"), self._signature):
            raise SaslError("the broker does not prove that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _escaped(name: str) -> str:
    """A saslname of RFC 5802."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _text(challenge: bytes) -> str:
    if len(challenge) > _MOST_CHALLENGE_BYTES:
        raise SaslError(f"the broker sends {len(challenge)} bytes of SCRAM")
    try:
        return challenge.decode()
    except UnicodeDecodeError:
        raise SaslError("the broker's SCRAM message is not UTF-8") from None


def _attributes(message: str) -> dict[str, str]:
    """The attributes of a message by their letters; `m` must be refused (RFC 5802, 5.1)."""
    found: dict[str, str] = {}
    for pair in message.split(","):
        letter, equals, value = pair.partition("=")
        if not equals or len(letter) != 1 or letter == "m" or letter in found:
            raise SaslError("the broker's SCRAM message is not one of RFC 5802")
        found[letter] = value
    return found


def _base64(given: dict[str, str], letter: str) -> bytes:
    try:
        return base64.b64decode(given[letter], validate=True)
    except (KeyError, binascii.Error, ValueError):
        raise SaslError(f"the broker's SCRAM message has no good attribute {letter}") from None


def _iterations(given: dict[str, str]) -> int:
    text = given.get("i", "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise SaslError("the broker's SCRAM message has no good attribute i")
    if not LEAST_ITERATIONS <= int(text) <= MOST_ITERATIONS:
        raise SaslError(
            f"the broker's credential has {int(text)} iterations; "
            f"{LEAST_ITERATIONS} to {MOST_ITERATIONS} are taken"
        )
    return int(text)

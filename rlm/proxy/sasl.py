"""Sees who a client is by SASL, as the broker lets it in. Every frame passes unchanged.

The name is that of PLAIN and SCRAM, or of OAUTHBEARER a claim of the token. It counts once the
broker has accepted the last token: anybody may begin with the name of another. Requests of SASL
come before all others, and again on an open connection (KIP-368); like a broker, the proxy passes
one at a time. The proxy must know when a session ends, because it repeats fetches that it holds.
Tokens are secrets. Nothing of them is kept but the name, and nothing but the name is ever logged.
Other mechanisms pass as well; their clients have no name here. SaslWatch is pure.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kafka_protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_protocol.error_codes import NONE
from kafka_protocol.frames import frame_length, parse_request_header, parse_response_header
from kafka_protocol.primitives import Buffer, WireError
from kafka_protocol.sasl import OAUTHBEARER
from kafka_protocol.schema import Api, decode
from rlm.clock import Clock
from rlm.proxy.session import Taken

SASL_APIS: Mapping[int, Api] = {api.key: api for api in (SASL_HANDSHAKE, SASL_AUTHENTICATE)}
_TOKENS = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2, OAUTHBEARER: 1}
"""How many tokens a client sends. In each mechanism the first one has the name."""
_BY_TOKEN = b"tokenauth"
"""The extension of SCRAM that says so; read as Kafka does it: the last one counts, in any case."""
_MOST_NAME_CHARACTERS = 249
_LAST_PART, _MOST_LAST_MS = 10, 1_000
"""In the last tenth of a session, or its last second, nothing is repeated: it may come too late."""


class Asking(Protocol):
    """What a handler may do with the client's connection to the broker."""

    async def ask(
        self,
        frame: Buffer,
        api_version: int,
        correlation_id: int,
        stream_above: int | None,
        *,
        admits: bool = True,
    ) -> bytearray | None: ...


async def ask_sasl(
    connection: Asking, frame: Buffer, api_version: int, correlation_id: int
) -> bytearray:
    """The broker's whole answer to a request of SASL. WireError, ConnectionError."""
    answer = await connection.ask(frame, api_version, correlation_id, None, admits=False)
    if answer is None:
        raise WireError("an answer of SASL was not whole")
    return answer


class SaslWatch:
    """One connection. Requests and answers come in turns. `sub_claim_name`: the claim that is the
    principal of a token of OAUTHBEARER.
    """

    def __init__(self, sub_claim_name: str) -> None:
        self._sub_claim_name = sub_claim_name
        self._mechanism = ""
        self._accepted = 0
        self._named: str | None = None

    def began(self, mechanism: str) -> None:
        """The broker takes tokens of this mechanism now."""
        self._mechanism, self._accepted, self._named = mechanism, 0, None

    def accepted(self, token: bytes, challenge: bytes) -> str | None:
        """The broker has answered a token without an error, and with this challenge; the client's
        name, if that was the last one. A broker that refuses a token of OAUTHBEARER says so by a
        challenge, and only then by an error (RFC 7628).
        """
        if self._mechanism == OAUTHBEARER and challenge:
            return None
        if self._accepted == 0:
            self._named = name_in(self._mechanism, token, self._sub_claim_name)
        self._accepted += 1
        return self._named if self._accepted == _TOKENS.get(self._mechanism) else None


class SaslHandler:
    """Passes the requests of SASL of one connection. `known` gets the client's name each time that
    the broker has let it in, and may raise SessionError.
    """

    def __init__(self, known: Callable[[str], None], clock: Clock, *, sub_claim_name: str) -> None:
        self._known = known
        self._clock = clock
        self._watch = SaslWatch(sub_claim_name)
        self._ends_ms: float = math.inf
        self.has_let_in = False
        """Whether the broker has accepted a token, of whatever mechanism."""

    def session_left_ms(self) -> float:
        """How long a request will still come before the broker ends the session."""
        return max(0.0, self._ends_ms - self._clock.monotonic_ms())

    async def handle(self, taken: Taken, connection: Asking) -> list[Buffer]:
        """The broker's answer, as it is."""
        asked_ms = self._clock.monotonic_ms()
        answer = await ask_sasl(connection, taken.frame, taken.api_version, taken.correlation_id)
        name = self._name(taken, answer, asked_ms)
        if name is not None:
            self._known(name)
        return [frame_length(len(answer)), answer]

    def _name(self, taken: Taken, answer: bytearray, asked_ms: int) -> str | None:
        """What cannot be read is the broker's to refuse, and says nothing here."""
        api = SASL_APIS[taken.api_key]
        try:
            asked, answered = _decoded(api, taken, answer)
        except (WireError, UnicodeError):
            return None
        if answered["error_code"] != NONE:
            return None
        if api is SASL_HANDSHAKE:
            self._watch.began(asked["mechanism"])
            return None
        self.has_let_in = True
        lifetime_ms = answered.get("session_lifetime_ms", 0)
        last_ms = min(lifetime_ms // _LAST_PART, _MOST_LAST_MS)
        self._ends_ms = asked_ms + lifetime_ms - last_ms if lifetime_ms > 0 else math.inf
        return self._watch.accepted(bytes(asked["auth_bytes"]), bytes(answered["auth_bytes"]))


def name_in(mechanism: str, token: bytes, sub_claim_name: str) -> str | None:
    """The name in a client's first token; None where it has none."""
    if mechanism == "PLAIN":
        parts = token.split(b"\0")
        return _readable(parts[1]) if len(parts) == _PLAIN_PARTS else None
    if mechanism == OAUTHBEARER:
        return _bearer_name(token, sub_claim_name)
    return _scram_name(token) if mechanism in _TOKENS else None


_PLAIN_PARTS = 3  # RFC 4616


def _scram_name(token: bytes) -> str | None:
    """RFC 5802. A delegation token's id (KIP-48) is no name: the broker alone knows whose it is."""
    parts = token.split(b",")
    extensions = {key: value for key, _, value in (part.partition(b"=") for part in parts)}
    if extensions.get(_BY_TOKEN, b"").lower() == b"true":
        return None
    for part in parts:
        if part.startswith(b"n="):
            return _readable(part[2:].replace(b"=2C", b",").replace(b"=3D", b"="))
    return None


_BEARER = re.compile(rb"n,(?:a=([^,]+))?,\x01(.*\x01)\x01", re.DOTALL)
"""RFC 7628: an authorization id, and pairs of key and value, each with its end. What Kafka reads
has to be read here too, or its owner would have no name."""
_AUTH = re.compile(rb"auth=\w+ +[\w-]+\.([\w-]+)\.[\w-]*")
"""A signed token (RFC 7515): header, claims, signature."""
_TRIMMED = "".join(map(chr, range(0x21)))
"""What Java's trim takes away, as Kafka does from this claim."""


def _bearer_name(message: bytes, sub_claim_name: str) -> str | None:
    """The claim that is the principal, as Kafka's validators take it; of several tokens that of the
    last one, which alone Kafka reads. None for an opaque or encrypted token, and where an
    authorization id, which for Kafka has to be the principal, is not this claim.
    """
    matched = _BEARER.fullmatch(message)
    if matched is None:
        return None
    auths = [pair for pair in matched[2].split(b"\x01") if pair.startswith(b"auth=")]
    token = _AUTH.fullmatch(auths[-1]) if auths else None
    name = _claim(token[1], sub_claim_name) if token is not None else None
    return name if name is not None and matched[1] in (None, name.encode()) else None


def _claim(part: bytes, name: str) -> str | None:
    """A claim of the middle part of a token that may be logged."""
    try:
        padded = part + b"=" * (-len(part) % 4)
        claims = json.loads(base64.b64decode(padded, b"-_", validate=True))
        value = claims.get(name) if isinstance(claims, dict) else None
        return _readable(value.strip(_TRIMMED).encode()) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return None


def _readable(name: bytes) -> str | None:
    """A name that may be logged."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() and 0 < len(text) <= _MOST_NAME_CHARACTERS else None


def _decoded(api: Api, taken: Taken, answer: bytearray) -> tuple[dict[str, Any], dict[str, Any]]:
    header = parse_request_header(taken.frame)
    asked, _ = decode(api.request, taken.api_version, taken.frame, header.body_offset)
    _, position = parse_response_header(answer, api, taken.api_version)
    answered, _ = decode(api.response, taken.api_version, answer, position)
    return asked, answered

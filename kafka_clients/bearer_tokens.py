"""Tokens for OAUTHBEARER: the request for one (RFC 6749, 4.4: client credentials), the answer, and
how long a token lives.

Nothing secret is in an error's text, also where the server says it. This module must not know
sockets or clocks.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from kip405.settings import masked

_MOST_WORDS = 200
_TOKEN = re.compile(r"[\x21-\x7e]+")
"""What may stand behind `Bearer` (RFC 6750, 2.1 and RFC 7628, 3.1), read generously."""
_OK = 200
_JWT_PARTS = 3
_ERROR_FIELDS = ("error", "error_description")


class TokenRefused(Exception):
    """The token endpoint, or the text in a token file, gives no token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """A token. `lifetime_s` counts from its issue; None: not known."""

    text: str = field(repr=False)
    lifetime_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAddress:
    """Where a token endpoint listens. `target` goes into the request."""

    host: str
    port: int
    is_tls: bool
    target: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


def token_address(url: str) -> TokenAddress:
    """Of an http or https URL. ValueError: it is none, or it carries a user or a fragment."""
    found = urlsplit(url)
    if found.scheme not in ("http", "https") or not found.hostname:
        raise ValueError("not an http or https URL")
    if found.username is not None or found.password is not None or found.fragment:
        raise ValueError("it must have no user and no fragment")
    if not all(0x21 <= ord(one) < 0x7F for one in url):
        raise ValueError("it must be ASCII without spaces")
    is_tls = found.scheme == "https"
    query = f"?{found.query}" if found.query else ""
    return TokenAddress(
        host=found.hostname,
        port=found.port or (443 if is_tls else 80),
        is_tls=is_tls,
        target=(found.path or "/") + query,
    )


def token_request(
    address: TokenAddress,
    *,
    client_id: str,
    client_secret: str,
    scope: str,
    urlencodes_header: bool,
) -> bytes:
    """One HTTP request, after whose answer the server closes the connection. `urlencodes_header` as
    Kafka's sasl.oauthbearer.header.urlencode.
    """
    fields = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    body = urlencode(fields).encode()
    names = (client_id, client_secret)
    pair = ":".join(map(quote_plus, names) if urlencodes_header else names)
    head = (
        f"POST {address.target} HTTP/1.1",
        f"Host: {address.authority}",
        f"Authorization: Basic {_in_base64(pair)}",
        "Content-Type: application/x-www-form-urlencoded",
        f"Content-Length: {len(body)}",
        "Accept: application/json",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + body


def shown_secrets(client_id: str, client_secret: str) -> tuple[str, ...]:
    """What a request shows of a secret, in all spellings: servers repeat what they were asked."""
    quoted = quote_plus(client_secret)
    pairs = f"{client_id}:{client_secret}", f"{quote_plus(client_id)}:{quoted}"
    return (client_secret, quoted, *map(_in_base64, pairs)) if client_secret else ()


def _in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def read_token_answer(status: int, body: bytes, secrets: Sequence[str] = ()) -> BearerToken:
    """The token of an HTTP answer. TokenRefused says what the server said, without the secrets."""
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise TokenRefused(f"it answers {status} without a JSON object")
    if status != _OK:
        said = ": ".join(str(content[one]) for one in _ERROR_FIELDS if one in content)
        raise TokenRefused(f"it answers {status} {masked(said, secrets)[:_MOST_WORDS]}".rstrip())
    return _token_of(content)


def _token_of(content: dict[str, Any]) -> BearerToken:
    text, seconds = content.get("access_token"), content.get("expires_in")
    if not isinstance(text, str):
        raise TokenRefused("its answer has no access_token")
    token = read_token(text)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return BearerToken(text=token.text, lifetime_s=seconds if is_number else token.lifetime_s)


def read_token(text: str) -> BearerToken:
    """A token as it stands in a file or an answer; the lifetime is known of a JWT."""
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise TokenRefused("there is no token, or it has spaces or characters beyond ASCII")
    return BearerToken(text=token, lifetime_s=_jwt_lifetime_s(token))


def _jwt_lifetime_s(token: str) -> float | None:
    """exp - iat of RFC 7519; None where the token is no JWT, or does not say both."""
    parts = token.split(".")
    if len(parts) != _JWT_PARTS:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"]) - float(claims["iat"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None

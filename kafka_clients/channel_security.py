"""Secures the connections of a process: TLS, SASL, the sessions that brokers grant, and back-off.

One object serves all clients of one identity. It reads files again for each connection, keeps one
token for all of them, and remembers which address refuses this client and why, so that somebody can
show it. After a refusal no client dials that address again before a back-off has passed: a wrong
password in many clients must not lock the account, nor fill the broker's log.

A broker ends a connection whose session has ended at its next request (KIP-368). Clients therefore
ask `Session.is_due` before each request, and authenticate again on the open connection, like
Kafka's own. This module must not know who asks the broker for what.
"""

import asyncio
import base64
import hashlib
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from kafka_clients.bearer_tokens import BearerToken, TokenRefused, read_token
from kafka_clients.refusals import (
    NotAuthenticated,
    NoTokenNow,
    SecurityRefused,
    authentication_refusal,
    closed_at_once,
    exchange_refusal,
    handshake_refusal,
    is_closed_connection,
    tls_refusal,
    token_refusal,
)
from kafka_clients.security import (
    PASSWORD_KEY,
    TOKEN_URL_KEY,
    TRUSTSTORE_KEY,
    DelegationLogin,
    KafkaSecurity,
    PasswordLogin,
    TlsFiles,
    TokenEndpoint,
    TokenFile,
)
from kafka_clients.tls_context import make_tls_context, read_secret
from kafka_clients.token_endpoint import fetch_token, shown_endpoint
from kafka_protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_protocol.sasl import (
    PLAIN,
    OauthBearerExchange,
    PlainExchange,
    SaslError,
    SaslExchange,
    ScramExchange,
)
from kafka_protocol.schema import Api, Value
from kip405.errors import Invalid
from kip405.settings import masked

_HANDSHAKE_VERSION = 1
_AUTHENTICATE_VERSION = 1
"""The first with the lifetime of the session; Kafka 2.2 has it."""
_RENEW_AT = 0.85
"""Of its lifetime a session is used so long; Kafka's clients take 85 to 95 %."""
_LEAST_SESSION_S = 1.0
"""Brokers refuse to authenticate a connection again sooner. After its end a session can be renewed,
too, as long as nothing else is asked.
"""
_REUSE_TOKEN = 0.8
"""Of its lifetime a token is used so long for new sessions, as sasl.login.refresh.window.factor. A
session ends with its token at the latest, so that one begun later has a new token.
"""
_FIRST_BACK_OFF_S, _LAST_BACK_OFF_S = 0.25, 10.0
_SHOWN_S = 60.0
_NONCE_BYTES = 24


class AskBroker(Protocol):
    """One request on a connection that nobody else uses now, and its decoded answer."""

    async def __call__(self, api: Api, version: int, body: Mapping[str, Any]) -> Value: ...


@dataclass(frozen=True, slots=True)
class Session:
    """What a broker granted; `renew_at` is a time of the event loop, None: it does not end."""

    renew_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether the client must authenticate again before its next request."""
        return self.renew_at is not None and now >= self.renew_at


ENDLESS = Session()


@dataclass(slots=True)
class _Refusal:
    text: str
    kind: type[SecurityRefused]
    pause: float
    until: float


class ChannelSecurity:
    """See the head of the module. For one event loop."""

    def __init__(
        self,
        settings: KafkaSecurity,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
        fetch: Callable[[TokenEndpoint, TlsFiles], Awaitable[BearerToken]] = fetch_token,
    ) -> None:
        self.settings = settings
        self._random_bytes = random_bytes
        self._refusals: dict[str, _Refusal] = {}
        self._tokens = _Tokens(settings.tls, fetch)
        self._salted: tuple[tuple[str, bytes, bytes, int], bytes] | None = None

    @property
    def refusals(self) -> Mapping[str, str]:
        """Why the addresses that refused the latest attempt did so; what nobody has dialled for a
        minute is left out, as that broker may be gone.
        """
        self._forget_old_refusals()
        return {where: refusal.text for where, refusal in self._refusals.items()}

    def _forget_old_refusals(self) -> None:
        oldest = asyncio.get_running_loop().time() - _SHOWN_S
        for where in [one for one, refusal in self._refusals.items() if refusal.until < oldest]:
            del self._refusals[where]

    def tls_context(self) -> ssl.SSLContext | None:
        """Of the files as they are now; None without TLS. SecurityRefused names the file."""
        if not self.settings.has_tls:
            return None
        try:
            return make_tls_context(self.settings.tls)
        except Invalid as error:
            raise SecurityRefused(str(error)) from None

    @asynccontextmanager
    async def connecting(self, where: str) -> AsyncIterator[None]:
        """Around all that opens a connection to `where`, or authenticates there again.

        SecurityRefused: broker and client do not accept each other, or did not a moment ago.
        """
        loop = asyncio.get_running_loop()
        known = self._refusals.get(where)
        if known is not None and loop.time() < known.until:
            raise known.kind(f"broker {where}: {known.text}")
        try:
            yield
        except Exception as error:
            text = self._refusal_of(error)
            if text is None:
                if is_closed_connection(error):
                    raise ConnectionResetError(closed_at_once(self.settings)) from error
                raise
            pause = min(2 * known.pause, _LAST_BACK_OFF_S) if known else _FIRST_BACK_OFF_S
            kind = NoTokenNow if isinstance(error, NoTokenNow) else SecurityRefused
            self._forget_old_refusals()
            self._refusals[where] = _Refusal(text, kind, pause, loop.time() + pause)
            raise kind(f"broker {where}: {text}") from error
        self._refusals.pop(where, None)

    def _refusal_of(self, error: Exception) -> str | None:
        if isinstance(error, SecurityRefused):
            return str(error)
        return tls_refusal(error, self.settings) if self.settings.has_tls else None

    async def authenticate(self, ask: AskBroker) -> Session:
        """Prove who this client is, for the first time or again; ENDLESS without SASL.

        SecurityRefused: the broker does not accept it. Errors of `ask` pass.
        """
        settings = self.settings
        if settings.login is None:
            return ENDLESS
        answer = await ask(
            SASL_HANDSHAKE, _HANDSHAKE_VERSION, {"mechanism": settings.login.mechanism}
        )
        refused = handshake_refusal(answer["error_code"], answer["mechanisms"], settings)
        if refused is not None:
            raise SecurityRefused(refused)
        exchange, secret = await self._exchange()
        try:
            lifetime_ms = await self._run(exchange, ask, secret)
        except SaslError as error:
            raise SecurityRefused(exchange_refusal(error, settings)) from None
        if lifetime_ms <= 0:
            return ENDLESS
        seconds = max(_LEAST_SESSION_S, _RENEW_AT * lifetime_ms / 1000)
        return Session(asyncio.get_running_loop().time() + seconds)

    async def _run(self, exchange: SaslExchange, ask: AskBroker, secret: str) -> int:
        """The lifetime of the session in ms, 0 = it does not end."""
        message: bytes | None = exchange.first()
        lifetime_ms = 0
        while message is not None:
            answer = await ask(SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, {"auth_bytes": message})
            if answer["error_code"]:
                self._tokens.forget()
                said = masked(answer["error_message"] or "", [secret])
                raise NotAuthenticated(
                    authentication_refusal(answer["error_code"], said, self.settings)
                )
            lifetime_ms = answer["session_lifetime_ms"]
            message = exchange.answer(bytes(answer["auth_bytes"]))
        return lifetime_ms

    async def _exchange(self) -> tuple[SaslExchange, str]:
        """An exchange with the secret as it is now, and that secret."""
        login = self.settings.login
        if isinstance(login, PasswordLogin):
            try:
                password = read_secret(login.password, f"{PASSWORD_KEY}.file")
            except Invalid as error:
                raise SecurityRefused(str(error)) from None
            if login.mechanism == PLAIN:
                return PlainExchange(login.username, password), password
            return self._scram(login.mechanism, login.username, password), password
        if isinstance(login, DelegationLogin):
            hmac = login.hmac.reveal()
            exchange = self._scram(login.mechanism, login.token_id, hmac, is_token=True)
            return exchange, hmac
        assert login is not None  # noqa: S101 - authenticate returns before
        token = await self._tokens.current(login)
        return OauthBearerExchange(token), token

    def _scram(
        self, mechanism: str, username: str, password: str, *, is_token: bool = False
    ) -> ScramExchange:
        return ScramExchange(
            mechanism,
            username,
            password,
            nonce=base64.b64encode(self._random_bytes(_NONCE_BYTES)).decode(),
            salted_password=self._salted_password,
            is_token=is_token,
        )

    def _salted_password(self, name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        """The same for all brokers of a cluster, so it is worked out once (RFC 5802, 3)."""
        of = (name, password, salt, iterations)
        if self._salted is None or self._salted[0] != of:
            self._salted = of, hashlib.pbkdf2_hmac(*of)
        return self._salted[1]


def plaintext() -> ChannelSecurity:
    """No security at all, Kafka's default."""
    return ChannelSecurity(KafkaSecurity())


class _Tokens:
    """The token of a file, as it is now, or of an endpoint, reused until most of its life is over.
    One request to the endpoint serves all who wait.
    """

    def __init__(
        self, tls: TlsFiles, fetch: Callable[[TokenEndpoint, TlsFiles], Awaitable[BearerToken]]
    ) -> None:
        self._tls = tls
        self._fetch = fetch
        self._fetching = asyncio.Lock()
        self._kept: tuple[str, float] | None = None
        """A token and the time of the event loop until which it is used."""

    def forget(self) -> None:
        """A broker has refused the token: the next one is a new one."""
        self._kept = None

    async def current(self, login: TokenFile | TokenEndpoint) -> str:
        """SecurityRefused: there is none."""
        if isinstance(login, TokenFile):
            return _read_token_file(login)
        async with self._fetching:
            loop = asyncio.get_running_loop()
            if self._kept is None or loop.time() >= self._kept[1]:
                asked_at = loop.time()
                token = await self._fetched(login)
                self._kept = token.text, asked_at + _REUSE_TOKEN * (token.lifetime_s or 0)
            return self._kept[0]

    async def _fetched(self, login: TokenEndpoint) -> BearerToken:
        kind = SecurityRefused
        try:
            return await self._fetch(login, self._tls)
        except (TokenRefused, Invalid) as error:
            why = str(error)
        except TimeoutError:
            kind, why = NoTokenNow, "no answer in time"
        except ssl.SSLError as error:
            # OpenSSL sets these; an error that Python makes has neither.
            words = getattr(error, "verify_message", "") or getattr(error, "reason", "")
            why = f"TLS failed: {words or error}; {TRUSTSTORE_KEY} counts there, too"
        except OSError as error:
            kind, why = NoTokenNow, os.strerror(error.errno) if error.errno else str(error)
        raise kind(token_refusal(shown_endpoint(login.url), why)) from None


def _read_token_file(login: TokenFile) -> str:
    try:
        return read_token(read_secret(login.path, TOKEN_URL_KEY)).text
    except (TokenRefused, Invalid) as error:
        raise SecurityRefused(token_refusal(str(login.path), str(error))) from None

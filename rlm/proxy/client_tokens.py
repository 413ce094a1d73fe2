"""Delegation tokens by which the proxy logs in for clients with certificates.

All connections of one principal share a token. A new one is made when most of a token's life is
over, or when the broker has refused it; one that nobody uses any more is dropped. Who makes tokens
knows the service's secrets; the proxy has nothing but tokens. This module must not know brokers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from kafka_clients.channel_security import ChannelSecurity
from kafka_clients.security import DelegationLogin, KafkaSecurity
from kip405.settings import Secret
from rlm.clock import Clock
from rlm.proxy.session import SessionError

_USED_PERCENT = 80
"""Of its life a token is used so long for new sessions. Those end with it at the latest."""
_REFUSED_MS = 1_000
"""After a refusal nobody asks for the same so long: clients come again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientToken:
    """`principal`: the name without `User:`. `made_at_ms`: by the monotonic clock of who has it,
    before it was made. `session`: proves it to brokers.
    """

    principal: str
    token_id: str
    hmac: Secret
    lifetime_ms: int
    made_at_ms: int
    session: ChannelSecurity = field(repr=False, compare=False)

    def is_fresh(self, now_ms: int) -> bool:
        """Whether new sessions may begin by it."""
        return now_ms - self.made_at_ms < self.lifetime_ms * _USED_PERCENT // 100

    def is_over(self, now_ms: int) -> bool:
        return now_ms - self.made_at_ms >= self.lifetime_ms


def client_token(
    *,
    mechanism: str,
    principal: str,
    token_id: str,
    hmac: Secret,
    lifetime_ms: int,
    made_at_ms: int,
) -> ClientToken:
    """With one ChannelSecurity for all connections, which works out SCRAM's key once."""
    login = DelegationLogin(mechanism=mechanism, token_id=token_id, hmac=hmac)
    return ClientToken(
        principal=principal,
        token_id=token_id,
        hmac=hmac,
        lifetime_ms=lifetime_ms,
        made_at_ms=made_at_ms,
        session=ChannelSecurity(KafkaSecurity(protocol="SASL_PLAINTEXT", login=login)),
    )


class TokenLease(Protocol):
    """What one connection has of the tokens of its principal."""

    async def current(self, refused: str | None = None) -> ClientToken:
        """One that new sessions may begin with, and not the one with the id that a broker has
        refused. SessionError: there is none, and why.
        """
        ...

    def close(self) -> None:
        """The connection has ended; calling it again does nothing."""
        ...


class ClientTokens(Protocol):
    """Tokens of clients by the subjects of their certificates."""

    def lease(self, subject: str) -> TokenLease: ...


Make = Callable[[str, str | None], Awaitable[ClientToken]]
"""Makes a token for a key, not the one with this id; SessionError."""


class _Shared:
    """The tokens of one key."""

    def __init__(self) -> None:
        self.users = 0
        self.tokens: list[ClientToken] = []
        self.making = asyncio.Lock()


class TokenPool:
    """Tokens by key, each shared by all who have entered it. `unused` gets the tokens of a key
    that the last one has left.
    """

    def __init__(
        self, make: Make, unused: Callable[[str, tuple[ClientToken, ...]], None], clock: Clock
    ) -> None:
        self._make = make
        self._unused = unused
        self._clock = clock
        self._shared: dict[str, _Shared] = {}
        self._refusals: dict[str, tuple[SessionError, int]] = {}

    def __len__(self) -> int:
        return len(self._shared)

    def enter(self, key: str) -> None:
        self._shared.setdefault(key, _Shared()).users += 1

    def leave(self, key: str) -> None:
        shared = self._shared[key]
        shared.users -= 1
        if shared.users == 0:
            del self._shared[key]
            self._unused(key, tuple(shared.tokens))

    async def current(self, key: str, refused: str | None) -> ClientToken:
        """For who has entered. One request serves all who wait."""
        shared = self._shared[key]
        async with shared.making:
            now_ms = self._clock.monotonic_ms()
            known = shared.tokens[-1] if shared.tokens else None
            if known is not None and known.token_id == refused:
                known = None
            if known is not None and known.is_fresh(now_ms):
                return known
            try:
                made = await self._made(key, refused)
            except SessionError:
                # A broker that makes none for a while costs nobody the connection before the end.
                if known is None or known.is_over(self._clock.monotonic_ms()):
                    raise
                return known
            if not shared.users:  # the last one has left meanwhile
                self._unused(key, (made,))
            else:
                shared.tokens.append(made)
            return made

    async def _made(self, key: str, refused: str | None) -> ClientToken:
        """Refused clients come again with new connections, so refusals outlive their leases."""
        now_ms = self._clock.monotonic_ms()
        for known, (_, at_ms) in tuple(self._refusals.items()):
            if now_ms - at_ms >= _REFUSED_MS:
                del self._refusals[known]
        if key in self._refusals:
            refusal, _ = self._refusals[key]
            raise SessionError(refusal.cause, str(refusal))
        try:
            return await self._make(key, refused)
        except SessionError as error:
            self._refusals[key] = error, self._clock.monotonic_ms()
            raise

    def taken_over(self) -> list[ClientToken]:
        """Those whose life is over, which are forgotten here. A broker may take them for a while
        yet.
        """
        now_ms = self._clock.monotonic_ms()
        found = [one for shared in self._shared.values() for one in shared.tokens]
        for shared in self._shared.values():
            shared.tokens = [one for one in shared.tokens if not one.is_over(now_ms)]
        return [one for one in found if one.is_over(now_ms)]

    def tokens(self) -> list[ClientToken]:
        """All that are in use."""
        return [one for shared in self._shared.values() for one in shared.tokens]


class PoolLease:
    """A TokenLease of one key."""

    def __init__(self, pool: TokenPool, key: str) -> None:
        self._pool, self._key = pool, key
        self._is_open = True
        pool.enter(key)

    async def current(self, refused: str | None = None) -> ClientToken:
        if not self._is_open:
            raise SessionError("client_closed", "the client has gone")
        return await self._pool.current(self._key, refused)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._pool.leave(self._key)

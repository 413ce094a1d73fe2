"""Makes the delegation tokens of clients with certificates, and ends them.

It runs where the service's own connections to Kafka are: in the core, where the proxy is in worker
processes, so that whoever serves clients never has the service's secrets (D56). Which principal a
certificate is, the broker's own rules say.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

import structlog

from kafka_clients.principal_mapping import RULES_KEY, PrincipalMapping
from kip405.errors import Invalid, RemoteStorageError, Unavailable
from rlm.broker.delegation_tokens import DelegationToken, DelegationTokens, NoToken, Why
from rlm.clock import Clock, backoff_ms
from rlm.proxy.client_tokens import ClientToken, PoolLease, TokenPool, client_token
from rlm.proxy.session import SessionError
from rlm.service.dependencies import Dependencies

log = structlog.get_logger(__name__)
_RULES_AGE_MS = 60_000
_KEPT_MS = 10_000
"""How long a token stays after its last connection: clients open one after another."""
_CHECK_MS = 1_000
_KNOWN_WITHIN_MS = 5_000
_FIRST_WAIT_MS, _LONGEST_WAIT_MS = 5, 500
_BUILDER_KEY = "principal.builder.class"
_BUILDERS = (
    None,
    "",
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
)
NOT_MAPPED = "certificate_not_mapped"
NO_RULES = "mapping_rules_unusable"


_Made = ClientToken | SessionError
CreateTask = Callable[[Coroutine[Any, Any, _Made]], "asyncio.Task[_Made]"]


class BrokerConfigs(Protocol):
    """What OwnBroker has."""

    async def broker_config(self, node_id: int) -> Mapping[str, str | None]: ...


class Tokens(Protocol):
    """See DelegationTokens."""

    async def create(self, owner: str, *, max_lifetime_ms: int) -> DelegationToken: ...
    async def is_known(self, token: DelegationToken) -> bool: ...
    async def expire(self, token: DelegationToken) -> None: ...
    async def close(self) -> None: ...


def mapping_of(config: Mapping[str, str | None], listener: str) -> PrincipalMapping:
    """By the rules of a broker's listener. Invalid: they are not known, or cannot be used."""
    own = f"listener.name.{listener.lower()}."
    builder = config.get(f"{own}{_BUILDER_KEY}") or config.get(_BUILDER_KEY)
    if builder not in _BUILDERS:
        raise Invalid(
            f"the broker names principals by {_BUILDER_KEY} {builder}, which is not known here; "
            f"give {RULES_KEY} to this service"
        )
    return PrincipalMapping(config.get(f"{own}{RULES_KEY}") or config.get(RULES_KEY))


class CertificatePrincipals:
    """Which principal a certificate is: by the broker's rules, asked again after a minute, or by
    those of a setting.
    """

    def __init__(
        self,
        broker: BrokerConfigs,
        clock: Clock,
        *,
        node_id: int,
        listener: str,
        mapping: PrincipalMapping | None,
    ) -> None:
        """`mapping`: of the setting; None: by the broker's rules."""
        self._broker = broker
        self._clock = clock
        self._node_id = node_id
        self._listener = listener
        self._fixed = mapping
        self._asked: PrincipalMapping | None = None
        self._asked_at_ms = 0

    async def principal(self, subject: str) -> str:
        """The name without `User:`. SessionError: there is none."""
        mapping = self._fixed or await self._broker_mapping()
        try:
            found = mapping.principal(subject)
        except Invalid as error:
            raise SessionError(NO_RULES, str(error)) from error
        if not found:
            rules = ", ".join(mapping.texts) or "none"
            text = f"no rule of {RULES_KEY} makes a principal of {subject!r} (rules: {rules})"
            raise SessionError(NOT_MAPPED, text)
        return found

    async def _broker_mapping(self) -> PrincipalMapping:
        now_ms = self._clock.monotonic_ms()
        if self._asked is not None and now_ms - self._asked_at_ms < _RULES_AGE_MS:
            return self._asked
        try:
            config = await self._broker.broker_config(self._node_id)
            self._asked, self._asked_at_ms = mapping_of(config, self._listener), now_ms
        except Unavailable as error:
            if self._asked is None:
                raise SessionError(Why.UNAVAILABLE.value, str(error)) from error
        except RemoteStorageError as error:
            raise SessionError(NO_RULES, str(error)) from error
        assert self._asked is not None  # noqa: S101 - read now or before
        return self._asked


class IssuedTokens:
    """A ClientTokens; `run` and `close` end tokens that nobody uses."""

    def __init__(
        self,
        tokens: Tokens,
        principals: CertificatePrincipals,
        clock: Clock,
        *,
        create_task: CreateTask,
        mechanism: str,
        max_lifetime_ms: int,
    ) -> None:
        """`create_task`: of the owner's group; no work that is given to it raises."""
        self._create_task = create_task
        self._tokens = tokens
        self._principals = principals
        self._clock = clock
        self._mechanism = mechanism
        self._max_lifetime_ms = max_lifetime_ms
        self._pool = TokenPool(self._make, self._unused, clock)
        self._kept: dict[str, tuple[tuple[ClientToken, ...], int]] = {}
        self._ending: list[ClientToken] = []

    def lease(self, subject: str) -> "SubjectLease":
        """See ClientTokens."""
        return SubjectLease(self._pool, self._principals, subject)

    async def _make(self, principal: str, refused: str | None) -> ClientToken:
        """Also if the client goes meanwhile: a token that nobody knew could not be ended."""
        kept = self._taken_back(principal, refused)
        if kept is not None:
            return kept
        making = self._create_task(self._made_or_refused(principal))
        try:
            made = await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(partial(self._made_for_nobody, principal))
            raise
        if isinstance(made, SessionError):
            raise made
        return made

    def _made_for_nobody(self, principal: str, making: "asyncio.Task[_Made]") -> None:
        if not making.cancelled():
            made = making.result()
            if isinstance(made, ClientToken):
                self._unused(principal, (made,))

    async def _made_or_refused(self, principal: str) -> "_Made":
        try:
            return await self._made(principal)
        except SessionError as error:
            return error

    async def _made(self, principal: str) -> ClientToken:
        made_at_ms = self._clock.monotonic_ms()
        try:
            made = await self._tokens.create(principal, max_lifetime_ms=self._max_lifetime_ms)
        except NoToken as error:
            raise SessionError(error.why.value, f"User:{principal}: {error}") from error
        token = client_token(
            mechanism=self._mechanism,
            principal=principal,
            token_id=made.token_id,
            hmac=made.hmac,
            lifetime_ms=made.lifetime_ms,
            made_at_ms=made_at_ms,
        )
        try:
            await self._until_known(made)
        except BaseException:
            self._ending.append(token)
            raise
        log.info("client_token_made", principal=principal, lifetime_ms=made.lifetime_ms)
        return token

    def _taken_back(self, principal: str, refused: str | None) -> ClientToken | None:
        """One that was kept for who comes back soon."""
        tokens, _ = self._kept.pop(principal, ((), 0))
        now_ms = self._clock.monotonic_ms()
        usable = [one for one in tokens if one.is_fresh(now_ms) and one.token_id != refused]
        found = usable[-1] if usable else None
        self._ending += [one for one in tokens if one is not found]
        return found

    async def _until_known(self, token: DelegationToken) -> None:
        """Until the broker beside this service takes it. SessionError: it does not in time."""
        until_ms = self._clock.monotonic_ms() + _KNOWN_WITHIN_MS
        attempt = 0
        try:
            while not await self._tokens.is_known(token):
                if self._clock.monotonic_ms() >= until_ms:
                    text = f"the broker has not read of the new token within {_KNOWN_WITHIN_MS} ms"
                    raise SessionError(Why.UNAVAILABLE.value, f"User:{token.owner}: {text}")
                await self._clock.sleep_ms(
                    backoff_ms(attempt, first_ms=_FIRST_WAIT_MS, most_ms=_LONGEST_WAIT_MS)
                )
                attempt += 1
        except RemoteStorageError as error:
            raise SessionError(Why.UNAVAILABLE.value, f"User:{token.owner}: {error}") from error

    def _unused(self, principal: str, tokens: tuple[ClientToken, ...]) -> None:
        if tokens:
            kept, _ = self._kept.get(principal, ((), 0))
            self._kept[principal] = (*kept, *tokens), self._clock.monotonic_ms() + _KEPT_MS

    async def run(self) -> None:
        """End tokens that nobody uses any more; until cancelled."""
        while True:
            await self._clock.sleep_ms(_CHECK_MS)
            now_ms = self._clock.monotonic_ms()
            self._ending += self._pool.taken_over()
            for principal, (tokens, until_ms) in tuple(self._kept.items()):
                if now_ms >= until_ms:
                    del self._kept[principal]
                    self._ending += tokens
            await self._end()

    async def close(self, *, ends_used: bool) -> None:
        """End the tokens that nobody uses, and with `ends_used` the others too, as far as the
        broker answers; and the connection to it.
        """
        self._ending += [one for tokens, _ in self._kept.values() for one in tokens]
        self._kept.clear()
        if ends_used:
            self._ending += self._pool.tokens()
        await self._end()
        await self._tokens.close()

    async def _end(self) -> None:
        """Where the broker does not answer, all that is left ends by itself, soon."""
        while self._ending:
            token = self._ending.pop()
            made = DelegationToken(
                owner=token.principal,
                token_id=token.token_id,
                hmac=token.hmac,
                lifetime_ms=token.lifetime_ms,
            )
            try:
                await self._tokens.expire(made)
            except RemoteStorageError as error:
                left = 1 + len(self._ending)
                log.warning("client_tokens_not_ended", tokens=left, error=str(error))
                self._ending.clear()
            else:
                log.info("client_token_ended", principal=token.principal)


def build_client_tokens(shared: Dependencies, tasks: asyncio.TaskGroup) -> IssuedTokens | None:
    """None: certificates are nobody's identity. Contacts nothing."""
    config = shared.config
    if not config.has_client_tokens:
        return None
    return IssuedTokens(
        DelegationTokens(
            config.broker_direct_address,
            client_id=f"rlm-{config.node_id}",
            security=shared.security,
        ),
        CertificatePrincipals(
            shared.broker,
            shared.clock,
            node_id=config.node_id,
            listener=config.broker_tiered_listener_name,
            mapping=config.principal_mapping(),
        ),
        shared.clock,
        create_task=tasks.create_task,
        mechanism=config.proxy_token_sasl_mechanism,
        max_lifetime_ms=config.proxy_token_max_lifetime_ms,
    )


class SubjectLease:
    """A TokenLease for the subject of a certificate."""

    def __init__(self, pool: TokenPool, principals: CertificatePrincipals, subject: str) -> None:
        self._pool = pool
        self._principals = principals
        self._subject = subject
        self._lease: PoolLease | None = None
        self._is_closed = False

    async def current(self, refused: str | None = None) -> ClientToken:
        """One connection asks for one at a time."""
        if self._lease is None:
            principal = await self._principals.principal(self._subject)
            if self._is_closed:
                raise SessionError("client_closed", "the client has gone")
            self._lease = PoolLease(self._pool, principal)
        return await self._lease.current(refused)

    def close(self) -> None:
        self._is_closed = True
        if self._lease is not None:
            self._lease.close()

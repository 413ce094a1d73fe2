"""Tokens of a worker's clients: the core makes them, and the worker keeps them while they live.

So clients whose token the worker has connect also while the core is away. A client whose token it
has not is refused then, and comes again.
"""

from collections.abc import Awaitable, Callable

from kip405.errors import RemoteStorageError
from kip405.settings import Secret
from rlm.clock import Clock
from rlm.proxy.client_tokens import ClientToken, PoolLease, TokenPool, client_token
from rlm.proxy.session import SessionError
from rlm.workers.core_tokens import NOT_HERE
from rlm.workers.v1 import core_pb2 as pb

Ask = Callable[[pb.TokenCall], Awaitable[pb.TokenAnswer]]
"""One call of the core; RemoteStorageError."""


class RemoteTokens:
    """A ClientTokens. `left` tells the core of a subject that nobody uses any more."""

    def __init__(
        self, ask: Ask, left: Callable[[str], None], clock: Clock, *, mechanism: str
    ) -> None:
        self._ask = ask
        self._left = left
        self._clock = clock
        self._mechanism = mechanism
        self._pool = TokenPool(self._make, self._unused, clock)

    def lease(self, subject: str) -> PoolLease:
        """See ClientTokens."""
        return PoolLease(self._pool, subject)

    async def _make(self, subject: str, refused: str | None) -> ClientToken:
        self._pool.taken_over()
        asked_at_ms = self._clock.monotonic_ms()
        try:
            answer = await self._ask(pb.TokenCall(subject=subject, refused_token_id=refused or ""))
        except RemoteStorageError as error:
            raise SessionError(NOT_HERE, f"{subject!r}: {error}") from error
        if answer.refused_cause:
            raise SessionError(answer.refused_cause, answer.refused_message)
        return client_token(
            mechanism=self._mechanism,
            principal=answer.principal,
            token_id=answer.token_id,
            hmac=Secret(answer.hmac),
            lifetime_ms=answer.lifetime_ms,
            made_at_ms=asked_at_ms,
        )

    def _unused(self, subject: str, _: tuple[ClientToken, ...]) -> None:
        """The core keeps them for a while, and ends them."""
        self._left(subject)

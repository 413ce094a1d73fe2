"""The core's side of tokens for the clients of one worker: which subjects the worker uses.

A worker that goes away has left all of them. This module must not know who makes tokens.
"""

from rlm.clock import Clock
from rlm.proxy.client_tokens import ClientTokens, TokenLease
from rlm.proxy.session import SessionError
from rlm.workers.v1 import core_pb2 as pb

NOT_HERE = "tokens_unavailable"


class WorkerLeases:
    """One lease for each subject, however many connections the worker has of it."""

    def __init__(self, tokens: ClientTokens | None, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._leases: dict[str, TokenLease] = {}

    async def answer(self, call: pb.TokenCall) -> pb.TokenAnswer:
        """A token, or why there is none."""
        if self._tokens is None:
            text = "the core process has no proxy.tls.client.identity: start it again"
            return pb.TokenAnswer(refused_cause=NOT_HERE, refused_message=text)
        lease = self._leases.get(call.subject)
        if lease is None:
            lease = self._leases[call.subject] = self._tokens.lease(call.subject)
        try:
            token = await lease.current(call.refused_token_id or None)
        except SessionError as error:
            self.left(call.subject)
            return pb.TokenAnswer(refused_cause=error.cause, refused_message=str(error))
        age_ms = self._clock.monotonic_ms() - token.made_at_ms
        return pb.TokenAnswer(
            principal=token.principal,
            token_id=token.token_id,
            hmac=token.hmac.reveal(),
            lifetime_ms=token.lifetime_ms - age_ms,
        )

    def left(self, subject: str) -> None:
        """The worker has no connection of this subject any more."""
        lease = self._leases.pop(subject, None)
        if lease is not None:
            lease.close()

    def close(self) -> None:
        """The worker has gone."""
        for subject in tuple(self._leases):
            self.left(subject)

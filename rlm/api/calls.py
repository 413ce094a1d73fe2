"""Calls of the API: a principal is named, a token shown if one is set."""

import hmac
from dataclasses import dataclass

from rlm.api.status import status_of_error
from rlm.api.tokens import Tokens, TokenSource, no_tokens
from rsm_plugins.contract.answering import PRINCIPAL_KEY, Answered, Context, principal_of
from rsm_plugins.contract.status import Unauthenticated

FORWARDED_KEY = "rlm-forwarded-by"
TOKEN_KEY = "authorization"  # noqa: S105 - the name of a header

__all__ = ["FORWARDED_KEY", "Answering", "Caller", "Context", "Gate", "call_metadata"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks; `forwarded_by` is the service that passed the call on, empty for a first hand."""

    principal: str
    forwarded_by: str = ""

    @property
    def is_forwarded(self) -> bool:
        return bool(self.forwarded_by)


class Gate:
    """Lets calls in; with tokens only those that show one."""

    def __init__(self, tokens: TokenSource = no_tokens) -> None:
        self._tokens = tokens

    def admit(self, context: Context) -> Caller:
        """Unauthenticated without principal or with a wrong token."""
        metadata = {
            key: value
            for key, value in context.invocation_metadata() or ()
            if isinstance(value, str)
        }
        tokens = self._tokens()
        if tokens and not _shows_one(metadata.get(TOKEN_KEY), tokens):
            raise Unauthenticated(
                "the call shows no valid token (authorization: Bearer ...)"
                if TOKEN_KEY in metadata
                else "the call shows no token, and one is needed (authorization: Bearer ...)"
            )
        principal = principal_of(context)
        return Caller(principal=principal, forwarded_by=metadata.get(FORWARDED_KEY, ""))


def _shows_one(shown: str | None, tokens: Tokens) -> bool:
    """Compared with all of them, in a time that tells nothing."""
    text = (shown or "").encode()
    same = [hmac.compare_digest(text, f"Bearer {token}".encode()) for token in tokens]
    return any(same)


def call_metadata(
    principal: str, token: str | None, forwarded_by: str = ""
) -> tuple[tuple[str, str], ...]:
    """Metadata that a client sends with a call."""
    rows = [(PRINCIPAL_KEY, principal)]
    if token is not None:
        rows.append((TOKEN_KEY, f"Bearer {token}"))
    if forwarded_by:
        rows.append((FORWARDED_KEY, forwarded_by))
    return tuple(rows)


class Answering(Answered[Caller]):
    """`async with Answering(gate, context, "fetch") as caller:` around the body of a call."""

    def __init__(self, gate: Gate, context: Context, operation: str) -> None:
        super().__init__(context, operation, admit=gate.admit, status_of=status_of_error)

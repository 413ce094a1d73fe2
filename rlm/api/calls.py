"""Authenticates the calls of the API.

A call names a principal, and shows a token if tokens are configured. A token file has one token a
line and is read again when it changes. Every line is accepted, and the first one is the token that
this service sends to its peers. So a token is replaced without refusing a caller: add the new one
as the second line everywhere, then make it the first line everywhere, then remove the old one.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kip405.errors import Invalid
from rlm.clock import Clock
from rsm_plugins.contract.answering import PRINCIPAL_KEY, Answered, Context, principal_of
from rsm_plugins.contract.status import Unauthenticated
from rsm_plugins.renewed import Renewed

TOKENS_MAX = 2
_CHECK_MS = 1_000

Tokens = tuple[str, ...]
TokenSource = Callable[[], Tokens]
"""The tokens as they are now; none = none is asked for, and none is shown."""


def no_tokens() -> Tokens:
    """The source of a service without tokens."""
    return ()


def read_tokens(path: Path, setting: str) -> Tokens:
    """At least one token; Invalid begins with the setting that named the file."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{setting}: {path} cannot be read") from error
    tokens = tuple(line.strip() for line in lines if line.strip())
    fit = all(token.isascii() and token.isprintable() for token in tokens)
    if not 0 < len(tokens) <= TOKENS_MAX or not fit:
        raise Invalid(f"{setting}: {path} must hold one or two lines of printable ASCII")
    return tokens


class TokenFile:
    """A `TokenSource`; a file that becomes unusable leaves the former tokens in force."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Invalid where the file cannot be used now."""
        self._renewed = Renewed((path,), lambda: read_tokens(path, "api.token.file"))
        self._clock = clock
        self._checked_ms = clock.monotonic_ms()
        self._tokens = self._renewed.current()

    def __call__(self) -> Tokens:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms >= _CHECK_MS:
            self._checked_ms = now_ms
            self._tokens = self._renewed.current()
        return self._tokens


def token_source(path: Path | None, clock: Clock) -> TokenSource:
    """The source for `api.token.file`, if it is given; Invalid if the file cannot be used."""
    return no_tokens if path is None else TokenFile(path, clock)


FORWARDED_KEY = "rlm-forwarded-by"
TOKEN_KEY = "authorization"  # noqa: S105 - the name of a header

__all__ = ["FORWARDED_KEY", "Answering", "Caller", "Context", "Gate", "call_metadata"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The principal of a call; `forwarded_by` is the service that forwarded the call, or empty."""

    principal: str
    forwarded_by: str = ""

    @property
    def is_forwarded(self) -> bool:
        return bool(self.forwarded_by)


class Gate:
    """Admits calls; with tokens configured, only calls that show one."""

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
    """Compares with all tokens in constant time, so that the time reveals nothing."""
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
        super().__init__(context, operation, admit=gate.admit)

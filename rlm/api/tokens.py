"""Reads the tokens of the API from a file, one a line, and again when the file changes.

Every line is accepted; the first line is the token that this side shows to others. So a token can
be replaced without refusing any caller: add the new token as second line everywhere, then make it
the first line everywhere, then remove the old one. This module must not know calls.
"""

from collections.abc import Callable
from pathlib import Path

from kip405.errors import Invalid
from rlm.clock import Clock
from rsm_plugins.contract.tls import Renewed

TOKENS_MAX = 2
_CHECK_MS = 1_000

Tokens = tuple[str, ...]
TokenSource = Callable[[], Tokens]
"""The tokens as they are now; none = none is asked for, and none is shown."""


def no_tokens() -> Tokens:
    """Where no token is set."""
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
    """Of `api.token.file`, where it is given; Invalid where it cannot be used."""
    return no_tokens if path is None else TokenFile(path, clock)

"""What a client of the API sends with a call: its principal and a token.

Commands import this, so it imports nothing of services.
"""

from pathlib import Path

from kip405.errors import Invalid
from rsm_plugins.contract.principals import PRINCIPAL_KEY

TOKENS_MAX = 2
FORWARDED_KEY = "rlm-forwarded-by"
TOKEN_KEY = "authorization"  # noqa: S105 - the name of a header
BEARER = "Bearer "

Tokens = tuple[str, ...]


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


def call_metadata(
    principal: str, token: str | None, forwarded_by: str = ""
) -> tuple[tuple[str, str], ...]:
    """Metadata that a client sends with a call."""
    rows = [(PRINCIPAL_KEY, principal)]
    if token is not None:
        rows.append((TOKEN_KEY, f"{BEARER}{token}"))
    if forwarded_by:
        rows.append((FORWARDED_KEY, forwarded_by))
    return tuple(rows)

"""Rows of a plugin's settings (key, check, what is allowed, doc), and the check of values by them.

One table gives the refusals and the documentation. Every kind of store brings its own rows
(rsm_plugins/settings/kinds.py). A refusal names the key and what is allowed. The value of a secret
is never part of an error, not even as its cause. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kip405.addresses import Address
from kip405.errors import Invalid
from rsm_plugins.layout.keys import check_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table; `default` None with `required` False means absent.

    A key that ends in `.*` covers every key with that beginning. `field` is for rows that become a
    field of a dataclass; the rows of a kind of store are found by key. `secret`: the value is never
    logged, printed, or put into an error.
    """

    key: str
    check: Callable[[object], object]
    allowed: str
    doc: str
    field: str = ""
    default: object = None
    required: bool = False
    secret: bool = False


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def listen_address(value: object) -> str:
    return str(Address.parse_listening(text(value)))


def folder(value: object) -> Path:
    path = Path(text(value))
    if not path.is_absolute():
        raise ValueError
    return path


def folders(value: object) -> tuple[Path, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(folder(item) for item in value)


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def one_of(allowed: tuple[str, ...]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in allowed:
            raise ValueError
        return str(value)

    return check


def number(minimum: int, maximum: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if type(value) is not int or not minimum <= value <= maximum:
            raise ValueError
        return value

    return check


PREFIX_SETTING = Setting(
    key="rsm.config.prefix",
    check=lambda value: check_prefix(text(value)),
    allowed="path components joined by single slashes, none at either end",
    doc="Prefix of every key below the root or in the bucket.",
    default="",
)
"""Every kind of store has this row."""


def refuse_unknown(content: Mapping[Any, object], rows: Sequence[Setting]) -> None:
    """Invalid for the first key that no row has, with the one that may have been meant."""
    known = sorted(row.key for row in rows)
    for key in content:
        if not isinstance(key, str) or row_of(key, rows) is None:
            near = get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}"
            raise Invalid(f"{key} is no setting; {hint}")


def row_of(key: str, rows: Sequence[Setting]) -> Setting | None:
    """The row a key belongs to, None where it is no setting."""
    for row in rows:
        if key == row.key and not row.key.endswith(".*"):
            return row
        if row.key.endswith(".*") and key.startswith(row.key[:-1]) and len(key) >= len(row.key):
            return row
    return None


def checked_values(content: Mapping[str, object], rows: Sequence[Setting]) -> dict[str, object]:
    """The checked value or default of every row by key; keys of a `.*` row only where given."""
    values: dict[str, object] = {}
    for row in rows:
        if row.key.endswith(".*"):
            given = (key for key in content if row_of(key, rows) is row)
            values |= {key: checked_value(row, content[key], key) for key in given}
        else:
            values[row.key] = checked_value(row, content.get(row.key))
    return values


def checked_value(row: Setting, value: object, key: str = "") -> object:
    """One checked value, or the default where there is none; Invalid says what is allowed."""
    key = key or row.key
    if value is None:
        if row.required:
            raise Invalid(f"{key} is missing; allowed: {row.allowed}")
        return row.default
    try:
        return row.check(value)
    except (ValueError, Invalid) as error:
        if row.secret:
            raise Invalid(f"{key}: the value is not allowed; allowed: {row.allowed}") from None
        reason = f" ({error})" if isinstance(error, Invalid) else ""
        raise Invalid(f"{key}: {value!r} is not allowed{reason}; allowed: {row.allowed}") from error


def secret_values(content: Mapping[str, object], rows: Sequence[Setting]) -> tuple[str, ...]:
    """The values that must not be shown, for masking them in what others write."""
    return tuple(
        str(value)
        for key, value in content.items()
        if value not in (None, "") and (row := row_of(key, rows)) is not None and row.secret
    )

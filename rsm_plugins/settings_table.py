"""Rows of a plugin's settings: key, check, what is allowed, doc. One table makes refusals and docs.

Every kind of store brings its own rows (rsm_plugins/store_kind.py). Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rsm_plugins.addresses import Address
from rsm_plugins.keys import check_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table; `default` None with `required` false means absent.

    A key that ends in `.*` stands for every key that begins so. `field` is for rows that become a
    field of a dataclass; the rows of a kind of store are looked up by key. `secret`: the value is
    never logged, printed, or put into an error.
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
    return str(Address.parse(text(value)))


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

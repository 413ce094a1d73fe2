"""The table of settings: kinds of values, rows, and what is read, refused and masked by them. Pure.

It is the only engine for settings. Those of `rlm serve`, of plugins and their stores, the options
of the Spark source and the properties of its Kafka consumer are rows of tables; the pages of
docs/reference are made from the rows. Every refusal is an Invalid of one line: the name, what is
allowed, and what was given. The value of a secret is in no refusal, not even as its cause. It must
not know any setting, and no file format.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kip405.addresses import Address
from kip405.errors import Invalid

REQUIRED = object()
"""Default of a setting that must be given, or found elsewhere by the reader of the table."""
MASK = "***"
_HOW_ALIKE = 0.6  # of difflib; its own default
_SECRET_WORDS = re.compile(r"secret|token|password|passphrase|credential|access\.key|external\.id")
_SECRET_FILES = (".key.file", ".key.location", ".keystore.location", ".keytab", ".principals.file")


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A text that no `repr`, log, error or f-string shows; `reveal` is for who must send it."""

    text: str

    def reveal(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return MASK


class Refused(ValueError):
    """A kind refuses a value; the text follows the words `got`. Any other ValueError of a kind
    refuses it too, and then the value itself follows them.
    """


class RefusedAs(ValueError):
    """A kind refuses a value; the text, which follows the name of the setting, is all that is
    said.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of value: `allowed` completes the words `must be`; `read` converts or refuses.

    A value that `is_structure` is a list or a mapping; the reader of the table checks it.
    """

    allowed: str
    read: Callable[[Any], Any]
    is_structure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A row. A key that ends in `.*` covers every name with that beginning.

    `default_doc` describes a default that is computed. `aliases` are further names of the setting.
    The value of a `secret` is never logged, printed, or put into an error. One that
    `changes_while_running` is taken by a reload; others wait for a restart.
    """

    key: str
    kind: Kind
    doc: str = ""
    default: Any = None
    default_doc: str = ""
    unit: str = ""
    secret: bool = False
    aliases: tuple[str, ...] = ()
    changes_while_running: bool = False

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def allowed(self) -> str:
        return f"{self.kind.allowed} ({self.unit})" if self.unit else self.kind.allowed

    def read(self, value: Any, name: str = "") -> Any:
        """The checked value; Invalid begins with `name`, by default the key."""
        name = name or self.key
        try:
            return self.kind.read(value)
        except ValueError as error:
            if self.secret:
                raise Invalid(f"{name}: must be {self.kind.allowed}") from None
            if self.kind is PATH and names_secret_file(self.key):
                said = "of a file; what was given is not shown, as it may be the secret itself"
                raise Invalid(f"{name}: must be {self.kind.allowed} {said}") from None
            if isinstance(error, RefusedAs):
                raise Invalid(f"{name} {error}") from error
            got = str(error) if isinstance(error, Refused) else repr(value)
            raise Invalid(f"{name}: must be {self.kind.allowed}, got {got}") from error

    def covers(self, name: str) -> bool:
        """Whether the name is this setting's, or one of those that it covers."""
        if self.key.endswith(".*"):
            return name.startswith(self.key[:-1]) and len(name) >= len(self.key)
        return name == self.key or name in self.aliases


class Table:
    """Rows, and the values that are read by them from a mapping of names to values.

    None counts as not given. `where` is the beginning of the names in refusals. `listed_in` is the
    page with all names, for tables that are too long for a message.
    """

    def __init__(self, *rows: Setting, listed_in: str = "") -> None:
        self._rows = rows
        self._listed_in = listed_in

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(row.key for row in self._rows)

    def row(self, name: object) -> Setting | None:
        """The row of a name or alias; None where it is not a setting."""
        if not isinstance(name, str):
            return None
        return next((row for row in self._rows if row.covers(name)), None)

    def __getitem__(self, name: str) -> Setting:
        """The row of a name that is known to have one."""
        row = self.row(name)
        if row is None:
            raise KeyError(name)
        return row

    def nearest(self, name: object, alike: float = _HOW_ALIKE) -> str | None:
        """The key that may have been meant, in any case; `alike` is difflib's ratio."""
        keys = {key.lower(): key for key in self.keys}
        close = get_close_matches(str(name).lower(), sorted(keys), n=1, cutoff=alike)
        return keys[close[0]] if close else None

    def refuse_unknown(self, names: Iterable[object], where: str = "") -> None:
        """Invalid for the first name that has no row, with the one that may have been meant."""
        for name in names:
            if self.row(name) is None:
                raise Invalid(f"{where}{name}: unknown setting; {self._hint(name)}")

    def given(self, content: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """The checked values of what is given, by key; names without a row are passed over.

        Invalid for a wrong value, and for a setting that is given under two names.
        """
        found: dict[str, Any] = {}
        names: dict[str, str] = {}
        for name, value in content.items():
            row = self.row(name)
            if row is None or value is None:
                continue
            key = name if row.key.endswith(".*") else row.key
            if key in found:
                alias = name if name != key else names[key]
                raise Invalid(f"{where}{alias}: is another name of {where}{key}; give one of them")
            found[key], names[key] = row.read(value, f"{where}{name}"), name
        return found

    def values(self, content: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """The checked value or the default of every row, by key; of a `.*` row what is given.

        Invalid as `given`, and for a required setting that is missing.
        """
        found = self.given(content, where)
        for row in self._rows:
            if row.key not in found and not row.key.endswith(".*"):
                if row.is_required:
                    raise Invalid(missing(row, where))
                found[row.key] = row.default
        return found

    def secrets(self, content: Mapping[str, Any]) -> tuple[str, ...]:
        """The secret values among what is given, for `masked`."""
        return tuple(
            str(value)
            for name, value in content.items()
            if value not in (None, "") and (row := self.row(name)) is not None and row.secret
        )

    def _hint(self, name: object) -> str:
        near = self.nearest(name)
        if near is not None:
            return f"did you mean {near}?"
        if self._listed_in:
            return f"{self._listed_in} lists all settings"
        return f"allowed: {', '.join(sorted(self.keys))}"


def missing(row: Setting, where: str = "") -> str:
    """The refusal of a required setting that is not given."""
    doc = f" ({row.doc})" if row.doc else ""
    return f"{where}{row.key}: missing; must be {row.kind.allowed}{doc}"


def setting(key: str, kind: Kind, doc: str, *, default: Any = REQUIRED, **more: Any) -> Any:
    """A field of a dataclass that has a row; `more` are further fields of the row."""
    row = Setting(key=key, kind=kind, doc=doc, default=default, **more)
    if default is REQUIRED:
        return dataclasses.field(metadata={"setting": row})
    return dataclasses.field(default=default, metadata={"setting": row})


def rows_of(values: type) -> dict[str, Setting]:
    """Attribute -> row of a dataclass whose fields are settings, in their order."""
    fields = dataclasses.fields(values)
    return {one.name: one.metadata["setting"] for one in fields if "setting" in one.metadata}


def is_secret_name(name: str) -> bool:
    """Whether a setting that no table knows may be a secret, by the words in its name."""
    return bool(_SECRET_WORDS.search(name.lower()))


def names_secret_file(name: str) -> bool:
    """Whether a setting that is a path names a file with a secret, such as a key."""
    return is_secret_name(name) or name.endswith(_SECRET_FILES)


def masked(text: str, secrets: Sequence[str]) -> str:
    """The text with every secret replaced, also as JSON and Python write it."""
    return without(text, spellings_of(secrets))


def spellings_of(secrets: Sequence[str]) -> list[str]:
    """For `without`. Longer secrets come first, as one may be part of another."""
    spellings = {
        spelling
        for secret in secrets
        for spelling in (
            secret,
            json.dumps(secret)[1:-1],
            json.dumps(secret, ensure_ascii=False)[1:-1],
            repr(secret)[1:-1],
        )
    }
    return sorted(spellings, key=len, reverse=True)


def without(text: str, spellings: Sequence[str]) -> str:
    """The text with each of these replaced."""
    for spelling in spellings:
        text = text.replace(spelling, MASK)
    return text


def integer(least: int, most: int | None = None) -> Kind:
    """A whole number within [least, most]."""

    def read(value: Any) -> int:
        if type(value) is not int or value < least or (most is not None and value > most):
            raise ValueError
        return value

    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    return Kind(allowed=f"a whole number {limits}", read=read)


def integer_or(word: str, least: int, most: int) -> Kind:
    """A whole number within [least, most], or that word."""
    whole = integer(least, most)

    def read(value: Any) -> int | str:
        return word if value == word else int(whole.read(value))

    return Kind(allowed=f"{whole.allowed}, or {word}", read=read)


def number(least: float, most: float = math.inf) -> Kind:
    """A number, whole or not, within both limits."""

    def read(value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= most or value == math.inf:
            raise ValueError
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError from error

    within = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
    return Kind(allowed=f"a number {within}", read=read)


def choice(*names: str) -> Kind:
    """One of the given texts. YAML reads the words on and off as true and false."""

    def read(value: Any) -> str:
        if isinstance(value, bool):
            value = "on" if value else "off"
        if not isinstance(value, str) or value not in names:
            raise ValueError
        return value

    return Kind(allowed=" or ".join(names), read=read)


def checked_later(allowed: str) -> Kind:
    """A value that makes sense only together with others: the reader of the table checks it."""

    def read(value: Any) -> Any:
        return value

    return Kind(allowed=allowed, read=read, is_structure=True)


def as_text(value: Any) -> str:
    """The text unchanged, also an empty one; ValueError."""
    if not isinstance(value, str):
        raise ValueError
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError
    return value


def _filled(value: Any) -> str:
    if not as_text(value).strip():
        raise ValueError
    return as_text(value).strip()


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    return tuple(map(_filled, value))


def _path(value: Any) -> Path:
    try:
        path = Path(_filled(value)).expanduser()
    except RuntimeError as error:
        raise Refused(f"{value!r}, whose home directory is not known") from error
    if "\0" in str(path):
        raise ValueError
    if not path.is_absolute():
        raise Refused(f"{value!r}, which is not absolute")
    return path


def _items(value: Any) -> list[Any]:
    """A YAML list, or Kafka's comma-separated text."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise ValueError
    return items


def _paths(value: Any) -> tuple[Path, ...]:
    paths = tuple(map(_path, _items(value)))
    if len(set(paths)) != len(paths):
        raise Refused(f"{value!r}, which names a directory twice")
    return paths


def _address(value: Any) -> Address:
    try:
        return Address.parse(_filled(value))
    except Invalid as error:
        raise Refused(str(error)) from error


def _tcp(value: Any) -> Address:
    address = _address(value)
    if address.is_unix:
        raise ValueError
    return address


def _secret(value: Any) -> Secret:
    if not as_text(value):
        raise ValueError
    return Secret(value)


def _addresses(value: Any) -> tuple[Address, ...]:
    return tuple(map(_tcp, _items(value)))


FLAG = Kind(allowed="true or false", read=_flag)
TEXT = Kind(allowed="a text", read=_filled)
SECRET = Kind(allowed="a text", read=_secret)
WORDS = Kind(allowed="a list of words", read=_words)
PATH = Kind(allowed="an absolute path", read=_path)
PATHS = Kind(allowed="a list of different absolute paths", read=_paths)
TCP = Kind(allowed="host:port", read=_tcp)
ADDRESS = Kind(allowed="host:port or unix:/path", read=_address)
ADDRESSES = Kind(allowed="a list of host:port", read=_addresses)

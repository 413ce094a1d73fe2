"""The table engine: values, refusals in one line, other names, hints, secrets."""

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kip405.errors import Invalid
from kip405.settings import (
    ADDRESSES,
    FLAG,
    PATH,
    PATHS,
    REQUIRED,
    TEXT,
    WORDS,
    Kind,
    RefusedAs,
    Setting,
    Table,
    as_text,
    choice,
    integer,
    integer_or,
    is_secret_name,
    masked,
    number,
    rows_of,
    setting,
)


def _in_own_words(value: Any) -> int:
    raise RefusedAs("must be positive")


LEAST = Setting(
    key="least.ms", kind=integer(1), doc="The least.", default=REQUIRED, aliases=("min.ms",)
)
MANY = Setting(key="conf.*", kind=Kind(allowed="a string", read=as_text))
SECRET = Setting(key="key.secret", kind=integer(1), secret=True)
OWN = Setting(key="own", kind=Kind(allowed="-", read=_in_own_words))
TABLE = Table(LEAST, MANY, SECRET, OWN)


def refusal(table: Table, content: dict[str, Any], where: str = "") -> str:
    with pytest.raises(Invalid) as caught:
        table.values(content, where)
    assert "swordfish" not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def test_values_and_defaults() -> None:
    given = {"least.ms": 5, "conf.a.b": "1", "conf.c": "2", "own": None}
    assert TABLE.values(given) == {
        "least.ms": 5,
        "conf.a.b": "1",
        "conf.c": "2",
        "key.secret": None,
        "own": None,
    }
    assert TABLE.given({"min.ms": 7, "else": 1}) == {"least.ms": 7}
    assert TABLE.keys == ("least.ms", "conf.*", "key.secret", "own")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "at.least.ms: missing; must be a whole number of at least 1 (The least.)"),
        ({"least.ms": 0}, "at.least.ms: must be a whole number of at least 1, got 0"),
        ({"min.ms": "x"}, "at.min.ms: must be a whole number of at least 1, got 'x'"),
        (
            {"min.ms": 1, "least.ms": 2},
            "at.min.ms: is another name of at.least.ms; give one of them",
        ),
        (
            {"least.ms": 1, "min.ms": 2},
            "at.min.ms: is another name of at.least.ms; give one of them",
        ),
        ({"least.ms": 1, "conf.c": 2}, "at.conf.c: must be a string, got 2"),
        (
            {"least.ms": 1, "key.secret": "swordfish"},
            "at.key.secret: must be a whole number of at least 1",
        ),
        ({"least.ms": 1, "own": 0}, "at.own must be positive"),
    ],
)
def test_a_refusal_names_the_setting_and_what_is_allowed(
    content: dict[str, Any], message: str
) -> None:
    assert refusal(TABLE, content, "at.") == message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lest.ms", "x.lest.ms: unknown setting; did you mean least.ms?"),
        ("LEAST_MS", "x.LEAST_MS: unknown setting; did you mean least.ms?"),
        ("conf.", "x.conf.: unknown setting; did you mean conf.*?"),
        (7, "x.7: unknown setting; allowed: conf.*, key.secret, least.ms, own"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: object, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        TABLE.refuse_unknown([name], "x.")
    assert str(caught.value) == message


def test_a_long_table_names_its_page_instead() -> None:
    with pytest.raises(Invalid, match=r"^7: unknown setting; the page lists all settings$"):
        Table(LEAST, listed_in="the page").refuse_unknown([7])
    TABLE.refuse_unknown(["least.ms", "min.ms", "conf.a", "own"])


def test_secrets_are_found_and_masked() -> None:
    assert TABLE.secrets({"key.secret": 'a"b', "least.ms": 1, "conf.x": "y"}) == ('a"b',)
    assert masked(r'{"x": "a\"b"} a"bc', ('a"b', 'a"bc')) == '{"x": "***"} ***'
    names = ("api.token", "db.Password", "aws.access.key.id", "role.external.id", "a.credential")
    assert all(map(is_secret_name, names))
    assert not is_secret_name("rsm.config.root")


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (integer(0, 2), 2, 2),
        (integer_or("auto", 0, 2), 2, 2),
        (integer_or("auto", 0, 2), "auto", "auto"),
        (number(0.5), 1, 1.0),
        (choice("a", "b"), "b", "b"),
        (FLAG, False, False),
        (TEXT, " x ", "x"),
        (WORDS, ["a", "b"], ("a", "b")),
        (PATH, "~/x", Path("~/x").expanduser()),
        (PATHS, "/a, /b", (Path("/a"), Path("/b"))),
    ],
)
def test_kinds_read(kind: Kind, value: Any, read: Any) -> None:
    assert kind.read(value) == read


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((integer(0, 2), value) for value in (3, -1, True, "1", None, 1.0)),
        *((integer_or("auto", 0, 2), value) for value in (3, -1, True, "1", "Auto", None)),
        *((number(0.5), value) for value in (0.4, float("inf"), float("nan"), True, "1")),
        *((choice("a"), value) for value in ("b", 1, ["a"])),
        *((FLAG, value) for value in ("true", 1)),
        *((TEXT, value) for value in ("", " ", 1)),
        *((WORDS, value) for value in ([], "a", [1])),
        *((PATH, value) for value in ("a", "", 1)),
        *((PATHS, value) for value in (["/a", "/a"], [], 1)),
        *((ADDRESSES, value) for value in ("a:1,b", "unix:/x", "")),
    ],
)
def test_kinds_refuse(kind: Kind, value: Any) -> None:
    with pytest.raises(ValueError):
        kind.read(value)


def test_rows_are_fields() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Values:
        least_ms: int = setting("least.ms", integer(1), "The least.", unit="ms")
        name: str = setting("name", TEXT, "A name.", default="x")
        other: int = 0

    rows = rows_of(Values)
    assert {name: row.key for name, row in rows.items()} == {"least_ms": "least.ms", "name": "name"}
    assert rows["least_ms"].allowed == "a whole number of at least 1 (ms)"
    assert (rows["least_ms"].is_required, Values(least_ms=1).name) == (True, "x")

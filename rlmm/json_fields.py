"""Reads fields of JSON documents by type; a missing field is a KeyError. Pure."""

from collections.abc import Mapping
from typing import Any

from kip405.ids import Uuid

Json = Mapping[str, Any]
STAMP_FIELDS = ("v", "kind", "node_id", "leader_epoch", "writer", "time_ms")
"""What every settings record has."""


def integer(document: Json, name: str) -> int:
    """TypeError: it is none, as `true`."""
    value = document[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, not an integer")
    return value


def text(document: Json, name: str) -> str:
    """TypeError: it is none."""
    value = document[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, not text")
    return value


def texts(document: Json, name: str) -> tuple[str, ...]:
    """A list of texts; TypeError: it is none."""
    value = document[name]
    if not isinstance(value, list):
        raise TypeError(f"{name} is no list")
    return tuple(str(one) for one in value)


def uuids(document: Json, name: str) -> tuple[Uuid, ...]:
    """A list of uuids as text; ValueError: one of them is none."""
    return tuple(Uuid.parse(one) for one in texts(document, name))


def extra_fields(document: Json, *known: str) -> dict[str, Any]:
    """The fields of a settings record that this version does not know."""
    return {name: value for name, value in document.items() if name not in (*STAMP_FIELDS, *known)}

"""Formats that versions of this software write and read, as heartbeats state them (H6). Pure.

A format is a layout of records or objects that has a version number, as that of all settings
records, or of all manifests. A version of the software writes one version of each format, and reads
that one and older ones. An older service that begins beside newer formats would decide without
knowing what they say, so it does not begin.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kip405.errors import Corrupt
from rlmm.json_fields import Json, integer, text


class NewerFormat(Corrupt):
    """What was read has a newer version of its format than this version of the software reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """By the name of each format: its version that is written, and the highest one that is read.

    `software` is the version of the software that these are the formats of. A heartbeat can have a
    newer version of the software than its formats: a version that does not know the field writes it
    again as it found it.
    """

    software: str
    writes: Mapping[str, int]
    reads: Mapping[str, int]

    def with_written(self, before: "Formats | None") -> "Formats":
        """These, where `before` has written nothing newer under the same name. Else they name what
        it has written, and its version: it is still there after one has gone back.
        """
        before_writes = {} if before is None else before.writes
        newest = {name: max(self.writes.get(name, 0), at) for name, at in before_writes.items()}
        if before is None or newest.items() <= self.writes.items():
            return self
        writes = {**self.writes, **newest}
        return Formats(software=before.software, writes=writes, reads=self.reads)

    def not_read(self, other: "Formats") -> Iterator[str]:
        """Names of the formats that `other` writes and these do not read; one that is not known
        here is not read either.
        """
        return (name for name, number in other.writes.items() if number > self.reads.get(name, 0))


def formats_fields(formats: Formats | None) -> dict[str, Any]:
    """`formats` of a heartbeat."""
    if formats is None:
        return {}
    fields = {
        "version": formats.software,
        "writes": dict(formats.writes),
        "reads": dict(formats.reads),
    }
    return {"formats": fields}


def read_formats(document: Json) -> Formats | None:
    """None where the heartbeat has none: its version wrote the first version of each format."""
    found = document.get("formats")
    if found is None:
        return None
    return Formats(
        software=text(found, "version"),
        writes=_numbers(found, "writes"),
        reads=_numbers(found, "reads"),
    )


def _numbers(document: Json, name: str) -> dict[str, int]:
    return {format_name: integer(document[name], format_name) for format_name in document[name]}

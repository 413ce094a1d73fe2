"""Parses small text files of a broker: checkpoints, partition.metadata, and properties files.

The properties files are meta.properties and server.properties; the checkpoints hold epochs or
offsets. The parsers take bytes: Corrupt names what is wrong, wherever the file was cut off. This
module must not know where the files are. Sources: CheckpointFile, LeaderEpochCheckpointFile,
OffsetCheckpointFile, PartitionMetadataFile, MetaProperties, java.util.Properties.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kip405.errors import Corrupt
from kip405.ids import Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry

_CHECKPOINT_VERSION = "0"
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_INT64_LIMIT = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """meta.properties of one log directory; node_id is broker.id in files of version 0."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None


def parse_leader_epochs(data: bytes) -> Lineage:
    """leader-epoch-checkpoint (or the LEADER_EPOCH section) -> lineage without empty epochs."""
    what = "leader-epoch checkpoint"
    entries = [
        EpochEntry(epoch=_number(epoch, what), start_offset=_number(start, what))
        for epoch, start in _checkpoint_lines(data, 2, what)
    ]
    try:
        return Lineage.of(entries)
    except ValueError as error:
        raise Corrupt(f"{what}: {error}") from error


def encode_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Kafka's checkpoint text, version 0: what is stored as the LEADER_EPOCH section."""
    lines = [f"{entry.epoch} {entry.start_offset}\n" for entry in entries]
    return f"{_CHECKPOINT_VERSION}\n{len(lines)}\n{''.join(lines)}".encode("ascii")


def parse_offset_checkpoint(data: bytes) -> dict[tuple[str, int], int]:
    """Recovery point, log start or high watermark checkpoint -> offset by (topic, partition)."""
    what = "offset checkpoint"
    offsets: dict[tuple[str, int], int] = {}
    for topic, partition, offset in _checkpoint_lines(data, 3, what):
        key = (topic, _number(partition, what))
        if key in offsets:
            raise Corrupt(f"{what}: {topic}-{partition} is there twice")
        offsets[key] = _number(offset, what)
    return offsets


def _checkpoint_lines(data: bytes, fields: int, what: str) -> Iterator[list[str]]:
    """Fields of each entry; version, count and the last line's end are checked, so that no cut goes
    unseen.
    """
    text = _text(data, what)
    if not text.endswith("\n"):
        raise Corrupt(f"{what} is cut short: {len(data)} bytes without a line end")
    version, *lines = text[:-1].split("\n")
    if version.strip() != _CHECKPOINT_VERSION:
        raise Corrupt(f"{what} has version {version!r}")
    if not lines or _number(lines[0].strip(), what) != len(lines) - 1:
        raise Corrupt(f"{what} declares {lines[:1]} entries and has {max(len(lines) - 1, 0)}")
    for line in lines[1:]:
        parts = line.split()
        if len(parts) != fields:
            raise Corrupt(f"{what}: line {line!r} has {len(parts)} fields, not {fields}")
        yield parts


def parse_partition_metadata(data: bytes) -> Uuid:
    """partition.metadata -> the topic's id."""
    what = "partition.metadata"
    fields: dict[str, str] = {}
    for line in _text(data, what).splitlines():
        name, separator, value = line.partition(":")
        if not separator:
            raise Corrupt(f"{what}: line {line!r}")
        fields[name.strip()] = value.strip()
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise Corrupt(f"{what} has fields {fields}")
    try:
        return Uuid.parse(fields["topic_id"])
    except ValueError as error:
        raise Corrupt(f"{what}: {error}") from error


def parse_meta_properties(data: bytes) -> MetaProperties:
    """meta.properties, versions 0 and 1."""
    what = "meta.properties"
    fields = parse_properties(data)
    version = fields.get("version", "")
    if version not in ("0", "1"):
        raise Corrupt(f"{what} has version {version!r}")
    node = fields.get("node.id" if version == "1" else "broker.id")
    directory = fields.get("directory.id")
    try:
        return MetaProperties(
            version=int(version),
            cluster_id=fields.get("cluster.id"),
            node_id=None if node is None else _number(node, what),
            directory_id=None if directory is None else Uuid.parse(directory),
        )
    except ValueError as error:
        raise Corrupt(f"{what}: {error}") from error


def parse_properties(data: bytes) -> dict[str, str]:
    """A Java properties file (comments # and !, separators = : and blanks, continuation lines,
    escapes).

    The last of equal keys wins, as in java.util.Properties. UTF-8, as Kafka reads its files.
    """
    fields: dict[str, str] = {}
    for line in _logical_lines(_text(data, "properties")):
        name, value = _split(line)
        fields[_unescape(name)] = _unescape(value)
    return fields


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, continued ones joined."""
    joined = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not joined and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield joined + line
        joined = ""
    if joined:
        yield joined


def _split(line: str) -> tuple[str, str]:
    """Name and value: the first unescaped blank, = or : ends the name; blanks around one separator
    go with it.
    """
    end = 0
    while end < len(line) and line[end] not in " \t\f=:":
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(" \t\f")
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(" \t\f")
    return line[:end], value


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})|\\(u|.|$)", re.DOTALL)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    if match[2] == "u":
        raise Corrupt("properties: malformed \\u escape")
    return _ESCAPES.get(match[2], match[2])


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"{what} is not UTF-8: {error}") from error


def _number(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text) or not -_INT64_LIMIT <= int(text) < _INT64_LIMIT:
        raise Corrupt(f"{what}: {text!r} is not a number")
    return int(text)

"""The documents of an export's bookkeeping as JSON: the target's format, plans, commit records.

Later versions read them: fields may be added, and no field changes its meaning without a new `v`.
Pure. This module must not know where the documents are stored.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlm_spark.errors import ConnectorError
from rlm_spark.pipelines.chunks import Chunk, Interval

VERSION = 1
KIND = "kafka-rlm export"
PARTITIONINGS = ("day", "hour")
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


class ExportError(ConnectorError):
    """An export that cannot continue; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Properties of a target that its first export sets: rows, columns and folders."""

    partition_by: str = "day"
    headers: bool = False
    read_committed: bool = True

    def encode(self) -> bytes:
        return _encode({"v": VERSION, "kind": KIND, **asdict(self)})

    @classmethod
    def decode(cls, data: bytes, place: str) -> "Shape":
        """ExportError names `place` where it is not ours or of an unknown version."""
        fields = _decode(data, place)
        if fields.get("kind") != KIND:
            raise ExportError(f"{place} is not an export's")
        try:
            return cls(
                partition_by=str(fields["partition_by"]),
                headers=bool(fields["headers"]),
                read_committed=bool(fields["read_committed"]),
            )
        except KeyError as error:
            raise ExportError(f"{place} has no {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """One Parquet file: its name in the attempt's folder, and the one that readers see."""

    attempt_name: str
    target_name: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A chunk's outcome: the one attempt that counts, and its files. The redo log of renames."""

    chunk: str
    attempt: str
    files: tuple[OutputFile, ...]
    lost: tuple[Interval, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def encode(self) -> bytes:
        return _encode({"v": VERSION, "kind": "commit", **asdict(self)})

    @classmethod
    def decode(cls, data: bytes, place: str) -> "Commit":
        """ExportError names `place` where it cannot be used."""
        fields = _decode(data, place)
        try:
            return cls(
                chunk=fields["chunk"],
                attempt=fields["attempt"],
                files=tuple(OutputFile(**row) for row in fields["files"]),
                lost=tuple((start, end) for start, end in fields["lost"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ExportError(f"{place} cannot be used: {error}") from error


def encode_plan(chunks: Iterable[Chunk]) -> bytes:
    """Topics with their ids, and the chunks in the order of their numbers."""
    rows = list(chunks)
    topics = {chunk.topic: chunk.topic_id for chunk in rows}
    return _encode(
        {
            "v": VERSION,
            "kind": "plan",
            "topics": topics,
            "chunks": [
                [c.topic, c.partition, c.start_offset, c.end_offset, int(c.from_earliest)]
                for c in rows
            ],
        }
    )


def decode_plan(data: bytes, number: int, place: str) -> tuple[Chunk, ...]:
    """The chunks; ExportError names `place` where it cannot be used."""
    fields = _decode(data, place)
    try:
        return tuple(
            Chunk(
                plan=number,
                number=index,
                topic=topic,
                topic_id=fields["topics"][topic],
                partition=partition,
                start_offset=start,
                end_offset=end,
                from_earliest=bool(from_earliest),
            )
            for index, (topic, partition, start, end, from_earliest) in enumerate(fields["chunks"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(f"{place} cannot be used: {error}") from error


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _decode(data: bytes, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise ExportError(f"{place} is no JSON: {error}") from error
    if not isinstance(fields, dict) or fields.get("v") != VERSION:
        raise ExportError(f"{place} is of a version that this software does not know")
    return fields

"""The chunks of an export: which offsets are left to export, and the JSON documents about them.

A chunk is planned once and never changes: every attempt in every run reads the same offsets and
writes files of the same names. Plans and commit records are documents in the target, beside the
target's format. Later versions read them: fields may be added, and no field changes its meaning
without a new `v`. Pure. This module must not know files or Spark.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tiered_reads.errors import ConnectorError
from tiered_reads.values import OffsetRange, TopicPartition

Interval = tuple[int, int]
"""Offsets [start, end)."""
_CHUNKS_A_WORKER = 3
_LEAST_RECORDS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Offsets [start_offset, end_offset) of one partition: what one task exports.

    `topic_id` is None if it is unknown. (`plan`, `number`) is unique within
    a target. `from_earliest`: offsets that are gone at its start are no loss.
    """

    plan: int
    number: int
    topic: str
    topic_id: str | None
    partition: int
    start_offset: int
    end_offset: int
    from_earliest: bool = False

    @property
    def name(self) -> str:
        return f"{self.plan:06d}-{self.number:06d}"

    @property
    def wanted(self) -> OffsetRange:
        topic_partition = TopicPartition(self.topic, self.partition)
        return OffsetRange(
            topic_partition=topic_partition,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
        )

    @property
    def size(self) -> int:
        """Offsets; records may be fewer."""
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets {self.start_offset} to {self.end_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets [start_offset, end_offset) that are requested of a partition.

    `from_earliest`: it begins where the partition began when it was planned, so offsets that
    retention deletes at its start meanwhile are no loss.
    """

    start_offset: int
    end_offset: int
    from_earliest: bool = False

    @property
    def interval(self) -> Interval:
        return self.start_offset, self.end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSize:
    """The most that one chunk spans: records, and stored bytes where their density is known."""

    records: int = 5_000_000
    stored_bytes: int = 256 << 20

    def shared(self, total_offsets: int, workers: int) -> "ChunkSize":
        """A size that gives each of `workers` workers some chunks, but not tiny files."""
        fair = max(-(-total_offsets // (_CHUNKS_A_WORKER * max(workers, 1))), _LEAST_RECORDS)
        return replace(self, records=min(self.records, fair))

    def offsets(self, bytes_per_offset: float | None) -> int:
        """How many offsets; at least one."""
        if not bytes_per_offset or bytes_per_offset <= 0:
            return max(self.records, 1)
        return max(min(self.records, int(self.stored_bytes / bytes_per_offset)), 1)


def covered(chunks: Iterable[Chunk]) -> dict[TopicPartition, tuple[Interval, ...]]:
    """The planned offsets by partition: disjoint, ascending, adjacent intervals joined."""
    found: dict[TopicPartition, list[Interval]] = {}
    for chunk in chunks:
        topic_partition = TopicPartition(chunk.topic, chunk.partition)
        found.setdefault(topic_partition, []).append((chunk.start_offset, chunk.end_offset))
    return {
        topic_partition: tuple(_joined(intervals)) for topic_partition, intervals in found.items()
    }


def _joined(intervals: Iterable[Interval]) -> Iterator[Interval]:
    start = end = -1
    for next_start, next_end in sorted(intervals):
        if next_start > end:
            if end > start:
                yield start, end
            start = next_start
        end = max(end, next_end)
    if end > start:
        yield start, end


def without(wanted: Interval, taken: Sequence[Interval]) -> list[Interval]:
    """The parts of `wanted` that are in none of `taken` (disjoint, ascending)."""
    start, end = wanted
    left: list[Interval] = []
    for taken_start, taken_end in taken:
        if start >= end:
            break
        if taken_start > start:
            left.append((start, min(taken_start, end)))
        start = max(start, taken_end)
    if start < end:
        left.append((start, end))
    return [(first, last) for first, last in left if first < last]


def cut(interval: Interval, most: int) -> Iterator[Interval]:
    """Even parts of at most `most` offsets."""
    start, end = interval
    parts = -(-(end - start) // most)
    bounds = [start + (end - start) * part // parts for part in range(parts + 1)]
    yield from itertools.pairwise(bounds)


def new_chunks(
    plan: int,
    wanted: Mapping[TopicPartition, Span],
    taken: Mapping[TopicPartition, Sequence[Interval]],
    *,
    topic_ids: Mapping[str, str | None],
    size: ChunkSize,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> tuple[Chunk, ...]:
    """The requested offsets that are not taken, in chunks: round-robin over partitions."""
    queues = [
        [
            (topic_partition, part)
            for interval in without(
                wanted[topic_partition].interval, taken.get(topic_partition, ())
            )
            for part in cut(interval, size.offsets(bytes_per_offset.get(topic_partition)))
        ]
        for topic_partition in sorted(wanted)
    ]
    return tuple(
        Chunk(
            plan=plan,
            number=number,
            topic=topic_partition.topic,
            topic_id=topic_ids.get(topic_partition.topic),
            partition=topic_partition.partition,
            start_offset=start,
            end_offset=end,
            from_earliest=wanted[topic_partition].from_earliest
            and start == wanted[topic_partition].start_offset,
        )
        for number, (topic_partition, (start, end)) in enumerate(_round_robin(queues))
    )


def _round_robin(
    queues: Sequence[Sequence[tuple[TopicPartition, Interval]]],
) -> Iterator[tuple[TopicPartition, Interval]]:
    longest = max(map(len, queues), default=0)
    for index in range(longest):
        for queue in queues:
            if index < len(queue):
                yield queue[index]


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
    def decode(cls, data: bytes, path: str) -> "Shape":
        """ExportError names `path` where it is not ours or of an unknown version."""
        fields = _decode(data, path)
        if fields.get("kind") != KIND:
            raise ExportError(f"{path} is not an export's")
        try:
            return cls(
                partition_by=str(fields["partition_by"]),
                headers=bool(fields["headers"]),
                read_committed=bool(fields["read_committed"]),
            )
        except KeyError as error:
            raise ExportError(f"{path} has no {error}") from error


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
    def decode(cls, data: bytes, path: str) -> "Commit":
        """ExportError names `path` where it cannot be used."""
        fields = _decode(data, path)
        try:
            return cls(
                chunk=fields["chunk"],
                attempt=fields["attempt"],
                files=tuple(OutputFile(**row) for row in fields["files"]),
                lost=tuple((start, end) for start, end in fields["lost"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ExportError(f"{path} cannot be used: {error}") from error


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


def decode_plan(data: bytes, number: int, path: str) -> tuple[Chunk, ...]:
    """The chunks; ExportError names `path` where it cannot be used."""
    fields = _decode(data, path)
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
        raise ExportError(f"{path} cannot be used: {error}") from error


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _decode(data: bytes, path: str) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise ExportError(f"{path} is not JSON: {error}") from error
    if not isinstance(fields, dict) or fields.get("v") != VERSION:
        raise ExportError(f"{path} is of a version that this software does not know")
    return fields

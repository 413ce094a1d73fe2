"""A topic in memory, a target on disk, and an export of the one to the other without Spark."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.dataset as ds

from rlm_spark.decode import arrow_schema
from rlm_spark.pipelines.chunk_task import Layout, export_chunk
from rlm_spark.pipelines.chunks import Chunk, ChunkSize, Shape
from rlm_spark.pipelines.durable import Files, LocalFiles
from rlm_spark.pipelines.export_plan import TopicDetails, prepare
from rlm_spark.pipelines.target import Book
from rlm_spark.plan.options import BatchQuery, parse_batch
from tiered_reads.values import DataLoss, OffsetRange, TopicPartition

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType")
SCHEMA = arrow_schema(COLUMNS)
DAY_MS = 86_400_000
Row = tuple[str, int, int]


@dataclass
class Topics:
    """Records by partition: the timestamp (ms) of each offset; also `Positions`, and a reader."""

    records: dict[TopicPartition, list[int]]
    earliest_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    reads: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def topics(self, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
        there = sorted({topic_partition.topic for topic_partition in self.records})
        return {
            topic: tuple(sorted(p.partition for p in self.records if p.topic == topic))
            for topic in there
            if names is None or topic in names
        }

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {
            topic_partition: self.earliest_offsets.get(topic_partition, 0)
            for topic_partition in topic_partitions
        }

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {
            topic_partition: len(self.records[topic_partition])
            for topic_partition in topic_partitions
        }

    def for_timestamps(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        return {
            topic_partition: next(
                (at for at, ms in enumerate(self.records[topic_partition]) if ms >= wanted), None
            )
            for topic_partition, wanted in timestamps_ms.items()
        }

    def read(
        self, wanted: OffsetRange, on_loss: Callable[[DataLoss], None]
    ) -> Iterator[pa.RecordBatch]:
        """Three records a batch."""
        self.reads += 1
        start = max(wanted.start_offset, self.earliest_offsets.get(wanted.topic_partition, 0))
        if start > wanted.start_offset:
            on_loss(
                DataLoss(
                    topic_partition=wanted.topic_partition,
                    start_offset=wanted.start_offset,
                    end_offset=min(start, wanted.end_offset),
                    reason="gone",
                )
            )
        for first in range(start, wanted.end_offset, 3):
            yield self._batch(
                wanted.topic_partition, range(first, min(first + 3, wanted.end_offset))
            )

    def _batch(self, topic_partition: TopicPartition, offsets: range) -> pa.RecordBatch:
        stamps = [self.records[topic_partition][offset] for offset in offsets]
        rows = {
            "key": [b"k%d" % offset for offset in offsets],
            "value": [None if offset % 5 == 0 else b"v%d" % offset for offset in offsets],
            "partition": [topic_partition.partition] * len(offsets),
            "offset": list(offsets),
            "timestamp": [stamp * 1000 for stamp in stamps],
            "timestampType": [0] * len(offsets),
        }
        return pa.RecordBatch.from_arrays(
            [pa.array(rows[name], SCHEMA.field(name).type) for name in COLUMNS], schema=SCHEMA
        )

    def rows(self) -> list[Row]:
        """All there ever were."""
        return sorted(
            (topic_partition.topic, topic_partition.partition, offset)
            for topic_partition, stamps in self.records.items()
            for offset in range(len(stamps))
        )


@dataclass(frozen=True, kw_only=True)
class Exporter:
    """One way to call it; `run` is what the driver does, chunk by chunk in this thread."""

    topics: Topics
    root: Path
    files: Files = field(default_factory=LocalFiles)
    shape: Shape = field(default_factory=Shape)
    size: ChunkSize = field(default_factory=lambda: ChunkSize(records=4))
    options: Mapping[str, str] = field(default_factory=dict)
    goes_on: bool = True

    @property
    def book(self) -> Book:
        return Book(self.root, self.files)

    def query(self) -> BatchQuery:
        options = {"subscribePattern": ".*", "kafka.bootstrap.servers": "nobody:1"}
        options |= {"readMode": "kafka_only", **self.options}
        return parse_batch(options, user="me", read_text=lambda path: "")

    def prepare(self) -> tuple[Chunk, ...]:
        return prepare(
            self.book,
            self.query(),
            self.topics,
            lambda names: TopicDetails(ids={name: self.topics.ids.get(name) for name in names}),
            goes_on=self.goes_on,
            size=self.size,
            workers=1,
        )

    def work(self, chunk: Chunk) -> None:
        export_chunk(
            chunk,
            self.book,
            self.topics.read,
            schema=SCHEMA,
            layout=Layout(partition_by=self.shape.partition_by),
            files=self.files,
        )

    def run(self) -> tuple[Chunk, ...]:
        lock = self.book.open(self.shape)
        try:
            chunks = self.prepare()
            for chunk in chunks:
                self.work(chunk)
            self.book.recover()
            self.book.close_plans()
        finally:
            lock.release()
        return chunks

    def changed(self, **changes: object) -> "Exporter":
        return replace(self, **changes)  # type: ignore[arg-type]  # fields by name


def exported(root: Path) -> list[Row]:
    """The rows that a plain reader of Parquet finds below the directory."""
    if not root.exists():
        return []
    data = ds.dataset(root, format="parquet", partitioning="hive")
    if not data.files:
        return []
    table = data.to_table(columns=["topic", "partition", "offset"])
    return sorted(
        zip(
            map(str, table["topic"].to_pylist()),
            table["partition"].to_pylist(),
            table["offset"].to_pylist(),
            strict=True,
        )
    )


def stray(root: Path) -> list[str]:
    """Parquet files that a reader must not find, and attempts that were left."""
    book = root / "_kafka_rlm_export"
    return [
        str(path.relative_to(root))
        for folder in ("attempts", "trash")
        for path in sorted((book / folder).iterdir())
    ] + [str(path) for path in book.rglob("*.parquet")]

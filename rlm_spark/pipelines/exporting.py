"""`export` on the driver: writes topics to Parquet, each row once over any number of runs.

Python workers decode and write the records; the driver plans, waits and counts.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from kip405.ids import Uuid
from rlm_spark.decode import arrow_schema
from rlm_spark.decoded_ahead import decoded_ahead
from rlm_spark.errors import DataLossError, LossRule
from rlm_spark.pipelines.chunk_task import Layout, export_chunk
from rlm_spark.pipelines.chunks import (
    COMPRESSIONS,
    PARTITIONINGS,
    Chunk,
    ChunkSize,
    Commit,
    ExportError,
    Shape,
)
from rlm_spark.pipelines.durable import LocalFiles
from rlm_spark.pipelines.export_plan import prepare, topic_details
from rlm_spark.pipelines.spans import STARTING_OPTIONS
from rlm_spark.pipelines.spark_jobs import Done, JobStopped, run_job
from rlm_spark.pipelines.target import Book
from rlm_spark.plan.option_map import OptionMap
from rlm_spark.plan.options import BatchQuery, includes_headers, parse_batch
from rlm_spark.plan.positions import open_positions
from rlm_spark.source.driver import read_text, user
from tiered_reads import clock
from tiered_reads.errors import DecodeError, TopicChangedError
from tiered_reads.range_reader import read_range
from tiered_reads.values import ConnectorOptions, DataLoss, OffsetRange

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType")
"""Columns of the files, with `headers` where asked for; topic, date and hour are folders."""

# Errors that every attempt would repeat and that concern one chunk alone: other chunks continue.
_OF_THE_CHUNK = (DataLossError, DecodeError, ExportError, TopicChangedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOutcome:
    """The outcome of one chunk. `problem`: why it is not exported, empty if it is."""

    rows: int = 0
    size_bytes: int = 0
    weight: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The result of one run: of `chunks` those in `commits` are exported; a later run exports the
    others. `problems`: why single chunks are not exported.
    """

    directory: str
    chunks: tuple[Chunk, ...]
    commits: tuple[Commit, ...]
    problems: tuple[str, ...]
    is_stopped: bool
    duration_ms: int

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.commits)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.commits)

    @property
    def files(self) -> int:
        return sum(len(one.files) for one in self.commits)

    @property
    def left(self) -> int:
        return len(self.chunks) - len(self.commits)

    @property
    def lost(self) -> tuple[str, ...]:
        """Requested ranges of offsets that no longer exist."""
        by_name = {chunk.name: chunk for chunk in self.chunks}
        return tuple(
            f"{by_name[one.chunk].wanted.topic_partition} offsets {start} to {end}"
            for one in self.commits
            for start, end in one.lost
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "directory": self.directory,
            "chunks": len(self.commits),
            "chunks_left": self.left,
            "rows": self.rows,
            "files": self.files,
            "size_bytes": self.size_bytes,
            "duration_ms": self.duration_ms,
            "stopped": self.is_stopped,
            "problems": list(self.problems),
            "lost": list(self.lost),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWork:
    """One chunk in a worker."""

    root: str
    connector: ConnectorOptions
    columns: tuple[str, ...]
    layout: Layout

    def __call__(self, chunk: Chunk) -> ChunkOutcome:
        files = LocalFiles()
        schema = arrow_schema(self.columns)
        read = _Read(self.connector, schema, chunk)
        try:
            commit = export_chunk(
                chunk,
                Book(Path(self.root), files),
                read,
                schema=schema,
                layout=self.layout,
                files=files,
            )
        except _OF_THE_CHUNK as error:
            return ChunkOutcome(weight=chunk.size, problem=str(error))
        return ChunkOutcome(rows=commit.rows, size_bytes=commit.size_bytes, weight=chunk.size)


class _Read:
    """The records of a range by the query's read mode and loss rule (chunk_task.Read)."""

    def __init__(self, connector: ConnectorOptions, schema: pa.Schema, chunk: Chunk) -> None:
        self._connector = connector
        self._schema = schema
        self._topic_id = Uuid.parse(chunk.topic_id).raw if chunk.topic_id else None
        self._from_earliest = chunk.from_earliest
        self._rule = LossRule(fail=connector.fail_on_data_loss)

    def __call__(
        self, wanted: OffsetRange, on_loss: Callable[[DataLoss], None]
    ) -> Iterator[pa.RecordBatch]:
        def met(loss: DataLoss) -> None:
            is_at_start = self._from_earliest and loss.start_offset <= wanted.start_offset
            if not (is_at_start and loss.resumes_at is not None):
                self._rule.met(loss)
            on_loss(loss)

        connector, topic_id = self._connector, self._topic_id
        return decoded_ahead(
            lambda stop: read_range(connector, wanted, met, topic_id=topic_id, stopped_by=stop),
            wanted,
            self._schema,
            read_committed=connector.read_committed,
        )


def export(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    to: str,
    partition_by: str = "day",
    compression: str = "zstd",
    size: ChunkSize | None = None,
    show: Callable[[tuple[Chunk, ...], Done], None] | None = None,
    stop: threading.Event | None = None,
) -> ExportReport:
    """Append new records of the topics to the Parquet files in the directory `to`.

    `options` are those of the data source: topics, start and end. Without a starting option the
    export starts where the previous one ended. Isolation is read_committed unless the options say
    otherwise. `to` must be the same directory for the driver and all workers. `show` is called with
    the progress; `stop` ends the run, and finished chunks stay. Errors: ConnectorError and its
    kinds. Problems with single chunks are in the report, and a later run tries those chunks again.
    """
    given = OptionMap(options)
    query = parse_batch(
        {"kafka.isolation.level": "read_committed", **dict(given.items())},
        user=user(),
        read_text=read_text,
    )
    layout = _layout(partition_by, compression)
    headers = includes_headers(options)
    root = local_path(to)
    book = Book(root, LocalFiles())
    begun_ms = clock.monotonic_ms()
    shape = Shape(
        partition_by=partition_by, headers=headers, read_committed=query.connector.read_committed
    )
    with _locked(book, shape):
        goes_on = not any(name in given for name in STARTING_OPTIONS)
        workers = spark.sparkContext.defaultParallelism
        chunks = _prepared(book, query, goes_on=goes_on, size=size or ChunkSize(), workers=workers)
        work = ExportWork(
            root=str(root),
            connector=query.connector,
            columns=(*COLUMNS, "headers") if headers else COLUMNS,
            layout=layout,
        )
        outcomes, is_stopped = _worked(
            spark,
            work,
            chunks,
            lambda now: None if show is None else show(chunks, _with_flying(now, book)),
            stop or threading.Event(),
        )
        if not is_stopped:
            book.recover()
            book.close_plans()
        commits = [commit for chunk in chunks if (commit := book.commit_of(chunk)) is not None]
    problems = tuple(one.problem for one in outcomes if one.problem)
    _check_shared(root, len(outcomes) - len(problems), len(commits))
    return ExportReport(
        directory=str(root),
        chunks=chunks,
        commits=tuple(commits),
        problems=problems,
        is_stopped=is_stopped,
        duration_ms=clock.monotonic_ms() - begun_ms,
    )


def local_path(to: str) -> Path:
    """A directory as a path; ExportError for stores without atomic rename and exclusive link."""
    scheme, colon, rest = to.partition(":")
    if colon and scheme == "file":
        path = "/" + rest.lstrip("/")
    elif colon and "/" not in scheme and rest.startswith("//"):
        raise ExportError(
            f"{to}: exports to {scheme}:// are not there yet; give a directory of a local or "
            "mounted file system that the driver and all workers see alike"
        )
    else:
        path = to
    return Path(path).expanduser().absolute()


def _layout(partition_by: str, compression: str) -> Layout:
    if partition_by not in PARTITIONINGS:
        raise ExportError(f"partition_by must be one of {', '.join(PARTITIONINGS)}")
    if compression not in COMPRESSIONS:
        raise ExportError(f"compression must be one of {', '.join(COMPRESSIONS)}")
    return Layout(partition_by=partition_by, compression=compression)


@contextmanager
def _locked(book: Book, shape: Shape) -> Iterator[None]:
    lock = book.open(shape)
    try:
        yield
    finally:
        lock.release()


def _prepared(
    book: Book, query: BatchQuery, *, goes_on: bool, size: ChunkSize, workers: int
) -> tuple[Chunk, ...]:
    with open_positions(query.connector) as positions:
        return prepare(
            book,
            query,
            positions,
            lambda topics: topic_details(query.connector, topics),
            goes_on=goes_on,
            size=size,
            workers=workers,
        )


def _worked(
    spark: SparkSession,
    work: ExportWork,
    chunks: tuple[Chunk, ...],
    show: Callable[[Done], None],
    stop: threading.Event,
) -> tuple[list[ChunkOutcome], bool]:
    try:
        outcomes = run_job(spark, work, chunks, name="kafka-rlm export", show=show, stop=stop)
    except JobStopped:
        return [], True
    return outcomes, False


def _with_flying(now: Done, book: Book) -> Done:
    """Progress with the bytes of unfinished chunks, because large ones take long."""
    return replace(now, size_bytes=now.size_bytes + book.in_flight_bytes())


def _check_shared(root: Path, exported: int, seen: int) -> None:
    if exported > seen:
        raise ExportError(
            f"workers exported {exported} chunks, {seen} of them are in {root} as this driver sees "
            "it: it must be one directory for all of them, on a shared file system"
        )

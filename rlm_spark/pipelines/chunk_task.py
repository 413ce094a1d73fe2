"""Exports one chunk in a worker: reads its records, writes Parquet files, commits them.

There is a file for each day or hour. Rows are buffered until a row group is full, or until all
buffered rows exceed the limit. The number of open files is bounded too: rows for a file that was
closed go to another file. Two attempts may safely run at once. This module must not know Spark or
where the records come from.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rlm_spark.pipelines.buckets import folder_of, split
from rlm_spark.pipelines.chunks import Chunk, Commit, ExportError, Interval, OutputFile
from rlm_spark.pipelines.durable import Files
from rlm_spark.pipelines.target import Book
from tiered_reads.values import DataLoss, OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How files are written; sizes are bytes in memory, before compression."""

    partition_by: str = "day"
    compression: str = "zstd"
    row_group_bytes: int = 64 << 20
    waiting_bytes: int = 128 << 20
    open_files: int = 16


class ChunkFiles:
    """Takes the batches of one chunk in order; then `finish`, or `abandon` after an error."""

    def __init__(
        self, chunk: Chunk, folder: Path, schema: pa.Schema, layout: Layout, files: Files
    ) -> None:
        self._chunk = chunk
        self._folder = folder
        self._schema = schema
        self._layout = layout
        self._files = files
        self._open: OrderedDict[int, _OneFile] = OrderedDict()
        self._made: list[OutputFile] = []
        self._rows = 0
        self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Some of the chunk's rows."""
        self._rows += batch.num_rows
        for bucket, rows in split(batch, self._layout.partition_by):
            file = self._file_for(bucket)
            self._waiting_bytes += file.add(rows)
            if file.waiting_bytes >= self._layout.row_group_bytes:
                self._waiting_bytes -= file.flush()
        while self._waiting_bytes > self._layout.waiting_bytes:
            fullest = max(self._open.values(), key=lambda file: file.waiting_bytes)
            self._waiting_bytes -= fullest.flush()

    def finish(self) -> tuple[OutputFile, ...]:
        """Write everything to the disk and count it again; ExportError where rows are missing."""
        while self._open:
            self._close(next(iter(self._open)))
        rows = sum(file.rows for file in self._made)
        if rows != self._rows:
            raise ExportError(f"{self._chunk}: {self._rows} rows were written, {rows} are there")
        self._files.sync_dir(self._folder)
        return tuple(self._made)

    def abandon(self) -> None:
        """Close the open files, which stay as they are."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()

    def _file_for(self, bucket: int) -> "_OneFile":
        if bucket in self._open:
            self._open.move_to_end(bucket)
            return self._open[bucket]
        if len(self._open) >= self._layout.open_files:
            self._close(next(iter(self._open)))
        number = len(self._made) + len(self._open)
        path = self._folder / f"{number:06d}.part"
        file = _OneFile(path, self._files.create(path), self._schema, self._layout)
        self._open[bucket] = file
        return file

    def _close(self, bucket: int) -> None:
        file = self._open.pop(bucket)
        self._waiting_bytes -= file.waiting_bytes
        rows, size_bytes = file.close(self._files)
        folder = folder_of(self._chunk.topic, bucket, self._layout.partition_by)
        self._made.append(
            OutputFile(
                attempt_name=file.path.name,
                target_name=f"{folder}/{self._name(folder)}",
                rows=rows,
                size_bytes=size_bytes,
            )
        )

    def _name(self, folder: str) -> str:
        """A name made of offsets: the same for every attempt, and different for other chunks. A
        number is added where a folder has several.
        """
        chunk = self._chunk
        before = sum(file.target_name.startswith(f"{folder}/") for file in self._made)
        again = f"-{before}" if before else ""
        return (
            f"part-{chunk.partition:05d}-{chunk.start_offset:020d}-{chunk.end_offset:020d}"
            f"{again}.parquet"
        )


@dataclass(slots=True)
class _OneFile:
    path: Path
    file: BinaryIO
    schema: pa.Schema
    layout: Layout
    waiting_bytes: int = 0
    rows: int = 0
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _writer: pq.ParquetWriter = field(init=False)

    def __post_init__(self) -> None:
        compression = self.layout.compression
        self._writer = pq.ParquetWriter(
            self.file,
            self.schema,
            compression="NONE" if compression == "none" else compression,
            use_dictionary=["partition", "timestampType"],
            column_encoding=dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED"),
            write_statistics=["partition", "offset", "timestamp", "timestampType"],
            write_page_checksum=True,
        )

    def add(self, rows: pa.RecordBatch) -> int:
        """Buffer rows; returns their bytes."""
        size = int(rows.nbytes)
        self._waiting.append(rows)
        self.waiting_bytes += size
        self.rows += rows.num_rows
        return size

    def flush(self) -> int:
        """Write the buffered rows as one row group; returns their bytes."""
        size, self.waiting_bytes = self.waiting_bytes, 0
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self.schema)
            self._waiting = []
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        return size

    def close(self, files: Files) -> tuple[int, int]:
        """(rows, bytes) as the finished file has them."""
        with self.file:
            self.flush()
            self._writer.close()
            files.sync(self.file)
            size_bytes = self.file.tell()
        return pq.read_metadata(self.path).num_rows, size_bytes

    def abandon(self) -> None:
        with self.file, contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()  # else its destructor writes to a closed file


class Read(Protocol):
    """The records of a range in offset order, each once, as batches of exactly the schema."""

    def __call__(
        self, wanted: OffsetRange, on_loss: Callable[[DataLoss], None]
    ) -> Iterator[pa.RecordBatch]: ...


def export_chunk(
    chunk: Chunk, book: Book, read: Read, *, schema: pa.Schema, layout: Layout, files: Files
) -> Commit:
    """Export the chunk; returns its commit, which may be that of another attempt.

    Readers see the files when this returns. Errors are those of `read`, OSError, ExportError; then
    nothing of this attempt is left.
    """
    commit = book.commit_of(chunk)
    if commit is not None:
        book.publish(commit)
        return commit
    folder = book.begin(chunk)
    lost: list[Interval] = []
    output = ChunkFiles(chunk, folder, schema, layout, files)
    try:
        for batch in read(
            chunk.wanted, lambda loss: lost.append((loss.start_offset, loss.end_offset))
        ):
            output.add(batch)
        made = output.finish()
    except BaseException:
        output.abandon()
        files.remove_tree(folder)
        raise
    return book.commit(
        chunk, Commit(chunk=chunk.name, attempt=folder.name, files=made, lost=tuple(lost))
    )

"""Exports one chunk in a worker: reads, writes, commits. Two attempts may safely run at once.

This module must not know Spark or where the records come from.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa

from rlm_spark.pipelines.chunks import Chunk, Interval
from rlm_spark.pipelines.durable import Files
from rlm_spark.pipelines.parquet_files import ChunkFiles, Layout
from rlm_spark.pipelines.records import Commit
from rlm_spark.pipelines.target import Book
from rlm_spark.values import DataLoss, OffsetRange


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

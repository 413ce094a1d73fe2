"""Logs of batches whose sizes are chosen, and what blocks make of them, for tests."""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kip405.crc import crc32c
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import FileSlice, LogSegmentData, SegmentLocator
from rsm_plugins.blocks.index import BlocksIndex, build_index, parse_index
from rsm_plugins.blocks.plan import BlocksPlan
from rsm_plugins.blocks.source import data_pieces, plan_of

INDEXES = b"the indexes object"
FIRST_OFFSET = 100


def batch_of(offset: int, size_bytes: int, seed: int = 0) -> bytes:
    """A batch as far as blocks read it: its offset, its length, and any bytes."""
    body = random.Random(seed * 1_000_003 + offset).randbytes(size_bytes - 12)
    return struct.pack(">qi", offset, size_bytes - 12) + body


def log_of(sizes: Sequence[int], *, step: int = 3) -> bytes:
    """Batches of these sizes; between their offsets lie `step`, as if they had so many records."""
    return b"".join(batch_of(FIRST_OFFSET + index * step, size) for index, size in enumerate(sizes))


LOCATOR = SegmentLocator(
    cluster_id="cluster",
    segment_id=RemoteLogSegmentId(
        topic_id_partition=TopicIdPartition(
            topic_id=Uuid(bytes(range(16))), topic="orders", partition=3
        ),
        id=Uuid(bytes(range(16, 32))),
    ),
    start_offset=FIRST_OFFSET,
    custom_metadata=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A log and both objects made of it."""

    log: bytes
    data: bytes
    index_bytes: bytes
    plan: BlocksPlan
    source: LogSegmentData

    @property
    def index(self) -> BlocksIndex:
        return parse_index(self.index_bytes)


def source_of(log: bytes, path: Path) -> LogSegmentData:
    """The log in the middle of a file."""
    path.write_bytes(b"before" + log + b"after")
    return LogSegmentData(
        log=FileSlice(path=str(path), position=6, size_bytes=len(log)),
        log_crc32c=crc32c(log),
        indexes=INDEXES,
        indexes_crc32c=crc32c(INDEXES),
        end_offset=9_999,
    )


def stored(log: bytes, block_size_bytes: int, path: Path) -> Stored:
    """What is stored of a log."""
    source = source_of(log, path)
    plan = plan_of(source, block_size_bytes)
    return Stored(
        log=log,
        data=b"".join(data_pieces(plan, source)),
        index_bytes=build_index(plan, LOCATOR, source),
        plan=plan,
        source=source,
    )

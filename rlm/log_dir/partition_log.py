"""The content of one partition directory, as values. Pure; the scanner reads the files.

A segment is closed when a later .log exists. The producer snapshot at that later base offset
belongs to its copy. Kafka writes the snapshot a moment after the new .log, but it may be missing
permanently: if the log is older than snapshots at every roll, or after files were lost. This module
must not know about brokers or the ledger. Sources: LocalLog.roll and LogFileUtils of Kafka.
"""

import enum
import os
from dataclasses import dataclass

from kip405.ids import Uuid
from kip405.lineage import Lineage


class Closed(enum.Enum):
    """How far a segment is from being closed."""

    ACTIVE = "active"
    SNAPSHOT_MISSING = "snapshot missing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSegment:
    """One .log file; `next_offset` is the base offset of the following one, None for the active
    segment.

    `max_timestamp_ms` is the last entry of the time index, or the file's mtime where it has none
    (as Kafka does). `indexes_size_bytes` is .index, .timeindex and .txnindex together, read only
    for a closed segment of 0 bytes; None = not read, or one of them is missing.
    """

    base_offset: int
    next_offset: int | None
    closed: Closed
    size_bytes: int
    inode: int
    path: str
    max_timestamp_ms: int
    indexes_size_bytes: int | None = None

    @property
    def is_closed(self) -> bool:
        """Whether a later segment follows, its producer snapshot or not."""
        return self.closed is not Closed.ACTIVE

    def sibling(self, suffix: str) -> str:
        """Path of the file of the same base with another suffix (".index", ".txnindex", ...)."""
        return self.path.removesuffix(".log") + suffix

    @property
    def snapshot_path(self) -> str:
        """Producer state at the segment's end: the file Kafka uploads with it."""
        if self.next_offset is None:
            raise ValueError(f"the active segment {self.path} has no snapshot")
        return os.path.join(os.path.dirname(self.path), f"{self.next_offset:020d}.snapshot")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLog:
    """One partition directory as it was during one scan.

    `topic_id` is None while partition.metadata is not written yet. `recovery_point` is the offset
    below which everything is flushed to disk, `cleaned_up_to` the offset below which the log
    cleaner has worked; None where the checkpoint of the log directory does not say.
    """

    topic: str
    partition: int
    topic_id: Uuid | None
    directory: str
    segments: tuple[LocalSegment, ...]
    lineage: Lineage
    recovery_point: int | None
    cleaned_up_to: int | None = None

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

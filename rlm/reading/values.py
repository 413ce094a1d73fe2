"""Values of the read path: limits in bytes (G10), counts, and what reads ask and return.

The metrics `rlm_read_*` are these counts.
"""

from dataclasses import dataclass

from kip405.ids import Uuid
from rlm.spans import NO_SPAN, SpanReference

_INDEX_SHARE = 8
_RANGES_IN_MEMORY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """`memory_bytes` bounds what is kept, in flight and referred to by answers, indexes included.

    `range_bytes` is the largest GET, `window_bytes` the most that is read ahead for one reader,
    `ranges_at_once` and `indexes_at_once` the GETs in flight, `most_waiting` the reads that may
    wait for a slot (one more gets Busy). `first_bytes` is what the first read of an unknown reader
    waits for: it is small, so that the first record arrives soon. `index_objects_bytes` is what
    parsed indexes take beside their bytes, which is most of their memory when segments are small.
    """

    memory_bytes: int
    range_bytes: int = 16 << 20
    window_bytes: int = 64 << 20
    ranges_at_once: int = 64
    indexes_at_once: int = 16
    most_waiting: int = 100
    first_bytes: int = 1 << 20
    start_window_bytes: int = 4 << 20
    reader_idle_ms: int = 10_000
    readers_per_partition: int = 8
    most_readers: int = 1_000
    index_objects_bytes: int = 2 << 10

    @property
    def index_bytes(self) -> int:
        """The part of the memory that indexes may take."""
        return self.memory_bytes // _INDEX_SHARE

    @property
    def chunk_bytes(self) -> int:
        """The part of the memory for chunks and everything in flight."""
        return self.memory_bytes - self.index_bytes

    @property
    def one_range_bytes(self) -> int:
        """The most that one range may have where memory is short."""
        return min(self.range_bytes, self.chunk_bytes // _RANGES_IN_MEMORY)

    @property
    def ahead_bytes(self) -> int:
        """The most that is read ahead for all readers together; the rest is for waiting readers."""
        return self.chunk_bytes * 3 // 4


@dataclass(slots=True, kw_only=True)
class ReadCounts:
    """Totals since the start; a chunk counts each time a read wants it."""

    memory_hits: int = 0
    joined: int = 0
    """Chunks wanted that were on their way already, mostly read ahead."""
    misses: int = 0
    disk_hits: int = 0
    ranges: int = 0
    range_bytes: int = 0
    ahead_bytes: int = 0
    indexes: int = 0
    refetches: int = 0
    """Ranges asked for again, past every cache, because of a wrong answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRead:
    """A read of whole stored batches from the remote tier.

    It starts with the batch that holds `offset` (or the next batch, as over a compaction gap). It
    ends before `upper_offset` (exclusive: the minimum of the remote end and the broker's high
    watermark or last stable offset) and near `max_bytes`. If `at_least_one`, the first batch is
    returned even when it is larger.
    """

    topic_id: Uuid
    partition: int
    offset: int
    upper_offset: int
    max_bytes: int
    at_least_one: bool
    read_committed: bool
    parent: SpanReference = NO_SPAN
    """The Fetch that it is traced with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRecords:
    """Whole batches byte for byte; `next_offset` is the first offset after them.

    `aborted` holds (producer id, first offset) and is empty unless read_committed was requested.
    `exhausted` means that the segment holds nothing more below the requested upper offset.
    `missing` holds the half-open ranges that no segment holds, from the requested offset up to
    `next_offset` (without records: up to the upper offset).
    """

    records: tuple[bytes | memoryview, ...]
    size_bytes: int
    next_offset: int
    aborted: tuple[tuple[int, int], ...]
    exhausted: bool = False
    missing: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampedOffset:
    """The first record at or after a timestamp: its offset, its timestamp in ms, its leader epoch
    or -1.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int

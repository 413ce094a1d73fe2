"""What the read path is asked for and what it answers, as plain values."""

from dataclasses import dataclass

from kip405.ids import Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRead:
    """A read of whole stored batches from the remote tier.

    Starts with the batch that holds `offset` (or the next one, as over a compaction gap); ends
    before `upper_offset` (exclusive: min of remote end and the broker's HW or LSO) and near
    `max_bytes`; the first batch is given even when larger if `at_least_one`.
    """

    topic_id: Uuid
    partition: int
    offset: int
    upper_offset: int
    max_bytes: int
    at_least_one: bool
    read_committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRecords:
    """Whole batches byte for byte; `next_offset` is the first offset after them.

    `aborted` holds (producer id, first offset), empty unless read_committed was asked.
    `exhausted` tells that the segment read holds nothing more below the upper offset asked for.
    `missing` holds half-open ranges, from the offset asked for up to `next_offset` (without records
    up to the upper offset), that no segment holds.
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

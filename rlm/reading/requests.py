"""Requests and answers of the read path, as plain values."""

from dataclasses import dataclass

from kip405.ids import Uuid


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

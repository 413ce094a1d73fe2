"""What the proxy may ask of the rest of the service: one narrow Protocol of plain values.

It can become a process border: arguments and answers are values, nothing is shared. The proxy
passes bytes through before the other side is ready; while `ready()` is False every topic counts as
possibly tiered (H17).
"""

from dataclasses import dataclass
from typing import Protocol

from kip405.ids import Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRef:
    """A topic as the client named it: by name (Fetch <= v12) or by id (v13+), exactly one."""

    name: str | None = None
    topic_id: Uuid | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPartition:
    """What is known now of a partition of an enabled (or kept) topic. Offsets; -1 = not known yet.

    `remote_next_offset` is the first offset after the in-lineage remote data; remote data exists
    iff it is above `remote_log_start_offset`. `local_log_start_offset` is the broker's own log
    start as last seen. Below `unsettled_next_offset` a gap in the remote data is no hole yet: an
    unfinished or disputed entry of the ledger may bring records back (H3, H6); -1 = nothing may.
    `empty`: half-open ranges, ascending, that are known to hold no records (H15).
    """

    topic_id: Uuid
    topic: str
    partition: int
    remote_log_start_offset: int
    remote_next_offset: int
    local_log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    led_here: bool
    leader_epoch: int
    frozen: bool
    unsettled_next_offset: int = -1
    empty: tuple[tuple[int, int], ...] = ()


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
class Watermarks:
    """Asked of the broker just now, over the service's own connection."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampedOffset:
    """The first record at or after a timestamp: its offset, its timestamp in ms, its leader epoch
    or -1.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """Answer to OffsetForLeaderEpoch: the epoch found and where it ended (exclusive)."""

    leader_epoch: int
    end_offset: int


class Tier(Protocol):
    """Views are sync and never wait; everything that waits is async and bounded by its deadline.

    Errors: Unavailable and Busy = not ready, try again; NotFound and Corrupt = permanent (H25);
    Fenced = the partition is frozen (H4).
    """

    def ready(self) -> bool:
        """Whether settings and ledger were replayed once, so that None from `partition` means "not
        tiered".
        """
        ...

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        """The view as it stands, None for a topic that is not tiered (or not known yet, see
        `ready`).
        """
        ...

    async def barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        """The view after settings and ledger passed end offsets taken after this call began (H17).

        None = the topic is not tiered, for certain. Unavailable when the deadline (a duration)
        passes first.
        """
        ...

    async def watermarks(self, topic: TopicRef, partition: int, deadline_ms: int) -> Watermarks:
        """HW, LSO and log start from our own broker; works while ledger and store are down."""
        ...

    async def read(self, request: RemoteRead) -> RemoteRecords:
        """Remote batches; the caller bounds the wait by cancelling, the read itself goes on in the
        cache.
        """
        ...

    async def offset_for_timestamp(
        self, topic_id: Uuid, partition: int, timestamp_ms: int
    ) -> TimestampedOffset | None:
        """First remote record at or after the timestamp and the remote log start; None if there is
        none.
        """
        ...

    def epoch_for_offset(self, topic_id: Uuid, partition: int, offset: int) -> int:
        """Leader epoch of an offset by the merged lineage, -1 if not known."""
        ...

    def epoch_end(self, topic_id: Uuid, partition: int, leader_epoch: int) -> EpochEnd | None:
        """Where a leader epoch ended by the merged lineage; None where only the broker can tell."""
        ...

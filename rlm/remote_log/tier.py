"""The Protocol through which the proxy uses the rest of the service; all values are plain.

It could become a process border: arguments and answers are values, nothing is shared. The proxy
passes bytes through before the implementation is ready; while `ready()` is False every topic counts
as possibly tiered (H17).
"""

from dataclasses import dataclass
from typing import Protocol

from kip405.errors import Unavailable
from kip405.ids import Uuid
from rlm.plans.client_history import WindowStart
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset


class ChangedMeanwhile(Unavailable):
    """What was to be read was deleted in order since it was looked up: look it up again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRef:
    """A topic as the client named it: by name (Fetch <= v12) or by id (v13+), exactly one."""

    name: str | None = None
    topic_id: Uuid | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """The offsets of the leader's own log, as the broker answered them at one time."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPartition:
    """The known state of a partition of an enabled (or kept) topic. Offsets; -1 = not known yet.

    `remote_next_offset` is the first offset after the in-lineage remote data; remote data exists
    iff it is above `remote_log_start_offset`. `watermarks` are those of the last snapshot, None =
    there is none yet. Below `unsettled_next_offset` a gap in the remote data is no hole yet: an
    unfinished or disputed entry of the ledger may bring records back (H3, H6); -1 = none may.
    `frozen`: nothing remote may be read now, as histories contradict each other (H4) or the remote
    log start was lost (H2). `empty`: half-open ranges, ascending, that are known to hold no records
    (H15). `window_starts`:
    where each window of `proxy.history` begins, none of them above the broker's log start; empty =
    not known yet.
    """

    topic_id: Uuid
    topic: str
    partition: int
    remote_log_start_offset: int
    remote_next_offset: int
    watermarks: Watermarks | None
    led_here: bool
    leader_epoch: int
    frozen: bool
    unsettled_next_offset: int = -1
    empty: tuple[tuple[int, int], ...] = ()
    window_starts: tuple[WindowStart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """Answer to OffsetForLeaderEpoch: the epoch found and where it ended (exclusive)."""

    leader_epoch: int
    end_offset: int


class Tier(Protocol):
    """Views are synchronous and never wait; all methods that wait are async and bounded by a
    deadline.

    Errors: Unavailable and Busy = not ready, retry; NotFound and Corrupt = permanent (H25); Fenced
    = the partition is frozen (H4).
    """

    def ready(self) -> bool:
        """Whether settings and ledger were replayed once, so that None from `partition` means "not
        tiered".
        """
        ...

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        """The current view, None for a topic that is not tiered (or not known yet, see `ready`)."""
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
        """Remote batches. The caller bounds the wait by cancelling; the cache completes the
        load. ChangedMeanwhile: what was there was deleted in order, during the read or before it.
        """
        ...

    async def offset_for_timestamp(
        self, topic_id: Uuid, partition: int, timestamp_ms: int, start_offset: int = 0
    ) -> TimestampedOffset | None:
        """First remote record at or after the timestamp, `start_offset` and the remote log start;
        None if there is none.
        """
        ...

    def epoch_for_offset(self, topic_id: Uuid, partition: int, offset: int) -> int:
        """Leader epoch of an offset by the merged lineage, -1 if not known."""
        ...

    def epoch_end(self, topic_id: Uuid, partition: int, leader_epoch: int) -> EpochEnd | None:
        """Where a leader epoch ended by the merged lineage; None where only the broker knows it."""
        ...


class Deletions(Protocol):
    """What a client's DeleteRecords needs of the remote tier (H26)."""

    def refusal(self, view: TierPartition) -> str | None:
        """Why nothing of the partition may be deleted now, for the log; None = it may be."""
        ...

    async def raise_start(self, view: TierPartition, offset: int) -> int:
        """Raise the remote log start to an offset below which our broker has deleted under the
        leadership of `view`; returns the start that then holds, once it was read back.

        A caller that is cancelled does not stop it. RemoteStorageError: it may or may not have been
        raised; the same call again finishes it. Fenced: the leadership changed, or deletions were
        stopped meanwhile.
        """
        ...


def has_remote(view: TierPartition) -> bool:
    """Whether there is anything in the remote tier."""
    return 0 <= view.remote_log_start_offset < view.remote_next_offset


def is_remote_offset(view: TierPartition, offset: int) -> bool:
    """Whether an offset lies in the remote tier."""
    return has_remote(view) and (view.remote_log_start_offset <= offset < view.remote_next_offset)


def upper_offset(view: TierPartition, watermarks: Watermarks, *, read_committed: bool) -> int:
    """Exclusive end of what may be served from remote (H4)."""
    limit = watermarks.high_watermark
    if read_committed and watermarks.last_stable_offset >= 0:
        limit = min(limit, watermarks.last_stable_offset)
    return min(view.remote_next_offset, limit)

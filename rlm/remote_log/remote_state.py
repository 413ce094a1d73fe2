"""The state of one partition for readers of the remote tier alone, and what they may not read.

A frozen partition, one whose start is lost, and offsets that an attached reader cannot prove are
refused with an error: leaving them out would look like an end or a hole.
"""

from dataclasses import dataclass

from kip405.errors import Fenced, RemoteStorageError, Unavailable
from kip405.ids import MAX_OFFSET, TopicIdPartition
from rlm.plans.attachment import Doubt
from rlm.remote_log.history import RemoteHistory

DOUBT_REMEDY = (
    "`rlm attach` serves what the segments show with --accept-history, once you have decided that"
)
UNSETTLED_REMEDY = (
    "it is listed again soon, so wait and try again; --accept-history does not change that"
)
_NOTHING = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartitionState:
    """The state of one partition's remote tier at one time. Offsets, half-open.

    `written_start`: the remote log start, None = none was ever written. `history`: the lineage that
    the segments show, with what a leader has published beyond that (H4). `frozen`: why the leader's
    tier refuses the partition. `unread`: why the leader's record cannot be read; only a later
    version can. `settings_version`: the version of the settings that were read. `doubts`: offsets
    that an attached reader does not serve, ascending.
    """

    topic_id_partition: TopicIdPartition
    history: RemoteHistory
    written_start: int | None
    settings_version: int
    frozen: str | None = None
    unread: str | None = None
    doubts: tuple[Doubt, ...] = ()

    def refuse_unreadable(self) -> None:
        """Fenced: the partition is frozen. Unavailable: this version cannot read whether it is, or
        where its remote log starts is lost, and what has ended is not known.
        """
        if self.frozen is not None:
            raise Fenced(f"{self.topic_id_partition} is frozen: {self.frozen}")
        if self.unread is not None:
            why = f"what its leader published cannot be read: {self.unread}"
            raise Unavailable(f"{self.topic_id_partition}: {why}")
        if self.written_start is None:
            raise Unavailable(
                f"{self.topic_id_partition} has no remote log start: the settings have lost it; "
                "`rlm topics adopt-log-start` sets it"
            )

    @property
    def log_start_offset(self) -> int:
        return self.written_start or 0

    @property
    def has_records(self) -> bool:
        return (self.history.next_offset or 0) > self.log_start_offset

    @property
    def next_offset(self) -> int:
        """The remote end; the remote log start if there is nothing above it."""
        return max(self.history.next_offset or 0, self.log_start_offset)

    @property
    def least_end(self) -> int:
        """The remote end as far as it is known: where a doubt hides it, beyond the first offset of
        that, so that who reads up to it meets the doubt, and does not take less for all.
        """
        start, end = self.log_start_offset, self.next_offset
        hidden = (max(one.start, start) + 1 for one in self.doubts if one.next_offset > end)
        return max(end, max(hidden, default=end))

    def certain_end(self, offset: int) -> int:
        """Up to where what follows the offset is certain. As `refusal` where it is not itself."""
        for doubt in self.doubts:
            if doubt.start <= offset < doubt.next_offset:
                raise self.refusal(doubt)
            if doubt.start > offset:
                return doubt.start
        return MAX_OFFSET

    def refuse_doubtful(self, next_offset: int) -> None:
        """As `refusal` where any offset below this one is doubtful."""
        for doubt in self.doubts:
            if doubt.start < next_offset:
                raise self.refusal(doubt)

    def refuse_doubtful_end(self) -> None:
        """As `refusal` where nobody knows what follows the remote end: a reader that goes to the
        end must not take it for all there was.
        """
        for doubt in self.doubts:
            if doubt.next_offset > self.next_offset:
                raise self.refusal(doubt)

    def refusal(self, doubt: Doubt) -> RemoteStorageError:
        """Fenced: an operator has to decide. Unavailable: it will be known later."""
        if doubt.is_unsettled:
            return Unavailable(f"{self.topic_id_partition}: {doubt.text}; {UNSETTLED_REMEDY}")
        return Fenced(f"{self.topic_id_partition}: {doubt.text}; {DOUBT_REMEDY}")

    def epoch_for_offset(self, offset: int) -> int:
        """Leader epoch of an offset, -1 where not known."""
        epoch = self.history.lineage.epoch_for_offset(offset)
        return _NOTHING if epoch is None else epoch

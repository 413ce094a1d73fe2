"""Decides how the remote part of a frozen partition is given up (`rlm partition discard`, H4).
Pure.

The partition goes on from the leader's log alone. Its offsets may begin at 0 again, so nothing that
was copied before may stay, and nothing may be copied while it goes:

    decided --delay--> STARTED -> all segments deleted -> FINISHED -> settled: the remote log start
    is where the log begins, and the partition is frozen no more

The decision is about one log: the one that the operator saw. Where another replica leads, which may
have every record, nothing is deleted. Kafka's leader epochs show which log it is: an epoch has one
leader, so two logs agree where they have the same epoch, and what was appended to the log that the
operator saw is of its leader's epoch or of later ones. While the decision is on record and that log
leads, the partition stays frozen, also where few of its segments are left, or the log has grown
beyond them.
"""

from dataclasses import dataclass
from enum import Enum

from kip405.ids import MAX_OFFSET
from kip405.lineage import Lineage
from kip405.segments import RemoteLogSegmentState, RemotePartitionDeleteState
from rlm.plans.coverage import Cover, OffsetRange, missed
from rlm.plans.freeze import Frozen
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import NO_RECORD_YET, DiscardRecord, TrimRecord

_STARTED = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
_FINISHED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
BEGUN = (_STARTED, _FINISHED)
"""States in which segments may be deleted already."""


class DiscardStep(Enum):
    """What the leader's service does next."""

    WAIT = "wait"
    REFUSE = "refuse"
    BEGIN = "begin"
    DELETE = "delete"
    SETTLE = "settle"


def last_epoch(local: Lineage, *, log_start_offset: int, log_end_offset: int) -> int:
    """The leader epoch of a log's last record, NO_RECORD_YET where it has none."""
    epoch = local.epoch_for_offset(log_end_offset - 1)
    return NO_RECORD_YET if epoch is None or log_end_offset <= log_start_offset else epoch


def is_same_log(record: DiscardRecord, local: Lineage, log_end_offset: int) -> bool:
    """Whether the leader's log is the one that the decision is about, as far as that reached.

    `local`: its epoch file. One that was cut since, from either end, proves nothing.
    """
    if log_end_offset < record.offset:
        return False
    has_last = local.start_of(record.last_epoch) is not None
    later = local.higher(record.last_epoch)
    if record.last_epoch == record.epoch:  # that leader may have appended more
        return has_last and (later is None or later.start_offset >= record.offset)
    # What follows is of that leader or a later one, and begins where the log ended: a replica that
    # had more records of the epoch before has another log.
    begins_there = later is not None and later.start_offset == record.offset
    is_later = later is not None and later.epoch >= record.epoch
    return begins_there and is_later and (has_last or record.last_epoch == NO_RECORD_YET)


def discard_freeze(
    record: DiscardRecord | None,
    deletion_state: RemotePartitionDeleteState | None,
    local: Lineage,
    log_end_offset: int,
) -> Frozen | None:
    """Why a partition of an enabled topic is frozen by a decision of this kind; None = it is not.

    `deletion_state`: of its partition-delete record.
    """
    if record is None:
        return None
    if is_same_log(record, local, log_end_offset):
        return Frozen(reason=f"{record.by} gives up what is remote (`rlm deletions list`)")
    if deletion_state not in BEGUN:
        return None
    return Frozen(
        reason=f"a part of what is remote may be deleted, as {record.by} gave it up for another "
        "log than the present leader's; `rlm deletions undo` keeps the rest"
    )


def both(one: Frozen | None, other: Frozen | None) -> Frozen | None:
    """Two reasons as one."""
    if one is None or other is None:
        return one or other
    return Frozen(reason=f"{one.reason}; {other.reason}", orphans=one.orphans)


def next_step(
    record: DiscardRecord | None,
    deletion_state: RemotePartitionDeleteState | None,
    *,
    same_log: bool,
    age_ms: int,
) -> DiscardStep | None:
    """What is due for a partition of an enabled topic; None = nothing was decided.

    `same_log`: by `is_same_log`. `age_ms`: how long ago it was certainly decided.
    """
    if record is None:
        return None
    if age_ms < record.delay_ms:
        return DiscardStep.WAIT
    if deletion_state is _FINISHED:
        return DiscardStep.SETTLE  # whoever leads: nothing is left to be deleted
    if not same_log:
        return DiscardStep.REFUSE
    return DiscardStep.DELETE if deletion_state is _STARTED else DiscardStep.BEGIN


def has_newer_copies(record: DiscardRecord, ledger: PartitionLedger) -> bool:
    """Whether a later leader than the decision's has copied something, as one with another log that
    led for a while: what the operator gave up does not include that. Once a partition-delete record
    is there, nothing is added any more.
    """
    copies = ledger.in_state(
        RemoteLogSegmentState.COPY_SEGMENT_STARTED, RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    )
    return any(one.leader_epoch > record.epoch for one in copies)


def has_foreign_trim(record: DiscardRecord, trim: TrimRecord | None, local: Lineage) -> bool:
    """Whether a later leader with another log has trimmed it, as its records were remote too: by
    now they may be there alone, which the operator could not know.
    """
    if trim is None or trim.planned_epoch <= record.epoch:
        return False
    return local.start_of(trim.planned_epoch) is None


def start_alone(
    local: Lineage, *, log_start_offset: int, remote_log_start_offset: int, decided_epoch: int
) -> int:
    """Where the remote log starts once nothing but the leader's log is left.

    What a decision has ended (retention, a user) stays ended where the log still has it: records of
    the epoch of that decision and of older ones. Later ones below that start are in a log that
    began again: no decision has ended them. `decided_epoch` -1 = unknown, so every record is later.
    """
    later = local.higher(decided_epoch)
    ended = remote_log_start_offset
    if later is not None:
        ended = min(ended, later.start_offset)
    return max(log_start_offset, ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePart:
    """What a discard deletes. `records`: offsets of finished segments, of whatever history, each
    counted once. `oldest_ms`, `newest_ms`: of the segments' newest timestamps; -1 = there is none.
    """

    segments: int
    records: int
    size_bytes: int
    oldest_ms: int
    newest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPart:
    """What a discard deletes of the leader's own history. `only_remote_records`: offsets above the
    remote log start that the leader's log does not have; afterwards no tier has them.
    """

    segments: int
    size_bytes: int
    only_remote_records: int


def own_part(
    ledger: PartitionLedger,
    lineage: Lineage,
    *,
    log_start_offset: int,
    log_end_offset: int,
    remote_log_start_offset: int,
) -> OwnPart:
    """The segments that have anything of it, as the leader's tier would read them."""
    usable = ledger.usable(lineage, MAX_OFFSET, remote_log_start_offset)
    ranges = Cover.of(
        OffsetRange(
            start=max(one.metadata.start_offset, remote_log_start_offset),
            next_offset=one.next_offset,
        )
        for one in usable
    ).ranges
    local = ((log_start_offset, log_end_offset),)
    gone = missed(((one.start, one.next_offset) for one in ranges), local)
    return OwnPart(
        segments=len(usable),
        size_bytes=sum(one.metadata.segment_size_bytes for one in usable),
        only_remote_records=sum(end - start for start, end in gone),
    )


def remote_part(ledger: PartitionLedger) -> RemotePart:
    """All finished segments of a partition."""
    found = [one.metadata for one in ledger.in_state(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)]
    ranges = Cover.of(
        OffsetRange(start=one.start_offset, next_offset=one.next_offset) for one in found
    ).ranges
    times = [one.max_timestamp_ms for one in found if one.max_timestamp_ms >= 0]
    return RemotePart(
        segments=len(found),
        records=sum(one.next_offset - one.start for one in ranges),
        size_bytes=sum(one.segment_size_bytes for one in found),
        oldest_ms=min(times, default=-1),
        newest_ms=max(times, default=-1),
    )

"""Fold of ledger records: the state, what is disputed, and what the leader republishes (H3). Pure.

The newest record of a key is its state, live and in replay alike. This is the only fold that
compaction cannot change, so replay(compact(log)) == replay(log). Legality never decides what the
state is, only what is repaired:

    record read --> newest record of its key, always
                --> lawful?  yes: the key is settled, even if it was disputed before
                             no:  this reader holds the key as disputed, and the leader of the
                                  partition republishes what was lawful

A record is lawful if its writer's leader epoch is not below the newest seen for the partition and
the writer either
  - expected the last lawful state, and the state machine allows the change; or
  - expected exactly the newest record and repairs it: the writer republishes the lawful state, or
    says FINISHED (a correction may bring data back at any time), or has a newer epoch than the
    writer of that record.

Disputes are the knowledge of one live reader: they are no part of the state and are gone after a
restart. A reader that may have missed records through compaction knows less and disputes less: for
keys of which it saw every record it checks everything, for others only the epoch. So whatever the
leader republishes settles the key for all readers, and no reader disputes what a reader with full
knowledge accepts.

This module must not know the store; nothing irreversible may follow from its results alone.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kip405.ids import PartitionKey, Uuid
from kip405.segments import LAWFUL_SEGMENT_CHANGES, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlmm.records import (
    NO_PREVIOUS,
    LaterRecord,
    LedgerKey,
    LedgerRecord,
    PartitionDeleteRecord,
    RecordHeaders,
)

TOMBSTONE_MEMORY_MS = 2 * 24 * 3_600_000
"""Log time for which a deleted key is remembered: twice Kafka's delete.retention.ms."""
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """The newest record of a key is illegal; `lawful` is the state it should have, None = no
    record.
    """

    newest: LedgerRecord
    lawful: LedgerRecord | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What the leader publishes to settle a dispute; metadata None is a tombstone."""

    key: LedgerKey
    metadata: RemoteLogSegmentMetadata | None
    expected_previous: int


@dataclass(slots=True, kw_only=True)
class _KeyKnowledge:
    newest: LedgerRecord
    lawful: LedgerRecord | None
    certain: bool
    """Every record of the key was seen, from the first one on."""
    why: str = ""


@dataclass(slots=True)
class PartitionState:
    """Everything that one reader knows of one user partition."""

    keys: dict[Uuid, _KeyKnowledge] = field(default_factory=dict)
    newest_epoch: int = _NO_EPOCH
    version: int = 0
    deletion: PartitionDeleteRecord | None = None
    """The newest record of the deletion of the whole partition."""
    later: dict[bytes, LaterRecord] = field(default_factory=dict)
    """By its key, each newest record that only a later version of this software understands."""

    def count(self, headers: RecordHeaders) -> None:
        """Another record of the partition was read."""
        self.newest_epoch = max(self.newest_epoch, headers.leader_epoch)
        self.version += 1

    @property
    def records(self) -> Mapping[Uuid, LedgerRecord]:
        """The state: newest record of each segment, without tombstones."""
        return MappingProxyType(
            {
                key: known.newest
                for key, known in self.keys.items()
                if known.newest.metadata is not None
            }
        )

    @property
    def disputes(self) -> Mapping[Uuid, Dispute]:
        """Live knowledge of this reader."""
        return MappingProxyType(
            {key: _dispute(known) for key, known in self.keys.items() if known.why}
        )

    def record(self, segment_id: Uuid) -> LedgerRecord | None:
        """One of `records`, without making all of them."""
        known = self.keys.get(segment_id)
        return None if known is None or known.newest.metadata is None else known.newest

    def dispute(self, segment_id: Uuid) -> Dispute | None:
        """One of `disputes`, without making all of them."""
        known = self.keys.get(segment_id)
        return _dispute(known) if known is not None and known.why else None


def _dispute(known: _KeyKnowledge) -> Dispute:
    return Dispute(newest=known.newest, lawful=_still_lawful(known.lawful), why=known.why)


class LedgerState:
    """One reader's state of one ledger partition; `apply` is the step of the fold."""

    def __init__(self) -> None:
        self.partitions: dict[PartitionKey, PartitionState] = {}
        self.next_offset = 0
        self._contiguous_since = 0
        self._absence_is_known = True
        self._tombstones: deque[LedgerRecord] = deque()

    @property
    def is_complete(self) -> bool:
        """Every record ever written was read: nothing was compacted away before we came."""
        return self._contiguous_since == 0

    def apply(self, record: LedgerRecord) -> bool:
        """Take the next record in; False for one that was read before."""
        if not self._advance(record.offset):
            return False
        partition = self.partitions.setdefault(record.key.partition, PartitionState())
        if partition.later:
            partition.later.pop(record.key.encode(), None)
        self._take(partition, _segment_id(record), record)
        partition.count(record.headers)
        self._forget_old_tombstones(record.timestamp_ms)
        return True

    def apply_deletion(self, record: PartitionDeleteRecord) -> None:
        """Take a partition-delete record in. The newest one is the state, and none is disputed."""
        if not self._advance(record.offset):
            return
        partition = self.partitions.setdefault(record.partition, PartitionState())
        partition.deletion = None if record.metadata is None else record
        partition.later.pop(LedgerKey(partition=record.partition, segment_id=None).encode(), None)
        partition.count(record.headers)

    def apply_later(self, record: LaterRecord) -> None:
        """Take in that a later version has written something of the partition. What it says of a
        segment is not known, so the newest record of its key is as unknown as an unreadable one.
        """
        if record.offset < self.next_offset:
            return
        self.skip(record.offset)
        partition = self.partitions.setdefault(record.partition, PartitionState())
        partition.later.pop(record.key, None)
        if record.kind is not None:
            partition.later[record.key] = record
        partition.version += 1

    def _advance(self, offset: int) -> bool:
        if offset < self.next_offset:
            return False
        if offset > self.next_offset:
            self._lose_sight(offset)
        self.next_offset = offset + 1
        return True

    def skip(self, offset: int) -> None:
        """A record that could not be decoded: the newest of its key, whichever that is, is
        unknown.
        """
        if offset >= self.next_offset:
            self.next_offset = offset + 1
            self._lose_sight(offset + 1)

    def go_live(self, *, absence_is_known: bool) -> None:
        """The initial replay is over.

        `absence_is_known`: it was so short that compaction cannot have taken a record from under
        us; then a key without record has none, and a FINISHED out of nowhere is a zombie's.
        """
        self._absence_is_known = absence_is_known

    def _lose_sight(self, offset: int) -> None:
        self._contiguous_since = offset
        self._absence_is_known = False

    def _take(self, partition: PartitionState, segment: Uuid, record: LedgerRecord) -> None:
        known = partition.keys.get(segment)
        if known is None:
            why, certain = "", self._absence_is_known
        elif known.newest.offset < self._contiguous_since:
            known, why, certain = None, "", False
        else:
            why, certain = "", known.certain
        if record.headers.leader_epoch < partition.newest_epoch and (known or certain):
            why = (
                f"leader epoch {record.headers.leader_epoch} is older than {partition.newest_epoch}"
            )
        elif certain and self._may_know_less(known, record, partition.newest_epoch):
            certain = False
        elif certain:
            why = _objection(known, record)
        lawful = record if not why else known.lawful if known else None
        taken = _KeyKnowledge(newest=record, lawful=lawful, certain=certain, why=why)
        partition.keys[segment] = taken
        if record.metadata is None and not why:
            self._bury(partition, segment, taken)

    def _may_know_less(
        self, known: _KeyKnowledge | None, record: LedgerRecord, newest_epoch: int
    ) -> bool:
        """A newer epoch speaks: it may know that what we took for lawful came from a zombie."""
        before = known.newest.headers.leader_epoch if known else newest_epoch
        return not self.is_complete and record.headers.leader_epoch > before

    def _bury(self, partition: PartitionState, segment: Uuid, taken: _KeyKnowledge) -> None:
        """Forget a key with its tombstone at once where that was lawful for sure, else later."""
        if taken.certain and self._absence_is_known:
            del partition.keys[segment]
        else:
            self._tombstones.append(taken.newest)

    def _forget_old_tombstones(self, log_time_ms: int) -> None:
        oldest_ms = log_time_ms - TOMBSTONE_MEMORY_MS
        while self._tombstones and self._tombstones[0].timestamp_ms < oldest_ms:
            tombstone = self._tombstones.popleft()
            keys = self.partitions[tombstone.key.partition].keys
            known = keys.get(_segment_id(tombstone))
            if known is not None and known.newest is tombstone and not known.why:
                del keys[_segment_id(tombstone)]


def repairs(disputes: Mapping[Uuid, Dispute]) -> tuple[Repair, ...]:
    """What the partition's leader republishes, one record a dispute, under its own epoch."""
    return tuple(
        Repair(
            key=dispute.newest.key,
            metadata=dispute.lawful.metadata if dispute.lawful else None,
            expected_previous=dispute.newest.state_id,
        )
        for dispute in disputes.values()
    )


def _objection(known: _KeyKnowledge | None, record: LedgerRecord) -> str:
    """Why a record of a sufficient epoch is illegal, given all before it; empty where it is
    lawful.
    """
    expected = record.headers.expected_previous
    lawful = known.lawful if known else None
    if expected == _state_id(lawful) and _table_allows(lawful, record.state):
        return ""
    newest = known.newest if known else None
    if expected != _state_id(newest):
        return f"expected previous state {expected}, which was {_state_id(newest)}"
    if _is_correction(known, record):
        return ""
    return f"no change from {_state_id(newest)} to {record.state_id} is allowed"


def _is_correction(known: _KeyKnowledge | None, record: LedgerRecord) -> bool:
    """Whether a writer that knew the newest record may replace it although the table forbids it."""
    if record.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        return True
    if known is None:
        return record.metadata is None
    is_newer = record.headers.leader_epoch > known.newest.headers.leader_epoch
    return is_newer or record.state_id == _state_id(known.lawful)


def _table_allows(before: LedgerRecord | None, after: RemoteLogSegmentState | None) -> bool:
    """Kafka's table, and a tombstone after DELETE_SEGMENT_FINISHED."""
    state = before.state if before else None
    if after is None:
        return state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    return after in LAWFUL_SEGMENT_CHANGES[state]


def _state_id(record: LedgerRecord | None) -> int:
    return record.state_id if record else NO_PREVIOUS


def _still_lawful(record: LedgerRecord | None) -> LedgerRecord | None:
    """A lawful tombstone is no record."""
    return record if record and record.metadata is not None else None


def _segment_id(record: LedgerRecord) -> Uuid:
    if record.key.segment_id is None:
        raise ValueError(f"record of {record.key.partition} has no segment id")
    return record.key.segment_id

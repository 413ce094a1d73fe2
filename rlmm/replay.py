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

Disputes are the knowledge of one reader: they are no part of the state. They are gone after a
restart that reads everything again, and are kept by a reader that goes on from what was frozen. A
reader that may have missed records through compaction knows less and disputes less: for keys of
which it saw every record it checks everything, for others only the epoch. So whatever the leader
republishes settles the key for all readers, and no reader disputes what a reader with full
knowledge accepts.

Records are kept packed (`rlmm.packed`), a segment is decoded for whoever asks. What is usual, a
newest record that is lawful and no tombstone, is in the partition's `segments` alone.

This module must not know the store; nothing irreversible may follow from its results alone.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kip405.ids import PartitionKey, Uuid
from kip405.segments import LAWFUL_SEGMENT_CHANGES, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlmm.frozen import FrozenLedger, FrozenPartition, KeyKnowledge
from rlmm.packed import ID_BYTES, Names, Stamp, is_certain, stamp_of, unpack, with_certainty
from rlmm.record_packer import RecordPacker
from rlmm.records import (
    NO_PREVIOUS,
    LaterRecord,
    LedgerKey,
    LedgerRecord,
    PartitionDeleteRecord,
)
from rlmm.segment_store import SegmentStore

TOMBSTONE_MEMORY_MS = 2 * 24 * 3_600_000
"""Log time for which a deleted key is remembered: twice Kafka's delete.retention.ms."""
_NO_EPOCH = -1
_TOMBSTONE = NO_PREVIOUS
_FINISHED = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_DELETED = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_TABLE = frozenset(
    (NO_PREVIOUS if before is None else int(before), int(after))
    for before, afters in LAWFUL_SEGMENT_CHANGES.items()
    for after in afters
) | {(_DELETED, _TOMBSTONE)}
"""Kafka's table by state ids, and a tombstone after DELETE_SEGMENT_FINISHED."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Disputes:
    """What is disputed at one time; `hidden` are the packed FINISHED records, by raw segment id,
    of which the newest record of the key says something else.
    """

    by_segment: Mapping[Uuid, Dispute]
    hidden: Mapping[bytes, bytes]


NO_DISPUTES = Disputes(by_segment=MappingProxyType({}), hidden=MappingProxyType({}))


@dataclass(slots=True)
class PartitionState:
    """Everything that one reader knows of one user partition."""

    key: PartitionKey
    names: Names = field(default_factory=Names)
    segments: SegmentStore = field(default_factory=SegmentStore)
    """The newest records, disputed or not, without tombstones."""
    newest_epoch: int = _NO_EPOCH
    version: int = 0
    deletion: PartitionDeleteRecord | None = None
    """The newest record of the deletion of the whole partition."""
    later: dict[bytes, LaterRecord] = field(default_factory=dict)
    """By its key, each newest record that only a later version of this software understands."""
    _unusual: dict[bytes, KeyKnowledge] = field(default_factory=dict)
    """By raw segment id, what is disputed or has a tombstone."""
    _disputes: Disputes | None = NO_DISPUTES
    """None = to be made."""

    def freeze(self) -> FrozenPartition:
        """What is known now; later changes are not seen in it."""
        return FrozenPartition(
            key=self.key,
            segments=self.segments.freeze(),
            newest_epoch=self.newest_epoch,
            version=self.version,
            deletion=self.deletion,
            unusual=tuple(self._unusual.values()),
        )

    @classmethod
    def of(cls, frozen: FrozenPartition, names: Names) -> "PartitionState":
        """A state that knows what was known."""
        return cls(
            frozen.key,
            names=names,
            segments=SegmentStore.of(frozen.segments),
            newest_epoch=frozen.newest_epoch,
            version=frozen.version,
            deletion=frozen.deletion,
            _unusual={known.newest.segment: known for known in frozen.unusual},
            _disputes=None if any(known.why for known in frozen.unusual) else NO_DISPUTES,
        )

    def count(self, leader_epoch: int) -> None:
        """Another record of the partition was read."""
        self.newest_epoch = max(self.newest_epoch, leader_epoch)
        self.version += 1

    @property
    def keys(self) -> frozenset[Uuid]:
        """Every segment that has a record or whose tombstone is remembered."""
        present = {packed[:ID_BYTES] for packed in self.segments.freeze()}
        return frozenset(map(Uuid, present | self._unusual.keys()))

    def known(self, segment: bytes) -> KeyKnowledge | None:
        """What is known of a raw segment id."""
        unusual = self._unusual.get(segment)
        if unusual is not None:
            return unusual
        packed = self.segments.get(segment)
        if packed is None:
            return None
        newest = stamp_of(packed)
        return KeyKnowledge(newest=newest, lawful=newest, certain=is_certain(packed))

    def take(self, segment: bytes, known: KeyKnowledge) -> None:
        """This is known of the segment from now on."""
        is_tombstone = known.newest.state_id == _TOMBSTONE
        if is_tombstone:
            self.segments.remove(segment)
        else:
            self.segments.put(with_certainty(known.newest.packed, certain=known.certain))
        self._drop_unusual(segment)
        if known.why:
            self._disputes = None
        if known.why or is_tombstone:
            self._unusual[segment] = known

    def forget(self, segment: bytes) -> None:
        """The key of a tombstone is as one that was never seen."""
        self._drop_unusual(segment)

    def unusual(self, segment: bytes) -> KeyKnowledge | None:
        """What is known of a key that is disputed or has a tombstone."""
        return self._unusual.get(segment)

    def _drop_unusual(self, segment: bytes) -> None:
        before = self._unusual.pop(segment, None)
        if before is not None and before.why:
            self._disputes = None

    @property
    def records(self) -> Mapping[Uuid, LedgerRecord]:
        """The state: newest record of each segment, without tombstones; decoded for each call."""
        found = (self._record(packed) for packed in self.segments.freeze())
        return MappingProxyType({_segment_id(one): one for one in found})

    @property
    def disputes(self) -> Mapping[Uuid, Dispute]:
        """Live knowledge of this reader."""
        return self.all_disputes.by_segment

    @property
    def all_disputes(self) -> Disputes:
        """The same object as long as no dispute has changed."""
        if self._disputes is None:
            self._disputes = self._made_disputes()
        return self._disputes

    def record(self, segment_id: Uuid) -> LedgerRecord | None:
        """One of `records`, without making all of them."""
        packed = self.segments.get(segment_id.raw)
        return None if packed is None else self._record(packed)

    def dispute(self, segment_id: Uuid) -> Dispute | None:
        """One of `disputes`, without making all of them."""
        known = self._unusual.get(segment_id.raw)
        return self._dispute(known) if known is not None and known.why else None

    def _made_disputes(self) -> Disputes:
        disputed = {raw: known for raw, known in self._unusual.items() if known.why}
        return Disputes(
            by_segment=MappingProxyType(
                {Uuid(raw): self._dispute(known) for raw, known in disputed.items()}
            ),
            hidden=MappingProxyType(
                {
                    raw: known.lawful.packed
                    for raw, known in disputed.items()
                    if known.lawful is not None
                    and known.lawful.state_id == _FINISHED
                    and known.newest.state_id != _FINISHED
                }
            ),
        )

    def _dispute(self, known: KeyKnowledge) -> Dispute:
        """A lawful tombstone is no record."""
        lawful = known.lawful if known.lawful and known.lawful.state_id != _TOMBSTONE else None
        return Dispute(
            newest=self._record(known.newest.packed),
            lawful=self._record(lawful.packed) if lawful else None,
            why=known.why,
        )

    def _record(self, packed: bytes) -> LedgerRecord:
        return unpack(packed, self.key, self.names)


class LedgerState:
    """One reader's state of one ledger partition; `apply` is the step of the fold."""

    def __init__(self, first_version: int = 0) -> None:
        """`first_version` is that of every partition before its first record: one that is read
        from its beginning again must not have a version that it had before.
        """
        self._first_version = first_version
        self.partitions: dict[PartitionKey, PartitionState] = {}
        self.names = Names()
        self.packer = RecordPacker(self.names)
        self.next_offset = 0
        self._contiguous_since = 0
        self._absence_is_known = True
        self._tombstones: deque[tuple[PartitionState, Stamp]] = deque()

    def freeze(self) -> FrozenLedger | None:
        """What is known now; later changes are not seen in it. None where a later version has
        written something: whoever understands it must read it.
        """
        if any(partition.later for partition in self.partitions.values()):
            return None
        return FrozenLedger(
            partitions=tuple(one.freeze() for one in self.partitions.values()),
            topics=tuple(self.names.topics),
            writers=tuple(self.names.writers),
            next_offset=self.next_offset,
            contiguous_since=self._contiguous_since,
            absence_is_known=self._absence_is_known,
            tombstones=tuple(
                (partition.key, tombstone.segment)
                for partition, tombstone in self._tombstones
                if (known := partition.unusual(tombstone.segment)) and known.newest is tombstone
            ),
        )

    @classmethod
    def of(cls, frozen: FrozenLedger) -> "LedgerState":
        """A state that goes on as the one that was frozen would."""
        state = cls()
        state.names = Names.of(frozen.topics, frozen.writers)
        state.packer = RecordPacker(state.names)
        for one in frozen.partitions:
            state.partitions[one.key] = PartitionState.of(one, state.names)
        state.next_offset = frozen.next_offset
        state._contiguous_since = frozen.contiguous_since
        state._absence_is_known = frozen.absence_is_known
        for key, segment in frozen.tombstones:
            partition = state.partitions[key]
            if known := partition.unusual(segment):
                state._tombstones.append((partition, known.newest))
        return state

    @property
    def newest_version(self) -> int:
        """No partition has a newer one."""
        versions = (one.version for one in self.partitions.values())
        return max(versions, default=self._first_version)

    @property
    def is_complete(self) -> bool:
        """Every record ever written was read: nothing was compacted away before we came."""
        return self._contiguous_since == 0

    def apply(self, record: LedgerRecord) -> bool:
        """Take the next record in; False for one that was read before."""
        return self.apply_packed(record.key.partition, self.packer.pack(record))

    def apply_packed(self, key: PartitionKey, packed: bytes) -> bool:
        """`apply` of the record that was packed with this state's `names`."""
        record = stamp_of(packed)
        if not self._advance(record.offset):
            return False
        partition = self._partition(key)
        segment = record.segment
        if partition.later:
            partition.later.pop(LedgerKey(partition=key, segment_id=Uuid(segment)).encode(), None)
        self._take(partition, segment, record)
        partition.count(record.leader_epoch)
        if self._tombstones:
            self._forget_old_tombstones(record.timestamp_ms)
        return True

    def _partition(self, key: PartitionKey) -> PartitionState:
        found = self.partitions.get(key)
        if found is None:
            found = self.partitions[key] = PartitionState(
                key, self.names, version=self._first_version
            )
        return found

    def apply_deletion(self, record: PartitionDeleteRecord) -> None:
        """Take a partition-delete record in. The newest one is the state, and none is disputed."""
        if not self._advance(record.offset):
            return
        partition = self._partition(record.partition)
        partition.deletion = None if record.metadata is None else record
        partition.later.pop(LedgerKey(partition=record.partition, segment_id=None).encode(), None)
        partition.count(record.headers.leader_epoch)

    def apply_later(self, record: LaterRecord) -> None:
        """Take in that a later version has written something of the partition. What it says of a
        segment is not known, so the newest record of its key is as unknown as an unreadable one.
        """
        if record.offset < self.next_offset:
            return
        self.skip(record.offset)
        partition = self._partition(record.partition)
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

    def _take(self, partition: PartitionState, segment: bytes, record: Stamp) -> None:
        known = partition.known(segment)
        if known is None:
            why, certain = "", self._absence_is_known
        elif known.newest.offset < self._contiguous_since:
            known, why, certain = None, "", False
        else:
            why, certain = "", known.certain
        if record.leader_epoch < partition.newest_epoch and (known or certain):
            why = f"leader epoch {record.leader_epoch} is older than {partition.newest_epoch}"
        elif certain and self._may_know_less(known, record, partition.newest_epoch):
            certain = False
        elif certain:
            why = _objection(known, record)
        lawful = record if not why else known.lawful if known else None
        taken = KeyKnowledge(newest=record, lawful=lawful, certain=certain, why=why)
        partition.take(segment, taken)
        if record.state_id == _TOMBSTONE and not why:
            self._bury(partition, segment, taken)

    def _may_know_less(self, known: KeyKnowledge | None, record: Stamp, newest_epoch: int) -> bool:
        """A newer epoch speaks: it may know that what we took for lawful came from a zombie."""
        before = known.newest.leader_epoch if known else newest_epoch
        return not self.is_complete and record.leader_epoch > before

    def _bury(self, partition: PartitionState, segment: bytes, taken: KeyKnowledge) -> None:
        """Forget a key with its tombstone at once where that was lawful for sure, else later."""
        if taken.certain and self._absence_is_known:
            partition.forget(segment)
        else:
            self._tombstones.append((partition, taken.newest))

    def _forget_old_tombstones(self, log_time_ms: int) -> None:
        oldest_ms = log_time_ms - TOMBSTONE_MEMORY_MS
        while self._tombstones and self._tombstones[0][1].timestamp_ms < oldest_ms:
            partition, tombstone = self._tombstones.popleft()
            known = partition.unusual(tombstone.segment)
            if known is not None and known.newest is tombstone and not known.why:
                partition.forget(tombstone.segment)


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


def _objection(known: KeyKnowledge | None, record: Stamp) -> str:
    """Why a record of a sufficient epoch is illegal, given all before it; empty where it is
    lawful.
    """
    expected = record.expected_previous
    lawful = _state_id(known.lawful if known else None)
    if expected == lawful and (lawful, record.state_id) in _TABLE:
        return ""
    newest = _state_id(known.newest if known else None)
    if expected != newest:
        return f"expected previous state {expected}, which was {newest}"
    if _is_correction(known, record):
        return ""
    return f"no change from {newest} to {record.state_id} is allowed"


def _is_correction(known: KeyKnowledge | None, record: Stamp) -> bool:
    """Whether a writer that knew the newest record may replace it although the table forbids it."""
    if record.state_id == _FINISHED:
        return True
    if known is None:
        return record.state_id == _TOMBSTONE
    is_newer = record.leader_epoch > known.newest.leader_epoch
    return is_newer or record.state_id == _state_id(known.lawful)


def _state_id(record: Stamp | None) -> int:
    return record.state_id if record else NO_PREVIOUS


def _segment_id(record: LedgerRecord) -> Uuid:
    if record.key.segment_id is None:
        raise ValueError(f"record of {record.key.partition} has no segment id")
    return record.key.segment_id

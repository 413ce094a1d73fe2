"""The ledger for its users: views of partitions, barriers, confirmed publishes (G3, H3, H10).

A publish returns only when its own record was read back as the newest of its key and no reader of
this process disputes it. Everything else is an error, so that no caller acts on a record that
others will repair. This module must not know Kafka (metadata_log does) nor the store.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import structlog

from kip405.errors import Corrupt, Fenced, Invalid
from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicPartition, Uuid
from kip405.segments import (
    LAWFUL_PARTITION_CHANGES,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    is_lawful_change,
)
from rlmm.formats import NewerFormat
from rlmm.frozen import FrozenLedger
from rlmm.ledger import PartitionLedger, SegmentEntry, entry_of
from rlmm.ledger_values import encode_partition_delete
from rlmm.log_reader import TailRecord
from rlmm.metadata_log import Log, MetadataLog
from rlmm.packed import ID_BYTES, state_id_of
from rlmm.publisher import OutcomeUnknown, Record
from rlmm.records import (
    FORMAT_VERSION,
    LEDGER_PARTITIONS,
    NO_PREVIOUS,
    LaterRecord,
    LedgerKey,
    LedgerRecord,
    PartitionDeleteRecord,
    RecordHeaders,
    decode_record,
    encode_record_value,
    ledger_partition,
    record_version,
)
from rlmm.replay import LedgerState, PartitionState, Repair, repairs
from rlmm.settings import Settings
from rlmm.topic import LEDGER_TOPIC

__all__ = ["OutcomeUnknown", "TopicBasedRemoteLogMetadataManager"]

_FINISHED = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_ABSENCE_KNOWN_WITHIN_MS = 300_000
"""Half of the ledger's segment.ms: a replay that took less cannot have lost a record to
compaction meanwhile.
"""

log = structlog.get_logger(__name__)


class TopicBasedRemoteLogMetadataManager:
    """All ledger partitions of the cluster, as read by this process.

    Implements kip405.contracts.RemoteLogMetadataManager, as Kafka's class of this name does. What
    is known of a partition is its `ledger`, by which callers decide.
    """

    def __init__(self, *, log: Log, writer: Uuid, publish_timeout_ms: int) -> None:
        """`writer` is drawn once per process start; `publish_timeout_ms` limits ack and read-back
        together.
        """
        self._log = log
        self._writer = writer
        self._publish_timeout_ms = publish_timeout_ms
        self._states = [LedgerState() for _ in range(LEDGER_PARTITIONS)]
        self._views: dict[PartitionKey, PartitionLedger] = {}
        self._unreadable: dict[tuple[int, bytes], str] = {}
        self._newer: set[tuple[int, bytes]] = set()
        self._restored: set[int] = set()
        self._is_whole = False
        """A replay that ended in time has missed nothing."""
        log.register(LEDGER_TOPIC, self)

    @property
    def is_ready(self) -> bool:
        """Every ledger partition was read up to the end it had at the start."""
        return self._log.is_ready

    @property
    def problem(self) -> str | None:
        """Why nothing may be deleted or trimmed now; None = the ledger can be relied upon."""
        if not self.is_ready:
            return "the ledger was not read to its end yet"
        return self.damage or self._log.problem

    @property
    def damage(self) -> str | None:
        """Why what was read may not be all there is (see MetadataLog.damage); None = it is, as far
        as it was read.
        """
        return self._log.damage or next(iter(self._unreadable.values()), None)

    def damage_of(self, key: PartitionKey) -> str | None:
        """The same of the ledger partition that has a user partition's records."""
        own = ledger_partition(key)
        unread = (why for (at, _), why in self._unreadable.items() if at == own)
        return self._log.damage or next(unread, None)

    @property
    def newer_format(self) -> str | None:
        """The problem of a record of a newer format, which only a later version reads."""
        return next((self._unreadable[key] for key in self._newer), None)

    def ledger(self, key: PartitionKey) -> PartitionLedger:
        """The partition as known now; empty where no record was seen."""
        state = self._state(key)
        if state is None:
            return PartitionLedger.empty(key)
        view = self._views.get(key)
        if view is None or view.version != state.version:
            view = self._views[key] = PartitionLedger.of(key, state, view)
        return view

    def entry(self, segment_id: RemoteLogSegmentId) -> SegmentEntry | None:
        """What is known now of one segment: `ledger(...).entries`, without the others."""
        state = self._state(segment_id.topic_id_partition.key)
        return None if state is None else entry_of(state, segment_id.id)

    def partitions(self) -> tuple[PartitionKey, ...]:
        """Every user partition that has a record."""
        return tuple(key for state in self._states for key in state.partitions)

    def finished_ids(self) -> Iterator[frozenset[bytes]]:
        """The raw ids of all segments whose newest record is FINISHED, a few hundred at a time;
        others may have their turn between two parts. Segments that come meanwhile may be missing.
        """
        partitions = (one for state in self._states for one in tuple(state.partitions.values()))
        for partition in partitions:
            for chunk in partition.segments.freeze().chunks:
                yield frozenset(
                    packed[:ID_BYTES] for packed in chunk.items if state_id_of(packed) == _FINISHED
                )

    async def barrier(self, key: PartitionKey, deadline_ms: int) -> None:
        """Return once `ledger(key)` knows all that was published before this call; Unavailable
        after `deadline_ms`.
        """
        await self._log.barrier(TopicPartition(LEDGER_TOPIC, ledger_partition(key)), deadline_ms)

    async def put_remote_partition_delete_metadata(
        self, metadata: RemotePartitionDeleteMetadata, leader_epoch: int
    ) -> None:
        """Publish how far the deletion of a partition has come, under the epoch of its leader, or
        the newest one known where it has none any more. Returns when the record was read back as
        the newest of its key; errors as `publish`.
        """
        partition = metadata.topic_id_partition
        before = self.ledger(partition.key).deletion_state
        if metadata.state not in LAWFUL_PARTITION_CHANGES[before]:
            raise Invalid(f"{partition}: no change from {before} to {metadata.state.name}")
        value = encode_partition_delete(metadata)
        offset = await self._append_partition_delete(partition.key, value, leader_epoch)
        newest = self.ledger(partition.key).deletion
        if newest is None or newest.offset != offset:
            raise Fenced(f"{partition}: our partition-delete record at {offset} was overtaken")

    async def tombstone_partition_delete(self, key: PartitionKey, leader_epoch: int) -> None:
        """Remove the partition-delete record: the deletion is over, or was revoked before anything
        was deleted. Errors as `publish`.
        """
        offset = await self._append_partition_delete(key, None, leader_epoch)
        newest = self.ledger(key).deletion
        if newest is not None and newest.offset > offset:
            raise Fenced(f"{key}: our tombstone at {offset} was overtaken")

    async def _append_partition_delete(
        self, key: PartitionKey, value: bytes | None, leader_epoch: int
    ) -> int:
        view = self.ledger(key)
        self._refuse_older_epoch(key, str(key), leader_epoch)
        before = view.deletion_state
        return await self._append(
            LedgerKey(partition=key, segment_id=None),
            value,
            leader_epoch,
            NO_PREVIOUS if before is None else int(before),
        )

    async def publish(
        self, metadata: RemoteLogSegmentMetadata, leader_epoch: int, expected_previous: int
    ) -> None:
        """Publish a segment's new state; returns when it is the accepted, newest record of its key.

        `expected_previous`: id of the state the writer acts on, -1 = none. FINISHED is allowed
        after any state: a correction may bring data back (adoption, H6). Invalid: unlawful
        change. Fenced: another writer was newer. Unavailable: not written. OutcomeUnknown:
        pass a barrier, then read the ledger.
        """
        before = None
        if expected_previous != NO_PREVIOUS:
            before = RemoteLogSegmentState(expected_previous)
        is_adoption = metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        if not is_adoption and not is_lawful_change(before, metadata.state):
            raise Invalid(
                f"{metadata.segment_id}: no change from {before} to {metadata.state.name}"
            )
        key = LedgerKey.of(metadata.segment_id)
        is_new = metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
        state = self._state(key.partition)
        if is_new and state is not None and state.deletion is not None:
            raise Fenced(f"{metadata.segment_id}: the partition is being deleted: nothing is added")
        await self._write(key, metadata, leader_epoch, expected_previous)

    async def tombstone(self, segment_id: RemoteLogSegmentId, leader_epoch: int) -> None:
        """Remove a segment after DELETE_SEGMENT_FINISHED; errors as `publish`."""
        previous = int(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
        await self._write(LedgerKey.of(segment_id), None, leader_epoch, previous)

    async def repair(self, key: PartitionKey, leader_epoch: int) -> int:
        """Republish what disputed segments lawfully are; answers how many. For the partition's
        leader only (H3).
        """
        done = 0
        for repair in repairs(self.ledger(key).disputes):
            if self._still_needed(repair):
                await self._write(
                    repair.key, repair.metadata, leader_epoch, repair.expected_previous
                )
                log.warning("segment_repaired", partition=str(key), segment=str(repair.key))
                done += 1
        return done

    def apply(self, record: TailRecord) -> None:
        """Sink of the ledger topic; a record that cannot be read is a problem until its key gets
        a readable one. One of a later version is a problem of its partition only.
        """
        state = self._states[record.topic_partition.partition]
        raw_key = record.topic_partition.partition, record.key or b""
        packed = state.packer.pack_usual(
            key=record.key,
            value=record.value,
            headers=record.headers,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
        )
        try:
            decoded = None if packed else _decoded(record)
        except Corrupt as error:
            self._unreadable[raw_key] = f"{record.topic_partition} offset {record.offset}: {error}"
            self._newer.discard(raw_key)
            if isinstance(error, NewerFormat):
                self._newer.add(raw_key)
            state.skip(record.offset)
            log.error("ledger_record_unreadable", problem=self._unreadable[raw_key])
            return
        self._unreadable.pop(raw_key, None)
        self._newer.discard(raw_key)
        if packed is not None:
            state.apply_packed(*packed)
        elif isinstance(decoded, LaterRecord):
            state.apply_later(decoded)
            log.warning(
                "ledger_record_of_a_later_version",
                partition=str(decoded.partition),
                kind=decoded.kind,
                offset=decoded.offset,
            )
        elif isinstance(decoded, PartitionDeleteRecord):
            state.apply_deletion(decoded)
        elif decoded is not None:
            state.apply(decoded)

    def go_live(self, replay_ms: int) -> None:
        """Sink of the ledger topic: the initial replay is over."""
        self._is_whole = 0 <= replay_ms < _ABSENCE_KNOWN_WITHIN_MS
        for partition, state in enumerate(self._states):
            if partition not in self._restored:
                state.go_live(absence_is_known=self._is_whole)

    def freeze(self, partition: int) -> FrozenLedger | None:
        """What is known now of one ledger partition, for a later process; None where that had
        better read it itself.
        """
        if not self._is_whole or any(one == partition for one, _ in self._unreadable):
            return None
        return self._states[partition].freeze()

    def restore(self, partition: int, state: LedgerState) -> None:
        """Before any record of the ledger partition was read: what an earlier process knew."""
        self._forget(partition)
        self._states[partition] = state
        self._restored.add(partition)

    def start_over(self, partition: int) -> None:
        """Sink of the ledger topic: the partition is read from its beginning."""
        self._forget(partition)
        first_version = self._states[partition].newest_version + 1
        self._states[partition] = LedgerState(first_version)
        self._restored.discard(partition)

    def _forget(self, partition: int) -> None:
        """What was made of the records of the ledger partition."""
        self._views = {
            key: view for key, view in self._views.items() if ledger_partition(key) != partition
        }
        self._unreadable = {
            key: why for key, why in self._unreadable.items() if key[0] != partition
        }
        self._newer &= self._unreadable.keys()

    def _state(self, key: PartitionKey) -> PartitionState | None:
        return self._states[ledger_partition(key)].partitions.get(key)

    def _still_needed(self, repair: Repair) -> bool:
        disputes = self.ledger(repair.key.partition).disputes
        dispute = disputes.get(repair.key.segment_id) if repair.key.segment_id else None
        return dispute is not None and dispute.newest.state_id == repair.expected_previous

    async def _write(
        self,
        key: LedgerKey,
        metadata: RemoteLogSegmentMetadata | None,
        leader_epoch: int,
        expected_previous: int,
    ) -> None:
        self._refuse_stale(key, leader_epoch, expected_previous)
        value, version = encode_record_value(metadata), record_version(metadata)
        offset = await self._append(key, value, leader_epoch, expected_previous, version)
        self._refuse_overtaken(key, metadata is None, offset)

    async def _append(
        self,
        key: LedgerKey,
        value: bytes | None,
        leader_epoch: int,
        expected_previous: int,
        version: int = FORMAT_VERSION,
    ) -> int:
        headers = RecordHeaders(
            leader_epoch=leader_epoch,
            expected_previous=expected_previous,
            writer=self._writer,
            version=version,
        )
        record = Record(
            topic_partition=TopicPartition(LEDGER_TOPIC, ledger_partition(key.partition)),
            key=key.encode(),
            value=value,
            headers=tuple(headers.encode()),
        )
        return await self._log.publish(record, self._publish_timeout_ms)

    def _refuse_stale(self, key: LedgerKey, leader_epoch: int, expected_previous: int) -> None:
        """Before anything is written: we are not fenced by what we know already."""
        self._refuse_older_epoch(key.partition, str(key), leader_epoch)
        newest = self._newest_state(key)
        if newest != expected_previous:
            raise Fenced(f"{key}: state is {newest}, {expected_previous} was expected")

    def _refuse_older_epoch(self, key: PartitionKey, what: str, leader_epoch: int) -> None:
        state = self._state(key)
        if state is not None and leader_epoch < state.newest_epoch:
            raise Fenced(f"{what}: leader epoch {leader_epoch} is older than {state.newest_epoch}")

    def _newest_state(self, key: LedgerKey) -> int:
        state = self._state(key.partition)
        record = state.record(key.segment_id) if state and key.segment_id else None
        return NO_PREVIOUS if record is None else record.state_id

    def _refuse_overtaken(self, key: LedgerKey, is_tombstone: bool, offset: int) -> None:
        """After read-back: our record is the newest of its key and is not disputed."""
        state = self._state(key.partition)
        dispute = state.dispute(key.segment_id) if state and key.segment_id else None
        if dispute is not None and dispute.newest.offset == offset:
            raise Fenced(f"{key}: our record at {offset} is illegal: {dispute.why}")
        record = state.record(key.segment_id) if state and key.segment_id else None
        newest = record.offset if record else None
        if newest != (None if is_tombstone else offset):
            raise Fenced(f"{key}: our record at {offset} was overtaken by {newest}")


def _decoded(record: TailRecord) -> LedgerRecord | PartitionDeleteRecord | LaterRecord:
    return decode_record(
        key=record.key,
        value=record.value,
        headers=record.headers,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The log of metadata, and the two views of it."""

    log: MetadataLog
    settings: Settings
    manager: TopicBasedRemoteLogMetadataManager

"""A ledger and settings in memory: rlmm's own replay and view, without Kafka in between.

Both can be as stale as the real ones: with `lags` their views show what others wrote only once a
barrier is passed or a record of their own is read back (H17, H43).
"""

from collections.abc import Callable

from kip405.errors import Fenced
from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import (
    LAWFUL_PARTITION_CHANGES,
    CustomMetadata,
    EpochEntry,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from rlmm.ledger import PartitionLedger, SegmentEntry, entry_of
from rlmm.log_time import RecordTimes
from rlmm.publisher import OutcomeUnknown
from rlmm.records import (
    NO_PREVIOUS,
    LedgerKey,
    LedgerRecord,
    PartitionDeleteRecord,
    RecordHeaders,
)
from rlmm.replay import LedgerState, PartitionState, repairs
from rlmm.settings_codec import WriterKnowledge, encode_settings_record
from rlmm.settings_records import SettingsRecord, Stamp
from rlmm.settings_view import SettingsView
from tests.builders.clock import ManualClock
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.builders.store import STORE_ID

PARTITION = TopicIdPartition(topic_id=TOPIC_ID, topic=TOPIC, partition=0)
OUR_WRITER = Uuid(b"\x0a" * 16)
OTHER_WRITER = Uuid(b"\x0b" * 16)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def uuids() -> Callable[[], Uuid]:
    """1, 2, 3, ... as uuids."""
    numbers = iter(range(1, 1_000_000))
    return lambda: Uuid(next(numbers).to_bytes(16, "big"))


def metadata(
    number: int,
    start: int,
    next_offset: int,
    epochs: dict[int, int],
    state: RemoteLogSegmentState = FINISHED,
    *,
    broker_id: int = 1,
) -> RemoteLogSegmentMetadata:
    """Segment [start, next_offset) written under {epoch: start offset}."""
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(
            topic_id_partition=PARTITION, id=Uuid(number.to_bytes(16, "big"))
        ),
        start_offset=start,
        end_offset=next_offset - 1,
        broker_id=broker_id,
        max_timestamp_ms=0,
        event_timestamp_ms=0,
        segment_leader_epochs=tuple(
            EpochEntry(epoch=epoch, start_offset=at) for epoch, at in epochs.items()
        ),
        segment_size_bytes=1,
        custom_metadata=CustomMetadata(store_id=STORE_ID).encode(),
        state=state,
    )


class MemoryLedger:
    """The Protocol of tasks/ports. `log` is every record; faults come from `before_publish`.

    `lags`: see above. `on_barrier` is called by a barrier before it takes the end of the log: it
    may write (what others published just before) or raise (nobody answers). With `loses_acks` a
    publish ends as unknown and its record is not in the log before `land` puts it there (H10).
    """

    def __init__(self, writer: Uuid = OUR_WRITER) -> None:
        self.state = LedgerState()
        self.state.go_live(absence_is_known=True)
        self.log: list[LedgerRecord] = []
        self._views: dict[PartitionKey, tuple[object, PartitionLedger]] = {}
        self.lags = False
        self.on_barrier: Callable[[], None] = lambda: None
        self.barriers: list[PartitionKey] = []
        self.loses_acks = False
        self.in_flight: list[tuple[RemoteLogSegmentMetadata, int, int]] = []
        self.writer = writer
        self.problem: str | None = None
        self.damage: str | None = None
        self.is_ready = True
        self.now_ms = 0
        self.before_publish: Callable[[RemoteLogSegmentMetadata], None] = lambda _: None
        self.after_publish: Callable[[RemoteLogSegmentMetadata], None] = lambda _: None
        self.after_partition_delete: Callable[[RemotePartitionDeleteState], None] = lambda _: None

    def damage_of(self, key: PartitionKey) -> str | None:
        return self.damage

    def ledger(self, key: PartitionKey) -> PartitionLedger:
        """The same object until something has changed, as rlmm's manager has it."""
        state = self.state.partitions.get(key)
        if state is None:
            return PartitionLedger.empty(key)
        known = self._views.get(key)
        if known is None or known[0] is not state or known[1].version != state.version:
            known = self._views[key] = state, PartitionLedger.of(key, state)
        return known[1]

    def entry(self, segment_id: RemoteLogSegmentId) -> SegmentEntry | None:
        state = self.state.partitions.get(segment_id.topic_id_partition.key)
        return entry_of(state, segment_id.id) if state else None

    def partitions(self) -> tuple[PartitionKey, ...]:
        return tuple(self.state.partitions)

    @property
    def view(self) -> PartitionLedger:
        return self.ledger(PARTITION.key)

    def states(self) -> list[RemoteLogSegmentState]:
        """Of every record so far without tombstones."""
        return [one.metadata.state for one in self.log if one.metadata is not None]

    async def barrier(self, key: PartitionKey, deadline_ms: int) -> None:
        self.on_barrier()
        self.catch_up()
        self.barriers.append(key)

    def catch_up(self) -> None:
        """Read the log to its end, as the tail does sooner or later."""
        for record in self.log[self.state.next_offset :]:
            self.state.apply(record)

    def restart(self) -> None:
        """Another process begins to read: what was disputed is known only as far as it shows."""
        self.state = LedgerState()
        self.catch_up()
        self.state.go_live(absence_is_known=True)

    def lose_tail(self, count: int) -> None:
        """An unclean election takes the last records away (H6); whoever reads starts again."""
        del self.log[len(self.log) - count :]
        self.restart()

    def land(self) -> None:
        """What was in flight arrives after all, checked by nobody."""
        landed, self.in_flight = self.in_flight, []
        for metadata, leader_epoch, expected_previous in landed:
            self.write(metadata, epoch=leader_epoch, previous=expected_previous)

    def write(
        self,
        value: RemoteLogSegmentMetadata | None,
        *,
        segment_id: RemoteLogSegmentId | None = None,
        epoch: int = 0,
        previous: int = NO_PREVIOUS,
        writer: Uuid | None = None,
    ) -> None:
        """Append a record as anybody, checked by nobody."""
        chosen = value.segment_id if value is not None else segment_id
        assert chosen is not None
        record = LedgerRecord(
            key=LedgerKey.of(chosen),
            metadata=value,
            headers=RecordHeaders(
                leader_epoch=epoch, expected_previous=previous, writer=writer or self.writer
            ),
            offset=len(self.log),
            timestamp_ms=self.now_ms,
        )
        self.log.append(record)
        if not self.lags:
            self.catch_up()

    def delete_partition(self, state: RemotePartitionDeleteState | None) -> None:
        """Record how far the whole partition is deleted, None = a tombstone; no part of `log`."""
        if state is None:
            self.state.partitions[PARTITION.key].deletion = None
            self.state.partitions[PARTITION.key].version += 1
            return
        deletion = RemotePartitionDeleteMetadata(
            topic_id_partition=PARTITION, event_timestamp_ms=0, broker_id=2, state=state
        )
        partition = self.state.partitions.setdefault(PARTITION.key, PartitionState(PARTITION.key))
        partition.deletion = PartitionDeleteRecord(
            partition=PARTITION.key,
            metadata=deletion,
            headers=RecordHeaders(
                leader_epoch=0, expected_previous=NO_PREVIOUS, writer=OTHER_WRITER
            ),
            offset=len(self.log),
        )
        partition.version += 1

    def copied(self, *segments: RemoteLogSegmentMetadata, writer: Uuid | None = None) -> None:
        """STARTED, then FINISHED of each, under the segment's own newest epoch."""
        for one in segments:
            epoch = one.segment_leader_epochs[-1].epoch
            started = one.in_state(
                RemoteLogSegmentState.COPY_SEGMENT_STARTED,
                event_timestamp_ms=0,
                broker_id=one.broker_id,
            )
            self.write(started, epoch=epoch, writer=writer)
            self.write(one, epoch=epoch, previous=0, writer=writer)

    async def publish(
        self, metadata: RemoteLogSegmentMetadata, leader_epoch: int, expected_previous: int
    ) -> None:
        self._refuse(metadata.segment_id, leader_epoch, expected_previous)
        self.before_publish(metadata)
        if self.loses_acks:
            self.in_flight.append((metadata, leader_epoch, expected_previous))
            raise OutcomeUnknown(f"{metadata.segment_id}: no word")
        self.write(metadata, epoch=leader_epoch, previous=expected_previous)
        offset = len(self.log) - 1
        self.after_publish(metadata)
        self.catch_up()
        entry = self.view.entries.get(metadata.segment_id.id)
        if entry is None or entry.disputed or entry.offset != offset:
            raise Fenced(f"{metadata.segment_id}: overtaken or illegal")

    async def tombstone(self, segment_id: RemoteLogSegmentId, leader_epoch: int) -> None:
        self._refuse(segment_id, leader_epoch, 3)
        self.write(None, segment_id=segment_id, epoch=leader_epoch, previous=3)
        self.catch_up()

    async def repair(self, key: PartitionKey, leader_epoch: int) -> int:
        found = repairs(self.ledger(key).disputes)
        for one in found:
            assert one.key.segment_id is not None
            segment_id = RemoteLogSegmentId(topic_id_partition=PARTITION, id=one.key.segment_id)
            self.write(
                one.metadata,
                segment_id=segment_id,
                epoch=leader_epoch,
                previous=one.expected_previous,
            )
        return len(found)

    async def put_remote_partition_delete_metadata(
        self, metadata: RemotePartitionDeleteMetadata, leader_epoch: int
    ) -> None:
        assert metadata.state in LAWFUL_PARTITION_CHANGES[self.view.deletion_state]
        if leader_epoch < self.view.newest_epoch:
            raise Fenced(f"epoch {leader_epoch} is older than {self.view.newest_epoch}")
        self.delete_partition(metadata.state)
        self.after_partition_delete(metadata.state)

    async def tombstone_partition_delete(self, key: PartitionKey, leader_epoch: int) -> None:
        self.delete_partition(None)

    def _refuse(self, segment_id: RemoteLogSegmentId, leader_epoch: int, expected: int) -> None:
        entry = self.view.entries.get(segment_id.id)
        newest = NO_PREVIOUS if entry is None else int(entry.state)
        if newest != expected or leader_epoch < self.view.newest_epoch:
            raise Fenced(f"{segment_id}: is {newest}, expected {expected}")


class WithProblem:
    """The problem of settings is that of their view too. `unanswered`: no broker can be asked."""

    view: SettingsView
    unanswered: str | None = None
    _problem: str | None = None

    @property
    def problem(self) -> str | None:
        """A problem of the topic that a test has set, or what the view could not read."""
        return self.damage or self.unanswered

    @problem.setter
    def problem(self, why: str | None) -> None:
        self._problem = why

    @property
    def damage(self) -> str | None:
        return self._problem or self.view.problem

    def damage_of_start(self, partition: PartitionKey) -> str | None:
        return self._problem or self.view.problem_of_start(partition)


class MemorySettings(WithProblem):
    """The Protocol of tasks/ports over rlmm's view; `lags`, `on_barrier` as in MemoryLedger.

    `now_ms` is the writer's clock. Reads are timed by `clock`; the topic's leader is
    `broker_ahead_ms` ahead of it. With `is_replay` what is read was there before the reader began.
    """

    def __init__(self) -> None:
        self.view = SettingsView()
        self.is_ready = True
        self.published: list[SettingsRecord] = []
        self.removed: list[str] = []
        self.after_publish: Callable[[], None] = lambda: None
        self.now_ms = 0
        self.lags = False
        self.on_barrier: Callable[[], None] = lambda: None
        self.barriers = 0
        self.loses_acks = False
        self.in_flight: list[tuple[SettingsRecord, int]] = []
        self.clock: ManualClock | None = None
        self.broker_ahead_ms = 0
        self.is_replay = False
        self._unread: list[tuple[bytes, bytes | None, int]] = []
        self._read: list[tuple[bytes, bytes | None, int]] = []

    def compact(self, key: str, *, keep: int = 1) -> None:
        """Of a key only the newest records stay, `keep` of them, for those who read from now on."""
        olds = [one for one in self._read if one[0] == key.encode()]
        for one in olds[: len(olds) - keep]:
            self._read.remove(one)

    def restart(self) -> None:
        """What was written up to now is a replay for the next process."""
        self._unread, self._read, self.view = self._read, [], SettingsView()
        self.is_replay = True
        self.catch_up()
        self.is_replay = False

    async def barrier(self, deadline_ms: int) -> None:
        self.on_barrier()
        self.catch_up()
        self.barriers += 1

    def catch_up(self) -> None:
        """Read the log to its end, as the tail does sooner or later."""
        unread, self._unread = self._unread, []
        self._read += unread
        for key, value, appended_ms in unread:
            read_ms = self.clock.monotonic_ms() if self.clock else self.now_ms
            times = RecordTimes(
                appended_ms=appended_ms, read_ms=None if self.is_replay else read_ms
            )
            self.view.apply(key=key, value=value, offset=self.view.version, times=times)

    def land(self) -> None:
        """What was in flight arrives after all."""
        landed, self.in_flight = self.in_flight, []
        for record, leader_epoch in landed:
            self.write(record, epoch=leader_epoch)

    def write(self, record: SettingsRecord, *, epoch: int = -1, node_id: int = 1) -> None:
        """A fact from anybody."""
        stamp = Stamp(node_id=node_id, leader_epoch=epoch, writer=OUR_WRITER, time_ms=self.now_ms)
        key, value = encode_settings_record(record, stamp)
        self._append(key, value)

    def remove(self, key: str) -> None:
        """A tombstone from anybody."""
        self._append(key.encode(), None)

    def spoil(self, key: str, value: bytes = b'{"v":2}') -> None:
        """A record of the key that this version cannot read, as a later version writes it."""
        self._append(key.encode(), value)

    def _append(self, key: bytes, value: bytes | None) -> None:
        now_ms = self.clock.now if self.clock else self.now_ms
        self._unread.append((key, value, now_ms + self.broker_ahead_ms))
        if not self.lags:
            self.catch_up()

    async def publish(self, record: SettingsRecord, leader_epoch: int = -1) -> None:
        why = self.view.objection(record, leader_epoch)
        if why:
            raise Fenced(f"fact {record.key}: {why}")
        if self.loses_acks:
            self.in_flight.append((record, leader_epoch))
            raise OutcomeUnknown(f"fact {record.key}: no word")
        self.published.append(record)
        self.write(record, epoch=leader_epoch)
        self.after_publish()
        self.catch_up()

    async def tombstone(self, key: str, leader_epoch: int = -1, seen: int | None = None) -> None:
        """Counts only what is known: the real one is in rlmm's own tests."""
        knew = WriterKnowledge(seen=self.view.next_offset, leader_epoch=leader_epoch)
        why = self.view.objection_to_removal(key, knew)
        if why:
            raise Fenced(f"tombstone of {key}: {why}")
        self.removed.append(key)
        self.remove(key)
        self.after_publish()

    async def reassert(self, partition: PartitionKey, leader_epoch: int) -> int:
        found = self.view.reassert
        for one in found:
            await self.publish(one.record, leader_epoch)
        return len(found)

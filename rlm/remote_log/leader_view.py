"""The Tier of a broker's service: answers the proxy from ledger, settings, snapshots and tasks.

rlm/remote_log/tier.py states what each answer guarantees. A view is valid for the leader epoch of
its snapshot only: after a change of leadership it is not used until a barrier has taken a new
snapshot.
"""

import asyncio
from typing import Protocol

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip405.errors import Fenced, NotFound, Unavailable
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from rlm.broker.answers import OffsetAnswer, TopicDescription
from rlm.broker.leadership import Leadership, LedPartition, partitions_of
from rlm.plans.client_history import WindowStart
from rlm.plans.coverage import SETTLED, Ranges, ranges_without_records
from rlm.reading.reader import RemoteReader
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.history import LineageReader, RemoteHistory
from rlm.remote_log.history_windows import HistoryWindows
from rlm.remote_log.log_starts import sign_of_start
from rlm.remote_log.mirrored import NOTHING_REMOTE, LeaderEpochs, MirroredTopic
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshot_cache import SnapshotCache
from rlm.remote_log.snapshots import PartitionSnapshot, SnapshotTaker
from rlm.remote_log.tier import ChangedMeanwhile, EpochEnd, TierPartition, TopicRef, Watermarks
from rlmm.ledger import Hole
from rlmm.settings_records import TopicRecord


class _Broker(Protocol):
    async def topic(self, name: str) -> TopicDescription: ...

    async def list_offset(
        self, topic: str, partition: int, timestamp: int, *, read_committed: bool = False
    ) -> OffsetAnswer: ...


_Seen = tuple[
    LedPartition,
    PartitionSnapshot | None,
    int | None,
    int,
    str | None,
    Ranges,
    tuple[WindowStart, ...],
    bool,
]
"""The inputs of a view: leadership, snapshot, remote start, ledger version and problem, ranges
without records, where windows of history begin, and whether the settings have lost the start.
"""


class LocalTier:
    """Implements rlm.remote_log.tier.Tier."""

    def __init__(
        self,
        *,
        node_id: int,
        broker: _Broker,
        leadership: Leadership,
        settings: Settings,
        ledger: Ledger,
        snapshots: SnapshotCache,
        coalesced: SnapshotTaker,
        reader: RemoteReader,
        windows: HistoryWindows,
    ) -> None:
        self._node_id = node_id
        self._windows = windows
        self._broker = broker
        self._leadership = leadership
        self._settings = settings
        self._ledger = ledger
        self._snapshots = snapshots
        self._coalesced = coalesced
        self.lineage_reader = LineageReader(reader, ledger)
        self.losses = self.lineage_reader.losses
        self._views: dict[PartitionKey, tuple[_Seen, TierPartition]] = {}
        self._histories: dict[
            PartitionKey, tuple[PartitionSnapshot, tuple[Hole, ...], RemoteHistory]
        ] = {}

    def ready(self) -> bool:
        return (
            self._settings.is_ready
            and self._ledger.is_ready
            and self._leadership.snapshot.taken_at_ms >= 0
        )

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        record = self._record_in_view(topic)
        if record is None:
            return None
        key = PartitionKey(record.topic_id, partition)
        led = self._leadership.snapshot.partitions.get(key)
        if led is None:
            led = _unknown_leader(record, partition)
        return self._view(led, self._snapshots.of(led) if led.leader == self._node_id else None)

    async def barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                return await self._barrier(topic, partition, deadline_ms)
        except TimeoutError as error:
            raise Unavailable(f"no barrier passed within {deadline_ms} ms") from error

    async def _barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        led = await self._led(topic, partition)
        if led is None or led.leader != self._node_id:  # a snapshot passes barriers of its own
            await self._settings.barrier(deadline_ms)
            led = await self._led(topic, partition)
        if led is None:
            return None
        if led.leader != self._node_id:
            return self._view(led, None)
        try:
            snapshot = await self._coalesced.take(led)
        except Fenced as error:
            raise Unavailable(f"{led.topic_id_partition}: {error}") from error
        if self._settings.view.topic(led.key.topic_id) is None:
            return None
        # A shared snapshot may be of a newer leadership than the one that was described above.
        return self._view(snapshot.led, snapshot)

    async def _led(self, topic: TopicRef, partition: int) -> LedPartition | None:
        """The partition of a tiered topic according to the broker."""
        described = await self._describe(topic)
        if described is None:
            return None
        return partitions_of([described]).get(PartitionKey(described.topic_id, partition))

    async def _describe(self, topic: TopicRef) -> TopicDescription | None:
        """The tiered topic that this reference currently means, according to the broker."""
        name = topic.name
        if topic.topic_id is not None:
            record = self._settings.view.topic(topic.topic_id)
            name = record.name if record else None
        elif not any(record.name == name for record in self._settings.view.topics()):
            return None
        if name is None:
            return None
        try:
            described = await self._broker.topic(name)
        except NotFound:
            return None
        if self._settings.view.topic(described.topic_id) is None:
            return None
        return described if topic.topic_id in (None, described.topic_id) else None

    async def watermarks(self, topic: TopicRef, partition: int, deadline_ms: int) -> Watermarks:
        name = topic.name or self._name_of(topic.topic_id)
        if name is None:
            raise Unavailable(f"topic {topic.topic_id} has no known name")
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                start, stable, high = await asyncio.gather(
                    self._broker.list_offset(name, partition, EARLIEST_TIMESTAMP),
                    self._broker.list_offset(
                        name, partition, LATEST_TIMESTAMP, read_committed=True
                    ),
                    self._broker.list_offset(name, partition, LATEST_TIMESTAMP),
                )
        except TimeoutError as error:
            raise Unavailable(f"{name}-{partition}: broker gave no offsets in time") from error
        return Watermarks(
            high_watermark=high.offset,
            last_stable_offset=stable.offset,
            log_start_offset=start.offset,
        )

    async def read(self, request: RemoteRead) -> RemoteRecords:
        key = PartitionKey(request.topic_id, request.partition)
        _, history = self._readable(key)
        start = self._settings.view.remote_log_start(key) or 0
        if request.offset < start:  # what has ended is no hole, which a reader would skip (H15)
            raise ChangedMeanwhile(f"partition {key}: the remote log starts at {start} by now")
        return await self.lineage_reader.read(history, request)

    async def offset_for_timestamp(
        self, topic_id: Uuid, partition: int, timestamp_ms: int, start_offset: int = 0
    ) -> TimestampedOffset | None:
        key = PartitionKey(topic_id, partition)
        snapshot, history = self._readable(key)
        return await self.lineage_reader.offset_for_timestamp(
            history,
            timestamp_ms,
            start=max(self._settings.view.remote_log_start(key) or 0, start_offset),
            next_offset=snapshot.watermarks.log_start_offset,
        )

    def epoch_for_offset(self, topic_id: Uuid, partition: int, offset: int) -> int:
        epochs = self.leader_epochs(PartitionKey(topic_id, partition))
        return -1 if epochs is None else epochs.epoch_for_offset(offset)

    def epoch_end(self, topic_id: Uuid, partition: int, leader_epoch: int) -> EpochEnd | None:
        epochs = self.leader_epochs(PartitionKey(topic_id, partition))
        return None if epochs is None else epochs.end_of(leader_epoch)

    # What another process mirrors.

    def inputs(self) -> tuple[object, ...]:
        """Another value where topics, settings or leaders may have changed since."""
        return self._settings.view, self._leadership.snapshot, self.ready()

    def topics(self) -> tuple[MirroredTopic, ...]:
        """All tiered topics."""
        described = self._leadership.snapshot.topics
        names = {one.topic_id: name for name, one in described.items()}
        return tuple(
            MirroredTopic(
                topic_id=record.topic_id,
                record_name=record.name,
                broker_name=names.get(record.topic_id),
            )
            for record in self._settings.view.topics()
        )

    def partitions(self) -> tuple[PartitionKey, ...]:
        """All partitions of tiered topics that the broker knows."""
        described = self._leadership.snapshot.topics.values()
        known = (one for one in described if self._settings.view.topic(one.topic_id) is not None)
        return tuple(
            PartitionKey(one.topic_id, partition) for one in known for partition in one.partitions
        )

    def leader_epochs(self, key: PartitionKey) -> LeaderEpochs | None:
        """What is known of the leader epochs of a partition that is led here."""
        snapshot = self._snapshots.snapshots.get(key)
        if snapshot is None:
            return None
        return LeaderEpochs(
            lineage=snapshot.lineage,
            log_end_offset=snapshot.log_end_offset,
            remote_log_start_offset=self._settings.view.remote_log_start(key) or 0,
        )

    def _readable(self, key: PartitionKey) -> tuple[PartitionSnapshot, RemoteHistory]:
        """The snapshot and segments to read from. Fenced: the partition is frozen. Unavailable:
        there is no snapshot yet.
        """
        snapshot = self._snapshots.snapshots.get(key)
        if snapshot is None:
            raise Unavailable(f"partition {key} was not looked at yet")
        if snapshot.frozen is not None:
            raise Fenced(f"{snapshot.led.topic_id_partition} is frozen: {snapshot.frozen.reason}")
        return snapshot, self._history(snapshot)

    def _history(self, snapshot: PartitionSnapshot) -> RemoteHistory:
        """The remote records inside the lineage of the snapshot, by the current ledger; made again
        only when one of these has changed.
        """
        key = snapshot.key
        ledger, trusted = self._ledger.ledger(key), self._ledger.problem is None
        holes = self._settings.view.holes(key)
        known = self._histories.get(key)
        if known is not None and known[0] is snapshot and known[1] is holes:
            history = known[2]
            if history.ledger is ledger and history.trusted is trusted:
                return history
        history = RemoteHistory(
            name=str(snapshot.led),
            ledger=ledger,
            lineage=snapshot.lineage,
            log_end_offset=snapshot.log_end_offset,
            trusted=trusted,
            empty=ranges_without_records(holes),
        )
        self._histories[key] = snapshot, holes, history
        return history

    def _record_in_view(self, topic: TopicRef) -> TopicRecord | None:
        if topic.topic_id is not None:
            return self._settings.view.topic(topic.topic_id)
        described = self._leadership.snapshot.topics.get(topic.name or "")
        return self._settings.view.topic(described.topic_id) if described else None

    def _name_of(self, topic_id: Uuid | None) -> str | None:
        record = self._settings.view.topic(topic_id) if topic_id else None
        return record.name if record else None

    def _view(self, led: LedPartition, snapshot: PartitionSnapshot | None) -> TierPartition:
        """The current partition state; rebuilt only when one of its inputs has changed."""
        key = led.key
        start = self._settings.view.remote_log_start(key)
        version = self._ledger.ledger(key).version if snapshot else -1
        empty = ranges_without_records(self._settings.view.holes(key))
        window_starts = self._window_starts(snapshot, start)
        is_start_lost = start is None and self._had_start(key)
        seen: _Seen = (
            led,
            snapshot,
            start,
            version,
            self._ledger.problem,
            empty,
            window_starts,
            is_start_lost,
        )
        known = self._views.get(key)
        if known is not None and _is_same(known[0], seen):
            return known[1]
        view = self._new_view(led, snapshot, start, empty, window_starts, is_start_lost)
        self._views[key] = (seen, view)
        return view

    def _new_view(
        self,
        led: LedPartition,
        snapshot: PartitionSnapshot | None,
        start: int | None,
        empty: Ranges,
        window_starts: tuple[WindowStart, ...],
        is_start_lost: bool,
    ) -> TierPartition:
        partition = led.topic_id_partition
        end, unsettled_end = (
            self._remote_ends(snapshot, start or 0) if snapshot else (None, SETTLED)
        )
        return TierPartition(
            topic_id=partition.topic_id,
            topic=partition.topic,
            partition=partition.partition,
            remote_log_start_offset=NOTHING_REMOTE if start is None else start,
            remote_next_offset=NOTHING_REMOTE if end is None else end,
            watermarks=snapshot.watermarks if snapshot else None,
            led_here=led.leader == self._node_id,
            leader_epoch=led.leader_epoch,
            frozen=snapshot is not None and (snapshot.frozen is not None or is_start_lost),
            unsettled_next_offset=unsettled_end,
            empty=empty,
            window_starts=window_starts,
        )

    def _had_start(self, key: PartitionKey) -> bool:
        """Readers must not be led past what was trimmed."""
        return sign_of_start(self._settings.view, self._ledger.ledger(key)) is not None

    def _window_starts(
        self, snapshot: PartitionSnapshot | None, start: int | None
    ) -> tuple[WindowStart, ...]:
        if snapshot is None or start is None or not self._windows:
            return ()
        return self._windows.starts(
            self._history(snapshot),
            remote_log_start_offset=start,
            local_log_start_offset=snapshot.watermarks.log_start_offset,
            log_time_ms=self._settings.view.log_time_ms,
        )

    def _remote_ends(self, snapshot: PartitionSnapshot, start: int) -> tuple[int | None, int]:
        """The end of the in-lineage remote data (None without any) and of what is unsettled."""
        history = self._history(snapshot)
        unsettled_end = history.unsettled_end(start, snapshot.watermarks.log_start_offset)
        return history.next_offset, unsettled_end


def _is_same(known: _Seen, seen: _Seen) -> bool:
    """Compares snapshots by identity: a new snapshot gives a new view even if nothing changed."""
    return known[1] is seen[1] and known[0] == seen[0] and known[2:] == seen[2:]


def _unknown_leader(record: TopicRecord, partition: int) -> LedPartition:
    return LedPartition(
        topic_id_partition=TopicIdPartition(
            topic_id=record.topic_id, topic=record.name, partition=partition
        ),
        leader=-1,
        leader_epoch=-1,
        replicas=(),
        isr=(),
    )

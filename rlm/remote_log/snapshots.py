"""Takes a snapshot of a partition we lead from broker, disk, ledger and settings, in a safe order.

Watermarks come first, then the disk, then settings and ledger behind barriers, the log's end last.
The disk is then at least as new as the last stable offset, the ledger at least as new as both, and
a copy that another task finished meanwhile cannot appear to extend beyond the log's end.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_protocol.apis.offsets import DEBUGGING_REPLICA_ID, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip405.errors import Corrupt, Fenced, NotFound, Unavailable
from kip405.ids import MAX_OFFSET, PartitionKey, Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata
from rlm.broker.answers import TopicConfigValue, TopicDescription
from rlm.broker.leadership import LedPartition
from rlm.log_dir.identity import check_topic_id
from rlm.log_dir.scanner import PartitionLog
from rlm.plans.copy import TopicState
from rlm.plans.coverage import NO_RECORDS, Cover, covered, empty_ranges
from rlm.plans.discard import both, discard_freeze
from rlm.plans.freeze import NONE_ACCEPTED, Frozen, freeze
from rlm.plans.guards import DeletionGuards
from rlm.plans.history import is_settled, leaders_lineage, unknown_start
from rlm.plans.holes import GapView, not_in_tier
from rlm.remote_log.ports import Broker, Ledger, Settings
from rlm.remote_log.tier import Watermarks
from rlmm.ledger import Hole, PartitionLedger
from rlmm.settings_records import HistoryRecord, TopicRecord, TotalRetention
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from rsm_plugins.threads import Threads

_UNLIMITED = "-1"
RETENTION_CONFIGS = ("retention.ms", "retention.bytes")
_CONFIG = ("cleanup.policy", "remote.storage.enable", *RETENTION_CONFIGS)
_INTERNAL = frozenset(
    {
        "__cluster_metadata",
        "__remote_log_metadata",
        "__share_group_state",
        LEDGER_TOPIC,
        SETTINGS_TOPIC,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """The topic's configuration now; `retention_bounded` names the active broker retention.

    `broker_retention` is its limits; one that the broker leaves out counts as 0.
    """

    record: TopicRecord | None
    state: TopicState
    retention_bounded: str | None
    broker_retention: TotalRetention


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """All inputs of the plans for one partition. `remote_log_start_offset` None = never set."""

    led: LedPartition
    topic: TopicSnapshot
    watermarks: Watermarks
    log_end_offset: int
    log: PartitionLog
    ledger: PartitionLedger
    lineage: Lineage
    remote_log_start_offset: int | None
    frozen: Frozen | None

    @property
    def key(self) -> PartitionKey:
        return self.led.key

    def undisputed_copies(self, start: int, end: int) -> tuple[RemoteLogSegmentMetadata, ...]:
        """The undisputed copies that hold offsets of [start, end)."""
        return tuple(
            one.metadata
            for one in self.ledger.usable(self.lineage, self.log_end_offset, start)
            if not one.disputed and one.metadata.start_offset < end
        )

    def copied(self, without: Container[Uuid] = ()) -> Cover:
        """The offsets that undisputed copies have, but for some."""
        return covered(self.ledger, self.lineage, self.log_end_offset, without)

    def empty_segments(self, holes: Iterable[Hole]) -> tuple[Hole, ...]:
        """Closed segments of the log, in its state then, that are proven to have no records; of
        those that recorded holes and copies settle together, what no copy has.
        """
        ranges = empty_ranges(self.log, holes, self.copied)
        return tuple(Hole(start=one.start, end=one.next_offset, cause=NO_RECORDS) for one in ranges)


class SnapshotTaker(Protocol):
    """Takes snapshots of partitions that we lead."""

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        """A snapshot that began after this call. Fenced: no longer led here under this epoch.
        Unavailable: something is not up to date yet.
        """
        ...


class Snapshots(SnapshotTaker, Protocol):
    """What tasks ask about a partition that we lead; errors as `take`."""

    async def topic(self, led: LedPartition) -> TopicSnapshot:
        """The topic's configuration as of now (H35)."""
        ...

    async def check_leadership(self, led: LedPartition) -> TopicDescription:
        """Fenced unless the broker still has this topic id, led by us, under this leader epoch."""
        ...


class LogScanner(Protocol):
    """Reads partition directories (rlm.log_dir.scanner.LogDirs); blocks."""

    def scan(self, topic: str, partition: int) -> PartitionLog: ...


class SnapshotReader:
    """Implements `Snapshots`. `max_orphans`: see plans/freeze; deadlines and intervals in ms."""

    def __init__(
        self,
        *,
        node_id: int,
        broker: Broker,
        log_dirs: LogScanner,
        threads: Threads,
        ledger: Ledger,
        settings: Settings,
        max_orphans: int,
        barrier_deadline_ms: int,
    ) -> None:
        self._node_id = node_id
        self._broker = broker
        self._log_dirs = log_dirs
        self._threads = threads
        self._ledger = ledger
        self._settings = settings
        self._max_orphans = max_orphans
        self._barrier_deadline_ms = barrier_deadline_ms

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        """See `Snapshots`."""
        partition = led.topic_id_partition
        description = await self.check_leadership(led)
        now = description.partitions[partition.partition]
        if (led.replicas, led.isr) != (now.replicas, now.isr):
            led = replace(led, replicas=now.replicas, isr=now.isr)
        config = await self._broker.topic_config(partition.topic, _CONFIG)
        watermarks = await self._watermarks(led)
        log = await self._scan(led)
        await self._settings.barrier(self._barrier_deadline_ms)
        await self._ledger.barrier(led.key, self._barrier_deadline_ms)
        ledger = self._ledger.ledger(led.key)
        lineage = leaders_lineage(ledger, self._published(led, log.lineage), log.whole_lineage)
        log_end_offset = await self._offset(led, LATEST_TIMESTAMP, replica_id=DEBUGGING_REPLICA_ID)
        view = self._settings.view
        topic = self._topic_snapshot(description, config)
        frozen = self._freeze(led, ledger, lineage, log_end_offset)
        if topic.state.enabled:
            discard, state = view.discard(led.key), ledger.deletion_state
            frozen = both(frozen, discard_freeze(discard, state, log.lineage, log_end_offset))
        return PartitionSnapshot(
            led=led,
            topic=topic,
            watermarks=watermarks,
            log_end_offset=log_end_offset,
            log=log,
            ledger=ledger,
            lineage=lineage,
            remote_log_start_offset=view.remote_log_start(led.key),
            frozen=frozen,
        )

    def _freeze(
        self, led: LedPartition, ledger: PartitionLedger, lineage: Lineage, log_end_offset: int
    ) -> Frozen | None:
        view = self._settings.view
        divergence = view.divergence(led.key)
        return freeze(
            ledger,
            lineage,
            log_end_offset=log_end_offset,
            accepted_epoch=divergence.epoch if divergence else NONE_ACCEPTED,
            accepted_offset=divergence.offset if divergence else MAX_OFFSET,
            max_orphans=self._max_orphans,
            remote_log_start_offset=view.remote_log_start(led.key) or 0,
            remote_log_start_epoch=view.remote_log_start_epoch(led.key),
        )

    def _published(self, led: LedPartition, local: Lineage) -> HistoryRecord | None:
        """The lineage that leaders have published; since a trim the log itself may no longer know
        it.

        Unavailable: it cannot be read, but is needed so that dead records are not taken for valid
        (H8).
        """
        view = self._settings.view
        try:
            return view.history(led.key)
        except Corrupt as error:
            first, start = local.first, view.remote_log_start(led.key) or 0
            if first is not None and first.start_offset <= start:
                return None  # the log still knows all that counts
            why = f"{led}: the history that was published cannot be read: {error}"
            raise Unavailable(why) from error

    async def topic(self, led: LedPartition) -> TopicSnapshot:
        """See `Snapshots`."""
        description = await self.check_leadership(led)
        config = await self._broker.topic_config(description.name, _CONFIG)
        return self._topic_snapshot(description, config)

    def _topic_snapshot(
        self, description: TopicDescription, config: Mapping[str, TopicConfigValue]
    ) -> TopicSnapshot:
        """With the settings as known now."""
        record = self._settings.view.topic(description.topic_id)
        return TopicSnapshot(
            record=record,
            state=TopicState(
                enabled=record is not None and record.state == "enabled",
                internal=description.internal or description.name in _INTERNAL,
                cleanup_policy=_value(config, "cleanup.policy"),
                native_tiering=_value(config, "remote.storage.enable") == "true",
            ),
            retention_bounded=bounded_retention(config),
            broker_retention=_broker_retention(config),
        )

    async def check_leadership(self, led: LedPartition) -> TopicDescription:
        """See `Snapshots`."""
        partition = led.topic_id_partition
        try:
            topic = await self._broker.topic(partition.topic)
        except NotFound as error:
            raise Fenced(f"{led}: the topic is gone") from error
        now = topic.partitions.get(partition.partition)
        if topic.topic_id != partition.topic_id or now is None:
            raise Fenced(f"{led}: the topic was recreated or lost the partition")
        if now.leader != self._node_id or now.leader_epoch != led.leader_epoch:
            raise Fenced(
                f"{led}: led by {now.leader} under epoch {now.leader_epoch}, "
                f"not by {self._node_id} under {led.leader_epoch}"
            )
        return topic

    async def _scan(self, led: LedPartition) -> PartitionLog:
        """The disk state, proven to be that of this topic and as new as the leadership (H13)."""
        partition = led.topic_id_partition
        log = await self._threads.run(self._log_dirs.scan, partition.topic, partition.partition)
        if log.topic_id is None:
            raise Unavailable(f"{led}: partition.metadata is not written yet")
        check_topic_id(partition.topic, partition.partition, log.topic_id, partition.topic_id)
        latest = log.lineage.latest_epoch
        if latest != led.leader_epoch:
            raise Unavailable(
                f"{led}: leader-epoch-checkpoint ends with epoch {latest}, "
                f"leadership is of epoch {led.leader_epoch}"
            )
        return log

    async def _watermarks(self, led: LedPartition) -> Watermarks:
        """Reads the last stable offset first: no later decision can concern offsets below it."""
        stable = await self._offset(led, LATEST_TIMESTAMP, read_committed=True)
        return Watermarks(
            last_stable_offset=stable,
            high_watermark=await self._offset(led, LATEST_TIMESTAMP),
            log_start_offset=await self._offset(led, EARLIEST_TIMESTAMP),
        )

    async def _offset(
        self,
        led: LedPartition,
        timestamp: int,
        *,
        read_committed: bool = False,
        replica_id: int = -1,
    ) -> int:
        partition = led.topic_id_partition
        answer = await self._broker.list_offset(
            partition.topic,
            partition.partition,
            timestamp,
            leader_epoch=led.leader_epoch,
            read_committed=read_committed,
            replica_id=replica_id,
        )
        return answer.offset


def gap_view(snapshot: PartitionSnapshot, settings: Settings) -> GapView:
    """What the snapshot shows of gaps; by the settings as they are now."""
    trim = settings.view.trim(snapshot.key)
    return GapView(
        ledger=snapshot.ledger,
        lineage=snapshot.lineage,
        log=snapshot.log,
        local_log_start_offset=snapshot.watermarks.log_start_offset,
        log_end_offset=snapshot.log_end_offset,
        remote_log_start_offset=snapshot.remote_log_start_offset or 0,
        trim_bound=0 if trim is None else trim.bound,
        holes=settings.view.holes(snapshot.key),
    )


def unknown_epoch(snapshot: PartitionSnapshot, settings: Settings) -> EpochEntry | None:
    """See rlm.plans.history.unknown_start; by the settings as they are now."""
    return unknown_start(
        snapshot.lineage,
        published=settings.view.history(snapshot.key),
        local=snapshot.log.whole_lineage,
        gaps=not_in_tier(gap_view(snapshot, settings)),
    )


def is_lineage_settled(
    snapshot: PartitionSnapshot, published: HistoryRecord | None, bound: int
) -> bool:
    """See rlm.plans.history.is_settled; of a log that loses what lies below `bound`."""
    return is_settled(
        snapshot.ledger,
        snapshot.lineage,
        published=published,
        local=snapshot.log.whole_lineage,
        bound=bound,
    )


def deletion_guards(
    snapshot: PartitionSnapshot, ledger: Ledger, settings: Settings, operation: str
) -> DeletionGuards:
    """What forbids `operation` (trim, delete, sweep) by settings and ledger as they are now."""
    return DeletionGuards(
        ready=ledger.is_ready and settings.is_ready,
        ledger_problem=ledger_problem(snapshot.key, ledger, settings),
        freeze_record=settings.view.stopped_by(snapshot.key.topic_id, operation),
        frozen=snapshot.frozen,
    )


def ledger_problem(key: PartitionKey, ledger: Ledger, settings: Settings) -> str | None:
    """Why what is known of a partition's segments may be wrong, or wrong a moment later (H6)."""
    return ledger.problem or settings.problem or ledger.ledger(key).deletion_problem


def _value(config: Mapping[str, TopicConfigValue], name: str) -> str:
    found = config.get(name)
    return (found.value or "") if found else ""


def _broker_retention(config: Mapping[str, TopicConfigValue]) -> TotalRetention:
    limits = (int(_value(config, name) or 0) for name in RETENTION_CONFIGS)
    retention_ms, retention_bytes = limits
    return TotalRetention(retention_ms=retention_ms, retention_bytes=retention_bytes)


def bounded_retention(config: Mapping[str, TopicConfigValue]) -> str | None:
    """The retention of a broker's answer that is not off, as text; a value that it leaves out is
    not off. None = it is off.
    """
    bounds = [
        f"{name}={value}"
        for name in RETENTION_CONFIGS
        if (value := _value(config, name)) != _UNLIMITED
    ]
    return ", ".join(bounds) or None

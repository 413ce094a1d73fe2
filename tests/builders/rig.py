"""One service's tasks over a real log directory and everything else in memory."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from kip405.batches import batch_headers
from kip405.segments import RemoteLogSegmentMetadata
from rlm.broker.deletions import RecordDeletions
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.log_dir.held_segments import SegmentFiles
from rlm.plans.copy import NeedsFlush
from rlm.plans.offload import OffloadPolicy
from rlm.reading.remote_index import RemoteIndex, RemoteIndexFiles, RemoteIndexLimits
from rlm.reading.remote_index_partition import Rotation
from rlm.remote_log.history import Losses
from rlm.remote_log.log_starts import LogStarts
from rlm.remote_log.snapshot_cache import LineagePublisher, SnapshotCache
from rlm.remote_log.snapshots import SnapshotReader
from rlm.service.threads import ServiceThreads
from rlm.spans import Tracer
from rlm.tasks.certain_time import CertainTime
from rlm.tasks.cleanup import CleanupSettings, CleanupTask
from rlm.tasks.cluster_evidence import ClusterEvidence
from rlm.tasks.copy import CopyTask
from rlm.tasks.copy_attempt import Copier, CopySettings, LiveAttempts, StoreWrites
from rlm.tasks.copy_quota import CopyQuota
from rlm.tasks.copy_slots import CopyLimit
from rlm.tasks.deep_check import DeepCheck
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.expiry import ExpirySettings, ExpiryTask
from rlm.tasks.good_runs import GoodRuns
from rlm.tasks.hole_watch import HoleWatch
from rlm.tasks.lost_segments import HoleRecords, LostSegments
from rlm.tasks.segment_deletion import SegmentDeleter
from rlm.tasks.segment_holds import SegmentHolds
from rlm.tasks.trim import TrimSettings, TrimTask
from rlm.tasks.unlisted_segments import UnlistedSegments, stores_ever_used
from rlm.tasks.unreferenced import UnreferencedSettings, UnreferencedTask
from rlm.tasks.verification import PartitionVerifier
from rlm.tasks.verify_runs import VerifyRuns
from rlmm.settings_records import ServiceRecord, StartRecord, TopicRecord, TotalRetention
from tests.builders.audit import MemoryAudit
from tests.builders.broker import MemoryBroker
from tests.builders.checkpoints import Checkpoints
from tests.builders.clock import ManualClock
from tests.builders.ledger import (
    OTHER_WRITER,
    OUR_WRITER,
    PARTITION,
    MemoryLedger,
    MemorySettings,
    uuids,
)
from tests.builders.log_dir import CLUSTER_ID, LogDir
from tests.builders.manifests import manifest_of
from tests.builders.offload import AT_ONCE
from tests.builders.remote_segment import store_segment
from tests.builders.rig_fakes import MemoryPageCache, RetentionAt, ShareGroupsAt, WatchedLogDirs
from tests.builders.store import STORE_ID, MemoryStore, Shelf
from tests.builders.threads import THREADS, all_of

NODE_ID = 1
UNLIMITED = TotalRetention()
GRACE_MS = 10_000
PRESENCE_CHECK_MS = 3_600_000
SNAPSHOT_WAIT_MS = 300_000
DRAIN_MS = 5_000
VERIFY_BYTES_PER_SECOND = 1_000
MOST_PERCENT = 10
DEAD_AFTER_MS = 60_000
UNREFERENCED_MS = 604_800_000
_COPY = CopySettings(
    cluster_id=CLUSTER_ID,
    node_id=NODE_ID,
    writer=OUR_WRITER,
    software="tests",
    deadline_ms=60_000,
    barrier_deadline_ms=1_000,
    limit=CopyLimit(slots=10, whole_slot_bytes=0),
    index_interval_bytes=1_000,
)
_REMOTE_INDEX = RemoteIndexLimits(
    rotation=Rotation(segment_bytes=1 << 20, segment_ms=1 << 40), most_bytes=1 << 20
)
_TRIM = TrimSettings(
    plan_deadline_ms=10_000,
    check_max_age_ms=3_000,
    hold_max_ms=3_600_000,
    heartbeat_max_age_ms=DEAD_AFTER_MS,
    delete_hold_ms=1_000,
)
_CLEANUP = CleanupSettings(node_id=NODE_ID, writer=OUR_WRITER, grace_ms=GRACE_MS)


class Rig:
    """Topic `orders` in mode tier with trim on, led by us under epoch 0, retention 0 ms locally."""

    led_rows: tuple[LedPartition, ...] | None = None

    def __init__(
        self,
        path: Path,
        *,
        checkpoints: Checkpoints | None = None,
        threads: ServiceThreads | None = None,
        attempts_at_once: int = 10,
        copy_bytes_per_second: int = 1 << 40,
        offload: OffloadPolicy = AT_ONCE,
        tracer: Tracer | None = None,
    ) -> None:
        """With `checkpoints` every call to ledger, settings, broker and store is a step."""
        self.threads, clock = threads or all_of(THREADS), ManualClock()
        self.offload, self._tracer = offload, tracer
        self.clock, self.log_dir = clock, LogDir(path / "data", node_id=NODE_ID)
        self.state_dir = path / "state"
        self.log_dirs = WatchedLogDirs([str(self.log_dir.path)])
        self.disk, self.broker = self.log_dir.partition(), MemoryBroker(node_id=NODE_ID)
        self.ledger, self.settings = MemoryLedger(), MemorySettings()
        self.store = MemoryStore(CLUSTER_ID)
        self.share_groups, self.retention = ShareGroupsAt(), RetentionAt()
        self.live, self.writes = LiveAttempts(), StoreWrites()
        self.settings.now_ms = self.ledger.now_ms = self.clock.now
        self.settings.clock = self.clock
        around = checkpoints.around if checkpoints else _as_is
        ledger, settings = around(self.ledger), around(self.settings)
        broker, store = around(self.broker), around(self.store)
        self.snapshots = SnapshotReader(
            node_id=NODE_ID,
            broker=broker,
            log_dirs=self.log_dirs,
            threads=self.threads.snapshots,
            ledger=ledger,
            settings=settings,
            max_orphans=3,
            barrier_deadline_ms=1_000,
        )
        self.deletions = self._new_deletions(around)
        self.lineage_publisher = LineagePublisher(settings=settings, ledger=ledger, clock=clock)
        self.shelf = Shelf({STORE_ID: store})
        evidence, self.losses = _evidence(self.shelf), Losses()
        self.lost = _lost_segments(evidence, self.losses, self.clock)
        self.audit, self.expired = MemoryAudit(), list[tuple[str, int, int]]()
        self.deleter = SegmentDeleter(
            ledger=ledger, evidence=evidence, clock=clock, node_id=NODE_ID
        )
        self.hole_records = HoleRecords(settings=settings, barrier_deadline_ms=1_000)
        self.holds = SegmentHolds(SegmentFiles(path / "held"), self.threads.copies)
        self.hole_watch = self._new_hole_watch(ledger, settings)
        self.good_runs = GoodRuns(clock)
        self.copier = self._new_copier(ledger, attempts_at_once, copy_bytes_per_second)
        self.copy = self._new_copy(ledger, settings)
        self.trim = self._new_trim(broker, ledger, settings, evidence)
        self.time = CertainTime(settings=settings, clock=clock, heartbeat_max_age_ms=DEAD_AFTER_MS)
        self.cleanup = self._new_cleanup(ledger, settings, evidence)
        self.expiry = self._new_expiry(ledger, settings)
        self.unreferenced = UnreferencedTask(
            snapshots=self.snapshots,
            settings=settings,
            expiry=self.expiry,
            evidence=_evidence(self.shelf),
            deleter=self.deleter,
            live=self.live,
            audit=self.audit,
            time=self.time,
            config=UnreferencedSettings(grace_ms=UNREFERENCED_MS, max_orphans=3),
        )
        self.enable()
        self.heartbeat()

    def _new_cleanup(
        self, ledger: MemoryLedger, settings: MemorySettings, evidence: StoreEvidence
    ) -> CleanupTask:
        return CleanupTask(
            snapshots=self.snapshots,
            ledger=ledger,
            settings=settings,
            evidence=evidence,
            deleter=self.deleter,
            lost=self.lost,
            holes=self.hole_records,
            live=self.live,
            audit=self.audit,
            time=self.time,
            config=_CLEANUP,
        )

    def _new_hole_watch(self, ledger: MemoryLedger, settings: MemorySettings) -> HoleWatch:
        return HoleWatch(
            snapshots=self.snapshots,
            ledger=ledger,
            settings=settings,
            holes=self.hole_records,
            lost=self.lost,
            held=self.holds.missing,
            unlisted=self.unlisted(),
            clock=self.clock,
        )

    def _new_copy(self, ledger: MemoryLedger, settings: MemorySettings) -> CopyTask:
        return CopyTask(
            snapshots=self.snapshots,
            copier=self.copier,
            ledger=ledger,
            settings=settings,
            clock=self.clock,
            lost=self.lost,
            holes=self.hole_records,
            offload=self.offload,
            snapshot_wait_ms=SNAPSHOT_WAIT_MS,
            limit=CopyLimit(slots=4, whole_slot_bytes=0),
            needs_flush=NeedsFlush.ONE_REPLICA,
            holds=self.holds,
            good_runs=self.good_runs,
        )

    def _new_trim(
        self,
        broker: MemoryBroker,
        ledger: MemoryLedger,
        settings: MemorySettings,
        evidence: StoreEvidence,
    ) -> TrimTask:
        return TrimTask(
            snapshots=self.snapshots,
            broker=broker,
            deletions=self.deletions,
            ledger=ledger,
            settings=settings,
            evidence=evidence,
            lost=self.lost,
            cluster=ClusterEvidence(self.share_groups, self.retention),
            offload=self.offload,
            namers=frozenset,
            clock=self.clock,
            config=_TRIM,
        )

    def _new_expiry(self, ledger: MemoryLedger, settings: MemorySettings) -> ExpiryTask:
        self.failed_deletions: list[str] = []
        self.starts = LogStarts(settings=settings, audit=self.audit, barrier_deadline_ms=1_000)
        return ExpiryTask(
            snapshots=self.snapshots,
            ledger=ledger,
            settings=settings,
            starts=self.starts,
            deleter=self.deleter,
            live=self.live,
            audit=self.audit,
            clock=self.clock,
            time=self.time,
            config=ExpirySettings(most_percent=MOST_PERCENT),
            deleted=lambda topic, *, segments, size_bytes: self.expired.append(
                (topic, segments, size_bytes)
            ),
            failed=self.failed_deletions.append,
        )

    @cached_property
    def verifier(self) -> PartitionVerifier:
        """What `rlm verify` and the verification at intervals share."""
        evidence = _evidence(self.shelf)
        return PartitionVerifier(
            snapshots=self.snapshots,
            broker=self.broker,
            ledger=self.ledger,
            settings=self.settings,
            evidence=evidence,
            deep_check=DeepCheck(
                stores=self.shelf,
                evidence=evidence,
                threads=self.threads.evidence,
                clock=self.clock,
                bytes_per_second=VERIFY_BYTES_PER_SECOND,
            ),
            unlisted=self.unlisted(),
            lost=self.lost,
            clock=self.clock,
            barrier_deadline_ms=1_000,
        )

    def unlisted(self) -> UnlistedSegments:
        """In all stores that were ever used."""
        return UnlistedSegments(
            stores=self.shelf,
            store_ids=lambda: stores_ever_used(self.settings.view, (STORE_ID,)),
            ledger=self.ledger,
            cluster_id=CLUSTER_ID,
        )

    @cached_property
    def verify_runs(self) -> VerifyRuns:
        """Verifies `led_rows`; None = the broker's partition."""
        return VerifyRuns(
            verifier=self.verifier,
            led=lambda: (self.led,) if self.led_rows is None else self.led_rows,
            ledger=self.ledger,
            clock=self.clock,
        )

    def _new_copier(self, ledger: MemoryLedger, at_once: int, rate: int) -> Copier:
        files = RemoteIndexFiles(self.state_dir, _REMOTE_INDEX, self.clock.now_ms)
        self.remote_index = RemoteIndex(files, self.threads.remote_index)
        self.throttled_ms: list[int] = []
        self.attempts: list[tuple[str, bool]] = []
        self.page_cache = MemoryPageCache()
        return Copier(
            snapshots=self.snapshots,
            ledger=ledger,
            stores=self.shelf,
            targets=self.shelf,
            live=self.live,
            writes=self.writes,
            quota=CopyQuota(lambda: rate, self.clock, self.throttled_ms.append),
            threads=self.threads.copies,
            page_cache=self.page_cache,
            clock=self.clock,
            new_uuid=uuids(),
            settings=replace(_COPY, limit=CopyLimit(slots=at_once, whole_slot_bytes=0)),
            ended=lambda topic, *, failed: self.attempts.append((topic, failed)),
            remote_index=self.remote_index,
            tracer=self._tracer,
        )

    def _new_deletions(self, around: Callable[[Any], Any]) -> RecordDeletions:
        return RecordDeletions(
            lambda: around(self.broker.deletion_connection()),
            self.clock,
            at_once=2,
            drain_ms=DRAIN_MS,
            had_predecessor=False,
        )

    def cached_snapshots(self) -> SnapshotCache:
        """Snapshots as a service has them: kept, and their lineage published."""
        return SnapshotCache(self.snapshots, self.lineage_publisher)

    def enable(
        self,
        *,
        mode: str = "tier",
        trim: bool = True,
        local_ms: int = 0,
        total: TotalRetention = UNLIMITED,
    ) -> None:
        """`total` is decided and in force."""
        self.settings.write(
            TopicRecord(
                topic_id=PARTITION.topic_id,
                name=PARTITION.topic,
                mode=mode,
                state="enabled",
                trim=trim,
                retention_ms=total.retention_ms,
                retention_bytes=total.retention_bytes,
                enforced=total,
                local_retention_ms=local_ms,
                local_retention_bytes=-2,
            )
        )

    def heartbeat(self, node_id: int = NODE_ID) -> None:
        self.settings.now_ms = self.clock.now
        self.settings.write(
            ServiceRecord(node_id=node_id, listen={}, advertised={}, version="1"), node_id=node_id
        )

    def heartbeat_of(self, node_id: int, *, time_ms: int) -> None:
        """A heartbeat of another node's service, whose clock shows that time."""
        self.settings.now_ms = time_ms
        self.settings.write(
            ServiceRecord(node_id=node_id, listen={}, advertised={}, version="1"), node_id=node_id
        )

    def remote_start(self, offset: int) -> None:
        epoch = self.broker.partition.leader_epoch
        record = StartRecord(
            partition=PARTITION.key,
            remote_log_start_offset=offset,
            cause="delete-records",
            decided_epoch=epoch,
        )
        self.settings.write(record, epoch=epoch)

    def write_log(self, *bases: int, end: int, epoch: int = 0) -> None:
        """Closed segments at these bases, the last one active up to `end`; all committed."""
        for base, following in pairwise(bases):
            self.broker.log += self.disk.segment(base, following, epoch=epoch)
        self.broker.log += self.disk.active(bases[-1], end, epoch=epoch)
        self.broker.ends_at(end)
        self.log_dir.recovery_point(PARTITION.topic, PARTITION.partition, end)

    def begin_epoch(self, epoch: int, start_offset: int, *, leader: int = NODE_ID) -> None:
        """An election, at the broker and in its epoch file; `write_log` with it what follows."""
        lineage = self.log_dirs.scan(PARTITION.topic, PARTITION.partition).lineage
        before = {one.epoch: one.start_offset for one in lineage.entries}
        self.disk.epochs({**before, epoch: start_offset})
        self.broker.elect(leader, epoch)

    async def copied_by_another(
        self,
        start: int,
        end: int,
        *,
        number: int = 900,
        epochs: Mapping[int, int] | None = None,
        chunk_size_bytes: int = 1 << 20,
        appended: int = 1,
    ) -> RemoteLogSegmentMetadata:
        """[start, end) of the broker's log, batches of 10, as a leader with other segment borders
        copied it: objects, manifest and FINISHED.
        """
        batches = [
            self.broker.log[position : position + header.size_bytes]
            for position, header in batch_headers(self.broker.log)
            if start <= header.base_offset < end
        ]
        found = await store_segment(
            self.store,
            self.log_dir.path.parent,
            b"".join(batches),
            number=number,
            epochs=epochs or {0: start},
            chunk_size_bytes=chunk_size_bytes,
            appended=appended,
        )
        await self.store.write_manifest(found.locator(CLUSTER_ID), manifest_of(found))
        self.ledger.copied(found, writer=OTHER_WRITER)
        return found

    @property
    def led(self) -> LedPartition:
        now = self.broker.partition
        return LedPartition(
            topic_id_partition=PARTITION,
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            replicas=now.replicas,
            isr=now.isr,
        )

    def names(self, suffix: str) -> list[str]:
        """Names of stored objects of one kind."""
        return [name for name in sorted(self.store.objects) if name.endswith(suffix)]


def _lost_segments(evidence: StoreEvidence, losses: Losses, clock: Clock) -> LostSegments:
    return LostSegments(
        evidence=evidence, losses=losses, clock=clock, check_interval_ms=lambda: PRESENCE_CHECK_MS
    )


def _evidence(shelf: Shelf) -> StoreEvidence:
    return StoreEvidence(shelf, cluster_id=CLUSTER_ID, threads=THREADS)


def _as_is(collaborator: Any) -> Any:
    return collaborator

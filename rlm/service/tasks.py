"""Wires the copy and expiration tasks of one service over all of its stores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import PartitionKey
from kip405.process import software_name
from rlm.broker.deletions import RecordDeletions
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock, backoff_ms, new_uuid
from rlm.config import ServiceConfig
from rlm.log_dir.rolls import Rolls
from rlm.plans.copy import NeedsFlush
from rlm.plans.expiry import ExpiryPlan, PartitionExpiry
from rlm.plans.services import DEAD_AFTER_BEATS
from rlm.remote_log.ports import ClusterRetention
from rlm.service.dependencies import Dependencies, offload_policy
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.service.unreferenced import discard_task, unreferenced_task
from rlm.service.verify_tasks import verify_tasks
from rlm.service.watches import (
    bounded_retention_watch,
    hole_watch,
    segment_holds,
    transaction_watch,
)
from rlm.tasks.certain_time import CertainTime
from rlm.tasks.cleanup import CleanupSettings, CleanupTask
from rlm.tasks.cluster_evidence import ClusterEvidence
from rlm.tasks.copy import CopyTask
from rlm.tasks.copy_attempt import Copier, CopySettings, LiveAttempts, StoreWrites
from rlm.tasks.copy_quota import CopyQuota
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.copy_runs import CopyRuns
from rlm.tasks.copy_slots import CopyLimit
from rlm.tasks.copy_watch import CopyWatch
from rlm.tasks.discard import DiscardTask
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.expiration import ExpirationTask, Seen
from rlm.tasks.expiry import ExpirySettings, ExpiryTask
from rlm.tasks.hole_watch import HoleWatch
from rlm.tasks.lost_segments import HoleRecords, LostSegments
from rlm.tasks.pool import TaskPool
from rlm.tasks.roll_watch import RollWatch
from rlm.tasks.schedule import Schedule, TaskRun, led_rows
from rlm.tasks.segment_deletion import SegmentDeleter
from rlm.tasks.trim import TrimSettings, TrimTask
from rlm.tasks.unreferenced import UnreferencedTask
from rlm.topics.copy_limits import CopyLimitDecisions
from rlmm.settings_records import TopicRecord
from rsm_plugins.files.page_cache import PageCache

_TASK_QUEUE_LIMIT = 10_000
_DELETE_HOLD_MS = 1_000
"""A follower that keeps up follows the log start within half a second (replica.fetch.wait.max.ms).
The service does not wait for one that lags: the trim is done on the leader.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTasks:
    """Copy and cleanup with a pool each (G6); `status` reads the results that they keep."""

    copy: CopyTask
    hole_watch: HoleWatch
    trim: TrimTask
    expiry: ExpiryTask
    unreferenced: UnreferencedTask
    discard: DiscardTask
    cleanup: CleanupTask
    copy_pool: TaskPool
    cleanup_pool: TaskPool


def build_pools(
    config: ServiceConfig, clock: Clock, failed: Callable[[str], None]
) -> tuple[TaskPool, TaskPool]:
    """The pools of copy and cleanup; fetch has its own (reader_pool). `failed` counts failures."""
    backoff = partial(
        backoff_ms,
        first_ms=config.remote_log_manager_task_retry_backoff_ms,
        most_ms=config.remote_log_manager_task_retry_backoff_max_ms,
    )
    copy = TaskPool(
        "copy",
        clock,
        size=config.remote_log_manager_copier_thread_pool_size,
        queue_limit=_TASK_QUEUE_LIMIT,
        failed=failed,
        backoff=backoff,
    )
    cleanup = TaskPool(
        "cleanup",
        clock,
        size=config.remote_log_manager_expiration_thread_pool_size,
        queue_limit=_TASK_QUEUE_LIMIT,
        failed=failed,
        backoff=backoff,
    )
    return copy, cleanup


class SegmentCounts(Protocol):
    """Counts copied and deleted segments, and waits (rlm.service.metrics.ServiceMetrics)."""

    def segment_copied(self, topic: str, size_bytes: int) -> None: ...

    def copy_throttled(self, wait_ms: int) -> None: ...

    def segments_deleted(self, topic: str, *, segments: int, size_bytes: int) -> None: ...


class TaskWiring:
    """Copies, trims and cleans the partitions led by this node; each segment in its own store."""

    def __init__(
        self,
        dependencies: Dependencies,
        pools: tuple[TaskPool, TaskPool],
        counts: SegmentCounts,
        retention: ClusterRetention,
    ) -> None:
        """`retention` is what all brokers say of their own."""
        self._dependencies = dependencies
        self.writes = StoreWrites()
        config = dependencies.config
        self.deletions = _record_deletions(dependencies)
        self.copy_limits = _copy_limits(dependencies)
        live = LiveAttempts()
        self.evidence = StoreEvidence(
            dependencies.stores.stores,
            cluster_id=config.cluster_id,
            threads=dependencies.threads.evidence,
        )
        deleter = SegmentDeleter(
            ledger=dependencies.metadata.manager,
            evidence=self.evidence,
            clock=dependencies.clock,
            node_id=config.node_id,
        )
        self.lost, time = _lost_segments(dependencies, self.evidence), certain_time(dependencies)
        self.holes = HoleRecords(
            settings=dependencies.metadata.settings, barrier_deadline_ms=BARRIER_DEADLINE_MS
        )
        self.holds = segment_holds(dependencies)
        self.verify = verify_tasks(dependencies, self.evidence, self.lost)
        self.partition_tasks = PartitionTasks(
            copy=self._copy_task(live, counts),
            hole_watch=hole_watch(dependencies, self.holes, self.holds),
            trim=_trim_task(dependencies, self.deletions, self.evidence, self.lost, retention),
            expiry=(expiry := _expiry_task(dependencies, deleter, live, counts, time)),
            unreferenced=unreferenced_task(
                dependencies, expiry, self.evidence, deleter, live, time
            ),
            discard=discard_task(dependencies, deleter, time),
            cleanup=_cleanup_task(dependencies, self.evidence, deleter, self.lost, live, time),
            copy_pool=pools[0],
            cleanup_pool=pools[1],
        )
        pools[0].comes_last = self.partition_tasks.copy.has_backlog
        self.transactions = transaction_watch(dependencies, self.partition_tasks.copy)
        self.copy_runs = self._new_copy_runs()
        self._copy_watch = CopyWatch(
            task=self.partition_tasks.copy,
            pool=pools[0],
            copy=self._unless_rival(self._run_copy_turn),
            clock=dependencies.clock,
            interval_ms=config.remote_log_manager_task_interval_ms,
        )
        self.bounded_retention = bounded_retention_watch(
            dependencies, self.holds, self.partition_tasks.copy, self._copy_watch.request
        )
        self._expiration_task = ExpirationTask(
            snapshots=dependencies.snapshots,
            holes=self.partition_tasks.hole_watch,
            trim=self.partition_tasks.trim,
            expiry=self.partition_tasks.expiry,
            unreferenced=self.partition_tasks.unreferenced,
            discard=self.partition_tasks.discard,
            cleanup=self.partition_tasks.cleanup,
            clock=dependencies.clock,
            saw=self._copy_watch.saw,
        )

    def _copy_task(self, live: LiveAttempts, counts: SegmentCounts) -> CopyTask:
        dependencies, config = self._dependencies, self._dependencies.config
        quota = CopyQuota(self.copy_limits.in_effect, dependencies.clock, counts.copy_throttled)
        return CopyTask(
            snapshots=dependencies.snapshots,
            copier=_copier(dependencies, live, self.writes, quota),
            ledger=dependencies.metadata.manager,
            settings=dependencies.metadata.settings,
            clock=dependencies.clock,
            lost=self.lost,
            holes=self.holes,
            offload=offload_policy(config),
            snapshot_wait_ms=config.copy_snapshot_wait_ms,
            limit=CopyLimit(slots=config.copy_segments_max_in_flight),
            needs_flush=NeedsFlush(config.copy_recovery_point),
            holds=self.holds,
            copied=counts.segment_copied,
        )

    def _new_copy_runs(self) -> CopyRuns:
        dependencies, tasks = self._dependencies, self.partition_tasks
        return CopyRuns(
            led=lambda: led_rows(
                dependencies.leadership, dependencies.metadata.settings, dependencies.config.node_id
            ),
            copy=lambda led, request: tasks.copy.run(
                led, request, others_wait=lambda: tasks.copy_pool.waiting_count > 0
            ),
            trim=tasks.trim.run,
            copied=tasks.copy.statuses,
            trimmed=tasks.trim.statuses,
            copy_pool=tasks.copy_pool,
            cleanup_pool=tasks.cleanup_pool,
            refuse=self._refuse_rival,
            clock=dependencies.clock,
        )

    async def run_copy(self, led: LedPartition, request: CopyRequest | None = None) -> None:
        """Copy what is eligible, or all that is closed where it was asked for, to the store that
        the rules name, after its identity check (H11).
        """
        await self.partition_tasks.copy.run(led, request)

    async def _run_copy_turn(self, led: LedPartition) -> None:
        """As `run_copy`, but a partition with a backlog lets others copy, and comes again."""
        copy, pool = self.partition_tasks.copy, self.partition_tasks.copy_pool
        await copy.run(led, others_wait=lambda: pool.waiting_count > 0)
        if copy.has_backlog(led.key):
            self._copy_watch.request(led)

    async def _see(self, led: LedPartition) -> Seen:
        self._refuse_rival()
        return await self._expiration_task.see(led)

    async def _run_expiration(self, led: LedPartition, seen: Seen | None) -> None:
        """Trim, expire, clean up; a failure of one does not prevent the others."""
        self._refuse_rival()
        await self._expiration_task.run(led, seen)

    async def plan_expiry(self, topic: TopicRecord) -> Sequence[PartitionExpiry]:
        """What the next run would delete of each partition of the topic that is led here."""
        node_id, leadership = self._dependencies.config.node_id, self._dependencies.leadership
        return [
            PartitionExpiry(partition=row.topic_id_partition.partition, plan=await self._plan(row))
            for row in leadership.led_of(node_id, {topic.topic_id})
        ]

    async def _plan(self, led: LedPartition) -> ExpiryPlan | RemoteStorageError:
        try:
            return self.partition_tasks.expiry.plan(await self._dependencies.snapshots.take(led))
        except RemoteStorageError as error:
            return error

    async def run_copies(self) -> None:
        """Schedule copy tasks until cancelled."""

        def forget(key: PartitionKey) -> None:
            self.partition_tasks.copy.forget(key)
            self._copy_watch.forget(key)

        schedule = self._schedule(
            self.partition_tasks.copy_pool,
            self._dependencies.config.remote_log_manager_task_interval_ms,
            forget,
        )
        await schedule.run(self._unless_rival(self._copy_watch.scheduled))

    async def watch_rolls(self) -> None:
        """Request a copy task for every new segment until cancelled."""
        dependencies, config = self._dependencies, self._dependencies.config
        copy, pool = self.partition_tasks.copy, self.partition_tasks.copy_pool
        watch = RollWatch(
            rolls=Rolls([str(path) for path in config.log_dirs]),
            led=lambda: led_rows(
                dependencies.leadership, dependencies.metadata.settings, config.node_id
            ),
            request=self._copy_watch.request,
            is_open=lambda key: (
                pool.is_running(key) or pool.is_waiting(key) or copy.waits_for_broker(key)
            ),
            threads=dependencies.threads.snapshots,
            clock=dependencies.clock,
            interval_ms=config.log_dir_watch_interval_ms,
            most_wait_ms=config.remote_log_manager_task_interval_ms,
        )
        await watch.run()

    async def run_cleanups(self) -> None:
        """Schedule expiration tasks until cancelled."""

        def forget(key: PartitionKey) -> None:
            self.partition_tasks.hole_watch.forget(key)
            self.partition_tasks.trim.forget(key)
            self.partition_tasks.expiry.forget(key)
            self.partition_tasks.unreferenced.forget(key)
            self.partition_tasks.discard.forget(key)
            self.partition_tasks.cleanup.forget(key)

        schedule = self._schedule(
            self.partition_tasks.cleanup_pool,
            self._dependencies.config.trim_interval_ms,
            forget,
        )
        await schedule.run_in_groups(self._see, self._run_expiration)

    def _unless_rival(self, run: TaskRun) -> TaskRun:
        async def checked(led: LedPartition) -> None:
            self._refuse_rival()
            await run(led)

        return checked

    def _refuse_rival(self) -> None:
        rival = self._dependencies.heartbeat.rival
        if rival is not None:
            raise Unavailable(
                f"a second service of this node is alive (writer {rival}): stop one (H13)"
            )

    def _schedule(
        self,
        pool: TaskPool,
        interval_ms: int,
        forget: Callable[[PartitionKey], None],
    ) -> Schedule:
        return Schedule(
            pool=pool,
            leadership=self._dependencies.leadership,
            settings=self._dependencies.metadata.settings,
            node_id=self._dependencies.config.node_id,
            clock=self._dependencies.clock,
            interval_ms=interval_ms,
            forget=forget,
        )


def _copy_limits(dependencies: Dependencies) -> CopyLimitDecisions:
    return CopyLimitDecisions(
        settings=dependencies.metadata.settings,
        node_id=dependencies.config.node_id,
        configured=dependencies.config.remote_log_manager_copy_max_bytes_per_second,
        clock=dependencies.clock,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )


def _copier(
    dependencies: Dependencies, live: LiveAttempts, writes: StoreWrites, quota: CopyQuota
) -> Copier:
    return Copier(
        snapshots=dependencies.snapshots,
        ledger=dependencies.metadata.manager,
        stores=dependencies.stores.stores,
        targets=dependencies.stores.targets,
        live=live,
        writes=writes,
        quota=quota,
        threads=dependencies.threads.copies,
        page_cache=PageCache(),
        clock=dependencies.clock,
        new_uuid=new_uuid,
        settings=_copy_settings(dependencies),
    )


def _record_deletions(dependencies: Dependencies) -> RecordDeletions:
    return RecordDeletions(
        dependencies.broker.deletion_connection,
        dependencies.clock,
        at_once=dependencies.config.remote_log_manager_expiration_thread_pool_size,
        drain_ms=dependencies.config.trim_drain_ms,
        had_predecessor=True,
    )


def _lost_segments(dependencies: Dependencies, evidence: StoreEvidence) -> LostSegments:
    return LostSegments(
        evidence=evidence,
        losses=dependencies.tier.losses,
        clock=dependencies.clock,
        check_interval_ms=dependencies.config.copy_presence_check_interval_ms,
    )


def _trim_task(
    dependencies: Dependencies,
    deletions: RecordDeletions,
    evidence: StoreEvidence,
    lost: LostSegments,
    retention: ClusterRetention,
) -> TrimTask:
    return TrimTask(
        snapshots=dependencies.snapshots,
        broker=dependencies.broker,
        deletions=deletions,
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        evidence=evidence,
        lost=lost,
        cluster=ClusterEvidence(dependencies.share_groups, retention),
        offload=offload_policy(dependencies.config),
        namers=partial(_namers, dependencies),
        clock=dependencies.clock,
        config=_trim_settings(dependencies.config),
    )


def _namers(dependencies: Dependencies) -> frozenset[int]:
    """A client that comes to a broker directly learns all brokers' own addresses there, and goes on
    to those directly.
    """
    if not dependencies.config.rewrites_addresses:
        return frozenset()
    return frozenset(node.node_id for node in dependencies.leadership.snapshot.nodes)


def _cleanup_task(
    dependencies: Dependencies,
    evidence: StoreEvidence,
    deleter: SegmentDeleter,
    lost: LostSegments,
    live: LiveAttempts,
    time: CertainTime,
) -> CleanupTask:
    return CleanupTask(
        snapshots=dependencies.snapshots,
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        evidence=evidence,
        deleter=deleter,
        lost=lost,
        live=live,
        audit=dependencies.audit,
        time=time,
        config=CleanupSettings(
            node_id=dependencies.config.node_id,
            writer=dependencies.writer,
            grace_ms=dependencies.config.sweep_grace_ms,
        ),
    )


def certain_time(dependencies: Dependencies) -> CertainTime:
    """The time by which data is old, and whether anything may be deleted by it (H16)."""
    return CertainTime(
        settings=dependencies.metadata.settings,
        clock=dependencies.clock,
        heartbeat_max_age_ms=DEAD_AFTER_BEATS * dependencies.config.heartbeat_interval_ms,
    )


def _expiry_task(
    dependencies: Dependencies,
    deleter: SegmentDeleter,
    live: LiveAttempts,
    counts: SegmentCounts,
    time: CertainTime,
) -> ExpiryTask:
    return ExpiryTask(
        snapshots=dependencies.snapshots,
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        starts=dependencies.starts,
        deleter=deleter,
        live=live,
        audit=dependencies.audit,
        clock=dependencies.clock,
        time=time,
        config=ExpirySettings(most_percent=dependencies.config.remote_delete_max_percent),
        deleted=counts.segments_deleted,
    )


def _copy_settings(dependencies: Dependencies) -> CopySettings:
    return CopySettings(
        cluster_id=dependencies.config.cluster_id,
        node_id=dependencies.config.node_id,
        writer=dependencies.writer,
        software=software_name(),
        deadline_ms=dependencies.config.copy_deadline_ms,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
        limit=CopyLimit(slots=dependencies.config.remote_log_manager_copier_thread_pool_size),
    )


def _trim_settings(config: ServiceConfig) -> TrimSettings:
    return TrimSettings(
        plan_deadline_ms=config.trim_plan_deadline_ms,
        check_max_age_ms=config.trim_check_max_age_ms,
        hold_max_ms=config.trim_hold_max_ms,
        heartbeat_max_age_ms=DEAD_AFTER_BEATS * config.heartbeat_interval_ms,
        delete_hold_ms=_DELETE_HOLD_MS,
    )

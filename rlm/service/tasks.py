"""Wires the copy and expiration tasks of one service over all of its stores."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kip405.errors import Fenced, RemoteStorageError, Unavailable
from kip405.ids import PartitionKey, TopicPartition
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock, backoff_ms
from rlm.config import ServiceConfig
from rlm.log_dir.rolls import Rolls
from rlm.plans.copy import NeedsFlush
from rlm.plans.expiry import ExpiryPlan, PartitionExpiry
from rlm.plans.problems import Finding
from rlm.remote_log.ports import ClusterRetention
from rlm.service.dependencies import Dependencies, offload_policy
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.service.task_parts import (
    SegmentCounts,
    certain_time,
    cleanup_task,
    copier,
    copy_limits,
    expiry_task,
    lost_segments,
    record_deletions,
    trim_task,
)
from rlm.service.unreferenced import discard_task, unreferenced_task
from rlm.service.verify_tasks import verify_tasks
from rlm.service.watches import (
    bounded_retention_watch,
    hole_watch,
    segment_holds,
    transaction_watch,
)
from rlm.tasks.assignment import Assignment, left_out_findings
from rlm.tasks.cleanup import CleanupTask
from rlm.tasks.copy import CopyTask
from rlm.tasks.copy_attempt import LiveAttempts, StoreWrites
from rlm.tasks.copy_quota import CopyQuota
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.copy_runs import CopyRuns
from rlm.tasks.copy_slots import CopyLimit
from rlm.tasks.copy_watch import CopyWatch
from rlm.tasks.decisions import Decisions
from rlm.tasks.discard import DiscardTask
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.expiration import ExpirationTask, Seen
from rlm.tasks.expiry import ExpiryTask
from rlm.tasks.good_runs import GoodRuns
from rlm.tasks.hole_watch import HoleWatch
from rlm.tasks.lost_segments import HoleRecords
from rlm.tasks.pool import TaskPool
from rlm.tasks.roll_watch import RollWatch
from rlm.tasks.schedule import Schedule, TaskRun, led_rows
from rlm.tasks.segment_deletion import SegmentDeleter
from rlm.tasks.trim import TrimTask
from rlm.tasks.unreferenced import UnreferencedTask
from rlmm.settings_records import TopicRecord

_TASK_QUEUE_LIMIT = 10_000
_ENDED_POLL_MS = 50


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


class TaskWiring:
    """Copies, trims and cleans the partitions led by this node; each segment in its own store.

    `assignment` narrows them.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        pools: tuple[TaskPool, TaskPool],
        counts: SegmentCounts,
        retention: ClusterRetention,
        assignment: Assignment | None = None,
    ) -> None:
        """`retention` is what all brokers say of their own."""
        self._dependencies = dependencies
        self._assignment = assignment or Assignment(None)
        self.writes = StoreWrites()
        config = dependencies.config
        self.deletions = record_deletions(dependencies)
        self.copy_limits = copy_limits(dependencies)
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
        self.lost, time = lost_segments(dependencies, self.evidence), certain_time(dependencies)
        self.holes = HoleRecords(
            settings=dependencies.metadata.settings, barrier_deadline_ms=BARRIER_DEADLINE_MS
        )
        self.holds = segment_holds(dependencies)
        self.good_runs = GoodRuns(dependencies.clock)
        self.verify = verify_tasks(dependencies, self.evidence, self.lost)
        self.partition_tasks = PartitionTasks(
            copy=self._copy_task(live, counts),
            hole_watch=hole_watch(dependencies, self.holes, self.lost, self.holds),
            trim=trim_task(dependencies, self.deletions, self.evidence, self.lost, retention),
            expiry=(expiry := expiry_task(dependencies, deleter, live, counts, time)),
            unreferenced=unreferenced_task(
                dependencies, expiry, self.evidence, deleter, live, time
            ),
            discard=discard_task(dependencies, deleter, time),
            cleanup=cleanup_task(
                dependencies, self.evidence, deleter, self.lost, self.holes, live, time
            ),
            copy_pool=pools[0],
            cleanup_pool=pools[1],
        )
        pools[0].comes_last = self.partition_tasks.copy.has_backlog
        self.transactions = transaction_watch(dependencies, self.partition_tasks.copy)
        self.copy_runs, self.decisions = self._new_copy_runs(), self._remember_decisions()
        self._copy_watch = CopyWatch(
            task=self.partition_tasks.copy,
            pool=pools[0],
            copy=self._if_it_may(self._run_copy_turn),
            clock=dependencies.clock,
            interval_ms=self._copy_interval_ms,
        )
        self.bounded_retention = bounded_retention_watch(
            dependencies, self.holds, self.partition_tasks.copy, self._copy_watch.request
        )
        self._expiration_task = self._new_expiration_task()

    def _new_expiration_task(self) -> ExpirationTask:
        dependencies = self._dependencies
        return ExpirationTask(
            snapshots=dependencies.snapshots,
            holes=self.partition_tasks.hole_watch,
            trim=self.partition_tasks.trim,
            expiry=self.partition_tasks.expiry,
            unreferenced=self.partition_tasks.unreferenced,
            discard=self.partition_tasks.discard,
            cleanup=self.partition_tasks.cleanup,
            clock=dependencies.clock,
            good_runs=self.good_runs,
            saw=self._copy_watch.saw,
        )

    def _copy_interval_ms(self) -> int:
        return self._dependencies.running.now.remote_log_manager_task_interval_ms

    def _trim_interval_ms(self) -> int:
        return self._dependencies.running.now.trim_interval_ms

    def _watch_interval_ms(self) -> int:
        return self._dependencies.running.now.log_dir_watch_interval_ms

    def change(self, config: ServiceConfig) -> None:
        """Take pool sizes and rates that were changed while the service runs."""
        tasks = self.partition_tasks
        tasks.copy_pool.change_size(config.remote_log_manager_copier_thread_pool_size)
        tasks.copy.change_slots(config.copy_slots)
        tasks.cleanup_pool.change_size(config.remote_log_manager_expiration_thread_pool_size)
        self.copy_limits.configured = config.remote_log_manager_copy_max_bytes_per_second
        self.verify.deep_check.change_rate(config.verify_max_bytes_per_second)

    def _copy_task(self, live: LiveAttempts, counts: SegmentCounts) -> CopyTask:
        dependencies, config = self._dependencies, self._dependencies.config
        quota = CopyQuota(self.copy_limits.in_effect, dependencies.clock, counts.copy_throttled)
        return CopyTask(
            snapshots=dependencies.snapshots,
            copier=copier(dependencies, live, self.writes, quota, counts),
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
            good_runs=self.good_runs,
            copied=counts.segment_copied,
        )

    def _remember_decisions(self) -> Decisions:
        dependencies, tasks = self._dependencies, self.partition_tasks

        def name_of(key: PartitionKey) -> str | None:
            row = dependencies.leadership.snapshot.partitions.get(key)
            return None if row is None else row.topic_id_partition.topic

        found = Decisions(
            copy_pool=tasks.copy_pool,
            cleanup_pool=tasks.cleanup_pool,
            copied=tasks.copy.statuses,
            trimmed=tasks.trim.statuses,
            expired=tasks.expiry.statuses,
            name_of=name_of,
            clock=dependencies.clock,
        )
        tasks.copy_pool.ended = found.copy_ended
        tasks.cleanup_pool.ended = found.cleanup_ended
        return found

    def _new_copy_runs(self) -> CopyRuns:
        dependencies, tasks = self._dependencies, self.partition_tasks

        async def copy(led: LedPartition, request: CopyRequest) -> None:
            self._refuse_left_out(led)
            await tasks.copy.run(led, request, lambda: tasks.copy_pool.waiting_count > 0)

        async def trim(led: LedPartition, keep_local_bytes: int) -> None:
            self._refuse_left_out(led)
            await tasks.trim.run(led, keep_local_bytes)

        def has_no_leader(key: PartitionKey) -> bool:
            row = dependencies.leadership.snapshot.partitions.get(key)
            return row is not None and row.leader < 0

        return CopyRuns(
            led=self.led,
            has_no_leader=has_no_leader,
            copy=copy,
            trim=trim,
            copied=tasks.copy.statuses,
            trimmed=tasks.trim.statuses,
            copy_pool=tasks.copy_pool,
            cleanup_pool=tasks.cleanup_pool,
            refuse=self._refuse_rival,
            clock=dependencies.clock,
        )

    async def run_copy(self, led: LedPartition, request: CopyRequest | None = None) -> None:
        """Copy what is eligible, or all that is closed where it was asked for, to the store that
        the rules name, after its identity check (H11). Fenced: the partition was left out.
        Unavailable: a rival lives.
        """
        self._refuse_rival()
        self._refuse_left_out(led)
        await self.partition_tasks.copy.run(led, request)

    async def _run_copy_turn(self, led: LedPartition) -> None:
        """As `run_copy`, but a partition with a backlog lets others copy, and comes again."""
        copy, pool = self.partition_tasks.copy, self.partition_tasks.copy_pool
        await copy.run(
            led, others_wait=lambda: pool.waiting_count > 0 or not self._assignment.holds(led)
        )
        if copy.has_backlog(led.key):
            self._copy_watch.request(led)

    async def _see(self, led: LedPartition) -> Seen:
        self._refuse_rival()
        self._refuse_left_out(led)
        return await self._expiration_task.see(led)

    async def _run_expiration(self, led: LedPartition, seen: Seen | None) -> None:
        """Trim, expire, clean up; a failure of one does not prevent the others."""
        self._refuse_rival()
        if self._assignment.holds(led):
            await self._expiration_task.run(led, seen)

    async def plan_expiry(self, topic: TopicRecord) -> Sequence[PartitionExpiry]:
        """What the next run would delete of each partition of the topic that is led here."""
        node_id, leadership = self._dependencies.config.node_id, self._dependencies.leadership
        return [
            PartitionExpiry(partition=row.topic_id_partition.partition, plan=await self._plan(row))
            for row in self._assignment.held(leadership.led_of(node_id, {topic.topic_id}))
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
            self.decisions.forget(key)

        schedule = self._schedule(
            self.partition_tasks.copy_pool,
            self._copy_interval_ms,
            forget,
        )
        await schedule.run(self._if_it_may(self._copy_watch.scheduled))

    async def watch_rolls(self) -> None:
        """Request a copy task for every new segment until cancelled."""
        dependencies, config = self._dependencies, self._dependencies.config
        copy, pool = self.partition_tasks.copy, self.partition_tasks.copy_pool
        watch = RollWatch(
            rolls=Rolls([str(path) for path in config.log_dirs]),
            led=self._assigned,
            request=self._copy_watch.request,
            is_open=lambda key: (
                pool.is_running(key) or pool.is_waiting(key) or copy.waits_for_broker(key)
            ),
            threads=dependencies.threads.snapshots,
            clock=dependencies.clock,
            interval_ms=self._watch_interval_ms,
            most_wait_ms=self._copy_interval_ms,
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
            self._expiration_task.forget(key)
            self.decisions.forget(key)

        schedule = self._schedule(
            self.partition_tasks.cleanup_pool,
            self._trim_interval_ms,
            forget,
        )
        await schedule.run_in_groups(self._see, self._run_expiration)

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Have tasks for these partitions too, as far as they are led here, a copy at once."""
        self._assignment.add(partitions)
        for led in self._assigned():
            if led.topic_partition in partitions:
                self._copy_watch.request(led)

    async def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Begin no task of these partitions any more, and wait for those that run. Invalid: see
        Assignment.
        """
        self._assignment.remove(partitions)
        while self._is_any_running(partitions):
            await self._dependencies.clock.sleep_ms(_ENDED_POLL_MS)

    def _is_any_running(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether a task of them runs; one of a partition that is not known any more counts."""
        known, tasks = self._dependencies.leadership.snapshot.partitions, self.partition_tasks
        running = (known.get(key) for key in tasks.copy_pool.running | tasks.cleanup_pool.running)
        return any(row is None or row.topic_partition in partitions for row in running)

    def led(self) -> tuple[LedPartition, ...]:
        """The partitions that this node leads of topics on record, also those left out."""
        dependencies = self._dependencies
        return led_rows(
            dependencies.leadership, dependencies.metadata.settings, dependencies.config.node_id
        )

    def left_out(self) -> tuple[LedPartition, ...]:
        """Those of them without tasks."""
        return self._assignment.left_out(self.led())

    def findings(self) -> Iterator[Finding]:
        """What was left out."""
        return left_out_findings(self.left_out())

    def _assigned(self) -> tuple[LedPartition, ...]:
        return self._assignment.held(self.led())

    def _if_it_may(self, run: TaskRun) -> TaskRun:
        """`run` where no rival lives, and only of what was not left out: nothing is between this
        check and the moment at which the pool says that the task runs.
        """

        async def checked(led: LedPartition) -> None:
            self._refuse_rival()
            if self._assignment.holds(led):
                await run(led)

        return checked

    def _refuse_left_out(self, led: LedPartition) -> None:
        if not self._assignment.holds(led):
            raise Fenced(f"{led} was not added to the RemoteLogManager that works for its broker")

    def _refuse_rival(self) -> None:
        rival = self._dependencies.heartbeat.rival
        if rival is not None:
            raise Unavailable(
                f"a second service of this node is alive (writer {rival}): stop one (H13)"
            )

    def _schedule(
        self,
        pool: TaskPool,
        interval_ms: Callable[[], int],
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
            takes=self._assignment.holds,
        )

"""Builds each task of a service, and what tasks share, from settings and dependencies.

Which tasks there are, and what they share, is decided in `rlm.service.tasks`.
"""

from functools import partial
from typing import Protocol

from kip405.process import software_name
from rlm.broker.deletions import RecordDeletions
from rlm.clock import new_uuid
from rlm.config import ServiceConfig
from rlm.plans.services import DEAD_AFTER_BEATS
from rlm.remote_log.ports import ClusterRetention
from rlm.service.dependencies import Dependencies, offload_policy
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.tasks.certain_time import CertainTime
from rlm.tasks.cleanup import CleanupSettings, CleanupTask
from rlm.tasks.cluster_evidence import ClusterEvidence
from rlm.tasks.copy_attempt import Copier, CopySettings, LiveAttempts, StoreWrites
from rlm.tasks.copy_quota import CopyQuota
from rlm.tasks.copy_slots import CopyLimit
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.expiry import ExpirySettings, ExpiryTask
from rlm.tasks.lost_segments import HoleRecords, LostSegments
from rlm.tasks.segment_deletion import SegmentDeleter
from rlm.tasks.trim import TrimSettings, TrimTask
from rlm.topics.copy_limits import CopyLimitDecisions
from rsm_plugins.files.page_cache import PageCache

_DELETE_HOLD_MS = 1_000
"""A follower that keeps up follows the log start within half a second (replica.fetch.wait.max.ms).
The service does not wait for one that lags: the trim is done on the leader.
"""


class SegmentCounts(Protocol):
    """Counts copied and deleted segments, and waits (rlm.service.metrics.ServiceMetrics)."""

    def segment_copied(self, topic: str, size_bytes: int) -> None: ...

    def copy_attempt_ended(self, topic: str, *, failed: bool) -> None: ...

    def copy_throttled(self, wait_ms: int) -> None: ...

    def segments_deleted(self, topic: str, *, segments: int, size_bytes: int) -> None: ...

    def deletion_failed(self, topic: str) -> None: ...


def copy_limits(dependencies: Dependencies) -> CopyLimitDecisions:
    """What may be copied each second: as decided for the cluster, else as configured."""
    return CopyLimitDecisions(
        settings=dependencies.metadata.settings,
        node_id=dependencies.config.node_id,
        configured=dependencies.config.remote_log_manager_copy_max_bytes_per_second,
        clock=dependencies.clock,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )


def copier(
    dependencies: Dependencies,
    live: LiveAttempts,
    writes: StoreWrites,
    quota: CopyQuota,
    counts: SegmentCounts,
) -> Copier:
    """Copies single segments, each to the store that the rules name."""
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
        ended=counts.copy_attempt_ended,
        remote_index=dependencies.reader.remote_index,
        tracer=dependencies.tracer,
    )


def record_deletions(dependencies: Dependencies) -> RecordDeletions:
    """DeleteRecords to our broker, which may still have one of an earlier process (H41)."""
    return RecordDeletions(
        dependencies.broker.deletion_connection,
        dependencies.clock,
        at_once=dependencies.config.remote_log_manager_expiration_thread_pool_size,
        drain_ms=dependencies.config.trim_drain_ms,
        had_predecessor=True,
    )


def lost_segments(dependencies: Dependencies, evidence: StoreEvidence) -> LostSegments:
    """Which segments the stores do not have any more."""
    return LostSegments(
        evidence=evidence,
        losses=dependencies.tier.losses,
        clock=dependencies.clock,
        check_interval_ms=lambda: dependencies.running.now.copy_presence_check_interval_ms,
    )


def trim_task(
    dependencies: Dependencies,
    deletions: RecordDeletions,
    evidence: StoreEvidence,
    lost: LostSegments,
    retention: ClusterRetention,
) -> TrimTask:
    """Cuts the broker's log where the remote tier has it (G1)."""
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


def cleanup_task(
    dependencies: Dependencies,
    evidence: StoreEvidence,
    deleter: SegmentDeleter,
    lost: LostSegments,
    holes: HoleRecords,
    live: LiveAttempts,
    time: CertainTime,
) -> CleanupTask:
    """Deletes what attempts left behind in the stores."""
    return CleanupTask(
        snapshots=dependencies.snapshots,
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        evidence=evidence,
        deleter=deleter,
        lost=lost,
        holes=holes,
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


def expiry_task(
    dependencies: Dependencies,
    deleter: SegmentDeleter,
    live: LiveAttempts,
    counts: SegmentCounts,
    time: CertainTime,
) -> ExpiryTask:
    """Deletes segments that the retention of their topics has ended."""
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
        failed=counts.deletion_failed,
    )


def _copy_settings(dependencies: Dependencies) -> CopySettings:
    return CopySettings(
        cluster_id=dependencies.config.cluster_id,
        node_id=dependencies.config.node_id,
        writer=dependencies.writer,
        software=software_name(),
        deadline_ms=dependencies.config.copy_deadline_ms,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
        limit=CopyLimit(slots=dependencies.config.copy_slots),
        index_interval_bytes=dependencies.config.remote_index_interval_bytes,
    )


def _trim_settings(config: ServiceConfig) -> TrimSettings:
    return TrimSettings(
        plan_deadline_ms=config.trim_plan_deadline_ms,
        check_max_age_ms=config.trim_check_max_age_ms,
        hold_max_ms=config.trim_hold_max_ms,
        heartbeat_max_age_ms=DEAD_AFTER_BEATS * config.heartbeat_interval_ms,
        delete_hold_ms=_DELETE_HOLD_MS,
    )

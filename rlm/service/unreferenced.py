"""Wires the deletion of segments of dead histories for one service: replaced, or discarded."""

from rlm.plans.freeze import DEFAULT_MAX_ORPHANS
from rlm.service.dependencies import Dependencies
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.tasks.certain_time import CertainTime
from rlm.tasks.copy_attempt import LiveAttempts
from rlm.tasks.discard import DiscardTask
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.expiry import ExpiryTask
from rlm.tasks.partition_end import PartitionEnd
from rlm.tasks.segment_deletion import SegmentDeleter
from rlm.tasks.unreferenced import UnreferencedSettings, UnreferencedTask


def unreferenced_task(
    dependencies: Dependencies,
    expiry: ExpiryTask,
    evidence: StoreEvidence,
    deleter: SegmentDeleter,
    live: LiveAttempts,
    time: CertainTime,
) -> UnreferencedTask:
    """The step of the expiration task that deletes segments of dead histories."""
    return UnreferencedTask(
        snapshots=dependencies.snapshots,
        settings=dependencies.metadata.settings,
        expiry=expiry,
        evidence=evidence,
        deleter=deleter,
        live=live,
        audit=dependencies.audit,
        time=time,
        config=UnreferencedSettings(
            grace_ms=dependencies.config.remote_unreferenced_grace_ms,
            max_orphans=DEFAULT_MAX_ORPHANS,
        ),
    )


def discard_task(
    dependencies: Dependencies, deleter: SegmentDeleter, time: CertainTime
) -> DiscardTask:
    """The step of the expiration task that gives up the remote part of a frozen partition."""
    return DiscardTask(
        snapshots=dependencies.snapshots,
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        starts=dependencies.starts,
        partition_end=partition_end(dependencies, deleter),
        audit=dependencies.audit,
        clock=dependencies.clock,
        time=time,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )


def partition_end(dependencies: Dependencies, deleter: SegmentDeleter) -> PartitionEnd:
    """Deletes all that is remote of a partition."""
    return PartitionEnd(
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        deleter=deleter,
        audit=dependencies.audit,
        clock=dependencies.clock,
        node_id=dependencies.config.node_id,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )

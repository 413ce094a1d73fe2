"""Builds what watches copies from beside the tasks: transactions, bounded retention, holes."""

from collections.abc import Callable
from functools import partial

from rlm.broker.leadership import LedPartition
from rlm.log_dir.held_segments import SegmentFiles
from rlm.service.dependencies import Dependencies
from rlm.service.verify_tasks import unlisted_anywhere
from rlm.tasks.bounded_retention import BoundedRetentionWatch, TieredPartition
from rlm.tasks.copy import CopyTask
from rlm.tasks.hole_watch import HoleWatch
from rlm.tasks.lost_segments import HoleRecords, LostSegments
from rlm.tasks.schedule import led_rows
from rlm.tasks.segment_holds import SegmentHolds
from rlm.tasks.transaction_watch import TransactionWatch
from rlm.topics.takeover import is_taken_over

_HELD_FILES = "held"
_LEAST_PINNED_MS = 10_000
_CHECKS = 5
"""Checks for a bound in the time of one check that sets retention back: a broker deletes files a
minute after it has marked them (file.delete.delay.ms).
"""


def segment_holds(dependencies: Dependencies) -> SegmentHolds:
    """The open files are named in the state directory."""
    files = SegmentFiles(dependencies.config.state_dir / _HELD_FILES)
    return SegmentHolds(files, dependencies.threads.snapshots)


def bounded_retention_watch(
    dependencies: Dependencies,
    holds: SegmentHolds,
    copy: CopyTask,
    request: Callable[[LedPartition], None],
) -> BoundedRetentionWatch:
    """`request` asks for a copy task."""
    config, settings = dependencies.config, dependencies.metadata.settings

    def tiered() -> list[TieredPartition]:
        rows = led_rows(dependencies.leadership, settings, config.node_id)
        records = ((row, settings.view.topic(row.topic_id_partition.topic_id)) for row in rows)
        return [
            TieredPartition(led=row, given_back=record.given_back is not None)
            for row, record in records
            if record is not None and is_taken_over(record)
        ]

    return BoundedRetentionWatch(
        holds=holds,
        broker=dependencies.broker,
        snapshots=dependencies.snapshots,
        tiered=tiered,
        has_space=dependencies.disk_watch.has_space,
        gives_way=partial(
            dependencies.disk_pressure.needs_space_of, ledger=dependencies.metadata.manager
        ),
        uncopied=copy.uncopied,
        request=request,
        clock=dependencies.clock,
        interval_ms=max(
            config.leadership_poll_interval_ms, config.retention_check_interval_ms // _CHECKS
        ),
    )


def transaction_watch(dependencies: Dependencies, copy: CopyTask) -> TransactionWatch:
    """A transaction may stay open for as long as a copy may take before that is a problem."""
    running = dependencies.running

    def interval_ms() -> int:
        return running.now.remote_log_manager_task_interval_ms

    return TransactionWatch(
        copies=copy,
        broker=dependencies.broker,
        clock=dependencies.clock,
        interval_ms=interval_ms,
        least_ms=lambda: max(_LEAST_PINNED_MS, running.now.problem_copy_intervals * interval_ms()),
    )


def hole_watch(
    dependencies: Dependencies, holes: HoleRecords, lost: LostSegments, holds: SegmentHolds
) -> HoleWatch:
    """What is held is no hole."""
    return HoleWatch(
        snapshots=dependencies.snapshots,
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        holes=holes,
        lost=lost,
        held=holds.missing,
        unlisted=unlisted_anywhere(dependencies),
        clock=dependencies.clock,
    )

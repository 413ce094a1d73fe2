"""Builds what watches copies from beside the tasks: transactions, bounded retention, holes."""

from rlm.service.dependencies import Dependencies
from rlm.tasks.copy import CopyTask
from rlm.tasks.transaction_watch import TransactionWatch

_LEAST_PINNED_MS = 10_000


def transaction_watch(dependencies: Dependencies, copy: CopyTask) -> TransactionWatch:
    """A transaction may stay open for as long as a copy may take before that is a problem."""
    config = dependencies.config
    interval_ms = config.remote_log_manager_task_interval_ms
    return TransactionWatch(
        copies=copy,
        broker=dependencies.broker,
        clock=dependencies.clock,
        interval_ms=interval_ms,
        least_ms=max(_LEAST_PINNED_MS, config.problem_copy_intervals * interval_ms),
    )

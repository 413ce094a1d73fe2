"""Which gauges a broker's service has, and of which of its parts each is read."""

from collections.abc import Callable, Sequence

from rlm.plans.problems import Problem
from rlm.service.certificates import Certificates
from rlm.service.clients import Clients
from rlm.service.dependencies import Dependencies
from rlm.service.gauges import (
    copy_gauges,
    held_gauges,
    problem_and_partition_gauges,
    process_gauges,
    purgatory_gauges,
    store_gauges,
    task_gauges,
    thread_gauges,
)
from rlm.service.log_dirs import LogDirReports, log_dir_gauges
from rlm.service.loop_watch import LoopWatch
from rlm.service.metrics import GaugeSource, ServiceMetrics
from rlm.service.partition_gauges import PartitionGauges
from rlm.service.partition_problems import PartitionProblems
from rlm.service.read_path import hedge_gauges, read_gauges, throttle_gauges
from rlm.service.safety_gauges import RunAges, safety_gauges
from rlm.service.statuses import Statuses
from rlm.service.tasks import TaskWiring
from rlm.tasks.pool import TaskPool


def add_gauges(
    metrics: ServiceMetrics,
    shared: Dependencies,
    tasks: TaskWiring,
    clients: Clients,
    statuses: Statuses,
    partition_problems: PartitionProblems,
    log_dirs: LogDirReports,
    problems: Callable[[], Sequence[Problem]],
    pools: Sequence[TaskPool],
) -> None:
    """What the parts of a service know, read at each scrape."""
    metrics.add_gauges(
        problem_and_partition_gauges(
            problems,
            statuses.led,
            PartitionGauges(
                shared.clock, shared.config.metrics_per_partition, tasks.transactions.pinned_ms
            ),
        ),
        _run_ages(shared, tasks, partition_problems).gauges,
        lambda: task_gauges(pools) | purgatory_gauges(clients.purgatory_size()),
        lambda: process_gauges(clients.processes()),
        lambda: copy_gauges(partition_problems.copying()),
        lambda: thread_gauges(shared.threads.pools()),
        lambda: held_gauges(*tasks.bounded_retention.counts()),
        lambda: store_gauges(shared.stores.statuses()),
        lambda: log_dir_gauges(log_dirs.reports()),
        lambda: (
            read_gauges(shared.reader, shared.disk_cache)
            | hedge_gauges(shared.stores.routed.hedges)
        ),
        lambda: throttle_gauges(shared.throttle.counts),
    )


def service_safety(
    shared: Dependencies, certificates: Certificates, loop_watch: LoopWatch
) -> GaugeSource:
    """By what a service is watched, apart from its partitions."""
    stores = shared.stores.opened
    return safety_gauges(
        shared.config, shared.metadata, stores, certificates, loop_watch, shared.clock
    )


def _run_ages(
    shared: Dependencies, tasks: TaskWiring, partition_problems: PartitionProblems
) -> RunAges:
    return RunAges(
        partitions=partition_problems,
        good_runs=tasks.good_runs,
        verified_ms=tasks.verify.watch.whole_ms if shared.config.verify_interval_ms else None,
        clock=shared.clock,
    )

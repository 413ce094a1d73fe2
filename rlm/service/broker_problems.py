"""What a broker's service knows of its problems: where findings come from, and who reports them.

Composition only: the rules are pure (`rlm/plans/problem_rules.py`).
"""

from rlm.plans.process_rules import process_findings
from rlm.remote_log.leader_view import LocalTier
from rlm.service.apis import TopicWiring
from rlm.service.certificates import Certificates
from rlm.service.clients import Clients
from rlm.service.coming_losses import ComingLosses
from rlm.service.dependencies import Dependencies
from rlm.service.listeners import HealthState
from rlm.service.log_dirs import LogDirReports
from rlm.service.partition_problems import PartitionProblems
from rlm.service.problems import (
    CommonSources,
    FindingSource,
    ProblemWatch,
    ServiceSources,
    service_limits,
)
from rlm.service.statuses import Statuses
from rlm.service.tasks import TaskWiring


def build_partition_problems(dependencies: Dependencies, tasks: TaskWiring) -> PartitionProblems:
    return PartitionProblems(
        node_id=dependencies.config.node_id,
        leadership=dependencies.leadership,
        snapshots=dependencies.snapshots,
        settings=dependencies.metadata.settings,
        ledger=dependencies.metadata.manager,
        partition_tasks=tasks.partition_tasks,
        deletions=tasks.deletions,
        losses=dependencies.tier.losses,
        clock=dependencies.clock,
        limits=lambda: service_limits(dependencies.running.now),
        losses_to_come=ComingLosses(
            dependencies.snapshots, dependencies.clock, dependencies.config.problem_loss_ms
        ),
        copy_limit=tasks.copy_limits.in_effect,
    )


def build_log_dirs(
    dependencies: Dependencies,
    tasks: TaskWiring,
    partition_problems: PartitionProblems,
) -> LogDirReports:
    return LogDirReports(
        watch=dependencies.disk_watch,
        node_id=dependencies.config.node_id,
        leadership=dependencies.leadership,
        snapshots=dependencies.snapshots,
        settings=dependencies.metadata.settings,
        lags=partition_problems.lags,
        trims=tasks.partition_tasks.trim.statuses,
        warn_ms=dependencies.config.problem_disk_full_ms,
    )


def build_problem_sources(
    dependencies: Dependencies,
    tasks: TaskWiring,
    topics: TopicWiring,
    certificates: Certificates,
    partitions: PartitionProblems,
    log_dirs: LogDirReports,
    clients: Clients,
) -> tuple[FindingSource, ...]:
    limits = service_limits(dependencies.config)
    common = CommonSources(
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        log=dependencies.metadata.log,
        stores=dependencies.stores,
        certificates=certificates,
        hung_threads=dependencies.threads.hung,
        refusals=lambda: dependencies.security.refusals,
        clock=dependencies.clock,
        limits=limits,
        writes=tasks.writes,
    )
    return ServiceSources(
        node_id=dependencies.config.node_id,
        common=common,
        settings=dependencies.metadata.settings,
        leadership=dependencies.leadership,
        heartbeat=dependencies.heartbeat,
        heartbeat_interval_ms=dependencies.config.heartbeat_interval_ms,
        needs_all_brokers=dependencies.config.rewrites_addresses,
        partitions=partitions,
        pools=(tasks.partition_tasks.copy_pool, tasks.partition_tasks.cleanup_pool),
        keeper=topics.keeper,
        clock=dependencies.clock,
        limits=limits,
        principal=dependencies.config.kafka_security().principal,
        others=(
            topics.access_watch.findings,
            topics.recreated.findings,
            tasks.verify.watch.findings,
            tasks.transactions.findings,
            topics.purge.findings,
            log_dirs.findings,
            dependencies.disk_pressure.findings,
            topics.giveback.findings,
            tasks.findings,
            lambda: process_findings(clients.processes()),
        ),
    ).sources()


def build_statuses(
    dependencies: Dependencies,
    tasks: TaskWiring,
    partition_problems: PartitionProblems,
    problems: ProblemWatch,
) -> Statuses:
    return Statuses(
        node_id=dependencies.config.node_id,
        leadership=dependencies.leadership,
        snapshots=dependencies.snapshots,
        settings=dependencies.metadata.settings,
        ledger=dependencies.metadata.manager,
        partition_tasks=tasks.partition_tasks,
        run_copy=tasks.run_copy,
        clock=dependencies.clock,
        partition_problems=partition_problems,
        problems=problems.current,
    )


def health_state(tier: LocalTier, problems: ProblemWatch) -> HealthState:
    """Ready once clients can be served; problems for operators do not make it unready."""
    return HealthState(alive=True, ready=tier.ready(), problems=problems.current())

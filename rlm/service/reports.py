"""Wires the calls of the gRPC API that only report (rlm.api.report_calls)."""

from collections.abc import Callable
from functools import partial

from rlm.api.calls import Gate, TokenSource
from rlm.api.clients import ClusterClients
from rlm.api.costs import ClusterCosts
from rlm.api.diagnosis import ClusterDiagnosis, Documents
from rlm.api.peers import Peers
from rlm.api.ports import Problems
from rlm.api.report_calls import Reports
from rlm.api.task_events import ClusterEvents
from rlm.api.topic_plans import TopicPlans
from rlm.config import ServiceConfig
from rlm.log_dir.scanner import LogDirs
from rlm.plans.client_activity import ClientRow
from rlm.plans.costs import Prices
from rlm.service.dependencies import Dependencies
from rlm.service.diagnosis import ServiceDiagnosis, secrets_of
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.service.tasks import TaskWiring
from rlm.service.topic_plans import TopicMeasures
from rlm.topics.cluster import ClusterGroups, OtherBrokers
from rlm.topics.local_logs import Scan
from rlm.topics.verbs import TopicVerbs


def build_reports(
    dependencies: Dependencies,
    tasks: TaskWiring,
    verbs: TopicVerbs,
    brokers: OtherBrokers,
    gate: Gate,
    peers: Peers,
    clients: Callable[[], tuple[ClientRow, ...]],
    documents: Documents,
) -> Reports:
    """The calls of a service beside a broker."""
    return Reports(
        gate=gate,
        peers=peers,
        clients=ClusterClients(
            peers=peers,
            rows=clients,
            groups=ClusterGroups(brokers),
            share_groups=dependencies.share_groups,
            broker=dependencies.broker,
        ),
        plans=TopicPlans(
            peers=peers,
            check=verbs,
            measures=TopicMeasures(
                node_id=dependencies.config.node_id,
                scan=scan_of(dependencies),
                threads=dependencies.threads.snapshots,
                ledger=dependencies.metadata.manager,
                settings=dependencies.metadata.settings,
                part_bytes=partial(_part_bytes, dependencies),
                clock=dependencies.clock,
            ),
            broker=dependencies.broker,
            copy_limit=tasks.copy_limits.in_effect,
        ),
        diagnosis=ClusterDiagnosis(peers=peers, documents=documents),
        events=ClusterEvents(peers=peers, decisions=tasks.decisions),
        costs=ClusterCosts(
            peers=peers,
            settings=dependencies.metadata.settings,
            ledger=dependencies.metadata.manager,
            prices=partial(prices_of, dependencies.config),
            part_bytes=partial(_part_bytes, dependencies),
            reads=partial(_store_reads, dependencies),
            threads=dependencies.threads.other,
            clock=dependencies.clock,
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
        ),
    )


def build_diagnosis(
    dependencies: Dependencies,
    metrics: Callable[[], bytes],
    problems: Problems,
    tokens: TokenSource,
) -> ServiceDiagnosis:
    """What this service knows of itself."""
    config = dependencies.config
    return ServiceDiagnosis(
        node_id=config.node_id,
        settings_shown=lambda: dependencies.running.now.shown(),
        secrets=secrets_of(config, tokens),
        metrics=metrics,
        problems=problems,
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        log_dirs=config.log_dirs,
        threads=dependencies.threads.other,
    )


def scan_of(dependencies: Dependencies) -> Scan:
    """Reads the partition directories of this broker; blocks."""
    return LogDirs([str(path) for path in dependencies.config.log_dirs]).scan


def _part_bytes(dependencies: Dependencies, topic: str) -> int | None:
    name = dependencies.stores.targets.endpoint(topic, 0).store
    return next((one.part_bytes for one in dependencies.config.stores if one.name == name), None)


def prices_of(config: ServiceConfig) -> Prices:
    """As the settings have them."""
    return Prices(
        currency=config.cost_currency,
        storage_gib_month=config.cost_storage_per_gib_month,
        put_1000=config.cost_put_per_1000,
        get_1000=config.cost_get_per_1000,
        local_gib_month=config.cost_local_per_gib_month,
    )


def _store_reads(dependencies: Dependencies) -> int:
    """Requests for ranges and indexes; what is asked for twice is counted once."""
    counts = dependencies.reader.counts
    return counts.ranges + counts.indexes

"""Wires reads of a broker's service by gRPC: of both tiers, and of the remote one alone.

Nothing here is on the path of a Kafka client.
"""

from kip405.process import software_version
from rlm.api.calls import Gate
from rlm.api.endpoints import BROKER, Endpoint, Endpoints
from rlm.api.fetch import FetchDependencies, FetchService
from rlm.api.peers import Peers
from rlm.api.remote_fetch import RemoteDependencies
from rlm.remote_log.objects import RemoteLogs
from rlm.remote_log.reads import PartitionReading
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.remote_log.topic_refs import TopicResolver
from rlm.service.dependencies import Dependencies
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.service.statuses import Statuses


def build_fetch(
    dependencies: Dependencies, *, gate: Gate, peers: Peers, statuses: Statuses
) -> FetchService:
    """Reads of both tiers."""
    metadata, tier, broker = dependencies.metadata, dependencies.tier, dependencies.broker
    leadership = dependencies.leadership
    remote_logs = RemoteLogs(
        cluster_id=dependencies.config.cluster_id,
        known=lambda key: leadership.snapshot.partitions.get(key),
        snapshots=dependencies.snapshots,
        ledgers=metadata.manager,
        store=dependencies.stores.routed,
        threads=dependencies.threads.reads,
    )
    return FetchService(
        FetchDependencies(
            remote=_remote(dependencies, gate, remote_logs),
            resolver=TopicResolver(broker, metadata.settings),
            peers=peers,
            reading=PartitionReading(
                tier=tier, broker=broker, barrier_deadline_ms=BARRIER_DEADLINE_MS
            ),
            tier=tier,
            broker=broker,
            settings=metadata.settings,
            statuses=statuses,
            copy=statuses,
            remote_logs=remote_logs,
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
            now_ms=dependencies.clock.now_ms,
        )
    )


def _remote(dependencies: Dependencies, gate: Gate, remote_logs: RemoteLogs) -> RemoteDependencies:
    """What the API answers without the broker, as a reader service does."""
    view = remote_view(dependencies)
    return RemoteDependencies(
        gate=gate,
        view=view,
        reading=RemoteReading(view=view, reader=dependencies.tier.lineage_reader),
        ledger=dependencies.metadata.manager,
        objects=remote_logs,
        endpoints=endpoints(dependencies),
        throttle=dependencies.throttle,
    )


def remote_view(dependencies: Dependencies) -> RemoteView:
    """The remote tier alone, by ledger and settings."""
    metadata = dependencies.metadata
    return RemoteView(settings=metadata.settings, ledger=metadata.manager, clock=dependencies.clock)


def endpoints(dependencies: Dependencies) -> Endpoints:
    """The services of the cluster, as this one names them."""
    config = dependencies.config
    return Endpoints(
        own=Endpoint(
            grpc_address=str(config.grpc_advertised),
            role=BROKER,
            node_id=config.node_id,
            version=software_version(),
        ),
        settings=dependencies.metadata.settings,
        clock=dependencies.clock,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
    )

"""Wires what answers people and programs: gRPC API, topic verbs, HTTP endpoint and metrics.

Nothing here is on the path of a Kafka client.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kip405.errors import Fenced
from kip405.ids import PartitionKey
from kip405.version import software_version
from rlm.api.admin import AdminDependencies, AdminService
from rlm.api.calls import Gate
from rlm.api.cluster_status import ClusterStatus
from rlm.api.endpoints import BROKER, Endpoint, Endpoints
from rlm.api.fetch import FetchDependencies, FetchService
from rlm.api.peers import Peers, PeerServicesAccess
from rlm.api.remote_fetch import RemoteDependencies
from rlm.api.tokens import token_source
from rlm.api.topic_summaries import TopicSummaries
from rlm.log_dir.scanner import LogDirs
from rlm.reading.gauges import read_gauges, throttle_gauges
from rlm.remote_log.objects import RemoteLogs
from rlm.remote_log.reads import PartitionReading
from rlm.remote_log.remote_only_reads import RemoteReading
from rlm.remote_log.remote_only_view import RemoteView
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.remote_log.topic_refs import TopicResolver
from rlm.service.certificates import Certificates, certificate_paths
from rlm.service.dependencies import Dependencies
from rlm.service.http_server import HealthState
from rlm.service.listening import Listening
from rlm.service.metrics import (
    Labelled,
    ServiceMetrics,
    partition_gauges,
    problem_gauges,
    store_gauges,
    task_gauges,
    thread_gauges,
)
from rlm.service.partition_problems import PartitionProblems
from rlm.service.problem_sources import CommonSources, ServiceSources, service_limits
from rlm.service.problem_watch import ProblemWatch
from rlm.service.statuses import Statuses
from rlm.service.tasks import BARRIER_DEADLINE_MS, TaskWiring
from rlm.tasks.accept_loss import LossAcceptance
from rlm.tasks.pool import TaskPool
from rlm.topics.access import Access, AccessWatch, ClusterAccess, PeerAccess, ServiceAccess
from rlm.topics.cluster import OtherBrokers
from rlm.topics.existing_logs import DiskLogs
from rlm.topics.freezes import Adoption, Freezes
from rlm.topics.groups import ClusterGroups
from rlm.topics.growth import LogDirSpace
from rlm.topics.keeper import RetentionKeeper
from rlm.topics.readers import ReaderCheck
from rlm.topics.reenable import RecreatedTopicWatch
from rlm.topics.starts import Starts
from rlm.topics.takeover import Settler
from rlm.topics.verbs import Dependencies as VerbDependencies
from rlm.topics.verbs import TopicVerbs

_PEER_TIMEOUT_MS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWiring:
    """The topic verbs and the components that maintain what the verbs decided."""

    verbs: TopicVerbs
    access: Access
    access_watch: AccessWatch
    keeper: RetentionKeeper
    recreated: RecreatedTopicWatch
    freezes: Freezes
    brokers: OtherBrokers


class Apis:
    """The APIs of one service; building contacts nothing. `start` listens, `close` ends in
    order.
    """

    def __init__(
        self, parts: Dependencies, pools: tuple[TaskPool, TaskPool], work: TaskWiring
    ) -> None:
        self._parts = parts
        self._pools = pools
        self._work = work
        self._peers: Peers | None = None
        self._topics = _topic_wiring(parts, PeerServicesAccess(lambda: self._peers))
        partitions = _partition_problems(parts, work)
        self._certificates = Certificates(
            certificate_paths(parts.config), parts.clock, parts.threads.other
        )
        self.problems = ProblemWatch(
            _sources(parts, work, self._topics, self._certificates, partitions).sources,
            parts.clock,
        )
        self._statuses = Statuses(
            node_id=parts.config.node_id,
            leadership=parts.leadership,
            snapshots=parts.snapshots,
            settings=parts.metadata.settings,
            manager=parts.metadata.manager,
            pools=pools,
            work=work,
            clock=parts.clock,
            partition_problems=partitions,
            problems=self.problems.current,
        )
        self.metrics = ServiceMetrics(self._gauges)
        self._listening = Listening(parts.config, health=self._health, metrics=self.metrics.render)

    async def start(self) -> None:
        """Listen for HTTP and gRPC. Invalid: a port is taken, or the token file is not valid."""
        config = self._parts.config
        tokens = token_source(config.api_token_file, self._parts.clock)
        self._peers = Peers(
            node_id=config.node_id,
            principal=config.principal,
            tokens=tokens,
            settings=self._parts.metadata.settings,
            clock=self._parts.clock,
            timeout_ms=_PEER_TIMEOUT_MS,
            tls=config.peer_tls,
        )
        gate = Gate(tokens)
        await self._listening.start(
            admin=self._admin(gate, self._peers), fetch=self._fetch(gate, self._peers)
        )

    async def keep_topics(self) -> None:
        """Enforce the retention of topics that were taken over, until cancelled (H14)."""
        await self._topics.keeper.run()

    async def watch_names(self) -> None:
        """Detect topics recreated under the name of an enabled one, until cancelled (H39)."""
        await self._topics.recreated.run()

    async def watch_access(self) -> None:
        """Check that the service still has every ACL that it needs, until cancelled (H40)."""
        await self._parts.metadata.log.wait_ready()
        await self._topics.access_watch.run()

    def background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What runs in the background beside the APIs, by component name."""
        return {
            "topics": self.keep_topics,
            "access": self.watch_access,
            "topic names": self.watch_names,
            "certificates": self._certificates.run,
            "problems": self.problems.run,
        }

    async def close(self) -> None:
        await self._listening.close()
        if self._peers is not None:
            await self._peers.close()
        await self._topics.brokers.close()

    def _admin(self, gate: Gate, peers: Peers) -> AdminService:
        parts = self._parts
        settings, broker = parts.metadata.settings, parts.broker
        return AdminService(
            AdminDependencies(
                gate=gate,
                verbs=self._topics.verbs,
                access=self._topics.access,
                freezes=self._topics.freezes,
                adoption=Adoption(
                    broker=broker, settings=settings, barrier_deadline_ms=BARRIER_DEADLINE_MS
                ),
                losses=self._loss_acceptance(),
                summaries=TopicSummaries(
                    settings=settings,
                    ledger=parts.metadata.manager,
                    broker=broker,
                    barrier_deadline_ms=BARRIER_DEADLINE_MS,
                ),
                status=ClusterStatus(
                    peers=peers,
                    statuses=self._statuses,
                    settings=settings,
                    broker=broker,
                    freezes=self._topics.freezes,
                    problems=self.problems.current,
                    stores=parts.stores.statuses,
                    endpoints=self._endpoints(),
                    version=software_version(),
                    now_ms=parts.clock.now_ms,
                ),
                statuses=self._statuses,
                places=TopicResolver(broker, settings),
                peers=peers,
                stores=parts.stores,
            )
        )

    def _loss_acceptance(self) -> LossAcceptance:
        parts, work = self._parts, self._work

        async def snapshot(key: PartitionKey) -> PartitionSnapshot:
            row = parts.leadership.snapshot.partitions.get(key)
            if row is None or row.leader != parts.config.node_id:
                raise Fenced(f"partition {key} is not led by node {parts.config.node_id}")
            return await parts.snapshots.take(row)

        return LossAcceptance(
            snapshot=snapshot,
            ledger=parts.metadata.manager,
            settings=parts.metadata.settings,
            evidence=work.evidence,
            lost=work.lost,
            holes=work.holes,
        )

    def _fetch(self, gate: Gate, peers: Peers) -> FetchService:
        parts = self._parts
        remote_logs = RemoteLogs(
            cluster_id=parts.config.cluster_id,
            known=lambda key: parts.leadership.snapshot.partitions.get(key),
            snapshots=parts.snapshots,
            ledgers=parts.metadata.manager,
            store=parts.stores.routed,
            threads=parts.threads.reads,
        )
        return FetchService(
            FetchDependencies(
                remote=self._remote(gate, remote_logs),
                places=TopicResolver(parts.broker, parts.metadata.settings),
                peers=peers,
                reading=PartitionReading(
                    tier=parts.tier, broker=parts.broker, barrier_deadline_ms=BARRIER_DEADLINE_MS
                ),
                tier=parts.tier,
                broker=parts.broker,
                settings=parts.metadata.settings,
                statuses=self._statuses,
                copy=self._statuses,
                remote_logs=remote_logs,
                barrier_deadline_ms=BARRIER_DEADLINE_MS,
            )
        )

    def _remote(self, gate: Gate, remote_logs: RemoteLogs) -> RemoteDependencies:
        """What the API answers without the broker, as a reader service does."""
        parts = self._parts
        metadata = parts.metadata
        view = RemoteView(settings=metadata.settings, ledger=metadata.manager, clock=parts.clock)
        return RemoteDependencies(
            gate=gate,
            view=view,
            reading=RemoteReading(view=view, walk=parts.tier.walk),
            ledger=metadata.manager,
            objects=remote_logs,
            endpoints=self._endpoints(),
            throttle=parts.throttle,
        )

    def _endpoints(self) -> Endpoints:
        config = self._parts.config
        return Endpoints(
            own=Endpoint(
                grpc_address=str(config.grpc_advertised),
                role=BROKER,
                node_id=config.node_id,
                version=software_version(),
            ),
            settings=self._parts.metadata.settings,
            clock=self._parts.clock,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
        )

    def _gauges(self) -> dict[str, Labelled]:
        return {
            **partition_gauges(self._statuses.led()),
            **task_gauges(self._pools),
            **thread_gauges(self._parts.threads.pools()),
            **problem_gauges(self.problems.current()),
            **store_gauges(self._parts.stores.statuses()),
            **read_gauges(self._parts.reader, self._parts.disk_cache),
            **throttle_gauges(self._parts.throttle.counts),
        }

    def _health(self) -> HealthState:
        """Ready once clients can be served; problems for operators do not make it unready."""
        return HealthState(
            alive=True, ready=self._parts.tier.ready(), problems=self.problems.current()
        )


def _sources(
    parts: Dependencies,
    work: TaskWiring,
    topics: TopicWiring,
    certificates: Certificates,
    partitions: PartitionProblems,
) -> ServiceSources:
    limits = service_limits(parts.config)
    return ServiceSources(
        node_id=parts.config.node_id,
        common=CommonSources(
            metadata=parts.metadata,
            stores=parts.stores,
            certificates=certificates,
            hung_threads=parts.threads.hung,
            clock=parts.clock,
            limits=limits,
            writes=work.writes,
        ),
        settings=parts.metadata.settings,
        leadership=parts.leadership,
        heartbeat=parts.heartbeat,
        heartbeat_interval_ms=parts.config.heartbeat_interval_ms,
        partitions=partitions,
        pools=(work.partition_tasks.copy_pool, work.partition_tasks.cleanup_pool),
        keeper=topics.keeper,
        clock=parts.clock,
        limits=limits,
        others=(topics.access_watch.findings, topics.recreated.findings),
    )


def _partition_problems(parts: Dependencies, work: TaskWiring) -> PartitionProblems:
    return PartitionProblems(
        node_id=parts.config.node_id,
        leadership=parts.leadership,
        snapshots=parts.snapshots,
        settings=parts.metadata.settings,
        manager=parts.metadata.manager,
        partition_tasks=work.partition_tasks,
        deletions=work.deletions,
        losses=parts.tier.losses,
        clock=parts.clock,
        limits=service_limits(parts.config),
    )


def _topic_wiring(parts: Dependencies, peers: PeerAccess) -> TopicWiring:
    config, settings, broker = parts.config, parts.metadata.settings, parts.broker
    brokers = OtherBrokers(broker, client_id=f"rlm-{config.node_id}-others")
    groups = ClusterGroups(brokers)
    access = ServiceAccess(
        node_id=config.node_id, broker=broker, groups=groups, share_groups=parts.share_groups
    )
    settler = Settler(
        node_id=config.node_id,
        broker=broker,
        settings=settings,
        clock=parts.clock,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )
    verbs = TopicVerbs(
        VerbDependencies(
            node_id=config.node_id,
            broker=broker,
            offsets=brokers,
            settings=settings,
            ledger=parts.metadata.manager,
            disk=LogDirSpace(config.log_dirs, parts.threads.other),
            starts=Starts(settings=settings, offsets=brokers),
            access=ClusterAccess(node_id=config.node_id, own=access, peers=peers),
            logs=_disk_logs(parts),
            readers=ReaderCheck(
                offsets=brokers,
                groups=groups,
                share_groups=parts.share_groups,
                clock=parts.clock,
            ),
            settler=settler,
            refuse_untiered=parts.stores.targets.refuse_untiered,
            clock=parts.clock,
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
        )
    )
    keeper = RetentionKeeper(
        verbs=verbs,
        settler=settler,
        broker=broker,
        settings=settings,
        clock=parts.clock,
        interval_ms=config.retention_check_interval_ms,
        takeover=config.retention_takeover,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )
    freezes = Freezes(settings=settings, broker=broker, barrier_deadline_ms=BARRIER_DEADLINE_MS)
    watch = AccessWatch(
        allowed=parts.allowed,
        settings=settings,
        clock=parts.clock,
        interval_ms=config.access_check_interval_ms,
    )
    return TopicWiring(
        verbs=verbs,
        access=access,
        access_watch=watch,
        keeper=keeper,
        recreated=RecreatedTopicWatch(
            verbs=verbs,
            broker=broker,
            settings=settings,
            clock=parts.clock,
            interval_ms=config.retention_check_interval_ms,
            reenable=config.topics_reenable,
        ),
        freezes=freezes,
        brokers=brokers,
    )


def _disk_logs(parts: Dependencies) -> DiskLogs:
    log_dirs = LogDirs([str(path) for path in parts.config.log_dirs])
    return DiskLogs(log_dirs.scan, parts.threads.snapshots, parts.clock)

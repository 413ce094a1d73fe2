"""API servers over a cluster in memory: real gRPC, real topic verbs, a small log behind them."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import structlog
from grpc import aio

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP
from kip405.errors import Fenced, RemoteStorageError
from kip405.ids import PartitionKey, Uuid
from rlm.api.admin import AdminDependencies, AdminService
from rlm.api.calls import Gate, TokenSource, no_tokens
from rlm.api.cluster_copy import ClusterCopy
from rlm.api.cluster_status import ClusterStatus
from rlm.api.cluster_verify import ClusterVerify
from rlm.api.endpoints import BROKER, Endpoint, Endpoints
from rlm.api.expiry_plans import ExpiryPlans
from rlm.api.fetch import FetchDependencies, FetchService
from rlm.api.peers import Peers, PeerServicesAccess
from rlm.api.ports import CopyOutcome, PartitionStatus
from rlm.api.remote_fetch import RemoteDependencies
from rlm.api.server import ApiServer
from rlm.api.topic_summaries import TopicSummaries
from rlm.broker.answers import LocalRecords, OffsetAnswer
from rlm.broker.leadership import LedPartition
from rlm.plans.client_activity import ClientTable
from rlm.plans.problems import Problem
from rlm.reading.throttle import ReadThrottle, ThrottleLimits
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.objects import RemoteLogs
from rlm.remote_log.reads import PartitionReading
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.remote_log.tier import EpochEnd, TierPartition, TopicRef, Watermarks
from rlm.remote_log.topic_refs import TopicResolver
from rlm.topics.access import PeerAccess
from rlm.topics.partition_records import Freezes
from rlm.v1.fetch_pb2 import TopicRef as TopicName
from rsm_plugins.contract.server_tls import ServerTls
from rsm_plugins.contract.tls import Tls
from tests.builders.clock import ManualClock
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.builders.offload import AT_ONCE
from tests.builders.throttle import NO_LIMITS, throttle
from tests.kip405.batch_builder import batch
from tests.rlm.api.node_fakes import (
    ApiCopies,
    ApiExplanations,
    ApiLosses,
    ApiPlanner,
    ApiPurge,
    ApiReload,
    ApiRuns,
    ApiStores,
    FullLedger,
    NoReader,
    adoption,
    copy_limits,
    no_remote_logs,
    say_alive,
)
from tests.rlm.api.report_fakes import ApiReports
from tests.rlm.topics.cluster import Cluster, ServiceSettings, no_hook
from tests.rlm.topics.world import ServiceBroker, ServiceUnderTest

PER_BATCH = 3


@dataclass(kw_only=True)
class Log:
    """Partition 0: remote [remote_start, remote_next), local [local_start, end). Whole batches."""

    remote_start: int = 0
    remote_next: int = 30
    local_start: int = 24
    end: int = 60
    last_stable: int = 54
    unsettled_next: int = -1
    empty: tuple[tuple[int, int], ...] = ()
    trims_to: list[int] = field(default_factory=list)
    frozen: bool = False
    is_tiered: bool = True
    remote_error: RemoteStorageError | None = None
    start_with_error: int = 0
    aborted: tuple[tuple[int, int], ...] = ()

    def batches(self, start: int, upper: int, max_bytes: int) -> bytes:
        first, data = start // PER_BATCH * PER_BATCH, b""
        for base in range(first, upper, PER_BATCH):
            one = batch(base, PER_BATCH, value=b"v%d" % base)
            if data and len(data) + len(one) > max_bytes:
                break
            data += one
        return data


class ApiBroker(ServiceBroker):
    """Our own broker: the cluster's topics, and the local part of the log."""

    def __init__(self, cluster: Cluster, node_id: int, log: Log) -> None:
        super().__init__(cluster, node_id, no_hook)
        self._log = log

    async def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        *,
        leader_epoch: int = -1,
        read_committed: bool = False,
        replica_id: int = -1,
    ) -> OffsetAnswer:
        latest = self._log.last_stable if read_committed else self._log.end
        offset = self._log.local_start if timestamp == EARLIEST_TIMESTAMP else latest
        return OffsetAnswer(offset=offset, leader_epoch=self._cluster.epoch, timestamp_ms=-1)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        leader_epoch: int = -1,
        read_committed: bool = False,
        max_wait_ms: int = 0,
    ) -> LocalRecords:
        if self._log.trims_to:
            self._log.local_start = self._log.trims_to.pop(0)
        if not self._log.local_start <= offset <= self._log.end:
            raise Fenced(f"fetch at {offset}: OFFSET_OUT_OF_RANGE (1)")
        upper = self._log.last_stable if read_committed else self._log.end
        return LocalRecords(
            high_watermark=self._log.end,
            last_stable_offset=self._log.last_stable,
            log_start_offset=self._log.local_start,
            records=self._log.batches(offset, upper, max_bytes) + batch(upper)[:20],
            aborted=self._log.aborted,
        )


class ApiTier:
    """The remote part of the log."""

    def __init__(self, cluster: Cluster, node_id: int, log: Log) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._log = log

    def ready(self) -> bool:
        return True

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        log = self._log
        if not log.is_tiered:
            return None
        return TierPartition(
            topic_id=TOPIC_ID,
            topic=TOPIC,
            partition=partition,
            remote_log_start_offset=log.remote_start,
            remote_next_offset=log.remote_next,
            watermarks=Watermarks(
                high_watermark=log.end,
                last_stable_offset=log.last_stable,
                log_start_offset=log.local_start,
            ),
            led_here=self._cluster.leader == self._node_id,
            leader_epoch=self._cluster.epoch,
            frozen=log.frozen,
            unsettled_next_offset=log.unsettled_next,
            empty=log.empty,
        )

    async def barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        return self.partition(topic, partition)

    async def watermarks(self, topic: TopicRef, partition: int, deadline_ms: int) -> Watermarks:
        return Watermarks(
            high_watermark=self._log.end,
            last_stable_offset=self._log.last_stable,
            log_start_offset=self._log.local_start,
        )

    async def read(self, request: RemoteRead) -> RemoteRecords:
        if self._log.remote_error is not None:
            self._log.remote_start = max(self._log.remote_start, self._log.start_with_error)
            raise self._log.remote_error
        # As the real tier: a batch that reaches beyond the bound is left out.
        upper = min(request.upper_offset, self._log.remote_next) // PER_BATCH * PER_BATCH
        data = self._log.batches(request.offset, upper, request.max_bytes)
        count = len(data) // max(1, len(batch(0, PER_BATCH, value=b"v0")))
        first = request.offset // PER_BATCH * PER_BATCH
        return RemoteRecords(
            records=(memoryview(data),),
            size_bytes=len(data),
            next_offset=min(upper, first + max(1, count) * PER_BATCH),
            aborted=self._log.aborted if request.read_committed else (),
        )

    async def offset_for_timestamp(
        self, topic_id: Uuid, partition: int, timestamp_ms: int, start_offset: int = 0
    ) -> TimestampedOffset | None:
        return TimestampedOffset(offset=9, timestamp_ms=timestamp_ms, leader_epoch=2)

    def epoch_for_offset(self, topic_id: Uuid, partition: int, offset: int) -> int:
        return 3

    def epoch_end(self, topic_id: Uuid, partition: int, leader_epoch: int) -> EpochEnd | None:
        return None


class ApiStatuses:
    """PartitionStatuses and CopyNow of one node."""

    lag_bytes: int | None = 2048
    loss_at_ms: int | None = None
    holes = 0

    def __init__(self, cluster: Cluster, node_id: int, log: Log) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._log = log
        self.problems: list[Problem] = []

    def led(self, problems: Sequence[Problem]) -> Sequence[PartitionStatus]:
        status = PartitionStatus(
            topic=TOPIC,
            topic_id=TOPIC_ID,
            partition=0,
            leader=self._node_id,
            leader_epoch=self._cluster.epoch,
            remote_log_start_offset=self._log.remote_start,
            remote_next_offset=self._log.remote_next,
            local_log_start_offset=self._log.local_start,
            last_stable_offset=self._log.last_stable,
            high_watermark=self._log.end,
            log_end_offset=self._log.end,
            lag_bytes=self.lag_bytes,
            lag_segments=None if self.lag_bytes is None else 1,
            loss_at_ms=self.loss_at_ms,
            holes=self.holes,
            frozen="remote data beyond the log's end" if self._log.frozen else "",
        )
        leads = self._cluster.leader == self._node_id
        return (status, replace(status, partition=1)) if leads else ()

    async def current(self, key: PartitionKey) -> PartitionStatus:
        for status in (one for one in self.led(()) if one.key == key):
            return status
        raise Fenced(f"{key} is not led here")

    async def copy_now(self, key: PartitionKey, up_to_offset: int | None) -> CopyOutcome:
        return CopyOutcome(
            first_uncopied_offset=up_to_offset or self._log.remote_next,
            reason=f"asked of node {self._node_id}",
        )


@dataclass(kw_only=True)
class Node:
    """One running API."""

    node_id: int
    service: ServiceUnderTest
    ledger: FullLedger
    log: Log
    peers: Peers
    admin: AdminService
    fetch: FetchService
    address: str
    stores: ApiStores
    losses: ApiLosses
    runs: ApiRuns
    copies: ApiCopies
    planner: ApiPlanner
    explanations: ApiExplanations
    reload: ApiReload
    reports: ApiReports
    purge: ApiPurge
    clients: ClientTable
    statuses: ApiStatuses
    throttle: ReadThrottle
    reading: PartitionReading
    resolver: TopicResolver

    async def led(self) -> LedPartition:
        return await self.resolver.partition(TopicName(name=TOPIC), 0)


@dataclass(kw_only=True)
class Fakes:
    """What the services of one node are made of."""

    cluster: Cluster
    node_id: int
    log: Log
    tokens: TokenSource
    peer_tls: Tls | None
    limits: ThrottleLimits
    remote_logs: RemoteLogs

    def __post_init__(self) -> None:
        self.service = ServiceUnderTest(self.cluster, node_id=self.node_id, peers=self._build_peers)
        self.broker = ApiBroker(self.cluster, self.node_id, self.log)
        self.ledger = FullLedger()
        self.statuses = ApiStatuses(self.cluster, self.node_id, self.log)
        self.tier = ApiTier(self.cluster, self.node_id, self.log)
        self.stores = ApiStores()
        self.losses = ApiLosses()
        self.runs = ApiRuns()
        self.copies = ApiCopies()
        self.planner, self.explanations = ApiPlanner(), ApiExplanations()
        self.reload, self.reports = ApiReload(), ApiReports()
        self.purge = ApiPurge()
        self.clients = ClientTable()
        self.gate = Gate(self.tokens)
        self.throttle = throttle(self.service.clock, self.limits)
        self.resolver = TopicResolver(self.broker, self.service.settings)
        self.reading = PartitionReading(
            tier=self.tier, broker=self.broker, barrier_deadline_ms=1_000
        )

    def _build_peers(self, settings: ServiceSettings, clock: ManualClock) -> PeerAccess:
        self.peers = Peers(
            node_id=self.node_id,
            principal=f"rlm-{self.node_id}",
            tokens=self.tokens,
            settings=settings,
            clock=clock,
            timeout_ms=2_000,
            tls=self.peer_tls,
        )
        return PeerServicesAccess(self.peers)

    def admin(self) -> AdminService:
        settings, broker, clock = self.service.settings, self.broker, self.service.clock
        freezes = Freezes(settings=settings, broker=broker, barrier_deadline_ms=1_000)
        return AdminService(
            AdminDependencies(
                gate=self.gate,
                verbs=self.service.verbs,
                acceptance=self.service.acceptance,
                access=self.service.access,
                freezes=freezes,
                copy_limits=copy_limits(self.peers, settings, self.service.clock),
                reload=self.reload,
                adoption=adoption(broker, settings, self.service.ledger),
                losses=self.losses,
                discards=self.losses.discards,
                deletions=self.service.deletions,
                purge=self.purge,
                summaries=TopicSummaries(
                    settings=settings,
                    pending=self.service.deletions.pending,
                    ledger=self.ledger,
                    broker=broker,
                    offload=AT_ONCE,
                    barrier_deadline_ms=1_000,
                ),
                status=ClusterStatus(
                    peers=self.peers,
                    statuses=self.statuses,
                    settings=settings,
                    broker=broker,
                    freezes=freezes,
                    pending=self.service.deletions.pending,
                    discards=self.losses.discards,
                    problems=lambda: self.statuses.problems,
                    stores=lambda: self.stores.statuses,
                    log_dirs=lambda: self.stores.log_dirs,
                    copying=lambda: self.stores.copying,
                    verifications=self.runs.running,
                    endpoints=self.endpoints(),
                    version="1",
                    now_ms=self.service.clock.now_ms,
                ),
                statuses=self.statuses,
                resolver=self.resolver,
                peers=self.peers,
                stores=self.stores,
                expiry_plans=ExpiryPlans(peers=self.peers, planner=self.planner, broker=broker),
                explanations=self.explanations,
                reports=self.reports.of(self.gate, self.peers, self.clients, self.service, broker),
                copies=ClusterCopy(peers=self.peers, runs=self.copies, broker=broker, clock=clock),
                verify=ClusterVerify(
                    peers=self.peers, runs=self.runs, settings=settings, broker=broker
                ),
                now_ms=self.service.clock.now_ms,
            )
        )

    def endpoints(self) -> Endpoints:
        own = Endpoint(grpc_address="here", role=BROKER, node_id=self.node_id, version="1")
        settings, clock = self.service.settings, self.service.clock
        return Endpoints(own=own, settings=settings, clock=clock, heartbeat_interval_ms=10_000)

    def remote(self) -> RemoteDependencies:
        settings = self.service.settings
        view = RemoteView(settings=settings, ledger=self.ledger, clock=self.service.clock)
        return RemoteDependencies(
            gate=self.gate,
            view=view,
            reading=RemoteReading(view=view, reader=NoReader()),
            ledger=self.ledger,
            objects=self.remote_logs,
            endpoints=self.endpoints(),
            throttle=self.throttle,
        )

    def fetch(self) -> FetchService:
        return FetchService(
            FetchDependencies(
                remote=self.remote(),
                resolver=self.resolver,
                peers=self.peers,
                reading=self.reading,
                tier=self.tier,
                broker=self.broker,
                settings=self.service.settings,
                statuses=self.statuses,
                copy=self.statuses,
                remote_logs=self.remote_logs,
                barrier_deadline_ms=1_000,
                now_ms=self.service.clock.now_ms,
            )
        )


@contextlib.asynccontextmanager
async def api_node(
    cluster: Cluster,
    *,
    node_id: int = 1,
    log: Log | None = None,
    tokens: TokenSource = no_tokens,
    tls: ServerTls | None = None,
    peer_tls: Tls | None = None,
    limits: ThrottleLimits = NO_LIMITS,
    remote_logs: RemoteLogs | None = None,
) -> AsyncIterator[Node]:
    """A service of the cluster that says it lives, on a free port."""
    fakes = Fakes(
        cluster=cluster,
        node_id=node_id,
        log=log or Log(),
        tokens=tokens,
        peer_tls=peer_tls,
        limits=limits,
        remote_logs=remote_logs or no_remote_logs(),
    )
    admin, fetch = fakes.admin(), fakes.fetch()
    server = ApiServer(admin=admin, fetch=fetch, listen="127.0.0.1:0", tls=tls, gate=fakes.gate)
    with structlog.testing.capture_logs():
        address = await server.start()
        await say_alive(fakes.service, node_id, address)
        try:
            yield Node(
                node_id=node_id,
                service=fakes.service,
                ledger=fakes.ledger,
                log=fakes.log,
                peers=fakes.peers,
                admin=admin,
                fetch=fetch,
                address=address,
                stores=fakes.stores,
                losses=fakes.losses,
                runs=fakes.runs,
                copies=fakes.copies,
                planner=fakes.planner,
                explanations=fakes.explanations,
                reload=fakes.reload,
                reports=fakes.reports,
                purge=fakes.purge,
                clients=fakes.clients,
                statuses=fakes.statuses,
                throttle=fakes.throttle,
                reading=fakes.reading,
                resolver=fakes.resolver,
            )
        finally:
            await server.stop()
            await fakes.peers.close()


@contextlib.asynccontextmanager
async def channel_to(address: str, tls: Tls | None = None) -> AsyncIterator[aio.Channel]:
    if tls is None:
        async with aio.insecure_channel(address) as channel:
            yield channel
    else:
        async with aio.secure_channel(address, tls.credentials(), options=tls.options) as channel:
            yield channel

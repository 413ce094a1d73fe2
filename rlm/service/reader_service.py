"""The composition root of `rlm serve --role reader`: a service without a broker.

It follows ledger and settings and answers reads of the remote tier from the stores. It can run
anywhere and in any number. It creates, copies, trims and sweeps nothing; it publishes nothing but
its heartbeat. It waits for a cluster and topics that do not exist yet. A cluster other than the
configured one ends the process with one line.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import structlog

from kafka_clients.channel_security import ChannelSecurity
from kip405.acls import OUR_PRINCIPAL
from kip405.errors import Invalid, Unavailable
from kip405.process import (
    collect_cycles_less_often,
    keep_freed_memory,
    software_version,
)
from rlm.api.authorization import Authorization
from rlm.api.calls import token_source
from rlm.api.endpoints import NO_NODE, READER, Endpoint, Endpoints
from rlm.api.remote_fetch import RemoteDependencies, RemoteFetchService
from rlm.broker.many import AllowedByAny
from rlm.broker.own_broker import AnyBroker
from rlm.clock import Clock, SystemClock, new_uuid
from rlm.config import ReaderConfig
from rlm.config.common import BY_KAFKA
from rlm.config.machine import usable_memory_bytes
from rlm.config.running import RunningConfig
from rlm.log_dir.identity import ReaderLock
from rlm.plans.formats import own_formats, reader_formats
from rlm.plans.problems import Finding, ProblemKind
from rlm.plans.rights import Role, Topics, When, least_acls
from rlm.reading.throttle import ReadThrottle
from rlm.remote_log.history import LineageReader, Losses
from rlm.remote_log.objects import RemoteObjects
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.service.authorization import (
    ApiCallers,
    build_authorization,
    build_callers,
    principals_together,
)
from rlm.service.certificates import Certificates, certificate_paths
from rlm.service.formats import FormatGate
from rlm.service.gauges import problem_gauges, store_gauges, thread_gauges
from rlm.service.heartbeat import ReaderHeartbeat
from rlm.service.ledger_snapshot import build_ledger_snapshots
from rlm.service.lifetime import (
    configure_service_logs,
    keep_all_running,
    log_variables,
    run_until_stopped,
    serving,
    warn_of_memory,
)
from rlm.service.listeners import HealthState, Listening
from rlm.service.loop_watch import LoopWatch
from rlm.service.metadata import (
    MetadataIdentity,
    build_reader_metadata,
    remember_reads,
    remember_topics,
)
from rlm.service.metrics import ServiceMetrics
from rlm.service.problems import CommonSources, ProblemWatch, reader_limits
from rlm.service.read_path import (
    build_disk_cache,
    build_ended_segments,
    build_reader,
    build_throttle,
    hedge_gauges,
    read_gauges,
    throttle_gauges,
)
from rlm.service.reloading import ConfigReload, change_quotas
from rlm.service.safety_gauges import safety_gauges
from rlm.service.threads import ServiceThreads, service_threads
from rlm.service.tracing import build_tracer, close_tracer
from rlm.stores.opened import OpenStores, open_stores, reading_terms
from rlm.topics.access import AccessWatch, ClusterRights
from rlm.workers.ending import Ending
from rlm.workers.inherited import on_hang_up
from rlmm.manager import Metadata
from rlmm.settings_records import ReaderRecord

log = structlog.get_logger()
_CLIENT_ID = "rlm-reader"
_CLUSTER_RETRY_MS = 1_000
_MOST_LOSSES = 20


def run(config: ReaderConfig, reread: Callable[[], ReaderConfig]) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the settings again. RemoteStorageError: the start
    was refused, with the reason.
    """
    configure_service_logs(level=config.log_level, log_format=config.log_format)
    keep_freed_memory(config.kept_memory_bytes)
    collect_cycles_less_often()
    with ReaderLock(str(config.state_dir), config.cluster_id):
        run_until_stopped(partial(_serve, config, reread), SystemClock())


async def _serve(config: ReaderConfig, reread: Callable[[], ReaderConfig], ending: Ending) -> None:
    log.info("starting", role=READER, version=software_version(), **config.shown())
    log_variables()
    warn_of_memory(config, usable_memory_bytes())
    with service_threads(config) as threads:

        def make(tasks: asyncio.TaskGroup) -> ReaderService:
            service = ReaderService(config, SystemClock(), tasks, threads, reread)
            on_hang_up(service.reload.request)
            return service

        await serving(make, ending)


class ReaderService:
    """All components of one reader. The caller that created it calls `close` at the end."""

    def __init__(
        self,
        config: ReaderConfig,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        threads: ServiceThreads,
        reread: Callable[[], ReaderConfig],
    ) -> None:
        """Contacts nothing. `reread`, Invalid: see BrokerService, and open_stores for Invalid."""
        tokens = token_source(config.api_token_file, clock)
        self._callers = callers = build_callers(config, tokens, clock, threads.other)
        self._config, self._clock, self._threads = config, clock, threads
        security = ChannelSecurity(config.kafka_security())
        self._brokers = _brokers(config, security)
        self.metadata = metadata = build_reader_metadata(
            config,
            security,
            brokers=self._brokers,
            clock=clock,
            identity=MetadataIdentity(node_id=NO_NODE, writer=new_uuid(), client_id=_CLIENT_ID),
        )
        self._ledger_snapshots = build_ledger_snapshots(metadata, config, threads.other, clock)
        self._stores = stores = open_stores(
            config, reading_terms(config), metadata, clock, new_uuid, may_found=False
        )
        disk_cache = build_disk_cache(config, tasks, threads.disk_cache)
        self._tracer = build_tracer(config, str(config.grpc_advertised))
        of_reads = config, stores.routed, clock, tasks, threads
        reader = build_reader(*of_reads, disk_cache, self._tracer)
        ended = partial(build_ended_segments, metadata.log, metadata.manager)
        self._ended_segments = ended(reader, disk_cache, clock)
        self.segments = LineageReader(reader, metadata.manager)
        running, throttle = RunningConfig(config), build_throttle(config, clock)
        self.reload = _reload(running, reread, throttle, threads, tasks)
        self._heartbeat = _heartbeat(config, metadata, clock)
        self._formats = FormatGate(metadata, own_formats(software_version()))
        self._certificates = _certificates(config, clock, threads)
        lost = partial(_lost_segments, self.segments.losses, metadata)
        common = _sources(config, metadata, stores, threads, security, self._certificates, clock)
        self._allowed = allowed = _allowed(config, security)
        self._access = access = _access_watch(running, allowed, clock)
        self._problems = problems = ProblemWatch((*common.sources(), lost, access.findings), clock)
        view = RemoteView(settings=metadata.settings, ledger=metadata.manager, clock=clock)
        fetch = RemoteFetchService(
            RemoteDependencies(
                gate=callers.gate,
                view=view,
                reading=RemoteReading(view=view, reader=self.segments),
                ledger=metadata.manager,
                objects=_objects(config, metadata, stores, threads),
                endpoints=_endpoints(config, metadata, clock),
                throttle=throttle,
            )
        )
        self._loop_watch, metrics = LoopWatch(clock), _metrics(threads, problems, stores)
        metrics.add_gauges(
            lambda: read_gauges(reader, disk_cache) | hedge_gauges(stores.routed.hedges),
            lambda: throttle_gauges(throttle.counts),
            safety_gauges(config, metadata, stores, self._certificates, self._loop_watch, clock),
        )
        self._listening = Listening(
            config,
            clock,
            admin=None,
            fetch=fetch,
            health=partial(_health, metadata, stores, problems),
            metrics=metrics.render,
            gate=callers.gate,
            authorization=_authorization(config, callers, metadata, security, clock),
        )

    async def run(self, ending: Ending) -> None:
        """Listen first, then run the check that may refuse, then the rest until cancelled."""
        await self._listening.start()
        await self._check_cluster()
        await keep_all_running(
            *(self._background_tasks(), self._clock, self._formats.check),
            drain=partial(ending.drain, self.drain),
        )

    def _background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        files = self.metadata, self._config, self._threads.other
        return {
            "metadata": self.metadata.log.run,
            "topic ids": partial(remember_topics, *files),
            "metadata read": partial(remember_reads, *files),
            "ledger snapshot": self._formats.after(self._ledger_snapshots.run),
            "ended segments": self._ended_segments.run,
            "heartbeat": self._formats.after(self._heartbeat.run),
            "access": self._access.run,
            "certificates": self._certificates.run,
            **self._callers.background_tasks(),
            "problems": self._problems.run,
            "event loop": self._loop_watch.run,
            **self._stores.background_tasks(),
        }

    async def _check_cluster(self) -> None:
        """Wait for a broker. Invalid: the broker belongs to another cluster."""
        while True:
            try:
                found = (await self._brokers.describe_cluster()).cluster_id
            except Unavailable as error:
                log.warning("no_broker_reachable", error=str(error))
                await self._clock.sleep_ms(_CLUSTER_RETRY_MS)
                continue
            if found == self._config.cluster_id:
                return
            raise Invalid(
                f"kafka.bootstrap.servers belong to cluster {found}, cluster.id is "
                f"{self._config.cluster_id}"
            )

    async def drain(self) -> None:
        """Give callers of the API what is under way, and take no more of them."""
        await self._listening.close()

    async def close(self) -> None:
        """After the drain; connections last."""
        await self._ledger_snapshots.close()
        await self._stores.close()
        await self._allowed.close()
        await self._brokers.close()
        await close_tracer(self._tracer, self._threads.other)


def _brokers(config: ReaderConfig, security: ChannelSecurity) -> AnyBroker:
    servers = config.kafka_bootstrap_servers
    return AnyBroker(servers, client_id=_CLIENT_ID, security=security)


def _heartbeat(config: ReaderConfig, metadata: Metadata, clock: Clock) -> ReaderHeartbeat:
    return ReaderHeartbeat(
        settings=metadata.settings,
        clock=clock,
        record=ReaderRecord(
            grpc_address=str(config.grpc_advertised),
            http_address=str(config.http_listen),
            version=software_version(),
            formats=reader_formats(software_version()),
        ),
        interval_ms=config.heartbeat_interval_ms,
    )


def _certificates(config: ReaderConfig, clock: Clock, threads: ServiceThreads) -> Certificates:
    together = principals_together(config)
    return Certificates(certificate_paths(config), clock, threads.other, together)


def _metrics(threads: ServiceThreads, problems: ProblemWatch, stores: OpenStores) -> ServiceMetrics:
    """Of everything but reads."""
    metrics = ServiceMetrics()
    metrics.add_gauges(
        lambda: thread_gauges(threads.pools()),
        lambda: problem_gauges(problems.current()),
        lambda: store_gauges(stores.statuses()),
    )
    return metrics


def _reload(
    running: RunningConfig[ReaderConfig],
    reread: Callable[[], ReaderConfig],
    throttle: ReadThrottle,
    threads: ServiceThreads,
    tasks: asyncio.TaskGroup,
) -> ConfigReload[ReaderConfig]:
    return ConfigReload(
        running=running,
        read=reread,
        apply=partial(change_quotas, throttle),
        threads=threads.other,
        tasks=tasks,
    )


def _allowed(config: ReaderConfig, security: ChannelSecurity) -> AllowedByAny:
    servers = config.kafka_bootstrap_servers
    return AllowedByAny(servers, client_id=_CLIENT_ID, security=security)


def _access_watch(
    running: RunningConfig[ReaderConfig], allowed: ClusterRights, clock: Clock
) -> AccessWatch:
    """What a reader needs does not change while it runs."""
    config = running.now
    cases = {When.ALWAYS, When.API} if config.authorization == BY_KAFKA else {When.ALWAYS}
    needed = least_acls(Role.READER, OUR_PRINCIPAL, Topics(), cases)
    return AccessWatch(
        allowed=allowed,
        needed=lambda: needed,
        clock=clock,
        interval_ms=lambda: running.now.access_check_interval_ms,
        principal=config.kafka_security().principal,
    )


def _authorization(
    config: ReaderConfig,
    callers: ApiCallers,
    metadata: Metadata,
    security: ChannelSecurity,
    clock: Clock,
) -> Authorization | None:
    """A reader has no commands to write down."""
    return build_authorization(
        config,
        callers,
        settings=metadata.settings,
        security=security,
        audit=None,
        clock=clock,
    )


def _sources(
    config: ReaderConfig,
    metadata: Metadata,
    stores: OpenStores,
    threads: ServiceThreads,
    security: ChannelSecurity,
    certificates: Certificates,
    clock: Clock,
) -> CommonSources:
    """What problems follow from."""
    return CommonSources(
        ledger=metadata.manager,
        settings=metadata.settings,
        log=metadata.log,
        stores=stores,
        certificates=certificates,
        hung_threads=threads.hung,
        refusals=lambda: security.refusals,
        clock=clock,
        limits=reader_limits(config),
    )


def _objects(
    config: ReaderConfig, metadata: Metadata, stores: OpenStores, threads: ServiceThreads
) -> RemoteObjects:
    return RemoteObjects(
        cluster_id=config.cluster_id,
        ledgers=metadata.manager,
        store=stores.routed,
        threads=threads.reads,
    )


def _endpoints(config: ReaderConfig, metadata: Metadata, clock: Clock) -> Endpoints:
    return Endpoints(
        own=Endpoint(
            grpc_address=str(config.grpc_advertised),
            role=READER,
            node_id=NO_NODE,
            version=software_version(),
        ),
        settings=metadata.settings,
        clock=clock,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
    )


def _lost_segments(losses: Losses, metadata: Metadata) -> Iterator[Finding]:
    """Segments that this reader found lost: a client that reads only here would be the only one to
    notice (H11, H25).
    """
    for key in losses.partitions[:_MOST_LOSSES]:
        record = metadata.settings.view.topic(key.topic_id)
        name = record.name if record else str(key.topic_id)
        ids = metadata.manager.ledger(key).entries.keys()
        for text in losses.alarms(key, ids):
            yield Finding(
                kind=ProblemKind.SEGMENT_LOST,
                subject=f"{name}-{key.partition}",
                topic=name,
                text=text,
            )


def _health(metadata: Metadata, stores: OpenStores, problems: ProblemWatch) -> HealthState:
    """Ready once it can answer; it stays ready when no broker or store can be reached."""
    is_whole = metadata.log.is_ready and metadata.manager.damage is None
    is_ready = is_whole and stores.can_be_read()
    return HealthState(alive=True, ready=is_ready, problems=problems.current())

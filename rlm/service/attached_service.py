"""The composition root of `rlm attach`: a reader of the stores of a cluster that may be gone.

It needs no Kafka. All manifests are read first; what they show is served over the gRPC API, as a
reader serves what it reads in Kafka. It writes to no store and deletes nothing; what groups of
Kafka clients commit is in its state dir.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog

from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey, Uuid
from kip405.process import collect_cycles_less_often, keep_freed_memory, software_version
from rlm.api.attached_admin import AttachedAdminService, AttachedDependencies
from rlm.api.attached_fetch import AttachedFetchService
from rlm.api.authorization import Authorization, SettingsTopicNames
from rlm.api.authorizers import FileAuthorizer
from rlm.api.calls import token_source
from rlm.api.endpoints import NO_NODE, READER, Endpoint, Endpoints
from rlm.api.remote_fetch import RemoteDependencies
from rlm.clock import Clock, SystemClock, backoff_ms
from rlm.config import AttachedConfig
from rlm.config.machine import usable_memory_bytes
from rlm.config.running import RunningConfig
from rlm.log_dir.identity import ReaderLock
from rlm.plans.problems import Finding, ProblemKind
from rlm.reading.throttle import ReadThrottle
from rlm.remote_log.attached import AttachedLedger, AttachedLog, AttachedSettings
from rlm.remote_log.history import LineageReader
from rlm.remote_log.objects import RemoteObjects
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.service.attached_kafka import build_kafka, kafka_files_together
from rlm.service.attached_stores import (
    AttachedStores,
    open_attached,
    own_cluster,
)
from rlm.service.authorization import ApiCallers, build_callers, principals_together
from rlm.service.certificates import Certificates, certificate_paths
from rlm.service.gauges import problem_gauges, store_gauges, thread_gauges
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
from rlm.service.metadata import BARRIER_DEADLINE_MS
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
from rlm.service.safety_gauges import certificate_gauges, loop_gauges, plugin_gauges
from rlm.service.settings_backup import read_settings_backup
from rlm.service.threads import ServiceThreads, service_threads
from rlm.service.tracing import build_tracer, close_tracer
from rlm.tasks.attachment import Attachment, Choices, Round
from rlm.tasks.store_survey import SurveyProgress
from rlm.workers.ending import Ending
from rlm.workers.inherited import on_hang_up

log = structlog.get_logger()
_REPORT_EVERY_MS = 5_000
_UNREADABLE_EVERY_MS = 60_000
"""How often manifests that could not be read are tried again, also without --refresh."""
_MOST_LOGGED = 20
_MOST_FINDINGS = 20
_ABSENT = "has no manifest in the attached stores"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachOptions:
    """`refresh_ms`: how often new manifests are read, None = never. Otherwise as Choices."""

    refresh_ms: int | None = None
    settings_backup: Path | None = None
    topic_ids: tuple[Uuid, ...] = ()
    accepted: frozenset[str] = frozenset()

    def choices(self) -> Choices:
        """Invalid: the backup cannot be used."""
        path = self.settings_backup
        return Choices(
            topic_ids=self.topic_ids,
            accepted=self.accepted,
            backup=None if path is None else read_settings_backup(path),
        )


def run(
    config: AttachedConfig, options: AttachOptions, reread: Callable[[], AttachedConfig]
) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the settings again. RemoteStorageError: the start
    was refused, with the reason.
    """
    configure_service_logs(level=config.log_level, log_format=config.log_format)
    keep_freed_memory(config.kept_memory_bytes)
    collect_cycles_less_often()
    choices = options.choices()
    if not config.cluster_id:
        cluster_id = asyncio.run(own_cluster(config, SystemClock()))
        config = replace(config, cluster_id=cluster_id)
    with ReaderLock(str(config.state_dir), config.cluster_id):
        serve = partial(_serve, config, options, choices, reread)
        run_until_stopped(serve, SystemClock())


async def _serve(
    config: AttachedConfig,
    options: AttachOptions,
    choices: Choices,
    reread: Callable[[], AttachedConfig],
    ending: Ending,
) -> None:
    log.info("attaching", version=software_version(), **config.shown())
    log_variables()
    warn_of_memory(config, usable_memory_bytes())
    with service_threads(config) as threads:

        def make(tasks: asyncio.TaskGroup) -> AttachedService:
            service = AttachedService(
                config, SystemClock(), tasks, threads, reread, choices, options.refresh_ms
            )
            on_hang_up(service.reload.request)
            return service

        await serving(make, ending)


class AttachedService:
    """All components of one attached reader. The caller that created it calls `close` at the
    end.
    """

    def __init__(
        self,
        config: AttachedConfig,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        threads: ServiceThreads,
        reread: Callable[[], AttachedConfig],
        choices: Choices,
        refresh_ms: int | None,
    ) -> None:
        """Contacts nothing. Invalid: the token or principals file cannot be used, the backup is of
        another cluster, or see open_plugins.
        """
        tokens = token_source(config.api_token_file, clock)
        self._callers = callers = build_callers(config, tokens, clock, threads.other)
        self._clock, self._log = clock, AttachedLog()
        ledger, settings = AttachedLedger(self._log), AttachedSettings(self._log)
        self._stores = stores = open_attached(config, self._log, clock)
        self._manifests = ManifestReading(
            config.cluster_id, self._log, stores, choices, clock, refresh_ms
        )
        disk_cache = build_disk_cache(config, tasks, threads.disk_cache)
        routed = stores.opened.routed
        self._tracer, self._threads = build_tracer(config, str(config.grpc_advertised)), threads
        of_reads = config, routed, clock, tasks, threads
        reader = build_reader(*of_reads, disk_cache, self._tracer)
        self._ended = build_ended_segments(self._log, ledger, reader, disk_cache, clock)
        self.segments = LineageReader(reader, ledger)
        throttle = build_throttle(config, clock)
        self.reload = _reload(config, reread, throttle, threads, tasks)
        self._certificates = _certificates(config, clock, threads)
        self._problems = self._problem_watch(config, threads)
        self._loop_watch = LoopWatch(clock)
        view = RemoteView(
            settings=settings, ledger=ledger, clock=clock, doubts=self._log.doubts, absent=_ABSENT
        )
        objects = RemoteObjects(
            cluster_id=config.cluster_id, ledgers=ledger, store=routed, threads=threads.reads
        )
        reading = RemoteReading(view=view, reader=self.segments)
        metrics = self._metrics(threads)
        of_kafka = threads.other, view, reading, throttle, metrics, clock, tasks
        self._kafka = build_kafka(config, *of_kafka)
        fetch = AttachedFetchService(
            RemoteDependencies(
                gate=callers.gate,
                view=view,
                reading=reading,
                ledger=ledger,
                objects=objects,
                endpoints=_endpoints(config, settings, clock),
                throttle=throttle,
            )
        )
        metrics.add_gauges(
            lambda: read_gauges(reader, disk_cache) | hedge_gauges(routed.hedges),
            lambda: throttle_gauges(throttle.counts),
        )
        self._listening = Listening(
            config,
            clock,
            admin=self._admin(config, view),
            fetch=fetch,
            health=self._health,
            metrics=metrics.render,
            gate=callers.gate,
            authorization=_authorization(callers, settings, clock),
        )

    def _problem_watch(self, config: AttachedConfig, threads: ServiceThreads) -> ProblemWatch:
        common = CommonSources(
            ledger=AttachedLedger(self._log),
            settings=AttachedSettings(self._log),
            log=self._log,
            stores=self._stores.opened,
            certificates=self._certificates,
            hung_threads=threads.hung,
            refusals=dict,
            clock=self._clock,
            limits=reader_limits(config),
        )
        of_partitions = partial(_findings, self._log, self.segments)
        return ProblemWatch((*common.sources(), of_partitions), self._clock)

    def _admin(self, config: AttachedConfig, view: RemoteView) -> AttachedAdminService:
        return AttachedAdminService(  # type: ignore[abstract]  # its module sets the other methods
            AttachedDependencies(
                gate=self._callers.gate,
                view=view,
                own=_own_endpoint(config),
                problems=self._problems.current,
                stores=self._stores.opened.statuses,
                clock=self._clock,
            )
        )

    def _metrics(self, threads: ServiceThreads) -> ServiceMetrics:
        """Of everything but reads."""
        metrics, opened = ServiceMetrics(), self._stores.opened
        metrics.add_gauges(
            lambda: thread_gauges(threads.pools()),
            lambda: problem_gauges(self._problems.current()),
            lambda: store_gauges(opened.statuses()),
            lambda: certificate_gauges(self._certificates.files, self._clock.now_ms()),
            lambda: plugin_gauges(opened.plugin_restarts()),
            lambda: loop_gauges(self._loop_watch.worst_ms()),
        )
        return metrics

    async def run(self, ending: Ending) -> None:
        """Listen first, then read the manifests, then serve until cancelled."""
        await self._listening.start()
        if self._kafka is not None:
            await self._kafka.listener.start()
        background = {
            **self._stores.opened.background_tasks(),
            "manifests": self._manifests.refresh,
            "ended segments": self._ended.run,
            "certificates": self._certificates.run,
            **self._callers.background_tasks(),
            **({} if self._kafka is None else self._kafka.background_tasks()),
            "problems": self._problems.run,
            "event loop": self._loop_watch.run,
        }
        await keep_all_running(
            *(background, self._clock, self._manifests.read_first),
            drain=partial(ending.drain, self.drain),
        )

    async def drain(self) -> None:
        """Give callers of the API what is under way, and take no more of them."""
        if self._kafka is not None:
            await self._kafka.listener.close()
        await self._listening.close()

    async def close(self) -> None:
        """After the drain."""
        await self._stores.opened.close()
        await close_tracer(self._tracer, self._threads.other)

    def _health(self) -> HealthState:
        """Ready once all manifests were read; it stays ready when a later round fails."""
        connections = self._stores.opened.stores.connections
        knows_stores = all(one.store_id is not None for one in connections)
        return HealthState(
            alive=True,
            ready=self._log.is_ready and knows_stores,
            problems=self._problems.current(),
        )


class ManifestReading:
    """Reads the manifests once, and again at intervals; says how far it is."""

    def __init__(
        self,
        cluster_id: str,
        attached: AttachedLog,
        stores: AttachedStores,
        choices: Choices,
        clock: Clock,
        refresh_ms: int | None,
    ) -> None:
        self._log = attached
        self._stores = stores
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._reported_ms = -_REPORT_EVERY_MS
        self._unreadable = 0
        self._attachment = Attachment(
            cluster_id=cluster_id, log=attached, choices=choices, report=self._report
        )

    async def read_first(self) -> None:
        """Return once everything was read; waits for stores that are away. What is wrong for good
        is raised.
        """
        failures = 0
        while True:
            try:
                found = await self._round()
            except RemoteStorageError as error:
                if not error.retriable:
                    raise
                self._log.problem = f"the manifests are not read yet: {error}"
                log.warning("store_not_read", error=str(error))
                await self._clock.sleep_ms(backoff_ms(failures))
                failures += 1
            else:
                self._log_round("attached", found)
                return

    async def refresh(self) -> None:
        """Read what is new, at intervals, and what could not be read; runs until cancelled."""
        await self._log.wait_ready()
        while True:
            if self._refresh_ms is None and not self._unreadable:
                await asyncio.get_running_loop().create_future()
            await self._clock.sleep_ms(self._refresh_ms or _UNREADABLE_EVERY_MS)
            try:
                found = await self._round()
            except RemoteStorageError as error:
                self._log.problem = f"new manifests cannot be read: {error}"
                log.warning("manifests_not_refreshed", error=str(error))
                continue
            if found.new_segments or found.gone_segments:
                self._log_round("refreshed", found)

    async def _round(self) -> Round:
        proven = await self._stores.prove()
        found = await self._attachment.read(proven.managers, proven.records)
        self._unreadable = found.unreadable
        return found

    def _report(self, store_id: Uuid, progress: SurveyProgress) -> None:
        if not self._log.is_ready:
            self._log.problem = f"the manifests are being read: {progress.text}"
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._reported_ms >= _REPORT_EVERY_MS:
            self._reported_ms = now_ms
            log.info("reading_manifests", store_id=str(store_id), progress=progress.text)

    def _log_round(self, event: str, found: Round) -> None:
        log.info(
            event,
            topics=len({key.topic_id for key in self._log.state.plans}),
            partitions=len(self._log.state.plans),
            segments=sum(len(one.entries) for one in self._log.state.ledgers.values()),
            new_segments=found.new_segments,
            gone_segments=found.gone_segments,
            objects=found.objects,
            without_manifest=found.leftovers,
        )
        for text in found.unusable[:_MOST_LOGGED]:
            log.error("manifest_unusable", problem=text)
        for name, ids in found.used_twice.items():
            others = ", ".join(map(str, ids[:-1]))
            log.warning(
                "topic_name_was_used_twice",
                topic=name,
                served=str(ids[-1]),
                remedy=f"--topic-id gives the name to another one of: {others}",
            )


def _findings(attached: AttachedLog, reader: LineageReader) -> Iterator[Finding]:
    """What is not served of partitions, and why."""
    for key, plan in attached.state.plans.items():
        if plan.doubts:
            text = "; ".join(one.text for one in plan.doubts[:_MOST_FINDINGS])
            yield _finding(ProblemKind.PARTITION_FROZEN, attached, key, f"not served: {text}")
        if plan.gaps:
            ranges = ", ".join(f"{start} to {end - 1}" for start, end in plan.gaps[:_MOST_FINDINGS])
            yield _finding(
                ProblemKind.OFFSETS_MISSING, attached, key, f"no segment has offsets {ranges}"
            )
    for key in reader.losses.partitions[:_MOST_FINDINGS]:
        ledger = attached.state.ledgers.get(key)
        for text in reader.losses.alarms(key, ledger.entries.keys() if ledger else ()):
            yield _finding(ProblemKind.SEGMENT_LOST, attached, key, text)


def _finding(kind: ProblemKind, attached: AttachedLog, key: PartitionKey, text: str) -> Finding:
    record = attached.state.view.topic(key.topic_id)
    name = record.name if record else str(key.topic_id)
    return Finding(kind=kind, subject=f"{name}-{key.partition}", topic=name, text=text)


def _reload(
    config: AttachedConfig,
    reread: Callable[[], AttachedConfig],
    throttle: ReadThrottle,
    threads: ServiceThreads,
    tasks: asyncio.TaskGroup,
) -> ConfigReload[AttachedConfig]:
    return ConfigReload(
        running=RunningConfig(config),
        read=lambda: replace(reread(), cluster_id=config.cluster_id),
        apply=partial(change_quotas, throttle),
        threads=threads.other,
        tasks=tasks,
    )


def _authorization(
    callers: ApiCallers, settings: AttachedSettings, clock: Clock
) -> Authorization | None:
    if callers.principals is None:
        return None
    return Authorization(
        gate=callers.gate,
        authorizer=FileAuthorizer(callers.principals),
        names=SettingsTopicNames(settings, BARRIER_DEADLINE_MS),
        audit=None,
        clock=clock,
    )


def _certificates(config: AttachedConfig, clock: Clock, threads: ServiceThreads) -> Certificates:
    together = (*principals_together(config), *kafka_files_together(config))
    return Certificates(certificate_paths(config), clock, threads.other, together)


def _own_endpoint(config: AttachedConfig) -> Endpoint:
    return Endpoint(
        grpc_address=str(config.grpc_advertised),
        role=READER,
        node_id=NO_NODE,
        version=software_version(),
    )


def _endpoints(config: AttachedConfig, settings: AttachedSettings, clock: Clock) -> Endpoints:
    return Endpoints(
        own=_own_endpoint(config),
        settings=settings,
        clock=clock,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
    )

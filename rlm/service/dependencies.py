"""Builds the clients, views and stores that the components of a service share; nothing connects."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from kafka_clients.channel_security import ChannelSecurity
from kip405.history import windows_of
from kip405.ids import Uuid
from kip405.process import software_version
from kip405.segments import Layout
from rlm.broker.leadership import Leadership
from rlm.broker.many import AllowedOperations
from rlm.broker.own_broker import OwnBroker
from rlm.broker.share_groups import BrokerShareGroups
from rlm.clock import Clock, new_uuid
from rlm.config import ServiceConfig
from rlm.config.running import RunningConfig
from rlm.log_dir.scanner import LogDirs
from rlm.plans.formats import own_formats
from rlm.plans.freeze import DEFAULT_MAX_ORPHANS
from rlm.plans.offload import OffloadPolicy
from rlm.plans.services import DEAD_AFTER_BEATS
from rlm.reading.disk_cache import DiskCache
from rlm.reading.ended_segments import EndedSegments
from rlm.reading.reader import RemoteReader
from rlm.reading.throttle import ReadThrottle
from rlm.remote_log.client_deletions import ClientDeletions
from rlm.remote_log.history_windows import HistoryWindows
from rlm.remote_log.leader_view import LocalTier
from rlm.remote_log.log_starts import LogStarts
from rlm.remote_log.snapshot_cache import CoalescedSnapshots, LineagePublisher, SnapshotCache
from rlm.remote_log.snapshots import SnapshotReader
from rlm.service.heartbeat import HeartbeatSender
from rlm.service.metadata import BARRIER_DEADLINE_MS, build_metadata
from rlm.service.node_addresses import ProxyAddresses
from rlm.service.read_path import (
    build_disk_cache,
    build_ended_segments,
    build_reader,
    build_throttle,
)
from rlm.service.threads import ServiceThreads
from rlm.service.tracing import OtlpTracer, build_tracer
from rlm.stores.inspection import Inspection
from rlm.stores.opened import OpenStores, PluginTerms, known_prefix, open_stores
from rlm.stores.reports import StoreReport, StoreStatus
from rlm.stores.stores import RoutedReader, Stores, Targets
from rlm.tasks.audit_log import AuditLog
from rlm.tasks.disk_pressure import DiskPressure
from rlm.tasks.disk_watch import DiskWatch
from rlmm.manager import Metadata
from rsm_plugins.contract.client import Deadlines


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStores:
    """All stores of a service that copies: those to read from, copy targets, and the inspection of
    their set-up. Contacts nothing when built.
    """

    opened: OpenStores
    targets: Targets
    inspection: Inspection
    inspect_interval_ms: Callable[[], int]

    @property
    def stores(self) -> Stores:
        return self.opened.stores

    @property
    def routed(self) -> RoutedReader:
        return self.opened.routed

    def background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """See OpenStores."""
        found = self.opened.background_tasks()
        if self.stores.connections:
            found["store inspection"] = partial(self.inspection.run, self.inspect_interval_ms)
        return found

    def statuses(self) -> tuple[StoreStatus, ...]:
        """See OpenStores; with the alarms of the last inspection."""
        reports = self.inspection.reports
        return tuple(
            replace(row, alarms=reports[row.name].alarms) if row.name in reports else row
            for row in self.opened.statuses()
        )

    async def inspect(self) -> tuple[StoreReport, ...]:
        """The set-up of every store now, checked for the topics that it holds."""
        await self.opened.in_use.refresh()
        return await self.inspection.inspect()

    async def close(self) -> None:
        """See OpenStores."""
        await self.opened.close()


def build_stores(
    running: RunningConfig[ServiceConfig],
    metadata: Metadata,
    clock: Clock,
    new_uuid: Callable[[], Uuid],
) -> ServiceStores:
    """Nothing is contacted. Needs a running loop. Invalid, Unavailable: see open_plugins."""
    config = running.now
    opened = open_stores(config, _terms(config), metadata, clock, new_uuid)

    def chosen(topic_id: Uuid) -> Layout | None:
        topic = metadata.settings.view.topic(topic_id)
        return None if topic is None else topic.layout

    targets = Targets(config.provider(), opened.stores, config.cluster_id, chosen)
    return ServiceStores(
        opened=opened,
        targets=targets,
        inspection=Inspection(
            stores=opened.stores,
            targets=targets,
            in_use=opened.in_use,
            view=lambda: metadata.settings.view,
            cluster_id=config.cluster_id,
            prefixes={one.name: known_prefix(one) for one in config.stores},
            clock=clock,
        ),
        inspect_interval_ms=lambda: running.now.store_inspect_interval_ms,
    )


def _terms(config: ServiceConfig) -> PluginTerms:
    return PluginTerms(
        principal=config.principal,
        deadlines=Deadlines(call_ms=config.plugin_call_timeout_ms, copy_ms=config.copy_deadline_ms),
        allow_insecure=config.allow_insecure,
        sweep_grace_ms=config.sweep_grace_ms,
        log_level=config.log_level,
        runtime_dir=config.state_dir,
    )


_AUDIT_LOG = "audit.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The clients, views and threads that other components are built on."""

    config: ServiceConfig
    """That of the start; `running` has what may change since."""
    running: RunningConfig[ServiceConfig]
    threads: ServiceThreads
    clock: Clock
    writer: Uuid
    broker: OwnBroker
    security: ChannelSecurity
    allowed: AllowedOperations
    metadata: Metadata
    leadership: Leadership
    snapshots: SnapshotCache
    stores: ServiceStores
    share_groups: BrokerShareGroups
    tier: LocalTier
    client_deletions: ClientDeletions
    audit: AuditLog
    starts: LogStarts
    reader: RemoteReader
    throttle: ReadThrottle
    disk_cache: DiskCache | None
    ended_segments: EndedSegments
    disk_watch: DiskWatch
    disk_pressure: DiskPressure
    heartbeat: HeartbeatSender
    tracer: OtlpTracer | None
    node_addresses: ProxyAddresses | None
    """None: nothing is rewritten (proxy.attach: listener)."""


def build_dependencies(
    config: ServiceConfig, clock: Clock, tasks: asyncio.TaskGroup, threads: ServiceThreads
) -> Dependencies:
    """Builds everything and contacts nothing."""
    running = RunningConfig(config)
    writer = new_uuid()
    direct = config.broker_direct_address
    security = ChannelSecurity(config.kafka_security())
    client_id = f"rlm-{config.node_id}"
    broker = OwnBroker(direct, client_id=client_id, security=security)
    metadata = build_metadata(config, security, broker=broker, clock=clock, writer=writer)
    leadership = Leadership(broker, clock, poll_interval_ms=config.leadership_poll_interval_ms)
    snapshots = _snapshot_cache(config, broker, metadata, threads, clock)
    stores = build_stores(running, metadata, clock, new_uuid)
    audit = _audit_log(config, threads, clock)
    starts = LogStarts(
        settings=metadata.settings, audit=audit, barrier_deadline_ms=BARRIER_DEADLINE_MS
    )
    disk_cache = build_disk_cache(config, tasks, threads.disk_cache)
    tracer = build_tracer(config, f"node-{config.node_id}")
    reader = build_reader(config, stores.routed, clock, tasks, threads, disk_cache, tracer)
    disk_watch = _build_disk_watch(config, threads, clock)
    disk_pressure = _build_disk_pressure(running, disk_watch, metadata, threads, clock)
    return Dependencies(
        config=config,
        running=running,
        threads=threads,
        clock=clock,
        writer=writer,
        broker=broker,
        security=security,
        allowed=AllowedOperations(direct, client_id=client_id, security=security),
        metadata=metadata,
        leadership=leadership,
        snapshots=snapshots,
        stores=stores,
        share_groups=BrokerShareGroups(direct, clock=clock, client_id=client_id, security=security),
        tier=LocalTier(
            node_id=config.node_id,
            broker=broker,
            leadership=leadership,
            settings=metadata.settings,
            ledger=metadata.manager,
            snapshots=snapshots,
            coalesced=CoalescedSnapshots(snapshots, tasks),
            reader=reader,
            windows=_history_windows(config, clock),
        ),
        client_deletions=ClientDeletions(
            node_id=config.node_id,
            settings=metadata.settings,
            ledger=metadata.manager,
            leadership=snapshots,
            starts=starts,
            tasks=tasks,
        ),
        audit=audit,
        starts=starts,
        reader=reader,
        throttle=build_throttle(config, clock),
        disk_cache=disk_cache,
        ended_segments=build_ended_segments(
            metadata.log, metadata.manager, reader, disk_cache, clock
        ),
        disk_watch=disk_watch,
        disk_pressure=disk_pressure,
        heartbeat=_build_heartbeat(config, metadata, stores, disk_pressure, clock, writer),
        tracer=tracer,
        node_addresses=_build_node_addresses(config, metadata, clock, threads),
    )


def _history_windows(config: ServiceConfig, clock: Clock) -> HistoryWindows:
    return HistoryWindows(windows_of(config.proxy_history, config.proxy_history_rules), clock)


def _build_node_addresses(
    config: ServiceConfig, metadata: Metadata, clock: Clock, threads: ServiceThreads
) -> ProxyAddresses | None:
    if not config.rewrites_addresses:
        return None
    return ProxyAddresses(
        config,
        settings=metadata.settings,
        clock=clock,
        threads=threads.other,
        max_age_ms=DEAD_AFTER_BEATS * config.heartbeat_interval_ms,
    )


def _snapshot_cache(
    config: ServiceConfig,
    broker: OwnBroker,
    metadata: Metadata,
    threads: ServiceThreads,
    clock: Clock,
) -> SnapshotCache:
    return SnapshotCache(
        SnapshotReader(
            node_id=config.node_id,
            broker=broker,
            log_dirs=LogDirs([str(path) for path in config.log_dirs]),
            threads=threads.snapshots,
            ledger=metadata.manager,
            settings=metadata.settings,
            max_orphans=DEFAULT_MAX_ORPHANS,
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
        ),
        LineagePublisher(settings=metadata.settings, ledger=metadata.manager, clock=clock),
    )


def _build_disk_watch(config: ServiceConfig, threads: ServiceThreads, clock: Clock) -> DiskWatch:
    return DiskWatch(
        config.log_dirs,
        quota_bytes=config.disk_quota_bytes,
        floor_bytes=config.disk_min_free_bytes,
        threads=threads.other,
        clock=clock,
    )


def _build_disk_pressure(
    running: RunningConfig[ServiceConfig],
    watch: DiskWatch,
    metadata: Metadata,
    threads: ServiceThreads,
    clock: Clock,
) -> DiskPressure:
    config = running.now
    return DiskPressure(
        watch=watch,
        log_dirs=LogDirs([str(path) for path in config.log_dirs]),
        settings=metadata.settings,
        threads=threads.snapshots,
        clock=clock,
        interval_ms=lambda: running.now.disk_check_interval_ms,
        gives_back=config.on_disk_pressure == "giveback",
    )


def _audit_log(config: ServiceConfig, threads: ServiceThreads, clock: Clock) -> AuditLog:
    return AuditLog(
        config.audit_log_file or config.state_dir / _AUDIT_LOG,
        threads=threads.other,
        clock=clock,
        node_id=config.node_id,
    )


def _build_heartbeat(
    config: ServiceConfig,
    metadata: Metadata,
    stores: ServiceStores,
    disk_pressure: DiskPressure,
    clock: Clock,
    writer: Uuid,
) -> HeartbeatSender:
    return HeartbeatSender(
        settings=metadata.settings,
        clock=clock,
        node_id=config.node_id,
        writer=writer,
        formats=own_formats(software_version()),
        listen={
            "proxy": str(config.proxy_listen),
            "grpc": str(config.grpc_listen),
            "http": str(config.http_listen),
        },
        advertised={
            "proxy": str(config.proxy_advertised),
            "grpc": str(config.grpc_advertised),
            "http": str(config.http_listen),
        },
        stores=stores.stores.known,
        give_back=lambda: disk_pressure.asked,
        interval_ms=config.heartbeat_interval_ms,
    )


def offload_policy(config: ServiceConfig) -> OffloadPolicy:
    """When the segments of a topic are copied, and how long brokers keep them then."""
    return OffloadPolicy(config.offload_defaults(), config.offload_rules)

"""The parts that other parts of a service are built on: built here, contacted later."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kip405.ids import Uuid
from rlm.broker.connection import Address as BrokerAddress
from rlm.broker.leadership import Leadership
from rlm.broker.own_broker import OwnBroker
from rlm.broker.share_groups import BrokerShareGroups
from rlm.clock import Clock, new_uuid
from rlm.config import ServiceConfig
from rlm.facts_side import FactsSide, build_facts
from rlm.heartbeat import HeartbeatSender
from rlm.lanes.fetch import RemoteReader
from rlm.lanes.reader_pool import ReaderPool
from rlm.local_tier import LocalTier
from rlm.log_dir.scanner import LogDirs
from rlm.partitions import RememberedLooks, SharedLooks
from rlm.store_link import DescribeStore, StoreLink, StoreOrigin
from rlm.version import software_version
from rlm.work_side import BARRIER_DEADLINE_MS
from rsm_plugins.client import Deadlines, GrpcRemoteStorageManager

_MAX_ORPHANS = 3
_INDEX_CACHE_SHARE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that other parts are built on."""

    config: ServiceConfig
    clock: Clock
    writer: Uuid
    broker: OwnBroker
    facts: FactsSide
    leadership: Leadership
    looks: RememberedLooks
    store: GrpcRemoteStorageManager
    share_groups: BrokerShareGroups
    tier: LocalTier
    heartbeat: HeartbeatSender
    store_link: StoreLink


def build_parts(
    config: ServiceConfig, clock: Clock, tasks: asyncio.TaskGroup, threads: ThreadPoolExecutor
) -> Parts:
    """Everything built, nothing contacted."""
    writer = new_uuid()
    direct = BrokerAddress.parse(str(config.broker_direct_address))
    broker = OwnBroker(direct, client_id=f"rlm-{config.node_id}")
    facts = build_facts(config, broker=broker, clock=clock, writer=writer)
    leadership = Leadership(broker, clock, poll_interval_ms=config.leadership_poll_interval_ms)
    looks = RememberedLooks(
        node_id=config.node_id,
        broker=broker,
        log_dirs=LogDirs([str(path) for path in config.log_dirs]),
        ledger=facts.manager,
        settings=facts.settings,
        max_orphans=_MAX_ORPHANS,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )
    store = GrpcRemoteStorageManager.connect(
        str(config.plugin_address),
        principal=config.principal,
        deadlines=Deadlines(call_ms=config.plugin_call_timeout_ms, copy_ms=config.copy_deadline_ms),
        allow_insecure=config.allow_insecure,
    )
    reader = _build_reader(config, store, tasks, threads)
    return Parts(
        config=config,
        clock=clock,
        writer=writer,
        broker=broker,
        facts=facts,
        leadership=leadership,
        looks=looks,
        store=store,
        share_groups=BrokerShareGroups(direct, clock=clock, client_id=f"rlm-{config.node_id}"),
        tier=LocalTier(
            node_id=config.node_id,
            broker=broker,
            leadership=leadership,
            settings=facts.settings,
            manager=facts.manager,
            looks=looks,
            shared_looks=SharedLooks(looks, tasks),
            reader=reader,
        ),
        heartbeat=_build_heartbeat(config, facts, clock, writer),
        store_link=StoreLink(
            store=store,
            describe=_describe(config, store),
            cluster_id=config.cluster_id,
            settings=facts.settings,
            facts=facts.log,
            clock=clock,
            new_uuid=new_uuid,
        ),
    )


def _build_reader(
    config: ServiceConfig,
    store: GrpcRemoteStorageManager,
    tasks: asyncio.TaskGroup,
    threads: ThreadPoolExecutor,
) -> RemoteReader:
    return RemoteReader(
        store=store,
        cluster_id=config.cluster_id,
        pool=ReaderPool(
            tasks,
            threads=config.remote_log_reader_threads,
            max_pending_tasks=config.remote_log_reader_max_pending_tasks,
        ),
        threads=threads,
        chunk_cache_bytes=config.fetch_chunk_cache_bytes,
        index_cache_bytes=config.fetch_chunk_cache_bytes // _INDEX_CACHE_SHARE,
    )


def _build_heartbeat(
    config: ServiceConfig, facts: FactsSide, clock: Clock, writer: Uuid
) -> HeartbeatSender:
    return HeartbeatSender(
        settings=facts.settings,
        clock=clock,
        node_id=config.node_id,
        writer=writer,
        version=software_version(),
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
        interval_ms=config.heartbeat_interval_ms,
    )


def _describe(config: ServiceConfig, store: GrpcRemoteStorageManager) -> DescribeStore:
    async def describe() -> StoreOrigin:
        info = await store.get_info()
        prefix = str(config.rsm_config.get("prefix", ""))
        return StoreOrigin(plugin=info.name, uri=info.store_uri, prefix=prefix)

    return describe

"""Ledger and settings of one service, wired together (rlmm over our wire layer and clocks)."""

import asyncio
import contextlib
from dataclasses import dataclass

from kip405.ids import Uuid
from rlm.broker.any_broker import AnyBroker
from rlm.broker.own_broker import OwnBroker
from rlm.clock import Clock
from rlm.config import CommonConfig, ReaderConfig, ServiceConfig
from rlm.remembered_reads import ReadsFile
from rlm.remembered_topics import RememberedTopics
from rlm.topic_watch import describe_through
from rlmm.clients import ConnectionSettings
from rlmm.fact_log import FactLog
from rlmm.manager import RemoteLogMetadataManager
from rlmm.settings import Settings
from rlmm.topic import DescribeTopic
from rsm_plugins.threads import Threads

PUBLISH_TIMEOUT_MS = 15_000
_REMEMBER_READS_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsSide:
    """The log of facts and the two views of it."""

    log: FactLog
    settings: Settings
    manager: RemoteLogMetadataManager


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsIdentity:
    """As whom a service reads and writes facts. `node_id` of its records, -1 of a reader."""

    node_id: int
    writer: Uuid
    client_id: str


def build_facts(
    config: ServiceConfig, *, broker: OwnBroker, clock: Clock, writer: Uuid
) -> FactsSide:
    """Of a broker's service. Nothing is contacted before `log.run()`; topic ids of an earlier run
    are held to (H6).
    """
    return _build(
        config,
        FactsIdentity(node_id=config.node_id, writer=writer, client_id=f"rlm-{config.node_id}"),
        describe_through(broker),
        clock,
        replication_factor=config.rlmm_config_remote_log_metadata_topic_replication_factor,
    )


def build_reader_facts(
    config: ReaderConfig, *, brokers: AnyBroker, clock: Clock, identity: FactsIdentity
) -> FactsSide:
    """Of a reader: the topics are never created here."""
    return _build(config, identity, describe_through(brokers), clock, replication_factor=None)


async def remember_topics(facts: FactsSide, config: CommonConfig, threads: Threads) -> None:
    """Hold on to the ids of our own topics across restarts, once they are known; never ends."""
    await facts.log.wait_ready()
    remembered = RememberedTopics(config.state_dir, config.cluster_id)
    await threads.run(remembered.write, facts.log.topic_ids)
    await asyncio.get_running_loop().create_future()


async def remember_reads(facts: FactsSide, config: CommonConfig, threads: Threads) -> None:
    """Hold on to how far was read, each minute, and to a loss at once (H42); never ends."""
    file = ReadsFile(config.state_dir, config.cluster_id)
    is_lost = False
    while not is_lost:
        if facts.log.loss is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REMEMBER_READS_EVERY_MS / 1000):
                    await facts.log.wait_lost()
        is_lost = facts.log.loss is not None
        if is_lost or facts.log.is_ready:
            await threads.run(file.write, facts.log.reads)
    await asyncio.get_running_loop().create_future()


def _build(
    config: CommonConfig,
    identity: FactsIdentity,
    describe: DescribeTopic,
    clock: Clock,
    *,
    replication_factor: int | None,
) -> FactsSide:
    """`replication_factor` None = topics that are not there are waited for."""
    reads = ReadsFile(config.state_dir, config.cluster_id)
    log = FactLog(
        connection=ConnectionSettings(
            bootstrap_servers=tuple(str(one) for one in config.kafka_bootstrap_servers),
            client_id=identity.client_id,
        ),
        replication_factor=replication_factor or 1,
        describe_topic=describe,
        now_ms=clock.monotonic_ms,
        sleep_ms=clock.sleep_ms,
        remembered=RememberedTopics(config.state_dir, config.cluster_id).read(),
        remembered_reads=reads.read(),
        remedy=reads.remedy,
        may_create=replication_factor is not None,
    )
    settings = Settings(
        log=log,
        node_id=identity.node_id,
        writer=identity.writer,
        now_ms=clock.now_ms,
        monotonic_ms=clock.monotonic_ms,
        publish_timeout_ms=PUBLISH_TIMEOUT_MS,
    )
    manager = RemoteLogMetadataManager(
        log=log, writer=identity.writer, publish_timeout_ms=PUBLISH_TIMEOUT_MS
    )
    return FactsSide(log=log, settings=settings, manager=manager)

"""Ledger and settings of one service, wired together (rlmm over our wire layer and clocks)."""

from dataclasses import dataclass

from kip405.ids import Uuid
from rlm.broker.own_broker import OwnBroker
from rlm.clock import Clock
from rlm.config import ServiceConfig
from rlm.remembered_topics import RememberedTopics
from rlm.topic_watch import describe_through
from rlmm.clients import ConnectionSettings
from rlmm.fact_log import FactLog
from rlmm.manager import RemoteLogMetadataManager
from rlmm.settings import Settings

PUBLISH_TIMEOUT_MS = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsSide:
    """The log of facts and the two views of it."""

    log: FactLog
    settings: Settings
    manager: RemoteLogMetadataManager


def build_facts(
    config: ServiceConfig, *, broker: OwnBroker, clock: Clock, writer: Uuid
) -> FactsSide:
    """Nothing is contacted before `log.run()`; topic ids of an earlier run are held to (H6)."""
    log = FactLog(
        connection=ConnectionSettings(
            bootstrap_servers=tuple(str(one) for one in config.kafka_bootstrap_servers),
            client_id=f"rlm-{config.node_id}",
        ),
        replication_factor=config.rlmm_config_remote_log_metadata_topic_replication_factor,
        describe_topic=describe_through(broker),
        now_ms=clock.now_ms,
        sleep_ms=clock.sleep_ms,
        remembered=RememberedTopics(config.state_dir, config.cluster_id).read(),
    )
    settings = Settings(
        log=log,
        node_id=config.node_id,
        writer=writer,
        now_ms=clock.now_ms,
        publish_timeout_ms=PUBLISH_TIMEOUT_MS,
    )
    manager = RemoteLogMetadataManager(
        log=log, writer=writer, publish_timeout_ms=PUBLISH_TIMEOUT_MS
    )
    return FactsSide(log=log, settings=settings, manager=manager)

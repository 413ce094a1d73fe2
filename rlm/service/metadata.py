"""Wires ledger and settings of one service (rlmm over our wire protocol and clocks).

The cluster is asked for the id, configuration and partition count of the two topics over our own
wire protocol, since aiokafka's metadata has no topic ids (H6).

Two small files in the state dir survive restarts. One has the ids of the two topics (H6): a topic
that was deleted and recreated while no service was running has another id. Then nothing may be
deleted or trimmed, and only this file and the cluster record reveal it. Proxy workers know the ids
by it until the core has sent them. The other has how far both topics were read and whether they
lost records (H42): a topic that lost records looks complete to a service that starts, and only the
positions that an earlier process had read show the loss. To end a recorded loss, an operator
repairs the metadata, or makes sure that nothing is missing, removes the file and restarts the
service.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from kafka_clients.channel_security import ChannelSecurity
from kip405.errors import Invalid, NotFound
from kip405.ids import TopicPartition, Uuid
from rlm.broker.answers import TopicConfigValue
from rlm.broker.answers import TopicDescription as DescribedTopic
from rlm.broker.own_broker import AnyBroker, OwnBroker
from rlm.clock import Clock
from rlm.config import CommonConfig, ReaderConfig, ServiceConfig
from rlm.service.ledger_snapshot_file import FILE_NAME as SNAPSHOT_NAME
from rlmm.clients import ConnectionSettings
from rlmm.leader_answers import NOTHING_READ, ReadPosition, RememberedReads
from rlmm.manager import Metadata, TopicBasedRemoteLogMetadataManager
from rlmm.metadata_log import MetadataLog
from rlmm.settings import Settings
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC, DescribeTopic, TopicDescription
from rsm_plugins.files.durable import replace_file, sync_path
from rsm_plugins.threads import Threads

log = structlog.get_logger(__name__)
_TOPICS_FILE = "topics.json"
_READS_FILE = "facts-read.json"
V = TypeVar("V")


class StateFile:
    """A JSON document for one cluster in the state dir; replaced atomically."""

    def __init__(self, path: Path, cluster_id: str) -> None:
        self.path = path
        self._cluster_id = cluster_id

    def read(self, parse: Callable[[dict[str, Any]], V]) -> V | None:
        """What `parse` makes of the document, None before the first run. Invalid: the file was not
        written by us.
        """
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Invalid(f"{self.path} cannot be read: {error}") from error
        try:
            if content["cluster_id"] != self._cluster_id:
                raise Invalid(f"{self.path} belongs to cluster {content['cluster_id']}")
            return parse(content)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Invalid(f"{self.path} is not what this service wrote: {error!r}") from error

    def write(self, content: Mapping[str, Any]) -> None:
        """Durable when this returns."""
        text = json.dumps({"cluster_id": self._cluster_id, **content})
        replace_file(self.path, text.encode())
        sync_path(self.path.parent)


class RememberedTopics:
    """The file of topic ids for one cluster."""

    def __init__(self, state_dir: Path, cluster_id: str) -> None:
        self._file = StateFile(state_dir / _TOPICS_FILE, cluster_id)

    def read(self) -> dict[str, Uuid]:
        """Topic ids by name, empty before the first run. Invalid: the file is not one of ours."""
        return self._file.read(_parsed_topics) or {}

    def write(self, topic_ids: dict[str, Uuid]) -> None:
        """Durable when this returns."""
        topics = {name: str(topic_id) for name, topic_id in sorted(topic_ids.items())}
        self._file.write({"topics": topics})


def remembered_own_topics(config: CommonConfig) -> frozenset[Uuid]:
    """The ids of both topics as an earlier process has seen them, for one that serves before it
    sees them; empty = not known. A file that is not ours is one that is not there: who reads and
    writes the topics refuses it.
    """
    try:
        found = RememberedTopics(config.state_dir, config.cluster_id).read()
    except Invalid as error:
        log.warning("own_topics_not_read", error=str(error))
        return frozenset()
    both = {LEDGER_TOPIC, SETTINGS_TOPIC}
    return frozenset(found[name] for name in both) if both <= found.keys() else frozenset()


def _parsed_topics(content: dict[str, Any]) -> dict[str, Uuid]:
    return {name: Uuid.parse(text) for name, text in content["topics"].items()}


class ReadsFile:
    """The file of read positions for one cluster."""

    def __init__(self, state_dir: Path, cluster_id: str) -> None:
        self._file = StateFile(state_dir / _READS_FILE, cluster_id)
        self._snapshot = state_dir / SNAPSHOT_NAME

    @property
    def path(self) -> Path:
        """Where it lies; an operator removes it, and the snapshot of the ledger, to end a loss."""
        return self._file.path

    @property
    def remedy(self) -> str:
        """How an operator ends a loss, as the end of a sentence that names what was lost."""
        return (
            "nothing is deleted or trimmed until the metadata is repaired, "
            f"{self.path} and {self._snapshot} are removed and this service is started again"
        )

    def read(self) -> RememberedReads:
        """What the previous process wrote, nothing before the first run. Invalid: the file was not
        written by us.
        """
        return self._file.read(_parsed_reads) or NOTHING_READ

    def write(self, reads: RememberedReads) -> None:
        """Durable when this returns."""
        rows = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "position": read.position,
                "leader_epoch": read.leader_epoch,
            }
            for partition, read in sorted(reads.read_positions.items())
        ]
        topics = sorted(reads.lost_topics)
        self._file.write({"lost": reads.lost, "lost_topics": topics, "read": rows})


def _parsed_reads(content: dict[str, Any]) -> RememberedReads:
    positions = dict(_read_position(row) for row in content["read"])
    lost = None if content["lost"] is None else str(content["lost"])
    return RememberedReads(
        read_positions=positions,
        lost=lost,
        lost_topics=frozenset(str(one) for one in content.get("lost_topics", ())),
    )


def _read_position(row: dict[str, Any]) -> tuple[TopicPartition, ReadPosition]:
    partition = TopicPartition(row["topic"], int(row["partition"]))
    return partition, ReadPosition(
        position=int(row["position"]), leader_epoch=int(row["leader_epoch"]), remembered=True
    )


class _Broker(Protocol):
    async def topic(self, name: str) -> DescribedTopic: ...

    async def topic_config(self, topic: str) -> Mapping[str, TopicConfigValue]: ...


def describe_through(broker: _Broker) -> DescribeTopic:
    """Describes a topic through our own broker's direct listener (a reader: through any broker).
    None = the topic is known not to exist.
    """

    async def describe(name: str) -> TopicDescription | None:
        try:
            topic = await broker.topic(name)
        except NotFound:
            return None
        configs = await broker.topic_config(name)
        values = {key: row.value for key, row in configs.items() if row.value is not None}
        return topic.topic_id, values, len(topic.partitions)

    return describe


PUBLISH_TIMEOUT_MS = 15_000
BARRIER_DEADLINE_MS = 10_000
_REMEMBER_READS_EVERY_MS = 60_000
_NO_NODE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataIdentity:
    """The identity of a service in its records. `node_id` is -1 for a reader."""

    node_id: int
    writer: Uuid
    client_id: str


def build_metadata(
    config: ServiceConfig,
    security: ChannelSecurity,
    *,
    broker: OwnBroker,
    clock: Clock,
    writer: Uuid,
) -> Metadata:
    """Ledger and settings of a broker's service. Nothing is contacted before `log.run()`; the topic
    ids of an earlier run must still be the same (H6).
    """
    return _build(
        config,
        security,
        MetadataIdentity(node_id=config.node_id, writer=writer, client_id=f"rlm-{config.node_id}"),
        describe_through(broker),
        clock,
        replication_factor=config.rlmm_config_remote_log_metadata_topic_replication_factor,
    )


def build_reader_metadata(
    config: ReaderConfig,
    security: ChannelSecurity,
    *,
    brokers: AnyBroker,
    clock: Clock,
    identity: MetadataIdentity,
) -> Metadata:
    """Ledger and settings of a reader, which never creates the topics."""
    return _build(
        config, security, identity, describe_through(brokers), clock, replication_factor=None
    )


def build_command_metadata(
    config: ServiceConfig,
    security: ChannelSecurity,
    *,
    brokers: AnyBroker,
    clock: Clock,
    writer: Uuid,
    with_ledger: bool,
) -> Metadata:
    """Ledger and settings, or the settings alone, for a command that runs beside the services: it
    creates no topic and relies on nothing that a service has remembered.
    """
    client_id = "rlm-command"
    log = MetadataLog(
        connection=kafka_connection(config, security, client_id),
        replication_factor=config.rlmm_config_remote_log_metadata_topic_replication_factor,
        describe_topic=describe_through(brokers),
        now_ms=clock.monotonic_ms,
        sleep_ms=clock.sleep_ms,
        may_create=False,
        with_ledger=with_ledger,
        any_ledger=True,
    )
    identity = MetadataIdentity(node_id=_NO_NODE, writer=writer, client_id=client_id)
    return _views(log, identity, clock)


async def remember_topics(metadata: Metadata, config: CommonConfig, threads: Threads) -> None:
    """Store the ids of our own topics for later runs once they are known; runs until cancelled.

    Other ids than before mean that the ledger was rebuilt. Then what was read is stored first: the
    next process would take positions in the lost ledger for positions in this one (H6).
    """
    await metadata.log.wait_ready()
    remembered = RememberedTopics(config.state_dir, config.cluster_id)
    topic_ids = metadata.log.topic_ids
    if remembered.read() != topic_ids and metadata.log.loss is None:
        await threads.run(ReadsFile(config.state_dir, config.cluster_id).write, metadata.log.reads)
    await threads.run(remembered.write, topic_ids)
    await asyncio.get_running_loop().create_future()


async def remember_reads(metadata: Metadata, config: CommonConfig, threads: Threads) -> None:
    """Store the read positions each minute, and a loss at once (H42); runs until cancelled."""
    file = ReadsFile(config.state_dir, config.cluster_id)
    is_lost = False
    while not is_lost:
        if metadata.log.loss is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REMEMBER_READS_EVERY_MS / 1000):
                    await metadata.log.wait_lost()
        is_lost = metadata.log.loss is not None
        if is_lost or metadata.log.is_ready:
            await threads.run(file.write, metadata.log.reads)
    await asyncio.get_running_loop().create_future()


def _build(
    config: CommonConfig,
    security: ChannelSecurity,
    identity: MetadataIdentity,
    describe: DescribeTopic,
    clock: Clock,
    *,
    replication_factor: int | None,
) -> Metadata:
    """`replication_factor` None = wait for topics that do not exist yet."""
    reads = ReadsFile(config.state_dir, config.cluster_id)
    log = MetadataLog(
        connection=kafka_connection(config, security, identity.client_id),
        replication_factor=replication_factor or 1,
        describe_topic=describe,
        now_ms=clock.monotonic_ms,
        sleep_ms=clock.sleep_ms,
        remembered=RememberedTopics(config.state_dir, config.cluster_id).read(),
        remembered_reads=reads.read(),
        remedy=reads.remedy,
        may_create=replication_factor is not None,
    )
    return _views(log, identity, clock)


def kafka_connection(
    config: CommonConfig, security: ChannelSecurity, client_id: str
) -> ConnectionSettings:
    """Where and how ledger and settings are read and written."""
    return ConnectionSettings(
        bootstrap_servers=tuple(str(one) for one in config.kafka_bootstrap_servers),
        client_id=client_id,
        security=security,
    )


def _views(log: MetadataLog, identity: MetadataIdentity, clock: Clock) -> Metadata:
    settings = Settings(
        log=log,
        node_id=identity.node_id,
        writer=identity.writer,
        now_ms=clock.now_ms,
        monotonic_ms=clock.monotonic_ms,
        publish_timeout_ms=PUBLISH_TIMEOUT_MS,
    )
    manager = TopicBasedRemoteLogMetadataManager(
        log=log, writer=identity.writer, publish_timeout_ms=PUBLISH_TIMEOUT_MS
    )
    return Metadata(log=log, settings=settings, manager=manager)

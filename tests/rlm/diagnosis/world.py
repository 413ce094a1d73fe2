"""A broker's site as `rlm doctor` asks it, all sound: a test plants one fault and runs all checks.

Log directories are real; brokers, settings, stores and groups are fakes that answer what a test
gives them, or refuse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kip405.contracts import StoreIdentity
from kip405.errors import Invalid, NotFound, RemoteStorageError
from kip405.ids import Uuid
from rlm.broker.answers import (
    BrokerNode,
    ClusterDescription,
    PartitionDescription,
    TopicConfigValue,
    TopicDescription,
)
from rlm.config import ServiceConfig
from rlm.diagnosis.checks import CheckFinding, Examined, examine
from rlm.diagnosis.local import read_disks
from rlm.diagnosis.observed import (
    ObservedClient,
    ObservedDisks,
    ObservedHost,
    ObservedService,
    ObservedStore,
)
from rlm.diagnosis.sources import Sources, ask
from rlm.diagnosis.table import CHECKS
from rlm.service.metadata import RememberedTopics
from rlmm.settings_records import ClusterRecord, ServiceRecord, StoreRecord, TopicRecord
from rlmm.settings_view import SettingsView
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC, TopicSpec, ledger_spec, settings_spec
from tests.builders.clock import ManualClock
from tests.builders.ledger import MemorySettings
from tests.builders.log_dir import TOPIC, TOPIC_ID, LogDir
from tests.builders.service import NODE_ID, broker_config

CLUSTER_ID = "ours"
OTHER_NODE = 4
STORE_ID = Uuid(b"\x05" * 16)
LEDGER_ID, SETTINGS_ID = Uuid(b"\x06" * 16), Uuid(b"\x07" * 16)
SECONDS_MS = 1_000
_ANSWER_MS = 60_000
_REPLICAS = (NODE_ID, OTHER_NODE)
_SOUND_TOPIC = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "file.delete.delay.ms": "60000",
    "remote.storage.enable": "false",
}
_SOUND_BROKER: dict[str, str | None] = {
    "inter.broker.listener.name": "DIRECT",
    "controller.listener.names": "CONTROLLER",
    "listeners": "DIRECT://:19092,TIERED://127.0.0.1:19093",
    "advertised.listeners": "DIRECT://broker-3:19092,TIERED://broker-3:9092",
    "listener.security.protocol.map": "DIRECT:PLAINTEXT,TIERED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "max.connections.per.ip": "2147483647",
    "authorizer.class.name": "",
}


WELL = ObservedService(problems=(), direct_groups={TOPIC: ()}, copy_bytes_per_second=0)


def topic_record(**changed: object) -> TopicRecord:
    """An enabled topic in mode tier, trimmed."""
    record: dict[str, object] = {
        "topic_id": TOPIC_ID,
        "name": TOPIC,
        "mode": "tier",
        "state": "enabled",
        "trim": True,
        "retention_ms": 604_800_000,
        "retention_bytes": -1,
        "local_retention_ms": 3_600_000,
        "local_retention_bytes": -2,
        "originals": {"retention.ms": None, "retention.bytes": None},
    }
    return TopicRecord(**(record | changed))  # type: ignore[arg-type]  # as the tests give them


def described(
    name: str, topic_id: Uuid, partitions: int = 1, replicas: Sequence[int] = _REPLICAS
) -> TopicDescription:
    return TopicDescription(
        name=name,
        topic_id=topic_id,
        internal=False,
        partitions={
            number: PartitionDescription(
                partition=number,
                leader=replicas[0],
                leader_epoch=1,
                replicas=tuple(replicas),
                isr=tuple(replicas),
            )
            for number in range(partitions)
        },
    )


@dataclass(kw_only=True)
class FakeNode:
    """One broker's answers; `silent`: what it raises instead, by the name of a topic."""

    cluster_id: str = CLUSTER_ID
    too_old: str = ""
    config: dict[str, str | None] = field(default_factory=lambda: dict(_SOUND_BROKER))
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    silent: dict[str, RemoteStorageError] = field(default_factory=dict)
    refuses: RemoteStorageError | None = None
    rates: dict[str | None, float] = field(default_factory=dict)
    rates_refusal: RemoteStorageError | None = None

    def add(self, topic: TopicDescription, config: Mapping[str, str]) -> None:
        self.topics[topic.name] = topic
        self.topic_configs[topic.name] = dict(config)

    async def check_new_enough(self) -> None:
        if self.refuses is not None:
            raise self.refuses
        if self.too_old:
            raise Invalid(self.too_old)

    async def describe_cluster(self) -> ClusterDescription:
        nodes = (BrokerNode(node_id=node, host=f"broker-{node}", port=19092) for node in _REPLICAS)
        return ClusterDescription(cluster_id=self.cluster_id, nodes=tuple(nodes))

    async def broker_config(self, node_id: int) -> Mapping[str, str | None]:
        return self.config

    async def connection_rates(self) -> Mapping[str | None, float]:
        if self.rates_refusal is not None:
            raise self.rates_refusal
        return self.rates

    async def topic(self, name: str) -> TopicDescription:
        if name not in self.topics:
            raise NotFound(f"topic {name!r} does not exist")
        return self.topics[name]

    async def topic_config(
        self, topic: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, TopicConfigValue]:
        if topic in self.silent:
            raise self.silent[topic]
        return {
            name: TopicConfigValue(value=value, is_topic_level=True)
            for name, value in self.topic_configs[topic].items()
        }


@dataclass(kw_only=True)
class FakeRights:
    """What the broker allows; None = it does not say. A resource without an entry: everything."""

    operations: dict[str, frozenset[str] | None] = field(default_factory=dict)

    async def on_cluster(self) -> frozenset[str] | None:
        return self.operations.get("kafka-cluster", _EVERYTHING)

    async def on_topics(self, topics: Sequence[str]) -> Mapping[str, frozenset[str] | None]:
        return {name: self.operations.get(name, _EVERYTHING) for name in topics}


_EVERYTHING = frozenset(
    ("Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs")
)


class World:
    """Two brokers; node 3 is ours. One topic with a replica at each, one store, both services
    heard.
    """

    def __init__(self, path: Path, **settings: object) -> None:
        self.path = path / "logs"
        self.log_dir = LogDir(self.path, cluster_id=CLUSTER_ID, node_id=NODE_ID)
        self.partition = self.log_dir.partition()
        self.partition.active(0, 10)
        floor = {"disk.min.free.bytes": 0}
        self.config: ServiceConfig = broker_config(self.path, floor | settings)
        self.remembered = RememberedTopics(self.config.state_dir, CLUSTER_ID)
        self.clock = ManualClock(now_ms=10_000_000)
        self.own, self.other = FakeNode(), FakeNode()
        self.rights = FakeRights()
        self.share_starts: dict[int, int] = {}
        self.host = ObservedHost(libc=("glibc", "2.36"), open_files=None)
        self.client: ObservedClient | None = None
        self.service: ObservedService | None = WELL
        self.service_refusal: RemoteStorageError | None = None
        self.settings_refusal: RemoteStorageError | None = None
        self.settings = MemorySettings()
        self.settings.clock = self.clock
        self.store = ObservedStore(
            name="default",
            uri="file:store",
            identity=StoreIdentity(store_id=STORE_ID, cluster_id=CLUSTER_ID, created_ms=1),
        )
        self._topics()
        self._records()

    def _topics(self) -> None:
        factor = self.config.rlmm_config_remote_log_metadata_topic_replication_factor
        specs: tuple[tuple[TopicSpec, Uuid], ...] = (
            (ledger_spec(factor), LEDGER_ID),
            (settings_spec(factor), SETTINGS_ID),
        )
        for node in (self.own, self.other):
            node.add(described(TOPIC, TOPIC_ID), _SOUND_TOPIC)
            for spec, topic_id in specs:
                topic = described(spec.name, topic_id, spec.partition_count, range(1, factor + 1))
                node.add(topic, spec.configs)

    def _records(self) -> None:
        self.settings.write(
            ClusterRecord(
                cluster_id=CLUSTER_ID, ledger_topic_id=LEDGER_ID, settings_topic_id=SETTINGS_ID
            )
        )
        self.settings.write(
            StoreRecord(
                store_id=STORE_ID, plugin="local", uri="file:store", prefix="", names=("default",)
            )
        )
        self.settings.write(topic_record())
        self.beat(NODE_ID)
        self.beat(OTHER_NODE)

    def beat(self, node_id: int, version: str = "1.0", skew_ms: int = 0) -> None:
        """A heartbeat, now."""
        self.settings.now_ms = self.clock.now + skew_ms
        proxy = {"proxy": f"broker-{node_id}:9092"}
        self.settings.write(
            ServiceRecord(node_id=node_id, listen=proxy, advertised=proxy, version=version),
            node_id=node_id,
        )

    def set_topic(self, name: str, value: str, topic: str = TOPIC) -> None:
        """A configuration that every broker has."""
        for node in (self.own, self.other):
            node.topic_configs[topic][name] = value

    def before_the_first_service(self) -> None:
        """Nobody has made a topic, a record or the identity of a store."""
        for node in (self.own, self.other):
            for name in OWN_TOPICS:
                del node.topics[name]
        self.settings.view = SettingsView()
        self.store = ObservedStore(name="default", uri="file:store")

    async def examined(self) -> dict[str, Examined]:
        """The results of all checks, by name."""
        site = await ask(
            Sources(
                config=self.config,
                clock=self.clock,
                broker=self.own,
                brokers=self,
                rights=self.rights,
                share_groups=self,
                read_settings=self._read_settings,
                ask_stores=self._ask_stores,
                read_disks=self._read_disks,
                read_remembered=self._read_remembered,
                read_host=lambda: self.host,
                ask_service=self._ask_service,
                ask_client=None if self.client is None else self._ask_client,
            ),
            _ANSWER_MS,
        )
        return {one.check.name: one for one in examine(CHECKS, site)}

    async def findings(self) -> dict[str, tuple[CheckFinding, ...]]:
        """Those of the checks that found anything; every check was made."""
        examined = await self.examined()
        assert [name for name, one in examined.items() if one.unasked] == []
        return {name: one.findings for name, one in examined.items() if one.findings}

    async def only(self, check: str) -> CheckFinding:
        """The one finding that there is, of this check; it says what mends it."""
        found = await self.findings()
        assert list(found) == [check], found
        [finding] = found[check]
        assert finding.remedy
        return finding

    async def sources(self) -> dict[int, FakeNode]:
        return {NODE_ID: self.own, OTHER_NODE: self.other}

    async def starts_now(self, topic: str) -> Mapping[int, int]:
        await self.own.topic(topic)
        return self.share_starts

    async def _read_settings(self) -> SettingsView:
        if self.settings_refusal is not None:
            raise self.settings_refusal
        return self.settings.view

    async def _ask_stores(self) -> tuple[ObservedStore, ...]:
        return (self.store,)

    async def _read_disks(self) -> ObservedDisks:
        return read_disks(self.config)

    async def _read_remembered(self) -> Mapping[str, Uuid]:
        return self.remembered.read()

    async def _ask_service(
        self, view: SettingsView, trimmed: Sequence[str]
    ) -> ObservedService | None:
        if self.service_refusal is not None:
            raise self.service_refusal
        for topic in trimmed:
            await self.own.topic(topic)
        return self.service

    async def _ask_client(self) -> ObservedClient:
        assert self.client is not None
        return self.client


OWN_TOPICS = (SETTINGS_TOPIC, LEDGER_TOPIC)

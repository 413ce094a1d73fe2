"""What the services of a cluster in memory share: topics with configurations, leaders, what is on
disks, and the settings topic, as each service reads it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from kip405.acls import Acl
from kip405.errors import Fenced, NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from rlm.broker.answers import PartitionDescription, TopicDescription
from rlm.config.offload import OffloadRule
from rlm.log_dir.scanner import PartitionLog
from rlm.topics.access import ServiceAccess
from rlm.topics.ports import GroupOffset
from rlmm.log_time import RecordTimes
from rlmm.settings_codec import Headers, WriterKnowledge, encode_settings_record
from rlmm.settings_records import SettingsRecord, Stamp, TopicRecord
from rlmm.settings_view import SettingsView
from tests.builders.clock import ManualClock
from tests.builders.ledger import WithProblem
from tests.builders.log_dir import TOPIC, TOPIC_ID

DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "remote.storage.enable": "false",
}

Hook = Callable[[], Awaitable[None]]


async def no_hook() -> None:
    """Where a test wants none."""


class HasAccess(Protocol):
    """A service, as far as its peers ask it."""

    access: ServiceAccess


@dataclass(kw_only=True)
class Cluster:
    """What all services share."""

    configs: dict[str, dict[str, str]] = field(default_factory=lambda: {TOPIC: {}})
    topic_id: Uuid = TOPIC_ID
    partitions: int = 2
    leader: int = 1
    epoch: int = 5
    log_starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    groups: tuple[GroupOffset, ...] = ()
    groups_error: RemoteStorageError | None = None
    share_starts: dict[int, int] = field(default_factory=dict)
    internal: bool = False
    logs: dict[int, PartitionLog] = field(default_factory=dict)
    """What is on the disks of every broker; of no other partition is there a replica."""

    leaders: dict[int, int] = field(default_factory=dict)
    """Of partitions that another broker than `leader` leads."""

    denied: set[tuple[int, Acl]] = field(default_factory=set)
    """What the service of a node may not do."""

    principal: str | None = None
    """Whom brokers take the services for, as far as these know."""

    silent: set[int] = field(default_factory=set)
    """Nodes whose services do not answer their peers."""

    uncopyable: str = ""
    """What of the topic's present logs could not be copied."""

    offload_rules: tuple[OffloadRule, ...] = ()
    services: "dict[int, HasAccess]" = field(default_factory=dict)
    is_down: bool = False
    policy_refuses: bool = False
    policy_refuses_to_validate: bool = False
    records: list[tuple[bytes, bytes | None, Headers]] = field(default_factory=list)
    appended_ms: list[int] = field(default_factory=list)
    """When each of `records` was appended, by the brokers' clock."""

    alters: list[tuple[int, dict[str, str], tuple[str, ...]]] = field(default_factory=list)
    used: list[tuple[int, str]] = field(default_factory=list)
    """(node id, what its service asked its broker to do), of what a broker allows or refuses."""

    def elect(self, leader: int) -> None:
        self.leader, self.epoch = leader, self.epoch + 1

    def delete(self) -> None:
        """The topic with its configuration; what was decided for it stays in the settings."""
        del self.configs[TOPIC]

    def recreate(self, topic_id: Uuid) -> None:
        """Another topic under the same name."""
        self.configs[TOPIC] = {}
        self.topic_id, self.epoch = topic_id, 0
        self.log_starts, self.ends = {}, {}

    def topic(self) -> TopicDescription:
        return TopicDescription(
            name=TOPIC,
            topic_id=self.topic_id,
            internal=self.internal,
            partitions={
                number: PartitionDescription(
                    partition=number,
                    leader=self.leaders.get(number, self.leader),
                    leader_epoch=self.epoch,
                    replicas=(1, 2),
                    isr=(1, 2),
                )
                for number in range(self.partitions)
            },
        )

    def scan(self, topic: str, partition: int) -> PartitionLog:
        if partition not in self.logs:
            raise NotFound("no replica here")
        return self.logs[partition]

    def own_config(self) -> dict[str, str]:
        return dict(self.configs[TOPIC])

    def record(self, topic_id: Uuid = TOPIC_ID) -> TopicRecord | None:
        return self.view().topic(topic_id)

    def view(self, count: int | None = None) -> SettingsView:
        """What somebody knows who has read the first `count` records, None = all."""
        view = SettingsView()
        for offset, (key, value, headers) in enumerate(self.records[:count]):
            view.apply(key=key, value=value, offset=offset, headers=headers)
        return view

    def append(self, key: bytes, value: bytes | None, headers: Headers, now_ms: int) -> int:
        """A record of the settings topic; returns its offset."""
        self.records.append((key, value, headers))
        self.appended_ms.append(now_ms)
        return len(self.records) - 1


class ServiceSettings(WithProblem):
    """One service's settings, with the real view over the shared log."""

    def __init__(self, cluster: Cluster, node_id: int, hook: Hook, clock: ManualClock) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._hook = hook
        self._clock = clock
        self._read = 0
        self._replay_end = len(cluster.records)
        self.view = SettingsView()
        self.is_ready = True

    async def barrier(self, deadline_ms: int) -> None:
        await self._hook()
        self._catch_up()
        await self._hook()

    async def publish(
        self, record: SettingsRecord, leader_epoch: int = -1, seen: int | None = None
    ) -> None:
        await self._hook()
        seen = self.view.next_offset if seen is None else seen
        why = self.view.objection(record, leader_epoch, seen)
        if why:
            raise Fenced(why)
        stamp = Stamp(
            node_id=self._node_id,
            leader_epoch=leader_epoch,
            writer=Uuid(bytes([self._node_id]) * 16),
            time_ms=1,
        )
        knew = WriterKnowledge(seen=seen, leader_epoch=leader_epoch)
        key, value = encode_settings_record(record, stamp)
        offset = self._cluster.append(key, value, knew.encode(), self._clock.now)
        await self._hook()
        self._catch_up()
        adopted = self.view.get(record.key)
        if adopted is None or adopted.offset != offset:
            raise Fenced(f"{record.key} was overtaken")

    async def tombstone(self, key: str, leader_epoch: int = -1, seen: int | None = None) -> None:
        await self._hook()
        seen = self.view.next_offset if seen is None else seen
        knew = WriterKnowledge(seen=seen, leader_epoch=leader_epoch)
        if why := self.view.objection_to_removal(key, knew):
            raise Fenced(why)
        self._cluster.append(key.encode(), None, knew.encode(), self._clock.now)
        self._catch_up()

    def _catch_up(self) -> None:
        while self._read < len(self._cluster.records):
            key, value, headers = self._cluster.records[self._read]
            read_ms = None if self._read < self._replay_end else self._clock.monotonic_ms()
            times = RecordTimes(appended_ms=self._cluster.appended_ms[self._read], read_ms=read_ms)
            self.view.apply(key=key, value=value, offset=self._read, times=times, headers=headers)
            self._read += 1


class OtherServices:
    """PeerAccess over the services that a cluster has."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def missing(self, node_id: int, topic: str, *, tier: bool) -> tuple[Acl, ...]:
        other = self._cluster.services.get(node_id)
        if other is None or node_id in self._cluster.silent:
            raise Unavailable("it does not answer")
        return await other.access.missing(topic, tier=tier)

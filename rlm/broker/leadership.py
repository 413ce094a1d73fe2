"""Polls this service's broker for the leaders of partitions, and replaces the whole snapshot.

A snapshot is a value; a task asks again right before anything irreversible (H5).
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from kip405.acls import MissingAcls
from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey, TopicIdPartition, TopicPartition, Uuid
from rlm.broker.answers import (
    BrokerNode,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from rlm.clock import Clock

log = structlog.get_logger()
_MOST_LISTED = 64
"""Sets of topics whose partitions are kept as a list; there are only a few at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedPartition:
    """A partition and its leader, by one answer of Metadata; leader -1 = none."""

    topic_id_partition: TopicIdPartition
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    key: PartitionKey = field(init=False, compare=False, repr=False)
    """Kept, as whatever is known of a partition is found by it."""
    topic_partition: TopicPartition = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.topic_id_partition.key)
        object.__setattr__(self, "topic_partition", self.topic_id_partition.topic_partition)

    def __str__(self) -> str:
        return str(self.topic_id_partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The broker's answer at one time (monotonic ms); `asked` are the topics of the request."""

    taken_at_ms: int
    asked: frozenset[str] = frozenset()
    cluster_id: str = ""
    nodes: tuple[BrokerNode, ...] = ()
    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    partitions: Mapping[PartitionKey, LedPartition] = field(default_factory=dict)

    def lacks(self, name: str) -> bool:
        """The broker was asked for a topic of this name and did not describe it."""
        return name in self.asked and name not in self.topics

    def led_by(self, node_id: int) -> tuple[LedPartition, ...]:
        return tuple(row for row in self.partitions.values() if row.leader == node_id)

    def led_of(self, node_id: int, topic_ids: Container[Uuid]) -> Iterator[LedPartition]:
        """Those of some topics that the node leads."""
        for key, row in self.partitions.items():
            if row.leader == node_id and key.topic_id in topic_ids:
                yield row


class _Asked(Protocol):
    async def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]: ...

    async def describe_cluster(self) -> ClusterDescription: ...


def partitions_of(
    topics: Iterable[TopicDescription], known: Mapping[PartitionKey, LedPartition] | None = None
) -> dict[PartitionKey, LedPartition]:
    """Partitions by topic id and number. Those that are as in `known` are the same objects: what is
    computed from one is then known to be true still.
    """
    before = known or {}
    found = {}
    for topic in topics:
        for row in topic.partitions.values():
            key = PartitionKey(topic.topic_id, row.partition)
            led = before.get(key)
            found[key] = led if led and _is_same(led, topic, row) else _led(topic, row)
    return found


def _is_same(led: LedPartition, topic: TopicDescription, row: PartitionDescription) -> bool:
    return (
        led.leader == row.leader
        and led.leader_epoch == row.leader_epoch
        and led.replicas == row.replicas
        and led.isr == row.isr
        and led.topic_id_partition.topic == topic.name
    )


def _led(topic: TopicDescription, row: PartitionDescription) -> LedPartition:
    return LedPartition(
        topic_id_partition=TopicIdPartition(
            topic_id=topic.topic_id, topic=topic.name, partition=row.partition
        ),
        leader=row.leader,
        leader_epoch=row.leader_epoch,
        replicas=row.replicas,
        isr=row.isr,
    )


class Leadership:
    """Keeps the newest snapshot of the topics that `wanted` returns; `error` says why the last poll
    failed.
    """

    def __init__(self, broker: _Asked, clock: Clock, *, poll_interval_ms: int) -> None:
        self._broker = broker
        self._clock = clock
        self._poll_interval_ms = poll_interval_ms
        self._wanted: frozenset[str] = frozenset()
        self.snapshot = Snapshot(taken_at_ms=-1)
        self.error: RemoteStorageError | None = None
        self._listed_of = self.snapshot.partitions
        self._listed: dict[tuple[int, frozenset[Uuid]], tuple[LedPartition, ...]] = {}

    def led_of(self, node_id: int, topic_ids: Iterable[Uuid]) -> tuple[LedPartition, ...]:
        """The partitions of some topics that the node leads by the newest snapshot; the same object
        until a snapshot has others, since each report needs it several times, and rolls are looked
        for all the time.
        """
        if self._listed_of is not self.snapshot.partitions:
            self._listed_of, self._listed = self.snapshot.partitions, {}
        wanted = node_id, frozenset(topic_ids)
        if wanted not in self._listed:
            if len(self._listed) >= _MOST_LISTED:
                self._listed.clear()
            self._listed[wanted] = tuple(self.snapshot.led_of(*wanted))
        return self._listed[wanted]

    def want(self, names: Iterable[str]) -> None:
        """The topics to ask for from the next poll on."""
        self._wanted = frozenset(names)

    async def refresh(self) -> Snapshot:
        """Ask now; Unavailable when the broker does not answer."""
        taken_at_ms = self._clock.monotonic_ms()
        cluster = await self._broker.describe_cluster()
        asked = self._wanted
        topics = await self._topics(asked)
        self.snapshot = Snapshot(
            taken_at_ms=taken_at_ms,
            asked=asked,
            cluster_id=cluster.cluster_id,
            nodes=cluster.nodes,
            topics={topic.name: topic for topic in topics},
            partitions=self._partitions(topics),
        )
        return self.snapshot

    def _partitions(
        self, topics: Sequence[TopicDescription]
    ) -> Mapping[PartitionKey, LedPartition]:
        """Those of the last snapshot where all topics are the same objects: the broker's answer was
        equal, as nearly always (rlm.broker.many).
        """
        known = self.snapshot.topics
        if len(topics) == len(known) and all(known.get(one.name) is one for one in topics):
            return self.snapshot.partitions
        return partitions_of(topics, self.snapshot.partitions)

    async def _topics(self, wanted: frozenset[str]) -> tuple[TopicDescription, ...]:
        """Those wanted. One that we may not see any more stays as it was seen last: that
        does not affect the others, and does not prove that it is gone (H7).
        """
        try:
            return await self._broker.topics(sorted(wanted))
        except MissingAcls as error:
            hidden = wanted & {acl.resource_name for acl in error.acls}
            if not hidden:
                raise
            seen = await self._broker.topics(sorted(wanted - hidden))
            known = self.snapshot.topics
            return (*seen, *(known[name] for name in sorted(hidden) if name in known))

    async def run(self) -> None:
        """Poll until cancelled; a broker that is down is polled on."""
        while True:
            try:
                await self.refresh()
            except RemoteStorageError as error:
                if self.error is None:
                    log.warning("leadership_poll_failed", error=str(error))
                self.error = error
            else:
                self.error = None
            await self._clock.sleep_ms(self._poll_interval_ms)

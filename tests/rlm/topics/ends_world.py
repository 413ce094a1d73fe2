"""Services that end deleted topics: real settings and ledger over one log, brokers that can lie, be
late or be silent, and one store.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from kip405.errors import NotFound, Unavailable
from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import CustomMetadata, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.topic_end import BrokerAnswer, EndLimits, unknown_everywhere
from rlm.tasks.certain_time import CertainTime
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.partition_end import PartitionEnd
from rlm.tasks.segment_deletion import SegmentDeleter
from rlm.topics.ends import EndSettings, TopicEnds
from rlm.topics.leftovers import Leftovers
from rlm.topics.purge import Purge
from rlm.topics.revocation import Revocation
from rlmm.manager import TopicBasedRemoteLogMetadataManager
from rlmm.records import NO_PREVIOUS
from rlmm.settings import Settings
from rlmm.settings_records import (
    ClusterRecord,
    FreezeRecord,
    ServiceRecord,
    SettingsRecord,
    StartRecord,
    TopicRecord,
)
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.audit import MemoryAudit
from tests.builders.clock import ManualClock
from tests.builders.ledger import metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.metadata_log import FakeMetadataLog, FakeTopics
from tests.builders.store import STORE_ID, MemoryStore, Shelf
from tests.builders.threads import THREADS

LEDGER_ID, SETTINGS_ID = Uuid(b"\xf1" * 16), Uuid(b"\xf2" * 16)
GRACE_MS, DELAY_MS, INTERVAL_MS = 60_000, 600_000, 10_000
DEAD_AFTER_MS = 3 * INTERVAL_MS
UNKNOWN, DENIED, KNOWN = 100, 29, 0
LIMITS = EndLimits(max_topics=1, max_share_percent=60)


LONG_MS = 3 * (GRACE_MS + DELAY_MS)


def topic_id(number: int) -> Uuid:
    return Uuid(bytes([number]) * 16)


@dataclass(kw_only=True)
class Brokers:
    """What each broker answers. `topics`: ids that exist; `overrides`: (node, id) -> error code,
    None = the broker leaves the topic out.
    """

    nodes: tuple[int, ...] = (1, 2, 3)
    silent: set[int] = field(default_factory=set)
    topics: set[Uuid] = field(default_factory=set)
    overrides: dict[tuple[int, Uuid], int | None] = field(default_factory=dict)
    clusters: dict[int, str] = field(default_factory=dict)

    def answer(self, node_id: int, topic_ids: Sequence[Uuid]) -> BrokerAnswer:
        codes: dict[Uuid, int] = {}
        for one in topic_ids:
            code = self.overrides.get(
                (node_id, one), KNOWN if one in self.topics | {LEDGER_ID} else UNKNOWN
            )
            if code is not None:
                codes[one] = code
        return BrokerAnswer(
            node_id=node_id,
            cluster_id=self.clusters.get(node_id, CLUSTER_ID),
            error_codes=codes,
            brokers=frozenset(self.nodes),
        )


class FakePresence:
    """Of one service; its own broker is its node, and as with TopicPresence the others are asked
    only about what that one does not know. `on_ask` gets the number of the call.
    """

    def __init__(self, node_id: int, brokers: Brokers) -> None:
        self._node_id = node_id
        self._brokers = brokers
        self.asked = 0
        self.on_ask: Callable[[int], Awaitable[None]] | None = None

    async def ask(
        self, topic_ids: Sequence[Uuid], ledger_topic_id: Uuid
    ) -> tuple[BrokerAnswer, ...]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.on_ask is not None:
            await self.on_ask(self.asked)
        if self._node_id in self._brokers.silent:
            raise Unavailable("our own broker does not answer")
        own = self._brokers.answer(self._node_id, [*topic_ids, ledger_topic_id])
        unknown = sorted(unknown_everywhere([own], topic_ids))
        others = [
            self._brokers.answer(one, [*unknown, ledger_topic_id])
            for one in self._brokers.nodes
            if unknown and one != self._node_id and one not in self._brokers.silent
        ]
        return (own, *others)


class FakeLocalStarts:
    """Raises the start of partition 0 to 15; `order` notes when. With `is_gone` there is no such
    topic. `before` is called first.
    """

    def __init__(self, settings: Settings, order: list[str]) -> None:
        self._settings = settings
        self._order = order
        self.is_gone = False
        self.before: Callable[[], None] = lambda: None

    async def raise_starts(
        self, record: TopicRecord, check: Callable[[], Awaitable[object]]
    ) -> None:
        self.before()
        await check()
        if self.is_gone:
            raise NotFound("no topic has the id")
        start = StartRecord(
            partition=PartitionKey(record.topic_id, 0),
            remote_log_start_offset=15,
            cause="command",
            decided_epoch=7,
        )
        await self._settings.publish(start, 7)
        self._order.append("start")


class Service:
    """One process at one broker."""

    def __init__(self, site: "Site", node_id: int, writer: int) -> None:
        self.node_id = node_id
        self.log = FakeMetadataLog(site.topics)
        self.settings = Settings(
            log=self.log,
            node_id=node_id,
            writer=Uuid(bytes([writer]) * 16),
            now_ms=site.clock.now_ms,
            monotonic_ms=site.clock.monotonic_ms,
            publish_timeout_ms=1_000,
        )
        self.ledger = TopicBasedRemoteLogMetadataManager(
            log=self.log, writer=Uuid(bytes([writer]) * 16), publish_timeout_ms=1_000
        )
        self.log.go_live()
        self.rival: str | None = None
        self.presence = FakePresence(node_id, site.brokers)
        self.order: list[str] = []
        self.local_starts = FakeLocalStarts(self.settings, self.order)
        evidence = StoreEvidence(
            Shelf({STORE_ID: site.store}), cluster_id=CLUSTER_ID, threads=THREADS
        )
        self.end = PartitionEnd(
            ledger=self.ledger,
            settings=self.settings,
            deleter=SegmentDeleter(
                ledger=self.ledger,
                evidence=evidence,
                clock=site.clock,
                node_id=node_id,
            ),
            audit=site.audit,
            clock=site.clock,
            node_id=node_id,
            barrier_deadline_ms=1_000,
        )
        self.ends = TopicEnds(
            presence=self.presence,
            local_starts=self.local_starts,
            partition_end=self.end,
            leftovers=Leftovers(
                settings=self.settings,
                ledger=self.ledger,
                partition_end=self.end,
                evidence=evidence,
                barrier_deadline_ms=1_000,
            ),
            ledger=self.ledger,
            settings=self.settings,
            clock=site.clock,
            time=CertainTime(
                settings=self.settings,
                clock=site.clock,
                heartbeat_max_age_ms=DEAD_AFTER_MS,
            ),
            rival=lambda: self.rival,
            config=EndSettings(
                node_id=node_id,
                cluster_id=CLUSTER_ID,
                interval_ms=INTERVAL_MS,
                grace_ms=GRACE_MS,
                delay_ms=DELAY_MS,
                limits=site.limits,
                dead_after_ms=DEAD_AFTER_MS,
                barrier_deadline_ms=1_000,
            ),
        )
        self.purge = self._new_purge()

    def _new_purge(self) -> Purge:
        revocation = Revocation(
            settings=self.settings, ledger=self.ledger, barrier_deadline_ms=1_000
        )
        return Purge(
            ends=self.ends,
            settings=self.settings,
            ledger=self.ledger,
            revocation=revocation,
            lock=asyncio.Lock(),
        )

    async def beat(self) -> None:
        await self.settings.publish(
            ServiceRecord(node_id=self.node_id, listen={}, advertised={}, version="1")
        )


class Site:
    """One cluster; topic 1 has most of the bytes unless a test says otherwise."""

    def __init__(self, *, limits: EndLimits = LIMITS) -> None:
        self.limits = limits
        self.clock = ManualClock()
        self.topics = FakeTopics()
        self.topics.now_ms = self.clock.now
        self.brokers = Brokers()
        self.store = MemoryStore(CLUSTER_ID)
        self.audit = MemoryAudit()
        self._writers = 100

    def service(self, node_id: int = 1) -> Service:
        """A process that has just read everything."""
        self._writers += 1
        return Service(self, node_id, self._writers)

    async def write(self, record: SettingsRecord, epoch: int = -1) -> None:
        """A settings record of another process, whom nobody checks."""
        await self.service(9).settings.publish(record, epoch)

    async def set_up(self, *numbers: int, size_bytes: int = 10) -> None:
        """Enabled topics of these numbers with two partitions and three segments each."""
        await self.write(
            ClusterRecord(
                cluster_id=CLUSTER_ID, ledger_topic_id=LEDGER_ID, settings_topic_id=SETTINGS_ID
            )
        )
        for number in numbers:
            self.brokers.topics.add(topic_id(number))
            await self.write(record_of(number), 4)
            for partition in (0, 1):
                start = StartRecord(
                    partition=partition_of(number, partition).key,
                    remote_log_start_offset=0,
                    cause="enable",
                    decided_epoch=4,
                )
                await self.write(start, 4)
                for index in range(3):
                    await self.copy(number, partition, index, size_bytes=size_bytes)

    async def copy(
        self,
        number: int,
        partition: int,
        index: int,
        *,
        size_bytes: int = 10,
        is_finished: bool = True,
    ) -> None:
        """One more segment with its objects, published under epoch 5."""
        manager = self.service(9).ledger
        segment = segment_of(number, partition, index, size_bytes)
        started = segment.in_state(
            RemoteLogSegmentState.COPY_SEGMENT_STARTED, event_timestamp_ms=0, broker_id=1
        )
        await manager.publish(started, 5, NO_PREVIOUS)
        for kind in (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST):
            if is_finished or kind is not ObjectKind.MANIFEST:
                self.store.objects[object_name(segment.locator(CLUSTER_ID), kind)] = b"x"
        if is_finished:
            await manager.publish(segment, 5, 0)

    async def adopt(self, number: int, partition: int, index: int) -> None:
        """A copy whose ledger record was missing is found by its manifest (H6)."""
        segment = segment_of(number, partition, index, 10)
        for kind in (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST):
            self.store.objects[object_name(segment.locator(CLUSTER_ID), kind)] = b"x"
        await self.service(9).ledger.publish(segment, 5, NO_PREVIOUS)

    def delete_topic(self, number: int) -> None:
        self.brokers.topics.discard(topic_id(number))

    def objects(self, number: int) -> list[str]:
        return [name for name in self.store.objects if str(topic_id(number)) in name]

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.topics.now_ms = self.clock.now

    async def run(self, *services: Service, for_ms: int) -> None:
        """Heartbeats and checks of these services, by turns, for a while."""
        end_ms = self.clock.now + for_ms
        while self.clock.now < end_ms:
            self.pass_time(INTERVAL_MS)
            for one in services:
                await one.beat()
            for one in services:
                one.log.read_all()
                await one.ends.check()

    def left(self, number: int) -> list[str]:
        """Everything that settings, ledger and store still have of a topic, by a new reader."""
        reader = self.service(8)
        found = list(reader.settings.view.keys_of(topic_id(number)))
        for key in reader.ledger.partitions():
            view = reader.ledger.ledger(key)
            if key.topic_id == topic_id(number) and (view.entries or view.deletion):
                found.append(str(key))
        return found + self.objects(number)

    def state(self, number: int) -> str:
        record = self.service(8).settings.view.topic(topic_id(number))
        return "" if record is None else record.state


async def site_of(*topics: int, limits: EndLimits | None = None) -> Site:
    """Enabled topics of 60 bytes each."""
    site = Site() if limits is None else Site(limits=limits)
    await site.set_up(*topics)
    return site


def record_of(number: int, state: str = "enabled") -> TopicRecord:
    return TopicRecord(
        topic_id=topic_id(number),
        name=f"topic-{number}",
        mode="tier",
        state=state,
        trim=True,
        retention_ms=-1,
        retention_bytes=-1,
        local_retention_ms=1,
        local_retention_bytes=-2,
    )


def partition_of(number: int, partition: int = 0) -> TopicIdPartition:
    return TopicIdPartition(topic_id=topic_id(number), topic=f"topic-{number}", partition=partition)


def segment_of(
    number: int, partition: int, index: int, size_bytes: int
) -> RemoteLogSegmentMetadata:
    found = metadata(1, index * 10, index * 10 + 10, {5: 0})
    segment_id = RemoteLogSegmentId(
        topic_id_partition=partition_of(number, partition),
        id=Uuid(bytes([number, partition, index]) + bytes(13)),
    )
    return replace(
        found,
        segment_id=segment_id,
        segment_size_bytes=size_bytes,
        custom_metadata=CustomMetadata(store_id=STORE_ID).encode(),
    )


def freeze_of(number: int | None) -> FreezeRecord:
    return FreezeRecord(
        topic_id=None if number is None else topic_id(number),
        stopped=("trim", "delete", "sweep"),
        by="tests",
        why="stop",
    )

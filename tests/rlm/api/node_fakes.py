"""Stores, losses and deleted topics of one node, as the API asks for them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass, field

from kip405.errors import Fenced, Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from rlm.api.clients import ClusterClients
from rlm.api.copy_limits import ClusterCopyLimits
from rlm.api.peers import Peers
from rlm.broker.answers import OwnOffsets
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.config.running import SettingChanges
from rlm.plans.client_activity import ClientTable
from rlm.plans.coverage import LostRange
from rlm.plans.discard import OwnPart, RemotePart
from rlm.plans.disk import LogDirReport
from rlm.plans.expiry import PartitionExpiry
from rlm.plans.explanation import Explanation, explain
from rlm.plans.remote_extent import RemoteExtent
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.history import RemoteHistory
from rlm.remote_log.log_starts import LogStarts
from rlm.remote_log.objects import RemoteLogs
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.stores.reports import StoreReport, StoreStatus
from rlm.tasks.copy_progress import Copying, Progress
from rlm.tasks.copy_runs import CopyEvent, CopyTarget
from rlm.tasks.unlisted_segments import Listing
from rlm.tasks.verify_runs import Event, RunningVerify
from rlm.topics.copy_limits import CopyLimitDecisions
from rlm.topics.discards import DiscardPlan, PendingDiscard
from rlm.topics.partition_records import Adoption
from rlm.topics.ports import Ledger
from rlm.topics.purge import TopicEnd
from rlmm.settings_records import DiscardRecord, ServiceRecord, TopicRecord
from tests.builders.audit import MemoryAudit
from tests.builders.ledger import MemoryLedger
from tests.builders.log_dir import CLUSTER_ID, TOPIC, TOPIC_ID
from tests.builders.store import MemoryStore
from tests.builders.threads import THREADS
from tests.rlm.plans.views import explain_view
from tests.rlm.topics.cluster import ServiceSettings
from tests.rlm.topics.world import ServiceBroker, ServiceUnderTest


class ApiLosses:
    """What an operator may accept; `asked` is (partition, by whom, whether to apply)."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, bool]] = []
        self.without: tuple[Uuid, ...] = ()
        self.discards = ApiDiscards()

    async def accept(
        self, key: PartitionKey, *, by: str, apply: bool, without: Collection[Uuid]
    ) -> tuple[LostRange, ...]:
        self.asked.append((key.partition, by, apply))
        self.without = tuple(without)
        return (LostRange(start=10, next_offset=20, segments=1, size_bytes=99, why="gone"),)


_REMOTE = RemotePart(segments=5, records=500, size_bytes=2048, oldest_ms=0, newest_ms=60_000)


class ApiDiscards:
    """What an operator may give up; `decisions` by partition, with whose they are."""

    def __init__(self) -> None:
        self.decisions: dict[PartitionKey, str] = {}

    async def plan(self, key: PartitionKey) -> DiscardPlan:
        return DiscardPlan(
            topic=TOPIC,
            partition=key.partition,
            frozen="orphans",
            remote=_REMOTE,
            own=OwnPart(segments=2, size_bytes=1_024, only_remote_records=30),
            log_start_offset=0,
            log_end_offset=120,
            delay_ms=60_000,
        )

    async def decide(self, key: PartitionKey, *, by: str) -> DiscardPlan:
        self.decisions[key] = by
        return await self.plan(key)

    async def undo(self, key: PartitionKey) -> None:
        if self.decisions.pop(key, None) is None:
            raise NotFound("no discard is pending")

    def pending(self, topic: str = "") -> tuple[PendingDiscard, ...]:
        return tuple(
            PendingDiscard(
                topic=TOPIC,
                record=DiscardRecord(
                    partition=key,
                    by=by,
                    why="orphans",
                    epoch=2,
                    last_epoch=2,
                    offset=120,
                    delay_ms=60_000,
                    decided_ms=1_000,
                ),
                due_in_ms=60_000,
                remote=_REMOTE,
            )
            for key, by in self.decisions.items()
            if topic in ("", TOPIC)
        )


class NothingStored:
    """UnlistedSegments of empty stores."""

    async def listing(self, partition: TopicIdPartition) -> Listing:
        return Listing()


def adoption(broker: OwnOffsets, settings: ServiceSettings, ledger: Ledger) -> Adoption:
    starts = LogStarts(settings=settings, audit=MemoryAudit(), barrier_deadline_ms=1_000)
    return Adoption(
        broker=broker,
        settings=settings,
        ledger=ledger,
        unlisted=NothingStored(),
        starts=starts,
        barrier_deadline_ms=1_000,
    )


def copy_limits(peers: Peers, settings: ServiceSettings, clock: Clock) -> ClusterCopyLimits:
    """1 GiB a second is configured."""
    decisions = CopyLimitDecisions(
        settings=settings,
        node_id=peers.node_id,
        configured=1 << 30,
        clock=clock,
        barrier_deadline_ms=1_000,
    )
    return ClusterCopyLimits(peers=peers, decisions=decisions)


class ApiReload:
    """A reload finds what is given here."""

    def __init__(self) -> None:
        self.found: SettingChanges | Invalid = SettingChanges()

    async def reload(self) -> SettingChanges:
        if isinstance(self.found, Invalid):
            raise self.found
        return self.found


class NoReader:
    """REMOTE_ONLY is tested over real segments (test_remote_only.py)."""

    async def read(self, history: RemoteHistory, request: RemoteRead) -> RemoteRecords:
        raise Unavailable(history.name)

    async def offset_for_timestamp(
        self, history: RemoteHistory, timestamp_ms: int, *, start: int, next_offset: int
    ) -> TimestampedOffset | None:
        raise Unavailable(history.name)


def cluster_clients(peers: Peers, clients: ClientTable, broker: ServiceBroker) -> ClusterClients:
    """The clients of this node's proxy, and the groups of the cluster."""
    return ClusterClients(
        peers=peers, rows=clients.rows, groups=broker, share_groups=broker, broker=broker
    )


class Blind:
    """Takes no snapshot."""

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        raise Fenced(f"{led.topic_id_partition} is not led here")


class ApiPlanner:
    """What total retention would do on one node."""

    def __init__(self) -> None:
        self.plans: list[PartitionExpiry] = []

    async def plan_expiry(self, topic: TopicRecord) -> list[PartitionExpiry]:
        return self.plans


class ApiExplanations:
    """What a node says of a partition; `asked` is (partition, offset)."""

    def __init__(self) -> None:
        self.view = explain_view()
        self.asked: list[tuple[int, int | None]] = []

    async def explain(self, led: LedPartition, offset: int | None) -> Explanation:
        self.asked.append((led.topic_id_partition.partition, offset))
        return explain(self.view, offset)


class ApiRuns:
    """What a node finds out when it verifies; `asked` is (topic, deep), `ended` counts runs.

    `verifying` are the runs of others. `error` ends a run after its events; with `hangs` it goes on
    until it is cancelled.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.error: RemoteStorageError | None = None
        self.verifying: tuple[RunningVerify, ...] = ()
        self.hangs = False
        self.asked: list[tuple[str, bool]] = []
        self.ended = asyncio.Event()

    def running(self) -> tuple[RunningVerify, ...]:
        return self.verifying

    async def run(self, topic: str, *, deep: bool) -> AsyncGenerator[Event, None]:
        self.asked.append((topic, deep))
        try:
            for event in self.events:
                yield event
            if self.hangs:
                await asyncio.Event().wait()
            if self.error is not None:
                raise self.error
        finally:
            self.ended.set()


class ApiCopies:
    """The copies that a node is asked for; `error` ends a run after its events. `before` is called
    with the number of each run.
    """

    def __init__(self) -> None:
        self.events: list[CopyEvent] = []
        self.error: RemoteStorageError | None = None
        self.asked: list[CopyTarget] = []
        self.before: Callable[[int], None] = lambda _number: None

    async def run(self, target: CopyTarget) -> AsyncGenerator[CopyEvent, None]:
        self.asked.append(target)
        self.before(len(self.asked))
        for event in self.events:
            if event.partition in target.partitions:
                yield event
        if self.error is not None:
            raise self.error


class ApiPurge:
    """Deleted topics of one node; `confirmed` is what an operator named, by call."""

    def __init__(self) -> None:
        self.ends: tuple[TopicEnd, ...] = ()
        self.confirmed: list[tuple[str, ...]] = []
        self.kept: list[str] = []

    def listed(self) -> tuple[TopicEnd, ...]:
        return self.ends

    def extent(self, topic_id: Uuid) -> RemoteExtent:
        return RemoteExtent(segments=3, records=300, size_bytes=4096, oldest_ms=0, newest_ms=60_000)

    async def keep(self, name: str) -> tuple[TopicRecord, ...]:
        self.kept.append(name)
        return tuple(one.record for one in self.ends if one.is_named(name))

    async def confirm(self, names: Sequence[str]) -> None:
        self.confirmed.append(tuple(names))


@dataclass(kw_only=True)
class ApiStores:
    """StoreDoctor of one node, and what its status says of stores, log directories and copies."""

    statuses: tuple[StoreStatus, ...] = ()
    reports: tuple[StoreReport, ...] = ()
    log_dirs: tuple[LogDirReport, ...] = ()
    copying: Copying = field(
        default_factory=lambda: Copying(
            progress=Progress(segments_left=0, bytes_left=0, bytes_per_second=None, left_ms=None),
            unmeasured_partitions=0,
            limit_bytes_per_second=1 << 30,
        )
    )

    async def inspect(self) -> tuple[StoreReport, ...]:
        return self.reports


def no_remote_logs() -> RemoteLogs:
    """Of a service that knows no partition yet."""
    return RemoteLogs(
        cluster_id=CLUSTER_ID,
        known=lambda _: None,
        snapshots=Blind(),
        ledgers=MemoryLedger(),
        store=MemoryStore(CLUSTER_ID),
        threads=THREADS,
    )


async def say_alive(service: ServiceUnderTest, node_id: int, address: str) -> None:
    """The heartbeat of the service of a node."""
    advertised = {"grpc": address, "proxy": "127.0.0.1:1"}
    record = ServiceRecord(
        node_id=node_id, listen={"grpc": address}, advertised=advertised, version="1"
    )
    await service.settings.publish(record)


class FullLedger(MemoryLedger):
    """With the list of partitions that the API asks for."""

    def partitions(self) -> tuple[PartitionKey, ...]:
        return (PartitionKey(TOPIC_ID, 0),)

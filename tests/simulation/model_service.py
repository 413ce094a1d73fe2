"""One service as a simulated process: the real wiring of tasks, views and tier over the models.

What `rlm serve` builds is built here from the same classes; only broker, log, store, clocks and
threads are the model's. A killed process does nothing any more: its requests are refused.
"""

import asyncio
import random
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from kafka_clients.channel_security import plaintext
from kip405.errors import NotFound
from kip405.ids import PartitionKey, TopicPartition, Uuid
from kip405.segments import ByteRange, RemoteLogSegmentMetadata
from rlm.broker.leadership import Leadership
from rlm.config import ServiceConfig, load
from rlm.config.running import RunningConfig
from rlm.log_dir.scanner import LogDirs, PartitionLog
from rlm.plans.fetch import ReadBounds
from rlm.plans.formats import own_formats
from rlm.reading.values import RemoteRecords
from rlm.remote_log.client_deletions import ClientDeletions
from rlm.remote_log.history_windows import HistoryWindows
from rlm.remote_log.leader_view import LocalTier
from rlm.remote_log.log_starts import LogStarts
from rlm.remote_log.snapshot_cache import CoalescedSnapshots, LineagePublisher, SnapshotCache
from rlm.remote_log.snapshots import SnapshotReader
from rlm.service.apis import build_discards
from rlm.service.dependencies import Dependencies
from rlm.service.heartbeat import HeartbeatSender
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.service.metrics import ServiceMetrics
from rlm.service.tasks import TaskWiring, build_pools
from rlm.tasks.pool import TaskPool
from rlm.topics.discards import Discards
from rlmm.manager import Metadata, TopicBasedRemoteLogMetadataManager
from rlmm.records import ledger_partition
from rlmm.settings import Settings
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.audit import MemoryAudit
from tests.builders.log_dir import CLUSTER_ID, TOPIC, TOPIC_ID
from tests.builders.store import STORE_ID, Shelf
from tests.simulation.broker_client import DRAIN_MS, BrokerClient
from tests.simulation.clock import SimulatedClock, inline_threads
from tests.simulation.loop import Process
from tests.simulation.model_broker import BATCH_BYTES, RECORDS, Replica
from tests.simulation.model_cluster import Broker, Cluster
from tests.simulation.model_log import ModelTopics, NodeState, ProcessLog
from tests.simulation.model_store import ModelStore, StoreClient
from tests.simulation.topic_work import TopicWork

T = TypeVar("T")
_CALL_S = 12.0
KEY = PartitionKey(TOPIC_ID, 0)
LEDGER = TopicPartition(LEDGER_TOPIC, ledger_partition(KEY))
SETTINGS = TopicPartition(SETTINGS_TOPIC, 0)
PUBLISH_TIMEOUT_MS = 4_000
GRACE_MS = 10_000
TOPIC_GRACE_MS = 5_000
DELETE_DELAY_MS = 6_000
UNREFERENCED_GRACE_MS = 8_000
_SETTINGS_FILE = {
    "node.id": 1,
    "cluster.id": CLUSTER_ID,
    "broker.direct.address": "127.0.0.1:1",
    "broker.tiered.address": "127.0.0.1:2",
    "proxy.listen": "127.0.0.1:3",
    "proxy.advertised": "127.0.0.1:3",
    "grpc.listen": "127.0.0.1:4",
    "http.listen": "127.0.0.1:5",
    "plugin.address": "unix:/nowhere",
    "remote.log.manager.task.interval.ms": 2_000,
    "trim.interval.ms": 2_000,
    "trim.drain.ms": DRAIN_MS,
    "trim.hold.max.ms": 8_000,
    "copy.deadline.ms": 6_000,
    "copy.presence.check.interval.ms": 8_000,
    "sweep.grace.ms": GRACE_MS,
    "heartbeat.interval.ms": 1_500,
    "remote.delete.max.percent": 40,
    "leadership.poll.interval.ms": 700,
    "retention.check.interval.ms": 1_500,
    "topic.deletion.grace.ms": TOPIC_GRACE_MS,
    "topic.deletion.max.share.percent": 100,
    "remote.delete.delay.ms": DELETE_DELAY_MS,
    "remote.unreferenced.grace.ms": UNREFERENCED_GRACE_MS,
}


@cache
def base_config() -> ServiceConfig:
    """The settings of every simulated service, read as from a file."""
    with tempfile.TemporaryDirectory(prefix="rlm-simulation-") as folder:
        path = Path(folder, "rlm.yaml")
        paths = {"log.dirs": [f"{folder}/logs"], "state.dir": f"{folder}/state"}
        path.write_text(yaml.safe_dump({**_SETTINGS_FILE, **paths}))
        return load(path)


class _LogDirs:
    """The real scanner, on files that are as new as the broker's log; it reads what has changed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._log_dirs = LogDirs([str(broker.replica.directory)])
        self._last: tuple[Replica, int, PartitionLog] | None = None

    def scan(self, topic: str, partition: int) -> PartitionLog:
        replica, last = self._broker.replica, self._last
        if self._broker.topic_id is None:
            return self._log_dirs.scan(topic, partition)
        replica.write_files()
        if last is not None and last[0] is replica and last[1] == replica.files_version:
            return last[2]
        found = self._log_dirs.scan(topic, partition)
        self._last = replica, replica.files_version, found
        return found


class _NoShareGroups:
    async def start_offset(self, topic: str, partition: int) -> int | None:
        return None

    async def starts_now(self, topic: str) -> dict[int, int]:
        return {}


class _NoReads:
    remote_index = None


class _RoomyDisks:
    """Disks are never nearly full."""

    def has_space(self, directory: str) -> bool:
        return True

    def needs_space_of(self, snapshot: object, ledger: object) -> bool:
        return False


class _Unbounded:
    """Every broker says that its own retention is off (rlm.remote_log.ports.ClusterRetention)."""

    async def bounded(self, topic: str) -> str | None:
        return None


class _DirectReader:
    """Reads a segment's batches from the store without caches, for the real LineageReader."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store

    async def read(
        self, segment: RemoteLogSegmentMetadata, bounds: ReadBounds, **_: Any
    ) -> RemoteRecords:
        start = max(bounds.offset, segment.start_offset) // RECORDS * RECORDS
        start = max(start, segment.start_offset)
        end = min(bounds.upper_offset, segment.next_offset)
        whole = ByteRange(start=0, end=segment.segment_size_bytes)
        data = await self._store.fetch_log_segment(segment.locator(CLUSTER_ID), whole)
        if len(data) != segment.segment_size_bytes:
            raise NotFound(f"{segment.segment_id}: its object is cut")
        first = (start - segment.start_offset) // RECORDS
        last = -(-(end - segment.start_offset) // RECORDS)
        records = data[first * BATCH_BYTES : last * BATCH_BYTES]
        return RemoteRecords(
            records=(records,) if records else (),
            size_bytes=len(records),
            next_offset=segment.start_offset + last * RECORDS,
            aborted=(),
            exhausted=True,
        )


class Service:
    """A process beside one broker; `main` runs until it is killed."""

    def __init__(
        self,
        cluster: Cluster,
        topics: ModelTopics,
        store: ModelStore,
        broker: Broker,
        state: NodeState,
        *,
        chance: random.Random,
        config: ServiceConfig,
        number: int,
        has_topic_work: bool,
        audit: MemoryAudit,
    ) -> None:
        """`has_topic_work`: it asks whether topics were deleted or recreated, which costs time."""
        self.broker = broker
        self._cluster = cluster
        self.process = Process(f"service {broker.node_id}.{number}")
        self.clock = SimulatedClock(cluster.loop)
        self.log = ProcessLog(topics, self.process, state)
        self.writer = Uuid(chance.randbytes(16))
        self._chance = chance
        self._config = replace(
            config, node_id=broker.node_id, state_dir=broker.replica.directory / "state"
        )
        self.settings = Settings(
            log=self.log,
            node_id=broker.node_id,
            writer=self.writer,
            now_ms=self.clock.now_ms,
            monotonic_ms=self.clock.monotonic_ms,
            publish_timeout_ms=PUBLISH_TIMEOUT_MS,
        )
        self.ledger = TopicBasedRemoteLogMetadataManager(
            log=self.log, writer=self.writer, publish_timeout_ms=PUBLISH_TIMEOUT_MS
        )
        self.client = BrokerClient(cluster, broker)
        self.store = StoreClient(store)
        self.leadership = Leadership(
            cast(Any, self.client),
            self.clock,
            poll_interval_ms=self._config.leadership_poll_interval_ms,
        )
        self.leadership.want([TOPIC])
        self.tier: LocalTier | None = None
        self.client_deletions: ClientDeletions | None = None
        self.wiring: TaskWiring | None = None
        self.discards: Discards | None = None
        self.topics: TopicWork | None = None
        self._has_topic_work = has_topic_work
        self._audit = audit
        self.root: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def is_up(self) -> bool:
        return not self.process.is_dead

    async def main(self) -> None:
        """Everything that the composition root keeps running."""
        async with asyncio.TaskGroup() as tasks:
            dependencies = self._dependencies(tasks)
            pools = build_pools(self._config, self.clock, lambda _name: None)
            wiring = self.wiring = TaskWiring(dependencies, pools, ServiceMetrics(), _Unbounded())
            self.discards = build_discards(dependencies, wiring)
            if self._has_topic_work:
                self.topics = TopicWork(dependencies, self._cluster, _LogDirs(self.broker))
                self.topics.start(tasks)
            tasks.create_task(self.log.replay([SETTINGS, LEDGER]))
            for work in (
                self.leadership.run,
                pools[0].run,
                pools[1].run,
                wiring.run_copies,
                wiring.run_cleanups,
                dependencies.heartbeat.run,
            ):
                tasks.create_task(work())

    @property
    def pools(self) -> tuple[TaskPool, ...]:
        """The pools of its tasks."""
        if self.wiring is None:
            return ()
        return self.wiring.partition_tasks.copy_pool, self.wiring.partition_tasks.cleanup_pool

    def is_frozen(self, key: PartitionKey) -> bool:
        """Whether its last copy task has found the partition frozen."""
        tasks = self.wiring.partition_tasks if self.wiring is not None else None
        status = tasks.copy.statuses.get(key) if tasks is not None else None
        return status is not None and bool(status.frozen)

    def statuses(self) -> str:
        """What its tasks say of the partition."""
        if self.wiring is None:
            return "not wired"
        tasks = self.wiring.partition_tasks
        found = (tasks.copy.statuses, tasks.trim.statuses, tasks.cleanup.statuses)
        key = PartitionKey(self._cluster.topic_id or TOPIC_ID, 0)
        errors = [str(pool.last_errors.get(key)) for pool in self.pools]
        return "; ".join([*(str(one.get(key)) for one in found), *errors])

    def start(self, crashed: Callable[[BaseException], None]) -> None:
        """Begin to run, as a process of its own; `crashed` is called if it ends by itself."""
        loop = self.clock.loop
        loop.add(self.process)

        def ended(root: "asyncio.Task[None]") -> None:
            error = None if root.cancelled() else root.exception()
            if error is not None and self.is_up:
                crashed(error)

        self.root = self.process.context.run(loop.create_task, self.main())
        self.root.add_done_callback(ended)

    def kill(self) -> None:
        """SIGKILL: from now on nothing that it does has any effect."""
        self.process.is_dead = True
        self.process.is_paused = False
        for task in (self.root, *self._calls):
            if task is not None:
                task.cancel()

    async def call(self, work: Coroutine[Any, Any, T]) -> T | None:
        """A request's work in this process; None where it has not ended in time."""
        loop = self.clock.loop
        task = self.process.context.run(loop.create_task, work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        done, _ = await asyncio.wait((task,), timeout=_CALL_S)
        if not done:
            task.cancel()
        return task.result() if done and not task.cancelled() else None

    def _dependencies(self, tasks: asyncio.TaskGroup) -> Dependencies:
        threads = inline_threads(self._chance)
        shelf = _Shelf({STORE_ID: self.store})
        snapshots = SnapshotCache(
            SnapshotReader(
                node_id=self.broker.node_id,
                broker=self.client,
                log_dirs=_LogDirs(self.broker),
                threads=threads.snapshots,
                ledger=self.ledger,
                settings=self.settings,
                max_orphans=3,
                barrier_deadline_ms=BARRIER_DEADLINE_MS,
            ),
            LineagePublisher(settings=self.settings, ledger=self.ledger, clock=self.clock),
        )
        self.starts = LogStarts(
            settings=self.settings, audit=self._audit, barrier_deadline_ms=BARRIER_DEADLINE_MS
        )
        self.tier = LocalTier(
            node_id=self.broker.node_id,
            broker=self.client,
            leadership=self.leadership,
            settings=self.settings,
            ledger=self.ledger,
            snapshots=snapshots,
            coalesced=CoalescedSnapshots(snapshots, tasks),
            reader=cast(Any, _DirectReader(self.store)),
            windows=HistoryWindows((), self.clock),
        )
        self.client_deletions = ClientDeletions(
            node_id=self.broker.node_id,
            settings=self.settings,
            ledger=self.ledger,
            leadership=snapshots,
            starts=self.starts,
            tasks=tasks,
        )
        return Dependencies(
            config=self._config,
            running=RunningConfig(self._config),
            threads=threads,
            clock=self.clock,
            writer=self.writer,
            broker=cast(Any, self.client),
            security=plaintext(),
            allowed=cast(Any, None),
            metadata=Metadata(log=cast(Any, self.log), settings=self.settings, manager=self.ledger),
            leadership=self.leadership,
            snapshots=snapshots,
            stores=cast(Any, _Stores(shelf)),
            share_groups=cast(Any, _NoShareGroups()),
            tier=self.tier,
            client_deletions=self.client_deletions,
            audit=cast(Any, self._audit),
            starts=self.starts,
            reader=cast(Any, _NoReads()),
            tracer=None,
            throttle=cast(Any, None),
            disk_cache=None,
            ended_segments=cast(Any, None),
            disk_watch=cast(Any, _RoomyDisks()),
            disk_pressure=cast(Any, _RoomyDisks()),
            heartbeat=self._heartbeat(),
            node_addresses=None,
        )

    def _heartbeat(self) -> HeartbeatSender:
        return HeartbeatSender(
            settings=self.settings,
            clock=self.clock,
            node_id=self.broker.node_id,
            writer=self.writer,
            formats=own_formats("simulated"),
            listen={},
            advertised={},
            stores=lambda: (STORE_ID,),
            give_back=dict,
            interval_ms=self._config.heartbeat_interval_ms,
        )


class _Shelf(Shelf):
    """All stores of a service: the one that there is."""

    def known(self) -> tuple[Uuid, ...]:
        return tuple(self.stores)


class _Stores:
    """ServiceStores as far as tasks use it."""

    def __init__(self, shelf: Shelf) -> None:
        self.stores = shelf
        self.targets = shelf

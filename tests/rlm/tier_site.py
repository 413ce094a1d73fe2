"""A tier over a rig: snapshots, ledger, settings and store of one service, as a proxy uses it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import NotFound
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.broker.answers import ClusterDescription, TopicDescription
from rlm.broker.leadership import Leadership
from rlm.reading.reader import RemoteReader
from rlm.reading.values import ReadLimits, RemoteRead
from rlm.remote_log.history_windows import HistoryWindows
from rlm.remote_log.leader_view import LocalTier
from rlm.remote_log.snapshot_cache import CoalescedSnapshots
from rlm.remote_log.snapshots import SnapshotTaker
from rlm.remote_log.tier import TierPartition, TopicRef
from rlm.spans import Tracer
from rsm_plugins.layout.keys import object_name, objects_of
from rsm_plugins.threads import Threads
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import NODE_ID, Rig
from tests.builders.store import MemoryStore
from tests.builders.threads import some_threads

BY_NAME = TopicRef(name=PARTITION.topic)
DEADLINE_MS = 5_000
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class Asked:
    """The rig's broker as leadership asks it."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]:
        try:
            return (await self._rig.broker.topic(PARTITION.topic),)
        except NotFound:
            return ()

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription(cluster_id=CLUSTER_ID, nodes=())


class Site:
    """A rig with segments [0, 100), [100, 250) remote and records up to 300, and its tier."""

    def __init__(
        self,
        path: Path,
        tasks: asyncio.TaskGroup,
        threads: Threads,
        tracer: Tracer | None = None,
    ) -> None:
        self.rig, self._tracer = Rig(path, tracer=tracer), tracer
        self.leadership = Leadership(Asked(self.rig), self.rig.clock, poll_interval_ms=500)
        self.leadership.want([PARTITION.topic])
        self.snapshots = self.rig.cached_snapshots()
        self.tasks, self._threads = tasks, threads
        self.windows_ms: tuple[int, ...] = ()
        self.reader = self.new_reader()
        self.tier = self.tier_with(CoalescedSnapshots(self.snapshots, tasks))

    def new_reader(self) -> RemoteReader:
        """With nothing in its caches."""
        return RemoteReader(
            store=self.rig.store,
            cluster_id=CLUSTER_ID,
            tasks=self.tasks,
            threads=self._threads,
            clock=self.rig.clock,
            limits=ReadLimits(memory_bytes=1 << 26),
            tracer=self._tracer,
        )

    def tier_with(self, coalesced: SnapshotTaker) -> LocalTier:
        return LocalTier(
            node_id=NODE_ID,
            broker=self.rig.broker,
            leadership=self.leadership,
            settings=self.rig.settings,
            ledger=self.rig.ledger,
            snapshots=self.snapshots,
            coalesced=coalesced,
            reader=self.reader,
            windows=HistoryWindows(self.windows_ms, self.rig.clock),
        )

    def use_store(self, store: MemoryStore) -> None:
        """From here on the tier reads from this store, with nothing in its caches."""
        self.rig.store = store
        self.reader = self.new_reader()
        self.tier = self.tier_with(CoalescedSnapshots(self.snapshots, self.tasks))

    async def prepare(self) -> None:
        self.rig.write_log(0, 100, 250, end=300)
        await self.rig.copy.run(self.rig.led)

    async def barrier(self, topic: TopicRef = BY_NAME, partition: int = 0) -> TierPartition | None:
        return await self.tier.barrier(topic, partition, DEADLINE_MS)

    async def read(
        self, offset: int, upper_offset: int, max_bytes: int = 1 << 30
    ) -> tuple[bytes, int]:
        found = await self.tier.read(
            RemoteRead(
                topic_id=PARTITION.topic_id,
                partition=0,
                offset=offset,
                upper_offset=upper_offset,
                max_bytes=max_bytes,
                at_least_one=True,
                read_committed=False,
            )
        )
        return b"".join(found.records), found.next_offset


def second_copy(rig: Rig, first: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    """Another attempt's objects and FINISHED record of the same records."""
    twin = replace(first, segment_id=replace(first.segment_id, id=Uuid(b"\x7e" * 16)))
    for kind in objects_of(first.locator(CLUSTER_ID)):
        objects = rig.store.objects
        objects[object_name(twin.locator(CLUSTER_ID), kind)] = objects[
            object_name(first.locator(CLUSTER_ID), kind)
        ]
    rig.ledger.copied(twin)
    return twin


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks:
            made = Site(tmp_path, tasks, threads)
            await made.prepare()
            yield made

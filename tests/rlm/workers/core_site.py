"""A core with a fake tier, and a worker's side of it, over a real unix socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kip405.ids import PartitionKey
from rlm.clock import SystemClock
from rlm.plans.client_activity import ClientTable
from rlm.proxy.client_tokens import ClientTokens
from rlm.reading.throttle import Wait
from rlm.remote_log.mirrored import LeaderEpochs, MirroredTopic
from rlm.remote_log.tier import TierPartition, TopicRef
from rlm.service.lifetime import Background
from rlm.workers.core import CoreParts, CoreServer, WorkerTerms
from rlm.workers.counts import CountTaker
from rlm.workers.frames import FrameLink, RawBytes
from rlm.workers.inherited import CoreSettings
from rlm.workers.processes import KnownProcesses
from rlm.workers.records_memory import RecordsMemory
from rlm.workers.remote_core import RemoteCore
from rlm.workers.socket_paths import socket_address
from rlm.workers.v1 import core_pb2 as pb
from rlm.workers.views import ViewFeed
from tests.rlm.proxy.fake_deletions import FakeDeletions
from tests.rlm.proxy.fakes import TOPIC, TOPIC_ID, FakeTier, tier_partition
from tests.rlm.proxy.uncounted import Counting
from tests.waiting import until

RATE = 1_000
NAMED = TopicRef(name=TOPIC)


@dataclass
class FakeThrottle:
    """What the core counts for the quotas; every client has to wait for `wait_ms`."""

    wait_ms: int = 0
    passed_bytes: int = 0
    spliced_bytes: dict[str, int] = field(default_factory=dict)
    held_ms: dict[str, int] = field(default_factory=dict)
    principal_bytes: dict[str, int] = field(default_factory=dict)

    def principal_took(self, principal: str, size_bytes: int) -> None:
        self.principal_bytes[principal] = self.principal_bytes.get(principal, 0) + size_bytes

    def principal_wait_ms(self, principal: str) -> int:
        return self.wait_ms * 2

    def spliced(self, client_id: str, size_bytes: int) -> None:
        self.spliced_bytes[client_id] = self.spliced_bytes.get(client_id, 0) + size_bytes

    def passed(self, size_bytes: int) -> None:
        self.passed_bytes += size_bytes

    def held(self, kind: str, duration_ms: int) -> None:
        self.held_ms[kind] = self.held_ms.get(kind, 0) + duration_ms

    def wait(self, client_id: str) -> Wait:
        return Wait(duration_ms=self.wait_ms, kind="client") if self.wait_ms else Wait()


@dataclass
class Source:
    """Implements ViewSource over a fake tier."""

    tier: FakeTier
    epochs: dict[int, LeaderEpochs] = field(default_factory=dict)
    listed: tuple[MirroredTopic, ...] = (
        MirroredTopic(topic_id=TOPIC_ID, record_name=TOPIC, broker_name=TOPIC),
    )

    def ready(self) -> bool:
        return self.tier.is_ready

    def inputs(self) -> tuple[object, ...]:
        return (object(),)  # anything may have changed

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        if not self.listed or topic not in (NAMED, TopicRef(topic_id=TOPIC_ID)):
            return None
        return self.tier.partitions.get(partition)

    def topics(self) -> tuple[MirroredTopic, ...]:
        return self.listed

    def partitions(self) -> tuple[PartitionKey, ...]:
        known = self.tier.partitions if self.listed else ()
        return tuple(PartitionKey(TOPIC_ID, number) for number in known)

    def leader_epochs(self, key: PartitionKey) -> LeaderEpochs | None:
        return self.epochs.get(key.partition)


class Core:
    """The core's side; it can end and begin again at the same path."""

    def __init__(
        self,
        path: Path,
        tasks: asyncio.TaskGroup,
        tier: FakeTier | None = None,
        tokens: ClientTokens | None = None,
    ) -> None:
        self.tier = tier or FakeTier(partitions={0: tier_partition()})
        self.source = Source(self.tier)
        self.deletions = FakeDeletions()
        self.throttle = FakeThrottle()
        self.metrics = Counting()
        self.counts = CountTaker(self.metrics, self.throttle, ClientTable())
        self.processes = KnownProcesses(CoreSettings(workers=6, recent_ends=0), SystemClock())
        self.tokens = tokens
        self.terms = WorkerTerms(client_bytes_per_second=RATE, log_level="info")
        self._path = path
        self._tasks = tasks
        self.begin()

    def begin(self) -> None:
        """A new process, which has shown nothing yet."""
        self.feed = ViewFeed(self.source, self.deletions.refusal, SystemClock())
        parts = CoreParts(
            tier=self.tier,
            deletions=self.deletions,
            views=self.feed,
            counts=self.counts,
            processes=self.processes,
            tasks=self._tasks,
            terms=lambda: self.terms,
            tokens=self.tokens,
            clock=SystemClock(),
        )
        self.server = CoreServer(parts, self._path)


@dataclass
class Site:
    """A core that serves, and a worker that is connected and ready."""

    core: Core
    worker: RemoteCore
    memory: RecordsMemory
    path: Path
    hellos: list[pb.CoreHello]
    waits: list[pb.ClientWaits]


@asynccontextmanager
async def core_at(
    path: Path, tier: FakeTier | None = None, tokens: ClientTokens | None = None
) -> AsyncIterator[Core]:
    """A core that listens at `path` and has looked at its tier once."""
    async with Background() as tasks:
        core = Core(path, tasks.group, tier, tokens)
        await core.server.start()
        await core.feed.compare_all()
        try:
            yield core
        finally:
            await core.server.close()


@asynccontextmanager
async def site(
    path: Path, tier: FakeTier | None = None, tokens: ClientTokens | None = None
) -> AsyncIterator[Site]:
    """A core and one worker."""
    async with core_at(path, tier, tokens) as core:
        memory, hellos, waits = RecordsMemory(1 << 30), list[pb.CoreHello](), list[pb.ClientWaits]()
        worker = RemoteCore(
            path,
            worker=4,
            recent_ends=2,
            clock=SystemClock(),
            memory=memory,
            greeted=hellos.append,
            waited=waits.append,
        )
        running = asyncio.ensure_future(worker.run())
        try:
            await until(worker.ready)
            yield Site(core, worker, memory, path, hellos, waits)
        finally:
            running.cancel()
            await asyncio.wait([running])


class RawWorker:
    """A worker that sends what a test likes."""

    def __init__(self) -> None:
        self.said: list[tuple[pb.ToWorker, bytes]] = []
        self.has_ended = asyncio.Event()
        self.link = FrameLink(self._received, self.has_ended.set)

    def _received(self, message: bytes, raw: RawBytes) -> None:
        self.said.append((pb.ToWorker.FromString(message), b"".join(raw)))

    async def connect(self, path: Path) -> "RawWorker":
        with socket_address(path) as address:
            await asyncio.get_running_loop().create_unix_connection(lambda: self.link, address)
        return self

    def send(self, *messages: pb.ToCore) -> None:
        for message in messages:
            self.link.send(message.SerializeToString())

    def answers(self) -> dict[int, pb.ToWorker]:
        return {said.call_id: said for said, _ in self.said if said.call_id}


HELLO = pb.ToCore(hello=pb.WorkerHello(oldest_protocol=1, newest_protocol=1, worker=4))

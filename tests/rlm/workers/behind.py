"""A tier of the proxy's tests in a core, and the worker's side of it over a real unix socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

from kip405.errors import Invalid, Unavailable
from kip405.ids import PartitionKey
from rlm.clock import SystemClock
from rlm.plans.client_activity import ClientTable
from rlm.proxy.own_topics import OwnTopicIds
from rlm.remote_log.leader_view import LocalTier
from rlm.remote_log.mirrored import LeaderEpochs, MirroredTopic
from rlm.remote_log.tier import Deletions, Tier, TierPartition, TopicRef
from rlm.service.lifetime import Background
from rlm.workers.core import CoreParts, CoreServer, WorkerTerms
from rlm.workers.counts import CountTaker
from rlm.workers.inherited import CoreSettings
from rlm.workers.processes import KnownProcesses
from rlm.workers.records_memory import RecordsMemory
from rlm.workers.remote_core import RemoteCore
from rlm.workers.v1 import core_pb2 as pb
from rlm.workers.views import ViewFeed
from tests.rlm.proxy.border import Border, Near
from tests.rlm.proxy.fakes import FakeTier
from tests.rlm.proxy.uncounted import Counting
from tests.rlm.workers.core_site import RATE, FakeThrottle
from tests.waiting import until

_COMPARES_MS = 5
"""More often than a core does, for the sake of short tests."""


class Shown:
    """Implements ViewSource over a fake tier: what a test has put into it."""

    def __init__(self, tier: FakeTier) -> None:
        self._tier = tier

    def ready(self) -> bool:
        return self._tier.is_ready

    def inputs(self) -> tuple[object, ...]:
        return (object(),)  # anything may have changed

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        return self._tier.partition(topic, partition)

    def topics(self) -> tuple[MirroredTopic, ...]:
        if self._tier.view_hidden or not self._tier.is_ready:  # then only barriers show anything
            return ()
        shown = {one.topic_id: one.topic for one in self._tier.partitions.values()}
        return tuple(
            MirroredTopic(topic_id=topic_id, record_name=name, broker_name=name)
            for topic_id, name in shown.items()
        )

    def partitions(self) -> tuple[PartitionKey, ...]:
        views = self._tier.partitions.values()
        return tuple(PartitionKey(one.topic_id, one.partition) for one in views)

    def leader_epochs(self, key: PartitionKey) -> LeaderEpochs | None:
        return self._tier.epochs


class AskingCore(RemoteCore):
    """Can wait until it has taken all that the core has sent."""

    async def catch_up(self) -> None:
        """An answer comes behind the views that were sent before it, also that of no call."""
        with suppress(Invalid, Unavailable):
            await self._ask(pb.ToCore())


def behind_core(folder: Path) -> Border:
    """A border for the tests of proxies; `folder` is for the sockets."""
    numbers = count()

    @asynccontextmanager
    async def border(
        tier: Tier, deletions: Deletions, own_topic_ids: OwnTopicIds
    ) -> AsyncIterator[Near]:
        assert isinstance(tier, FakeTier | LocalTier)
        path = folder / f"core-{next(numbers)}.sock"
        source = Shown(tier) if isinstance(tier, FakeTier) else tier
        feed = ViewFeed(source, deletions.refusal, SystemClock(), own_topic_ids=own_topic_ids)
        async with Background() as tasks:
            parts = CoreParts(
                tier=tier,
                deletions=deletions,
                views=feed,
                counts=CountTaker(Counting(), FakeThrottle(), ClientTable()),
                tasks=tasks.group,
                terms=lambda: WorkerTerms(client_bytes_per_second=RATE, log_level="info"),
                tokens=None,
                clock=SystemClock(),
                processes=KnownProcesses(CoreSettings(workers=1, recent_ends=0), SystemClock()),
            )
            server, memory = CoreServer(parts, path), RecordsMemory(1 << 30)
            worker = _worker(path, memory)
            await server.start()
            running = [asyncio.ensure_future(one) for one in (worker.run(), _compare(feed))]
            try:
                await until(_is_connected(worker))

                async def settle() -> None:
                    await feed.compare_all()
                    await worker.catch_up()

                await settle()
                yield Near(
                    tier=worker,
                    deletions=worker,
                    own_topic_ids=worker.own_topic_ids,
                    memory=memory,
                    settle=settle,
                )
            finally:
                for one in running:
                    one.cancel()
                await asyncio.wait(running)
                await server.close()

    return border


def _worker(path: Path, memory: RecordsMemory) -> AskingCore:
    def ignore(_: object) -> None:
        """Quotas are the tests' own."""

    return AskingCore(
        path,
        worker=0,
        recent_ends=0,
        clock=SystemClock(),
        memory=memory,
        greeted=ignore,
        waited=ignore,
    )


def _is_connected(worker: RemoteCore) -> Callable[[], bool]:
    return lambda: worker.is_connected


async def _compare(feed: ViewFeed) -> None:
    while True:
        await feed.compare_all()
        await asyncio.sleep(_COMPARES_MS / 1000)

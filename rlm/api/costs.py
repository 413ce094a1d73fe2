"""What `rlm cost` counts with, for DescribeCosts: prices, how topics grow, and reads of the stores.

Every service knows the ledger of all topics; only the reads are counted by each service alone. All
segments are counted in threads, a topic at a time, for one caller at a time, and the result serves
who asks within some seconds: the event loop carries the data of clients (G6).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, Protocol, TypeVar

from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.api.fan_out import answers_of_others
from rlm.api.peers import Peers
from rlm.api.ports import Ledger
from rlm.clock import Clock
from rlm.plans.costs import Prices
from rlm.plans.enabling import requests_of
from rlm.topics.local_logs import a_day
from rlm.topics.ports import Settings
from rlm.topics.takeover import is_taken_over
from rlm.v1 import admin_pb2 as pb
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import TopicRecord

P = ParamSpec("P")
T = TypeVar("T")
KEPT_MS = 10_000


class Threads(Protocol):
    """Runs what would hold up the event loop (rsm_plugins.threads)."""

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...


class ClusterCosts:
    """`part_bytes`: see rlm.plans.enabling.requests_of; Invalid: no store takes the
    topic. `reads`: requests that read from stores, since this was made.
    """

    def __init__(
        self,
        *,
        peers: Peers,
        settings: Settings,
        ledger: Ledger,
        prices: Callable[[], Prices],
        part_bytes: Callable[[str], int | None],
        reads: Callable[[], int],
        threads: Threads,
        clock: Clock,
        barrier_deadline_ms: int,
    ) -> None:
        self._peers = peers
        self._settings = settings
        self._ledger = ledger
        self._prices = prices
        self._part_bytes = part_bytes
        self._reads = reads
        self._threads = threads
        self._clock = clock
        self._counting = asyncio.Lock()
        self._counted: tuple[int, Sequence[pb.TopicGrowth]] | None = None
        self._barrier_deadline_ms = barrier_deadline_ms
        self._since_ms = clock.monotonic_ms()

    def own(self) -> pb.CostsResponse:
        """The reads of this service alone."""
        within_ms = self._clock.monotonic_ms() - self._since_ms
        row = pb.StoreReads(
            node_id=self._peers.node_id, requests=self._reads(), within_ms=within_ms
        )
        return pb.CostsResponse(reads=[row])

    async def whole(self, principal: str) -> pb.CostsResponse:
        """All topics that have a record, by name, and the reads of every service; one that does not
        answer is a row with the reason.
        """
        await self._settings.barrier(self._barrier_deadline_ms)
        reads = list(self.own().reads)
        request = pb.DescribeCostsRequest(local_only=True)
        answers, problems = await answers_of_others(
            self._peers, lambda stubs: stubs.admin.DescribeCosts, request, principal
        )
        reads += [row for answer in answers for row in answer.reads]
        reads += [pb.StoreReads(node_id=at, problem=why) for at, why in problems.items()]
        prices = self._prices()
        return pb.CostsResponse(
            topics=await self._growths(),
            currency=prices.currency,
            storage_per_gib_month=prices.storage_gib_month,
            put_per_1000=prices.put_1000,
            get_per_1000=prices.get_1000,
            local_per_gib_month=prices.local_gib_month,
            reads=reads,
        )

    async def _growths(self) -> Sequence[pb.TopicGrowth]:
        """Of all topics that have a record, by name; KEPT_MS old at most."""
        async with self._counting:
            now_ms = self._clock.monotonic_ms()
            if self._counted is None or now_ms - self._counted[0] >= KEPT_MS:
                self._counted = now_ms, await self._count()
            return self._counted[1]

    async def _count(self) -> Sequence[pb.TopicGrowth]:
        keys: dict[Uuid, list[PartitionKey]] = {}
        for key in self._ledger.partitions():
            keys.setdefault(key.topic_id, []).append(key)
        rows = []
        for record in sorted(self._settings.view.topics(), key=_name):
            ledgers = [self._ledger.ledger(key) for key in keys.get(record.topic_id, ())]
            part_bytes, now_ms = self._parts(record.name), self._clock.now_ms()
            rows.append(await self._threads.run(_growth, record, ledgers, part_bytes, now_ms))
        return rows

    def _parts(self, topic: str) -> int | None:
        try:
            return self._part_bytes(topic)
        except RemoteStorageError:
            return None


def _growth(
    record: TopicRecord, ledgers: Sequence[PartitionLedger], part_bytes: int | None, now_ms: int
) -> pb.TopicGrowth:
    """Of one topic; decodes all its segments, once."""

    def size_bytes(segment: RemoteLogSegmentMetadata) -> int:
        return segment.segment_size_bytes

    def requests(segment: RemoteLogSegmentMetadata) -> int:
        return requests_of(segment.segment_size_bytes, part_bytes)

    segments = (entry.metadata for one in ledgers for entry in one.entries.values())
    bytes_a_day, requests_a_day = a_day(segments, now_ms, size_bytes, requests)
    return pb.TopicGrowth(
        topic=record.name,
        remote_bytes=sum(one.finished_total.size_bytes for one in ledgers),
        remote_segments=sum(one.finished_total.segments for one in ledgers),
        bytes_a_day=bytes_a_day,
        requests_a_day=requests_a_day,
        local_grows=is_taken_over(record) and not record.trim,
    )


def _name(record: TopicRecord) -> str:
    return record.name

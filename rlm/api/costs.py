"""What `rlm cost` counts with, for DescribeCosts: prices, how topics grow, and reads of the stores.

Every service knows the ledger of all topics; only the reads are counted by each service alone.
"""

from collections.abc import Callable, Iterable

from kip405.errors import RemoteStorageError
from kip405.segments import RemoteLogSegmentMetadata
from rlm.api.fan_out import ask_others
from rlm.api.peers import Peers
from rlm.api.ports import Ledger
from rlm.clock import Clock
from rlm.plans.costs import Prices
from rlm.plans.enabling import requests_of
from rlm.topics.local_logs import a_day, bytes_a_day
from rlm.topics.ports import Settings
from rlm.topics.takeover import is_taken_over
from rlm.v1 import admin_pb2 as pb
from rlmm.settings_records import TopicRecord


class ClusterCosts:
    """Owns nothing. `part_bytes`: see rlm.plans.enabling.requests_of; Invalid: no store takes the
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
        clock: Clock,
        barrier_deadline_ms: int,
    ) -> None:
        self._peers = peers
        self._settings = settings
        self._ledger = ledger
        self._prices = prices
        self._part_bytes = part_bytes
        self._reads = reads
        self._clock = clock
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
        answers = await ask_others(
            self._peers,
            lambda stubs, sent, timeout: stubs.admin.DescribeCosts(
                request, metadata=sent, timeout=timeout
            ),
            principal,
        )
        for peer, answer in answers:
            if isinstance(answer, RemoteStorageError):
                reads.append(pb.StoreReads(node_id=peer.node_id, problem=str(answer)))
            else:
                reads += answer.reads
        prices = self._prices()
        return pb.CostsResponse(
            topics=map(self._growth, sorted(self._settings.view.topics(), key=_name)),
            currency=prices.currency,
            storage_per_gib_month=prices.storage_gib_month,
            put_per_1000=prices.put_1000,
            get_per_1000=prices.get_1000,
            local_per_gib_month=prices.local_gib_month,
            reads=reads,
        )

    def _growth(self, record: TopicRecord) -> pb.TopicGrowth:
        keys = [key for key in self._ledger.partitions() if key.topic_id == record.topic_id]
        ledgers, now_ms = [self._ledger.ledger(key) for key in keys], self._clock.now_ms()
        part_bytes = self._parts(record.name)

        def segments() -> Iterable[RemoteLogSegmentMetadata]:
            return (entry.metadata for one in ledgers for entry in one.entries.values())

        def requests(segment: RemoteLogSegmentMetadata) -> int:
            return requests_of(segment.segment_size_bytes, part_bytes)

        return pb.TopicGrowth(
            topic=record.name,
            remote_bytes=sum(one.finished_total.size_bytes for one in ledgers),
            remote_segments=sum(one.finished_total.segments for one in ledgers),
            bytes_a_day=bytes_a_day(segments(), now_ms),
            requests_a_day=a_day(segments(), now_ms, requests),
            local_grows=is_taken_over(record) and not record.trim,
        )

    def _parts(self, topic: str) -> int | None:
        try:
            return self._part_bytes(topic)
        except RemoteStorageError:
            return None


def _name(record: TopicRecord) -> str:
    return record.name

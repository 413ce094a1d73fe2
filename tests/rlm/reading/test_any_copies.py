"""Whatever copies there are (overlaps, gaps, a replaced history), readers get each record that any
usable copy has, once, in order, as it was written.
"""

import asyncio
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from kip405.batches import batch_headers
from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.errors import Fenced, Unavailable
from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.indexes import ChunkChecksums, build_indexes_object, encode_aborted
from kip405.lineage import Lineage
from kip405.segments import (
    CustomMetadata,
    EpochEntry,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from rlm.broker.answers import ClusterDescription, OffsetAnswer, TopicDescription
from rlm.broker.leadership import Leadership, LedPartition
from rlm.clock import SystemClock
from rlm.reading.reader import RemoteReader
from rlm.reading.values import ReadLimits, RemoteRead
from rlm.remote_log.history_windows import HistoryWindows
from rlm.remote_log.leader_view import LocalTier
from rlm.remote_log.snapshot_cache import LineagePublisher, SnapshotCache
from rlm.remote_log.snapshots import PartitionSnapshot, TopicSnapshot
from rlmm.ledger import PartitionLedger
from rlmm.packed import pack
from rlmm.records import LedgerKey, LedgerRecord, RecordHeaders
from rlmm.replay import PartitionState
from tests.builders.clock import ManualClock
from tests.builders.ledger import OUR_WRITER, MemoryLedger, MemorySettings
from tests.builders.snapshots import snapshot_of
from tests.builders.threads import some_threads
from tests.kip405.batch_builder import batch
from tests.rlm.reading.world import TOPIC_ID, MadeStore

CHUNK = 256
END = 300
KEY = PartitionKey(TOPIC_ID, 0)
PARTITION = TopicIdPartition(topic_id=TOPIC_ID, topic="made", partition=0)

Batch = tuple[int, int, bytes]
"""First offset, offset after the last, bytes."""


def batches(rng: random.Random, start: int, end: int, epoch: int) -> list[Batch]:
    made: list[Batch] = []
    while start < end:
        after = min(start + rng.randint(1, 6), end)
        value = bytes([97 + epoch]) * rng.randint(1, 90)
        made.append((start, after, batch(start, after - start, epoch=epoch, value=value)))
        start = after
    return made


def indexes_of(log: bytes, base_offset: int) -> bytes:
    entries, last = b"", 0
    for position, header in batch_headers(log):
        if position - last > 100:
            entries += struct.pack(">ii", header.last_offset - base_offset, position)
            last = position
    crcs = tuple(crc32c(log[at : at + CHUNK]) for at in range(0, len(log), CHUNK))
    return build_indexes_object(
        {
            IndexType.OFFSET: entries,
            IndexType.TIMESTAMP: b"",
            IndexType.PRODUCER_SNAPSHOT: b"",
            IndexType.LEADER_EPOCH: b"",
            IndexType.ABORTED_TRANSACTIONS: encode_aborted(()),
            IndexType.CHUNK_CHECKSUMS: ChunkChecksums(chunk_size_bytes=CHUNK, crcs=crcs).encode(),
        }
    )


@dataclass(slots=True, kw_only=True)
class Copies:
    """A history that an unclean election replaced from `fork` on, and copies of both."""

    rng: random.Random
    store: MadeStore = field(default_factory=lambda: MadeStore(chunk_bytes=CHUNK))
    made: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    lineage: Lineage = field(default_factory=Lineage)
    truth: dict[int, Batch] = field(default_factory=dict)
    borders: list[int] = field(default_factory=list)

    def make(self) -> None:
        self.store.may_answer.set()
        old = batches(self.rng, 0, 200, 0)
        fork = self.rng.choice(old[len(old) // 4 :])[0]
        new = [one for one in old if one[1] <= fork] + batches(self.rng, fork, END, 3)
        self.lineage = Lineage(
            (EpochEntry(epoch=0, start_offset=0), EpochEntry(epoch=3, start_offset=fork))
        )
        self.truth = {offset: one for one in new for offset in range(one[0], one[1])}
        self.borders = [one[1] for one in new]
        self._copy(old, Lineage(self.lineage.entries[:1]), overlap=0)
        self._copy(new, self.lineage, overlap=3)

    def _copy(self, log: list[Batch], lineage: Lineage, *, overlap: int) -> None:
        at = 0
        while at < len(log):
            after = at + self.rng.randint(1, 13)
            if self.rng.random() < 0.8:
                self._segment(log[at:after], lineage)
            at = max(after - self.rng.randint(0, overlap), at + 1)

    def _segment(self, part: list[Batch], lineage: Lineage) -> None:
        log, number = b"".join(one[2] for one in part), Uuid(struct.pack(">QQ", 7, len(self.made)))
        start, after = part[0][0], part[-1][1]
        indexes = indexes_of(log, start)
        self.store.logs[number], self.store.indexes[number] = log, indexes
        custom = CustomMetadata(
            store_id=Uuid(b"\x01" * 16),
            indexes_size_bytes=len(indexes),
            indexes_crc32c=crc32c(indexes),
        )
        self.made.append(
            RemoteLogSegmentMetadata(
                segment_id=RemoteLogSegmentId(topic_id_partition=PARTITION, id=number),
                start_offset=start,
                end_offset=after - 1,
                broker_id=1,
                max_timestamp_ms=0,
                event_timestamp_ms=0,
                segment_leader_epochs=lineage.clip(start, after),
                segment_size_bytes=len(log),
                custom_metadata=custom.encode(),
                state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            )
        )

    def ledger(self) -> PartitionLedger:
        state = PartitionState(KEY, newest_epoch=3, version=1)
        for at, one in enumerate(self.made):
            written = LedgerRecord(
                key=LedgerKey.of(one.segment_id),
                metadata=one,
                headers=RecordHeaders(leader_epoch=3, expected_previous=-1, writer=OUR_WRITER),
                offset=at,
                timestamp_ms=0,
            )
            state.segments.put(pack(written, state.names))
        return PartitionLedger.of(KEY, state)


class GivenLedger(MemoryLedger):
    """A ledger whose view is given."""

    def __init__(self, given: PartitionLedger) -> None:
        super().__init__()
        self.given = given

    def ledger(self, key: PartitionKey) -> PartitionLedger:
        return self.given


class OneSnapshot:
    """The only snapshot of the partition that is ever taken."""

    def __init__(self, snapshot: PartitionSnapshot) -> None:
        self.snapshot = snapshot

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        return self.snapshot

    async def topic(self, led: LedPartition) -> TopicSnapshot:
        return self.snapshot.topic

    async def check_leadership(self, led: LedPartition) -> TopicDescription:
        raise Fenced("not expected")


class SilentBroker:
    """Nothing is asked of it."""

    async def topic(self, name: str) -> TopicDescription:
        raise Unavailable("not expected")

    async def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]:
        raise Unavailable("not expected")

    async def describe_cluster(self) -> ClusterDescription:
        raise Unavailable("not expected")

    async def list_offset(
        self, topic: str, partition: int, timestamp: int, *, read_committed: bool = False
    ) -> OffsetAnswer:
        raise Unavailable("not expected")


async def tier_of(copies: Copies, ledger: PartitionLedger, reader: RemoteReader) -> LocalTier:
    settings, given = MemorySettings(), GivenLedger(ledger)
    broker, clock = SilentBroker(), ManualClock()
    one = OneSnapshot(
        snapshot_of(
            PARTITION, ledger=ledger, lineage=copies.lineage, leader_epoch=3, end_offset=END
        )
    )
    publisher = LineagePublisher(settings=settings, ledger=given, clock=clock)
    snapshots = SnapshotCache(one, publisher)
    await snapshots.take(one.snapshot.led)
    return LocalTier(
        node_id=1,
        broker=broker,
        leadership=Leadership(broker, clock, poll_interval_ms=1_000),
        settings=settings,
        ledger=given,
        snapshots=snapshots,
        coalesced=one,
        reader=reader,
        windows=HistoryWindows((), clock),
    )


async def read_on(copies: Copies, tier: LocalTier, offset: int, upper: int) -> list[int]:
    """Offsets given from one on, checked against what was written."""
    given: list[int] = []
    while offset < upper:
        found = await tier.read(
            RemoteRead(
                topic_id=TOPIC_ID,
                partition=0,
                offset=offset,
                upper_offset=upper,
                max_bytes=copies.rng.choice((1, 100, 1_000, 1_000_000)),
                at_least_one=True,
                read_committed=False,
            )
        )
        data = b"".join(found.records)
        if not data:
            break
        for position, header in batch_headers(data):
            first, after, written = copies.truth[header.base_offset]
            assert (first, data[position : position + header.size_bytes]) == (
                header.base_offset,
                written,
            )
            given += range(max(first, offset), after)
        assert offset < found.next_offset == given[-1] + 1 <= upper
        offset = found.next_offset
    return given


@pytest.mark.parametrize("seed", range(25))
async def test_h04_each_readable_record_comes_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    copies = Copies(rng=rng)
    copies.make()
    ledger = copies.ledger()
    readable = {
        offset
        for one in ledger.usable(copies.lineage, END + 1)
        for offset in range(one.metadata.start_offset, one.next_offset)
    }
    limits = ReadLimits(
        memory_bytes=rng.choice((16, 64, 400)) * CHUNK,
        range_bytes=8 * CHUNK,
        window_bytes=32 * CHUNK,
        first_bytes=CHUNK,
        start_window_bytes=4 * CHUNK,
        index_objects_bytes=0,
    )
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
            reader = RemoteReader(
                store=copies.store,
                cluster_id="made",
                tasks=tasks,
                threads=threads,
                clock=SystemClock(),
                limits=limits,
            )
            reader.suppose_chunk_bytes(rng.choice((CHUNK, 2 * CHUNK, 100)))
            tier = await tier_of(copies, ledger, reader)
            for _ in range(3):
                upper = rng.choice(copies.borders)
                offset = rng.choice((0, rng.randrange(upper)))
                given = await read_on(copies, tier, offset, upper)
                assert given == sorted(one for one in readable if offset <= one < upper)

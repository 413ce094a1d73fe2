"""Segments of a made-up store: real batches and checksums, late answers, requests noted."""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.indexes import ChunkChecksums, build_indexes_object, encode_aborted
from kip405.segments import (
    ByteRange,
    CustomMetadata,
    EpochEntry,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SegmentLocator,
)
from rlm.plans.fetch import ReadBounds
from rlm.reading.reader import RemoteReader
from tests.kip405.batch_builder import batch

TOPIC_ID = Uuid(b"\x02" * 16)


def log_of(base_offset: int, batches: int, value_bytes: int) -> tuple[bytes, int]:
    """A log of equal batches of one record each, and the size of one."""
    one = batch(0, 1, value=b"v" * value_bytes)
    log = bytearray(one * batches)
    for number in range(batches):
        struct.pack_into(">q", log, number * len(one), base_offset + number)
    return bytes(log), len(one)


@dataclass(slots=True, kw_only=True)
class MadeStore:
    """The two calls that the read path makes; `held` loads wait, `latency_ms` delays the others."""

    chunk_bytes: int
    latency_ms: float = 0
    logs: dict[Uuid, bytes] = field(default_factory=dict)
    indexes: dict[Uuid, bytes] = field(default_factory=dict)
    asked: list[tuple[Uuid, int, int]] = field(default_factory=list)
    indexes_asked: list[Uuid] = field(default_factory=list)
    fails: Callable[[Uuid, ByteRange], RemoteStorageError | None] = lambda *_: None
    in_flight: int = 0
    most_in_flight: int = 0
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch_log_segment(self, locator: SegmentLocator, byte_range: ByteRange) -> bytes:
        segment, wanted = locator.segment_id.id, byte_range
        self.asked.append((segment, wanted.start, wanted.end))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self._answer()
        finally:
            self.in_flight -= 1
        error = self.fails(segment, wanted)
        if error is not None:
            raise error
        return self.logs[segment][wanted.start : wanted.end]

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        self.indexes_asked.append(locator.segment_id.id)
        await self._answer()
        return self.indexes[locator.segment_id.id]

    async def _answer(self) -> None:
        await self.may_answer.wait()
        if self.latency_ms:
            await asyncio.sleep(self.latency_ms / 1000)

    def partition(
        self, number: int, segments: int, batches: int, value_bytes: int
    ) -> "MadePartition":
        """Segments one after the other; all partitions have the same bytes."""
        made = MadePartition(number=number, batches=batches)
        for at in range(segments):
            made.segments.append(self._segment(number, at, batches, value_bytes))
        return made

    def _segment(
        self, partition: int, at: int, batches: int, value_bytes: int
    ) -> RemoteLogSegmentMetadata:
        segment_id = Uuid(struct.pack(">QQ", partition + 1, at))
        twin = Uuid(struct.pack(">QQ", 1, at))
        if twin in self.logs and len(self.logs[twin]) // batches > value_bytes:
            log, indexes = self.logs[twin], self.indexes[twin]
        else:
            log, size = log_of(at * batches, batches, value_bytes)
            indexes = self._indexes(log, batches, size)
        self.logs[segment_id], self.indexes[segment_id] = log, indexes
        partition_id = TopicIdPartition(topic_id=TOPIC_ID, topic="made", partition=partition)
        custom = CustomMetadata(
            store_id=Uuid(b"\x01" * 16),
            indexes_size_bytes=len(indexes),
            indexes_crc32c=crc32c(indexes),
        )
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(topic_id_partition=partition_id, id=segment_id),
            start_offset=at * batches,
            end_offset=(at + 1) * batches - 1,
            broker_id=1,
            max_timestamp_ms=0,
            event_timestamp_ms=0,
            segment_leader_epochs=(EpochEntry(epoch=0, start_offset=0),),
            segment_size_bytes=len(log),
            custom_metadata=custom.encode(),
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        )

    def _indexes(self, log: bytes, batches: int, size: int) -> bytes:
        chunks = [log[at : at + self.chunk_bytes] for at in range(0, len(log), self.chunk_bytes)]
        every = max(self.chunk_bytes // 4 // size, 1)
        return build_indexes_object(
            {
                IndexType.OFFSET: b"".join(
                    struct.pack(">ii", number, number * size)
                    for number in range(every, batches, every)
                ),
                IndexType.TIMESTAMP: b"",
                IndexType.PRODUCER_SNAPSHOT: b"",
                IndexType.LEADER_EPOCH: b"",
                IndexType.ABORTED_TRANSACTIONS: encode_aborted(()),
                IndexType.CHUNK_CHECKSUMS: ChunkChecksums(
                    chunk_size_bytes=self.chunk_bytes, crcs=tuple(map(crc32c, chunks))
                ).encode(),
            }
        )


@dataclass(slots=True, kw_only=True)
class MadePartition:
    """A partition's segments, and reads of it as the tier makes them."""

    number: int
    batches: int
    segments: list[RemoteLogSegmentMetadata] = field(default_factory=list)

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(TOPIC_ID, self.number)

    @property
    def next_offset(self) -> int:
        return len(self.segments) * self.batches

    def following(self, offset: int) -> RemoteLogSegmentMetadata | None:
        at = offset // self.batches
        return self.segments[at] if at < len(self.segments) else None

    async def read(
        self, reader: RemoteReader, offset: int, max_bytes: int
    ) -> tuple[tuple[bytes | memoryview, ...], int]:
        """Records at an offset, and the offset after them."""
        bounds = ReadBounds(
            offset=offset, upper_offset=self.next_offset, max_bytes=max_bytes, at_least_one=True
        )
        found = await reader.read(
            self.segments[offset // self.batches],
            bounds,
            read_committed=False,
            following=self.following,
        )
        return found.records, found.next_offset

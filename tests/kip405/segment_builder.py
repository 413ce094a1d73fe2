"""Segment metadata and scans for tests of lineage, indexes and batches."""

from kip405.crc import ByteBuffer
from kip405.ids import MAX_OFFSET, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.lineage import Lineage, usable_end
from kip405.scan import SegmentScan, SegmentScanner
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState

PARTITION = TopicIdPartition(topic_id=Uuid(bytes(range(16))), topic="orders", partition=3)


def entries(epochs: dict[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch=epoch, start_offset=start) for epoch, start in epochs.items())


def lineage(epochs: dict[int, int]) -> Lineage:
    """Lineage from {epoch: start offset}."""
    return Lineage(entries(epochs))


def segment(
    start: int,
    end: int,
    epochs: dict[int, int],
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
) -> RemoteLogSegmentMetadata:
    """A segment of offsets start..end (inclusive, as Kafka writes it)."""
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(
            topic_id_partition=PARTITION, id=Uuid(start.to_bytes(16, "big"))
        ),
        start_offset=start,
        end_offset=end,
        broker_id=0,
        max_timestamp_ms=0,
        event_timestamp_ms=0,
        segment_leader_epochs=entries(epochs),
        segment_size_bytes=1,
        custom_metadata=None,
        state=state,
    )


def is_within(metadata: RemoteLogSegmentMetadata, of: Lineage, log_end_offset: int) -> bool:
    """Whether every record of the segment belongs to the leader's history, as Kafka's
    RemoteLogManager.isRemoteSegmentWithinLeaderEpochs decides it.
    """
    return metadata.end_offset < log_end_offset and usable_end(metadata, of) == metadata.next_offset


def scanned(
    buffer: ByteBuffer,
    *,
    base_offset: int = 0,
    next_offset: int = MAX_OFFSET,
    chunk_size_bytes: int = 1 << 20,
) -> SegmentScan:
    """The scan of a buffer that is fed at once."""
    scanner = SegmentScanner(
        base_offset=base_offset, next_offset=next_offset, chunk_size_bytes=chunk_size_bytes
    )
    scanner.feed(buffer)
    return scanner.finish()

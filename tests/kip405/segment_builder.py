"""Segment metadata for tests of lineage and indexes."""

from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.lineage import Lineage
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

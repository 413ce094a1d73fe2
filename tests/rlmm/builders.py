"""Ledger records for tests: one topic, short segments, ids that can be read in a failure."""

from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, TopicPartition, Uuid
from kip405.segments import (
    CustomMetadata,
    EpochEntry,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from rlmm.log_reader import TailRecord
from rlmm.records import (
    NO_PREVIOUS,
    LedgerKey,
    LedgerRecord,
    RecordHeaders,
    encode_record_value,
    ledger_partition,
)
from rlmm.resuming import RecordMark, ResumePoint, mark_of
from rlmm.topic import LEDGER_TOPIC

TOPIC_ID = Uuid(bytes(range(16)))
STORE_ID = Uuid(b"s" * 16)
PARTITION = TopicIdPartition(topic_id=TOPIC_ID, topic="orders", partition=3)
KEY: PartitionKey = PARTITION.key
SEGMENT_OFFSETS = 10

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def segment(
    number: int,
    state: RemoteLogSegmentState = FINISHED,
    *,
    start: int | None = None,
    end: int | None = None,
    epochs: tuple[tuple[int, int], ...] | None = None,
    event_ms: int = 0,
) -> RemoteLogSegmentMetadata:
    """Segment `number` covers ten offsets from number * 10 on unless given otherwise."""
    first = number * SEGMENT_OFFSETS if start is None else start
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(topic_id_partition=PARTITION, id=uuid(number)),
        start_offset=first,
        end_offset=first + SEGMENT_OFFSETS - 1 if end is None else end,
        broker_id=1,
        max_timestamp_ms=1_000 + number,
        event_timestamp_ms=event_ms,
        segment_leader_epochs=tuple(
            EpochEntry(epoch=epoch, start_offset=offset)
            for epoch, offset in epochs or ((0, first),)
        ),
        segment_size_bytes=4_096,
        custom_metadata=CustomMetadata(store_id=STORE_ID).encode(),
        state=state,
    )


def record(
    offset: int,
    number: int,
    state: RemoteLogSegmentState | None,
    *,
    epoch: int = 5,
    previous: int = NO_PREVIOUS,
    writer: int = 1,
    timestamp_ms: int = 0,
) -> LedgerRecord:
    """A record of segment `number`; state None is a tombstone. The offset makes every value
    unique.
    """
    return LedgerRecord(
        key=LedgerKey(partition=KEY, segment_id=uuid(number)),
        metadata=None if state is None else segment(number, state, event_ms=offset),
        headers=RecordHeaders(
            leader_epoch=epoch, expected_previous=previous, writer=uuid(1_000 + writer)
        ),
        offset=offset,
        timestamp_ms=timestamp_ms,
    )


def tail_record(one: LedgerRecord) -> TailRecord:
    """The record as Kafka delivers it."""
    return TailRecord(
        topic_partition=TopicPartition(LEDGER_TOPIC, ledger_partition(one.key.partition)),
        offset=one.offset,
        timestamp_ms=one.timestamp_ms,
        key=one.key.encode(),
        value=encode_record_value(one.metadata),
        headers=tuple(one.headers.encode()),
    )


def mark(read: TailRecord) -> RecordMark:
    """What tells a record from another one at its offset."""
    return mark_of(read.offset, read.timestamp_ms, read.key, read.value, read.headers)


def point(position: int, leader_epoch: int, last: RecordMark | None = None) -> ResumePoint:
    """What a process leaves that has read a log from 0 on; without `last`, whatever it was."""
    return ResumePoint(
        log_start=0,
        position=position,
        leader_epoch=leader_epoch,
        last=last or RecordMark(position - 1, 0, 0),
    )

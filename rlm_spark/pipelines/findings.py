"""The findings of an audit and the segments it reads, as plain values that can be pickled. Pure.

`audit_history` compares the segments of one partition: holes, overlaps, other histories.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.lineage import remote_lineage, usable_end
from kip405.segment_check import FlawKind
from kip405.segments import (
    CustomMetadata,
    EpochEntry,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from rlm.v1 import fetch_pb2 as pb
from rsm_plugins.layout.keys import suffix_in
from tiered_reads.values import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong. `object_name`: below the store's prefix, empty of a hole."""

    kind: FlawKind
    topic: str
    partition: int
    object_name: str
    detail: str

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "kind": self.kind.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSegment:
    """One FINISHED segment as the ledger describes it."""

    metadata: RemoteLogSegmentMetadata
    objects_stem: str

    @property
    def topic_partition(self) -> TopicPartition:
        where = self.metadata.topic_id_partition
        return TopicPartition(where.topic, where.partition)

    @property
    def size_bytes(self) -> int:
        """Size of the log object."""
        return self.metadata.segment_size_bytes

    def custom(self) -> CustomMetadata:
        """Sizes and checksums; ValueError where they cannot be read."""
        return self.metadata.custom()

    def finding(self, kind: FlawKind, suffix: str, detail: str) -> Finding:
        """A finding about the segment's log or indexes, named by the object that has them."""
        with suppress(ValueError):
            suffix = suffix_in(self.custom().layout, suffix)
        stem = self.objects_stem or f"segment {self.metadata.segment_id.id}"
        return Finding(
            kind=kind,
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            object_name=f"{stem}.{suffix}",
            detail=detail,
        )


def segment_of(row: pb.Segment) -> AuditedSegment:
    """A row of ListSegments as a value; ValueError where it makes no sense."""
    topic_partition = TopicIdPartition(
        topic_id=Uuid(row.topic_id), topic=row.topic, partition=row.partition
    )
    return AuditedSegment(
        metadata=RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(
                topic_id_partition=topic_partition, id=Uuid(row.segment_id)
            ),
            start_offset=row.start_offset,
            end_offset=row.next_offset - 1,
            broker_id=row.broker_id,
            max_timestamp_ms=row.max_timestamp_ms,
            event_timestamp_ms=0,
            segment_leader_epochs=tuple(
                EpochEntry(epoch=entry.epoch, start_offset=entry.start_offset)
                for entry in row.leader_epochs
            ),
            segment_size_bytes=row.size_bytes,
            custom_metadata=row.custom_metadata or None,
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        ),
        objects_stem=row.objects_stem,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`overlapping`: offsets that several segments have, which is lawful (two leaders copied them);
    `outside`: segments of which nothing belongs to the leader's history; `below_start`: segments
    that retention has ended and that are not deleted yet.
    """

    findings: tuple[Finding, ...]
    overlapping_offsets: int
    outside: int
    below_start: int


def audit_history(
    topic_partition: TopicPartition,
    segments: Sequence[AuditedSegment],
    remote_log_start_offset: int,
) -> History:
    """Offsets from the remote log start (-1 = none yet: the first segment) to the remote end."""
    lineage = remote_lineage(one.metadata for one in segments)
    rows = sorted(
        (one.metadata.start_offset, usable_end(one.metadata, lineage)) for one in segments
    )
    outside = sum(end <= start for start, end in rows)
    rows = [(start, end) for start, end in rows if start < end]
    wanted = [(start, end) for start, end in rows if end > remote_log_start_offset]
    findings: list[Finding] = []
    cursor = remote_log_start_offset if remote_log_start_offset >= 0 else -1
    overlapping = 0
    for start, end in wanted:
        if 0 <= cursor < start:
            findings.append(_hole(topic_partition, cursor, start))
        overlapping += max(min(end, cursor) - max(start, remote_log_start_offset), 0)
        cursor = max(cursor, end)
    return History(
        findings=tuple(findings),
        overlapping_offsets=overlapping,
        outside=outside,
        below_start=len(rows) - len(wanted),
    )


def _hole(topic_partition: TopicPartition, start: int, end: int) -> Finding:
    return Finding(
        kind=FlawKind.HOLE,
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        object_name="",
        detail=f"no segment has the offsets {start} to {end}",
    )

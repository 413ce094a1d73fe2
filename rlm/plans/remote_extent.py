"""Sums up what is remote of a topic, for people who are about to delete it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from kip405.ids import PartitionKey
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.problems import human_bytes, human_utc
from rlmm.ledger import PartitionLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteExtent:
    """`records`: offsets that the segments span, each counted once. `oldest_ms`, `newest_ms`:
    newest record timestamp of the oldest and of the newest segment, None without segments.
    """

    segments: int
    records: int
    size_bytes: int
    oldest_ms: int | None
    newest_ms: int | None

    def __str__(self) -> str:
        """For people, with times in UTC."""
        what = f"{self.records} records in {self.segments} segments, {human_bytes(self.size_bytes)}"
        if self.oldest_ms is None or self.newest_ms is None:
            return what
        return f"{what}, from {human_utc(self.oldest_ms)} to {human_utc(self.newest_ms)} UTC"


def extent_of(ledgers: Iterable[PartitionLedger]) -> RemoteExtent:
    """Of all finished segments of some partitions."""
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    return remote_extent(entry.metadata for one in ledgers for entry in one.in_state(finished))


def remote_extent(segments: Iterable[RemoteLogSegmentMetadata]) -> RemoteExtent:
    """Of finished segments, of any number of partitions."""
    found = tuple(segments)
    timestamps = [one.max_timestamp_ms for one in found]
    return RemoteExtent(
        segments=len(found),
        records=_offsets(found),
        size_bytes=sum(one.segment_size_bytes for one in found),
        oldest_ms=min(timestamps, default=None),
        newest_ms=max(timestamps, default=None),
    )


def _offsets(segments: Iterable[RemoteLogSegmentMetadata]) -> int:
    counted = 0
    reached: dict[PartitionKey, int] = {}
    for one in sorted(segments, key=lambda segment: segment.start_offset):
        key = one.topic_id_partition.key
        start = max(one.start_offset, reached.get(key, 0))
        counted += max(0, one.next_offset - start)
        reached[key] = max(one.next_offset, reached.get(key, 0))
    return counted

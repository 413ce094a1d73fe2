"""What the segments of one partition come to together: holes, overlaps, other histories. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from kip405.lineage import remote_lineage, usable_end
from rlm_spark.pipelines.findings import AuditedSegment, Finding, FindingKind
from rlm_spark.values import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`overlapping`: offsets that several segments have, which is lawful (two leaders copied them);
    `outside`: segments of which nothing belongs to the leader's history; `below_start`: segments
    that retention has ended and nobody has deleted yet.
    """

    findings: tuple[Finding, ...]
    overlapping_offsets: int
    outside: int
    below_start: int


def audit_history(
    place: TopicPartition, segments: Sequence[AuditedSegment], remote_log_start_offset: int
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
            findings.append(_hole(place, cursor, start))
        overlapping += max(min(end, cursor) - max(start, remote_log_start_offset), 0)
        cursor = max(cursor, end)
    return History(
        findings=tuple(findings),
        overlapping_offsets=overlapping,
        outside=outside,
        below_start=len(rows) - len(wanted),
    )


def _hole(place: TopicPartition, start: int, end: int) -> Finding:
    return Finding(
        kind=FindingKind.HOLE,
        topic=place.topic,
        partition=place.partition,
        object_name="",
        detail=f"no segment has the offsets {start} to {end}",
    )

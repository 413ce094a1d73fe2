"""Decides which segments of a bucket of Pinterest's uploader are imported. Pure.

The rule, for one partition:

- Only logs up to the watermark are taken: it is written after all files of a segment. A partition
  without one has nothing that is known to be whole.
- Their own consumer takes only segments that have all three files. Where the first ones lack some,
  their retention is deleting them, and they are passed over. Later ones are taken for their log, as
  indexes are rebuilt; what is missing is reported.
- Segments follow each other without a gap, unless the operator accepts gaps as lost. Where they
  overlap, as after a change of leaders, the bytes of both must be the same (rlm.imports.overlaps),
  and leader epochs never fall: otherwise an unclean election has left two histories.
- A segment that was imported is read again only where later ones need it. Its log must have the
  size that it had.
"""

import hashlib
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kip405.errors import Corrupt, Invalid
from kip405.ids import MAX_OFFSET, TopicIdPartition, Uuid
from kip405.lineage import Lineage
from kip405.scan import SegmentScan
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata
from rsm_plugins.layout.pinterest import (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    PinterestLayout,
    UploadedName,
)

_MOST_SHOWN = 3
_LONGEST_UPLOAD_MS = 3_600_000
"""S3 dates an object by the beginning of its upload, so it may be listed after younger ones. Their
uploader gives up after one minute; a retry by hand may take longer.
"""
_SUFFIXES = frozenset({LOG, OFFSET_INDEX, TIME_INDEX})


@dataclass(slots=True, kw_only=True)
class FoundSegment:
    """The files of one segment in a listing. `modified_ms`: when the log was written."""

    base_offset: int
    size_bytes: int = 0
    modified_ms: int = 0
    suffixes: set[str] = field(default_factory=set)

    @property
    def lacks(self) -> tuple[str, ...]:
        """The files that are missing."""
        return tuple(sorted(_SUFFIXES - self.suffixes))


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedLog:
    """A log to import, or one that was imported. `end_limit`: the base offset of the first log
    above the watermark, which it must not reach; MAX_OFFSET if there is none.
    """

    base_offset: int
    end_limit: int
    size_bytes: int
    modified_ms: int
    imported: RemoteLogSegmentMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What is to be done for one partition. `refused`: why nothing is; None = it can begin.
    `beyond`: how many logs are above the watermark, and come later. `begins_at`: where their log
    begins, for one that is refused without `logs`.
    """

    partition: TopicIdPartition
    watermark: int | None
    logs: tuple[UploadedLog, ...] = ()
    beyond: int = 0
    warnings: tuple[str, ...] = ()
    refused: str | None = None
    begins_at: int = 0

    @property
    def new(self) -> tuple[UploadedLog, ...]:
        return tuple(one for one in self.logs if one.imported is None)

    @property
    def new_bytes(self) -> int:
        return sum(one.size_bytes for one in self.new)


def plan_import(
    partition: TopicIdPartition,
    found: Iterable[FoundSegment],
    watermark: int | None,
    imported: Mapping[int, RemoteLogSegmentMetadata],
    *,
    accepts_gaps: bool,
) -> ImportPlan:
    """`imported`: the segments that are in our store, by their start offset."""
    ordered = sorted(found, key=lambda one: one.base_offset)
    whole, warnings = _without_remains(ordered)
    with_log = [one for one in whole if LOG in one.suffixes]
    begins_at = next((one.base_offset for one in with_log), 0)
    if watermark is None:
        why = (
            "it has no offset.wm, which their uploader writes last, so no segment is known to be "
            "whole: have it back in their bucket"
        )
        return ImportPlan(partition=partition, watermark=None, refused=why, begins_at=begins_at)
    logs = _logs(with_log, imported, watermark)
    taken = tuple(one for one in logs if one.base_offset <= watermark)
    warnings += _missing_files(whole, watermark)
    kept = _without_settled_copies(taken, imported)
    return ImportPlan(
        partition=partition,
        watermark=watermark,
        logs=kept,
        beyond=len(logs) - len(taken),
        warnings=tuple(warnings),
        refused=_refusal(kept, whole, watermark, imported, accepts_gaps=accepts_gaps),
        begins_at=begins_at,
    )


def _without_remains(ordered: Sequence[FoundSegment]) -> tuple[list[FoundSegment], list[str]]:
    """Without segments at the beginning that are half deleted."""
    at = 0
    while at < len(ordered) and ordered[at].lacks:
        at += 1
    if at == len(ordered):  # nothing is whole, so nothing says that this is the work of retention
        return list(ordered), []
    warnings = [
        f"{one.base_offset}: half deleted, without {' and '.join(one.lacks)}: passed over"
        for one in ordered[:at]
    ]
    return list(ordered[at:]), warnings


def _missing_files(whole: Iterable[FoundSegment], watermark: int) -> list[str]:
    return [
        f"{one.base_offset}: without {' and '.join(one.lacks)}: rebuilt from its log"
        for one in whole
        if one.lacks and LOG in one.suffixes and one.base_offset <= watermark
    ]


def _logs(
    found: Sequence[FoundSegment],
    imported: Mapping[int, RemoteLogSegmentMetadata],
    watermark: int,
) -> tuple[UploadedLog, ...]:
    above = (one.base_offset for one in found if one.base_offset > watermark)
    end_limit = next(above, MAX_OFFSET)
    return tuple(
        UploadedLog(
            base_offset=one.base_offset,
            end_limit=end_limit,
            size_bytes=one.size_bytes,
            modified_ms=one.modified_ms,
            imported=imported.get(one.base_offset),
        )
        for one in found
    )


def _without_settled_copies(
    taken: Sequence[UploadedLog], imported: Mapping[int, RemoteLogSegmentMetadata]
) -> tuple[UploadedLog, ...]:
    """Without logs that an earlier import has passed over as copies: they were there when a later
    log was imported, and what is imported before and behind them leaves no gap. The log that they
    were compared with may have gone since.
    """
    kept: list[UploadedLog] = []
    later: RemoteLogSegmentMetadata | None = None
    latest_ms = 0
    ends = _ends_before(taken, imported)
    for log, end in zip(reversed(taken), reversed(ends), strict=True):
        is_settled = (
            log.imported is None
            and later is not None
            and log.base_offset < end
            and later.start_offset <= end
            and log.modified_ms + _LONGEST_UPLOAD_MS < latest_ms
        )
        if not is_settled:
            kept.append(log)
        if log.imported is not None:
            later = log.imported
            latest_ms = max(latest_ms, later.event_timestamp_ms)
    return tuple(reversed(kept))


def _ends_before(
    taken: Iterable[UploadedLog], imported: Mapping[int, RemoteLogSegmentMetadata]
) -> list[int]:
    """Up to where segments are imported that begin before each log."""
    ends, end = [], 0
    left = deque(sorted(imported))
    for log in taken:
        while left and left[0] < log.base_offset:
            end = max(end, imported[left.popleft()].next_offset)
        ends.append(end)
    return ends


def _refusal(
    taken: Sequence[UploadedLog],
    whole: Sequence[FoundSegment],
    watermark: int,
    imported: Mapping[int, RemoteLogSegmentMetadata],
    *,
    accepts_gaps: bool,
) -> str | None:
    if watermark not in {one.base_offset for one in taken}:
        return (
            f"its offset.wm names {watermark}, and that segment has no log: have one of the two "
            "mended in their bucket"
        )
    lost = [one.base_offset for one in whole if LOG not in one.suffixes]
    if lost and lost[0] < watermark and not accepts_gaps:
        return f"the segment at {lost[0]} has no log; --accept-gaps counts its records as lost"
    for log in taken:
        known = log.imported
        if known is not None and known.segment_size_bytes != log.size_bytes:
            return (
                f"the log at {log.base_offset} has {log.size_bytes} bytes, and had "
                f"{known.segment_size_bytes} when it was imported: it was replaced; have the "
                "old one back"
            )
    first = taken[0].base_offset
    inside = [one for one in imported.values() if one.start_offset < first < one.next_offset]
    if inside and taken[0].imported is None:
        return (
            f"the log at {first} lies in the imported {inside[0].start_offset}, whose log is not "
            "there to compare the two"
        )
    return None


def in_words(layout: PinterestLayout, names: Collection[UploadedName], objects: int) -> str:
    """What was seen instead of what the settings name, and what to do. `objects`: how many."""
    if not objects:
        return "nothing is below their prefix: is it the right one, and the right bucket?"
    if not names:
        return "what is below their prefix has other names: is it the right one?"
    wanted = (layout.cluster, layout.entropy_bits, "")
    topics = sorted({one.topic for one in names if _settings_of(one) == wanted})
    if topics:
        return f"it has topics of these, such as {', '.join(topics[:_MOST_SHOWN])}"
    shown = [
        f"--cluster {cluster} --entropy-bits {bits}"
        + (f" and /{below} behind the prefix" if below else "")
        for cluster, bits, below in sorted({_settings_of(one) for one in names})
    ]
    return f"what is there goes with {'; or '.join(shown[:_MOST_SHOWN])}"


def _settings_of(name: UploadedName) -> tuple[str, int, str]:
    return name.cluster, name.entropy_bits, name.below


def check_follows(next_offset: int | None, log: UploadedLog, *, accepts_gaps: bool) -> None:
    """Invalid unless the log begins where the one before it ends; None = it is the first."""
    if next_offset is None or next_offset == log.base_offset:
        return
    if next_offset > log.base_offset:
        raise Invalid(
            f"the log at {log.base_offset} overlaps what is imported up to {next_offset - 1}, "
            "whose log is not there to compare the two"
        )
    if not accepts_gaps:
        raise Invalid(
            f"no log has the offsets {next_offset} to {log.base_offset - 1}: one is missing, or "
            "the one before them is cut short; --accept-gaps counts them as lost"
        )


def lineage_with(known: Lineage, log: UploadedLog, scan: SegmentScan) -> Lineage:
    """The leader epochs up to the end of one more log. Corrupt: its batches have none, or an
    earlier one than the log before.
    """
    if not scan.epochs or scan.epochs[0].start_offset != scan.first_offset:
        raise Corrupt(
            f"the log at {log.base_offset} has batches without a leader epoch: they are of a Kafka "
            "before 0.11"
        )
    entries = list(known.entries)
    for number, one in enumerate(scan.epochs):
        latest = entries[-1].epoch if entries else None
        if latest is not None and one.epoch < latest:
            raise Corrupt(
                f"the log at {log.base_offset} has leader epoch {one.epoch} after {latest}: it is "
                "of another history, as after an unclean election"
            )
        if latest is None or one.epoch > latest:
            start = log.base_offset if number == 0 else one.start_offset
            entries.append(EpochEntry(epoch=one.epoch, start_offset=start))
    return Lineage(tuple(entries))


def derived_topic_id(cluster: str, topic: str) -> Uuid:
    """The id of a topic that no cluster of ours has: always the same one."""
    return _uuid("topic", cluster, topic)


def segment_id_of(store_id: Uuid, topic_id: Uuid, name: str) -> Uuid:
    """The id of the segment with this log, so that a second import finds the first one's work."""
    return _uuid("segment", str(store_id), str(topic_id), name)


def _uuid(*parts: str) -> Uuid:
    digest = hashlib.sha256("\0".join(("pinterest", *parts)).encode()).digest()
    return Uuid(digest[:16])

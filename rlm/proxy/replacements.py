"""Builds the partitions of a Fetch answer that replace the broker's own. Pure.

Watermarks, log start offset (H22), aborted transactions and tagged fields must be those that a
leader with the whole log would answer. This module must not know where records come from, nor who
waits.
"""

from kafka_protocol.error_codes import (
    NONE,
)
from kafka_protocol.fetch import (
    FetchedPartition,
    PatchedPartition,
    SplicedPartition,
)
from rlm.proxy.splice import PartitionFetch, Source
from rlm.reading.requests import RemoteRecords
from rlm.remote_log.tier import TierPartition, Watermarks, has_remote

Replacement = SplicedPartition | PatchedPartition


def shown_log_start(view: TierPartition | None, log_start_offset: int) -> int | None:
    """The log start clients are to see instead of the broker's (H22); None = the broker's."""
    if view is None or not has_remote(view) or log_start_offset < 0:
        return None
    start = view.remote_log_start_offset
    return start if start < log_start_offset else None


def splice_records(
    place: PartitionFetch, records: RemoteRecords | None, error_code: int, *, read_committed: bool
) -> SplicedPartition:
    """The answer of a partition that is not the broker's: records, nothing yet, or an error.

    `records` without any: not even the first batch fits.
    """
    is_plain = error_code == NONE and place.source is not Source.DIVERGED
    marks = place.marks
    shown = None
    if marks is not None:
        shown = shown_log_start(place.tiered, marks.log_start_offset)
    return SplicedPartition(
        error_code=error_code,
        high_watermark=-1 if marks is None else marks.high_watermark,
        last_stable_offset=-1 if marks is None else marks.last_stable_offset,
        log_start_offset=_start(marks) if shown is None else shown,
        aborted_transactions=_aborted(records) if read_committed and is_plain else None,
        preferred_read_replica=-1,
        records=() if records is None or error_code != NONE else records.records,
        diverging_epoch=_diverging_epoch(place) if error_code == NONE else None,
    )


def _diverging_epoch(place: PartitionFetch) -> tuple[int, int] | None:
    end = place.epoch_end
    if place.source is not Source.DIVERGED or end is None:
        return None
    return end.leader_epoch, end.end_offset


def _start(marks: Watermarks | None) -> int:
    return -1 if marks is None else marks.log_start_offset


def _aborted(records: RemoteRecords | None) -> tuple[tuple[int, int], ...] | None:
    """As a broker: null where not even the first batch fits (ReplicaManager.checkFetchDataInfo)."""
    if records is None:
        return ()
    return records.aborted if records.size_bytes else None


def patch_clean(
    place: PartitionFetch, answered: FetchedPartition, given_bytes: int
) -> PatchedPartition | None:
    """The log start of the broker's own answer (H22), and the room that is left for its records."""
    start = shown_log_start(place.tiered, answered.log_start_offset)
    is_cut = given_bytes < answered.records_size
    if start is None and not is_cut:
        return None
    return PatchedPartition(
        log_start_offset=start, records_size_bytes=given_bytes if is_cut else None
    )


def empty_clean(place: PartitionFetch, answered: FetchedPartition) -> SplicedPartition:
    """The broker's own answer where not even its first batch fits: no records, null aborted."""
    start = shown_log_start(place.tiered, answered.log_start_offset)
    return SplicedPartition(
        error_code=NONE,
        high_watermark=answered.high_watermark,
        last_stable_offset=answered.last_stable_offset,
        log_start_offset=answered.log_start_offset if start is None else start,
        aborted_transactions=None,
        preferred_read_replica=answered.preferred_read_replica,
        records=(),
    )

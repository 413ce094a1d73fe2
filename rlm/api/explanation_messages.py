"""Converts what `rlm explain` asks and shows between values and messages of rlm.v1. Pure."""

from kip405.errors import Invalid
from kip405.ids import MAX_OFFSET
from rlm.api.messages import segment_message
from rlm.log_dir.scanner import LocalSegment
from rlm.plans.explanation import ExplainView, Explanation
from rlm.v1 import admin_pb2 as pb


def offset_of(request: pb.ExplainPartitionRequest) -> int | None:
    """None = the partition as a whole; Invalid for what is no offset."""
    if not request.HasField("offset"):
        return None
    if not 0 <= request.offset <= MAX_OFFSET:
        raise Invalid(f"{request.offset} is no offset")
    return request.offset


def explanation_message(found: Explanation) -> pb.Explanation:
    view, copy = found.view, found.view.copy_of_offset
    local = None if found.offset is None else view.local_segment(found.offset)
    return pb.Explanation(
        topic=view.partition.topic,
        partition=view.partition.partition,
        leader=view.leader,
        leader_epoch=view.leader_epoch,
        offsets=_offsets(view),
        high_watermark=view.high_watermark,
        offset=found.offset,
        location="" if found.location is None else found.location.value,
        readable=found.readable,
        unreadable_reason=found.unreadable_reason,
        segment=(
            None
            if copy is None
            else segment_message(view.partition.topic, copy.entry, copy.objects_stem)
        ),
        store="" if copy is None else copy.store,
        remote_since_ms=None if copy is None else copy.since_ms,
        local_segment=None if local is None else _local(local),
        remote_log_start_cause=view.remote_log_start_cause,
        lag_segments=view.copy.lag.segments,
        lag_bytes=view.copy.lag.size_bytes,
        copy_reason=view.copy_reason,
        trim_reason=view.trim_reason,
        frozen=view.frozen,
        sentences=found.sentences,
    )


def _offsets(view: ExplainView) -> pb.PartitionOffsets:
    start = -1 if view.remote_log_start_offset is None else view.remote_log_start_offset
    end = -1 if view.remote_next_offset is None else view.remote_next_offset
    return pb.PartitionOffsets(
        local_log_start_offset=view.local_log_start_offset,
        last_stable_offset=view.last_stable_offset,
        local_log_end_offset=view.log_end_offset,
        remote_log_start_offset=start,
        remote_log_end_offset=max(start, end),
    )


def _local(segment: LocalSegment) -> pb.LocalSegment:
    return pb.LocalSegment(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
    )

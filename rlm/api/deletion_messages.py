"""Converts what deletes remote data, decided or only planned, to messages of rlm.v1: shorter
retention, a discarded partition, ended topics. Pure.
"""

from kip405.errors import Invalid
from rlm.plans.deletions import PendingDeletion
from rlm.plans.remote_extent import RemoteExtent
from rlm.plans.retention import retention_in_force
from rlm.topics.discards import DiscardPlan, PendingDiscard
from rlm.topics.purge import TopicEnd
from rlm.topics.shortening import RetentionPlan
from rlm.v1 import admin_pb2
from rlmm.settings_records import DELETES_BY_RETENTION, TotalRetention


def deletion_message(pending: PendingDeletion) -> admin_pb2.PendingDeletion:
    record, announced = pending.record, pending.announced
    in_force = retention_in_force(record)
    return admin_pb2.PendingDeletion(
        kind=DELETES_BY_RETENTION,
        topic=record.name,
        topic_id=record.topic_id.raw,
        by="" if announced is None else announced.by,
        decided_ms=-1 if announced is None else announced.decided_ms,
        due_in_ms=pending.due_in_ms,
        retention_ms=record.retention_ms,
        retention_bytes=record.retention_bytes,
        retention_in_force_ms=in_force.retention_ms,
        retention_in_force_bytes=in_force.retention_bytes,
    )


def limits_of(request: admin_pb2.AcceptRetentionRequest) -> TotalRetention | None:
    """What the caller accepts, None = the plan is wanted; Invalid where one limit is missing."""
    given = [request.HasField(name) for name in ("retention_ms", "retention_bytes")]
    if any(given) and not all(given):
        raise Invalid("accept retention: retention_ms and retention_bytes go together")
    if not all(given):
        return None
    return TotalRetention(
        retention_ms=request.retention_ms, retention_bytes=request.retention_bytes
    )


def discard_message(pending: PendingDiscard) -> admin_pb2.PendingDeletion:
    record = pending.record
    return admin_pb2.PendingDeletion(
        kind=record.KIND,
        topic=pending.topic,
        topic_id=record.partition.topic_id.raw,
        partition=record.partition.partition,
        by=record.by,
        decided_ms=record.decided_ms,
        due_in_ms=pending.due_in_ms,
        segments=pending.remote.segments,
        records=pending.remote.records,
        size_bytes=pending.remote.size_bytes,
    )


def discard_plan_message(plan: DiscardPlan) -> admin_pb2.DiscardPlan:
    remote = plan.remote
    return admin_pb2.DiscardPlan(
        topic=plan.topic,
        partition=plan.partition,
        frozen=plan.frozen,
        segments=remote.segments,
        records=remote.records,
        size_bytes=remote.size_bytes,
        oldest_ms=remote.oldest_ms,
        newest_ms=remote.newest_ms,
        local_log_start_offset=plan.log_start_offset,
        local_log_end_offset=plan.log_end_offset,
        delay_ms=plan.delay_ms,
        own_segments=plan.own.segments,
        own_size_bytes=plan.own.size_bytes,
        own_only_remote_records=plan.own.only_remote_records,
    )


def retention_plan_message(plan: RetentionPlan) -> admin_pb2.RetentionPlan:
    change = plan.change
    return admin_pb2.RetentionPlan(
        topic=plan.topic,
        retention_ms=change.wanted.retention_ms,
        retention_bytes=change.wanted.retention_bytes,
        retention_in_force_ms=change.in_force.retention_ms,
        retention_in_force_bytes=change.in_force.retention_bytes,
        deletable=[
            admin_pb2.DeletableRecords(
                partition=one.partition,
                start_offset=one.start_offset,
                end_offset=one.next_offset,
                size_bytes=one.size_bytes,
                oldest_ms=one.oldest_ms,
                newest_ms=one.newest_ms,
            )
            for one in plan.deletable
        ],
    )


def ending_message(end: TopicEnd, extent: RemoteExtent) -> admin_pb2.PendingDeletion:
    return admin_pb2.PendingDeletion(
        kind=f"topic-{end.cause}",
        topic=end.record.name,
        topic_id=end.record.topic_id.raw,
        by=end.by,
        decided_ms=end.decided_ms,
        due_in_ms=end.due_in_ms,
        segments=extent.segments,
        records=extent.records,
        size_bytes=extent.size_bytes,
        waits=end.waits,
    )


def topic_end_message(end: TopicEnd, extent: RemoteExtent) -> admin_pb2.TopicEnd:
    return admin_pb2.TopicEnd(
        topic=end.record.name,
        topic_id=end.record.topic_id.raw,
        state=end.record.state,
        segments=end.segments,
        size_bytes=end.size_bytes,
        due_in_ms=end.due_in_ms,
        waits=end.waits,
        records=extent.records,
        oldest_ms=-1 if extent.oldest_ms is None else extent.oldest_ms,
        newest_ms=-1 if extent.newest_ms is None else extent.newest_ms,
    )

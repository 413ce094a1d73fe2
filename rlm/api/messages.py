"""Converts between values and messages of rlm.v1, with one function for each. Pure."""

from collections.abc import Iterable

from kip405.acls import Acl
from kip405.bytes_field import with_bytes_field
from kip405.errors import Invalid
from kip405.ids import Uuid
from kip405.segments import EpochEntry, Layout
from rlm.api.deletion_messages import deletion_message
from rlm.api.endpoints import Endpoint
from rlm.api.ports import PartitionStatus
from rlm.config.running import SettingChanges
from rlm.plans.coverage import LostRange
from rlm.plans.deletions import PendingDeletion
from rlm.plans.disk import LogDirReport
from rlm.plans.offload import Offload
from rlm.plans.problems import Problem
from rlm.plans.verification import Issue
from rlm.remote_log.aux_state import RemoteLogAuxState
from rlm.remote_log.list_offsets import Position
from rlm.remote_log.log_starts import Remains
from rlm.remote_log.reads import Piece
from rlm.remote_log.remote_state import RemotePartitionState
from rlm.stores.reports import StoreReport, StoreStatus
from rlm.tasks.copy_progress import Copying
from rlm.tasks.verification import PartitionReport
from rlm.tasks.verify_runs import Event, Progress, RunningVerify
from rlm.topics.recreated import GoneTopic
from rlm.topics.remarks import notes_of
from rlm.topics.rules import Durability, RetentionOptions
from rlm.topics.verbs import EnableOptions
from rlm.v1 import admin_pb2, fetch_pb2
from rlmm.ledger import SegmentEntry
from rlmm.settings_records import (
    FreezeRecord,
    OffloadThresholds,
    TopicRecord,
)

_BATCHES = fetch_pb2.FetchResponse.BATCHES_FIELD_NUMBER


def setting_changes_message(changes: SettingChanges) -> admin_pb2.ReloadConfigResponse:
    """What a reload has changed, and what waits for a restart."""
    return admin_pb2.ReloadConfigResponse(
        applied=[
            admin_pb2.SettingChange(key=one.key, before=one.before, after=one.after)
            for one in changes.applied
        ],
        needs_restart=changes.needs_restart,
    )


def partition_message(status: PartitionStatus, now_ms: int) -> fetch_pb2.PartitionDescription:
    """`now_ms`: wall time, by which the time left until a loss is shown."""
    return fetch_pb2.PartitionDescription(
        topic=status.topic,
        topic_id=status.topic_id.raw,
        partition=status.partition,
        leader=status.leader,
        leader_epoch=status.leader_epoch,
        remote_log_start_offset=status.remote_log_start_offset,
        remote_next_offset=status.remote_next_offset,
        local_log_start_offset=status.local_log_start_offset,
        last_stable_offset=status.last_stable_offset,
        high_watermark=status.high_watermark,
        log_end_offset=status.log_end_offset,
        lag_bytes=status.lag_bytes,
        lag_segments=status.lag_segments,
        last_error=status.last_error,
        copy_reason=status.copy_reason,
        trim_reason=status.trim_reason,
        expiry_reason=status.expiry_reason,
        frozen=status.frozen,
        remote_size_bytes=status.remote_size_bytes,
        remote_segments=status.remote_segments,
        alarms=status.alarms,
        holes=status.holes,
        hole_offsets=status.hole_offsets,
        loss_in_ms=status.loss_in_ms(now_ms),
        hole_ranges=_range_messages(status.hole_ranges),
        unfinished_copies=_range_messages(status.unfinished_copies),
        unfinished_copy_bytes=status.unfinished_copy_bytes,
        local_size_bytes=status.local_size_bytes,
    )


def _range_messages(ranges: Iterable[tuple[int, int]]) -> list[fetch_pb2.OffsetRange]:
    return [fetch_pb2.OffsetRange(start_offset=start, end_offset=end) for start, end in ranges]


def problem_message(problem: Problem, node_id: int) -> admin_pb2.Problem:
    return admin_pb2.Problem(
        kind=problem.kind.value,
        severity=problem.severity.value,
        subject=problem.subject,
        text=problem.text,
        topic=problem.topic,
        since_ms=problem.since_ms,
        node_ids=[node_id],
        risk=problem.risk.value,
    )


def topic_message(
    record: TopicRecord,
    *,
    gone: GoneTopic | None,
    partitions: int,
    remote_size_bytes: int,
    remote_segments: int,
    pending: PendingDeletion | None,
    warnings: tuple[str, ...],
    durability: Durability,
    offload: Offload,
) -> admin_pb2.TopicDescription:
    """Only originals that were set on the topic itself are named."""
    return admin_pb2.TopicDescription(
        topic=record.name,
        topic_id=record.topic_id.raw,
        mode=record.mode,
        state=record.state,
        trim=record.trim,
        retention_ms=record.retention_ms,
        retention_bytes=record.retention_bytes,
        local_retention_ms=record.local_retention_ms,
        local_retention_bytes=record.local_retention_bytes,
        originals={name: value for name, value in record.originals.items() if value is not None},
        partitions=partitions,
        remote_size_bytes=remote_size_bytes,
        remote_segments=remote_segments,
        layout="" if record.layout is None else str(record.layout),
        notes=notes_of(record),
        warnings=warnings,
        gone=gone is not None,
        present_topic_id=gone.present_id.raw if gone and gone.present_id else b"",
        min_insync_replicas=durability.min_insync_replicas,
        unclean_leader_election=durability.unclean_leader_election,
        pending_deletion=None if pending is None else deletion_message(pending),
        offload=admin_pb2.Offload(
            copy_lag_ms=offload.copy_lag_ms,
            copy_lag_bytes=offload.copy_lag_bytes,
            deletion_lag_ms=offload.deletion_lag_ms,
            copy_lag_of=offload.of_copy_lag,
            deletion_lag_of=offload.of_deletion_lag,
        ),
    )


def asked_layout(text: str) -> Layout | None:
    """None for an empty text; Invalid for an unknown layout."""
    try:
        return Layout.parse(text) if text else None
    except ValueError as error:
        raise Invalid(str(error)) from error


def enable_options_of(request: admin_pb2.EnableTopicRequest, *, by: str) -> EnableOptions:
    """`by`: the caller."""

    def given(name: str) -> int | None:
        return int(getattr(request, name)) if request.HasField(name) else None

    return EnableOptions(
        by=by,
        trim=request.trim,
        force=request.force,
        yes=request.yes,
        remains=Remains.of(keep=request.keep_remote, end=request.yes),
        layout=asked_layout(request.layout),
        offload=OffloadThresholds(
            copy_lag_ms=given("remote_copy_lag_ms"),
            copy_lag_bytes=given("remote_copy_lag_bytes"),
            deletion_lag_ms=given("offload_deletion_lag_ms"),
        ),
        retention=RetentionOptions(
            retention_ms=given("retention_ms"),
            retention_bytes=given("retention_bytes"),
            local_retention_ms=given("local_retention_ms"),
            local_retention_bytes=given("local_retention_bytes"),
        ),
    )


def freeze_message(topic: str, record: FreezeRecord, since_ms: int) -> admin_pb2.Freeze:
    return admin_pb2.Freeze(
        topic=topic,
        stopped=", ".join(record.stopped),
        by=record.by,
        why=record.why,
        since_ms=since_ms,
    )


def acl_message(acl: Acl) -> admin_pb2.Acl:
    return admin_pb2.Acl(
        principal=acl.principal,
        operation=acl.operation,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
    )


def acl_of(message: admin_pb2.Acl) -> Acl:
    return Acl(
        principal=message.principal,
        operation=message.operation,
        resource_type=message.resource_type,
        resource_name=message.resource_name,
    )


def store_message(status: StoreStatus) -> admin_pb2.StoreStatus:
    return admin_pb2.StoreStatus(
        name=status.name,
        store_id=b"" if status.store_id is None else status.store_id.raw,
        plugin=status.plugin,
        uri=status.uri,
        problem=status.problem,
        segments=status.segments,
        size_bytes=status.size_bytes,
        alarms=status.alarms,
    )


def log_dir_message(report: LogDirReport) -> admin_pb2.LogDirStatus:
    return admin_pb2.LogDirStatus(
        path=report.path,
        size_bytes=report.size_bytes,
        free_bytes=report.free_bytes,
        growth_bytes_per_second=report.growth_bytes_per_second,
        full_in_ms=report.full_in_ms,
        untrimmable_bytes=report.untrimmable_bytes,
        unmeasured_partitions=report.unmeasured_partitions,
        under_pressure=report.under_pressure,
    )


def copying_message(copying: Copying) -> admin_pb2.CopyingStatus:
    progress = copying.progress
    return admin_pb2.CopyingStatus(
        segments_left=progress.segments_left,
        bytes_left=progress.bytes_left,
        bytes_per_second=progress.bytes_per_second,
        left_ms=progress.left_ms,
        unmeasured_partitions=copying.unmeasured_partitions,
        limit_bytes_per_second=copying.limit_bytes_per_second,
    )


def report_message(report: StoreReport) -> admin_pb2.StoreReport:
    return admin_pb2.StoreReport(
        name=report.name,
        uri=report.uri,
        problem=report.problem,
        findings=[
            admin_pb2.StoreFinding(
                kind=one.kind.value,
                state=one.state,
                days=one.days,
                applies_to=one.applies_to,
                value=one.value,
            )
            for one in report.findings
        ],
        verdicts=[
            admin_pb2.StoreVerdict(level=one.level.value, text=one.text) for one in report.verdicts
        ],
    )


def segment_message(topic: str, entry: SegmentEntry, stem: str) -> fetch_pb2.Segment:
    """`stem`: of the names of its objects, see rsm_plugins.layout.keys.objects_stem."""
    metadata = entry.metadata
    partition = metadata.topic_id_partition
    return fetch_pb2.Segment(
        topic=topic,
        topic_id=partition.topic_id.raw,
        partition=partition.partition,
        segment_id=metadata.segment_id.id.raw,
        start_offset=metadata.start_offset,
        next_offset=metadata.next_offset,
        size_bytes=metadata.segment_size_bytes,
        max_timestamp_ms=metadata.max_timestamp_ms,
        state=metadata.state.name,
        leader_epochs=_epoch_entries(metadata.segment_leader_epochs),
        disputed=bool(entry.disputed),
        store_id=_store_id(entry).raw,
        broker_id=metadata.broker_id,
        objects_stem=stem,
        custom_metadata=metadata.custom_metadata or b"",
        event_timestamp_ms=metadata.event_timestamp_ms,
    )


def aux_state_message(found: RemoteLogAuxState) -> fetch_pb2.RemoteLogAuxState:
    return fetch_pb2.RemoteLogAuxState(
        segment_id=found.segment_id.raw,
        remote_log_start_offset=found.remote_log_start_offset,
        next_offset=found.next_offset,
        leader_epochs=_epoch_entries(found.lineage.entries),
        producer_snapshot=found.producer_snapshot,
    )


def _epoch_entries(entries: Iterable[EpochEntry]) -> list[fetch_pb2.EpochEntry]:
    return [fetch_pb2.EpochEntry(epoch=one.epoch, start_offset=one.start_offset) for one in entries]


def piece_bytes(piece: Piece) -> bytes:
    """A FetchResponse as it goes over the wire; its batches are copied once."""
    rest = fetch_pb2.FetchResponse(
        next_offset=piece.next_offset,
        aborted_transactions=[
            fetch_pb2.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in piece.aborted
        ],
        high_watermark=piece.high_watermark,
        last_stable_offset=piece.last_stable_offset,
        log_start_offset=piece.log_start_offset,
        tier=fetch_pb2.REMOTE if piece.is_remote else fetch_pb2.LOCAL,
        missing=_range_messages(piece.missing),
    )
    return with_bytes_field(rest.SerializeToString(), _BATCHES, piece.batches)


def store_ids_of(request: admin_pb2.AcceptLossRequest) -> tuple[Uuid, ...]:
    """The stores that are left out; Invalid where one is no id."""
    try:
        return tuple(map(Uuid, request.without_store_ids))
    except ValueError as error:
        raise Invalid(f"without_store_ids: {error}") from error


def lost_range_message(lost: LostRange) -> admin_pb2.LostRange:
    return admin_pb2.LostRange(
        start_offset=lost.start,
        end_offset=lost.next_offset,
        segments=lost.segments,
        size_bytes=lost.size_bytes,
        why=lost.why,
    )


def verify_message(event: Event, node_id: int) -> admin_pb2.VerifyResponse:
    match event:
        case Issue():
            return admin_pb2.VerifyResponse(issue=_issue_message(event))
        case PartitionReport():
            return admin_pb2.VerifyResponse(partition=_verified_message(event, node_id))
        case Progress():
            return admin_pb2.VerifyResponse(progress=_progress_message(event, node_id))


def verification_message(running: RunningVerify, node_id: int) -> admin_pb2.RunningVerification:
    return admin_pb2.RunningVerification(
        topic=running.topic,
        deep=running.deep,
        progress=_progress_message(running.progress, node_id),
    )


def _progress_message(progress: Progress, node_id: int) -> admin_pb2.VerifyProgress:
    return admin_pb2.VerifyProgress(
        node_id=node_id,
        segments=progress.segments,
        segments_total=progress.segments_total,
        size_bytes=progress.size_bytes,
        size_total_bytes=progress.size_total_bytes,
    )


def _issue_message(issue: Issue) -> admin_pb2.VerifyIssue:
    return admin_pb2.VerifyIssue(
        kind=issue.kind.value,
        is_finding=issue.is_finding,
        topic=issue.partition.topic,
        partition=issue.partition.partition,
        start_offset=issue.start_offset,
        end_offset=issue.next_offset,
        segment_id=issue.segment_id.raw if issue.segment_id else b"",
        object_name=issue.object_name,
        text=issue.text,
        action=issue.action,
    )


def _verified_message(report: PartitionReport, node_id: int) -> admin_pb2.VerifiedPartition:
    message = admin_pb2.VerifiedPartition(
        topic=report.partition.topic,
        partition=report.partition.partition,
        node_id=node_id,
        segments=report.segments,
        findings=report.findings,
        unchecked=report.unchecked,
    )
    if report.offsets is not None:
        message.offsets.local_log_start_offset = report.offsets.local_log_start_offset
        message.offsets.last_stable_offset = report.offsets.last_stable_offset
        message.offsets.local_log_end_offset = report.offsets.local_log_end_offset
        message.offsets.remote_log_start_offset = report.offsets.remote_log_start_offset
        message.offsets.remote_log_end_offset = report.offsets.remote_log_end_offset
    return message


def position_message(position: Position) -> fetch_pb2.ListOffsetsResponse:
    return fetch_pb2.ListOffsetsResponse(
        offset=position.offset,
        timestamp_ms=position.timestamp_ms,
        leader_epoch=position.leader_epoch,
    )


def tiered_topic_message(
    record: TopicRecord, partitions: Iterable[RemotePartitionState]
) -> fetch_pb2.TieredTopic:
    return fetch_pb2.TieredTopic(
        topic=record.name,
        topic_id=record.topic_id.raw,
        partitions=[
            fetch_pb2.TieredPartition(
                partition=one.topic_id_partition.partition,
                remote_log_start_offset=-1 if one.written_start is None else one.written_start,
                remote_next_offset=_shown_end(one),
            )
            for one in partitions
        ],
    )


def _shown_end(state: RemotePartitionState) -> int:
    return state.least_end if state.least_end > state.log_start_offset else -1


def endpoint_message(endpoint: Endpoint) -> fetch_pb2.Endpoint:
    return fetch_pb2.Endpoint(
        grpc_address=endpoint.grpc_address,
        role=endpoint.role,
        node_id=endpoint.node_id,
        heartbeat_age_ms=age_ms(endpoint.heartbeat_age_ms),
        version=endpoint.version,
    )


def age_ms(known: int | None) -> int:
    """-1 = unknown."""
    return -1 if known is None else known


def reader_message(endpoint: Endpoint, *, is_alive: bool) -> admin_pb2.ReaderStatus:
    return admin_pb2.ReaderStatus(
        grpc_address=endpoint.grpc_address,
        version=endpoint.version,
        heartbeat_age_ms=age_ms(endpoint.heartbeat_age_ms),
        alive=is_alive,
    )


def _store_id(entry: SegmentEntry) -> Uuid:
    try:
        return entry.metadata.custom().store_id
    except ValueError:
        return Uuid(bytes(16))

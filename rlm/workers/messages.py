"""The values of rlm/remote_log/tier.py as messages of proto/rlm/workers/v1/core.proto, and back."""

from kafka_protocol.node_addresses import NodeAddress, NodeAddresses
from kip405.errors import (
    ErrorKind,
    Internal,
    OffsetOutOfRange,
    RemoteStorageError,
    Unavailable,
    error_of_kind,
)
from kip405.ids import PartitionKey, Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.plans.client_activity import ClientName, ClientRow, TierBytes
from rlm.plans.client_history import WindowStart
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.mirrored import LeaderEpochs, MirroredPartition
from rlm.remote_log.tier import ChangedMeanwhile, TierPartition, TopicRef, Watermarks
from rlm.workers.frames import RawBytes
from rlm.workers.v1 import core_pb2 as pb

NEWEST_PROTOCOL = 1
OLDEST_PROTOCOL = 1
_CHANGED = "changed_meanwhile"
_OUT_OF_RANGE = "offset_out_of_range"


def common_protocol(oldest: int, newest: int) -> int | None:
    """The newest protocol that both sides speak, None without one."""
    found = min(newest, NEWEST_PROTOCOL)
    return found if found >= max(oldest, OLDEST_PROTOCOL) else None


def topic_message(topic: TopicRef) -> pb.TopicName:
    if topic.topic_id is not None:
        return pb.TopicName(topic_id=topic.topic_id.raw)
    return pb.TopicName(name=topic.name or "")


def topic_of(message: pb.TopicName) -> TopicRef:
    if message.WhichOneof("which") == "topic_id":
        return TopicRef(topic_id=Uuid(message.topic_id))
    return TopicRef(name=message.name)


def marks_message(watermarks: Watermarks) -> pb.PartitionMarks:
    return pb.PartitionMarks(
        high_watermark=watermarks.high_watermark,
        last_stable_offset=watermarks.last_stable_offset,
        log_start_offset=watermarks.log_start_offset,
    )


def marks_of(message: pb.PartitionMarks) -> Watermarks:
    return Watermarks(
        high_watermark=message.high_watermark,
        last_stable_offset=message.last_stable_offset,
        log_start_offset=message.log_start_offset,
    )


def view_message(mirrored: MirroredPartition) -> pb.PartitionView:
    view = mirrored.view
    marks = view.watermarks
    return pb.PartitionView(
        topic_id=view.topic_id.raw,
        topic=view.topic,
        partition=view.partition,
        remote_log_start_offset=view.remote_log_start_offset,
        remote_next_offset=view.remote_next_offset,
        watermarks=None if marks is None else marks_message(marks),
        led_here=view.led_here,
        leader_epoch=view.leader_epoch,
        frozen=view.frozen,
        unsettled_next_offset=view.unsettled_next_offset,
        empty=(pb.OffsetRun(start=start, end=end) for start, end in view.empty),
        epochs=None if mirrored.epochs is None else _epochs_message(mirrored.epochs),
        refusal=_sendable(mirrored.refusal or ""),
        window_starts=(
            pb.WindowStart(window_ms=window_ms, offset=offset)
            for window_ms, offset in view.window_starts
        ),
    )


def view_of(message: pb.PartitionView) -> MirroredPartition:
    view = TierPartition(
        topic_id=Uuid(message.topic_id),
        topic=message.topic,
        partition=message.partition,
        remote_log_start_offset=message.remote_log_start_offset,
        remote_next_offset=message.remote_next_offset,
        watermarks=marks_of(message.watermarks) if message.HasField("watermarks") else None,
        led_here=message.led_here,
        leader_epoch=message.leader_epoch,
        frozen=message.frozen,
        unsettled_next_offset=message.unsettled_next_offset,
        empty=tuple((one.start, one.end) for one in message.empty),
        window_starts=tuple(
            WindowStart(one.window_ms, one.offset) for one in message.window_starts
        ),
    )
    return MirroredPartition(
        view=view,
        epochs=_epochs_of(message.epochs) if message.HasField("epochs") else None,
        refusal=message.refusal or None,
    )


def _epochs_message(epochs: LeaderEpochs) -> pb.LeaderEpochs:
    return pb.LeaderEpochs(
        entries=(
            pb.EpochEntry(epoch=one.epoch, start_offset=one.start_offset)
            for one in epochs.lineage.entries
        ),
        log_end_offset=epochs.log_end_offset,
        remote_log_start_offset=epochs.remote_log_start_offset,
    )


def _epochs_of(message: pb.LeaderEpochs) -> LeaderEpochs:
    entries = (
        EpochEntry(epoch=one.epoch, start_offset=one.start_offset) for one in message.entries
    )
    return LeaderEpochs(
        lineage=Lineage(tuple(entries)),
        log_end_offset=message.log_end_offset,
        remote_log_start_offset=message.remote_log_start_offset,
    )


def client_message(row: ClientRow) -> pb.ClientRow:
    return pb.ClientRow(
        principal=row.name.principal,
        client_id=row.name.client_id,
        address=row.name.address,
        connections=row.connections,
        software=row.software,
        groups=row.groups,
        topics=(
            pb.ClientTopic(topic=topic, remote_bytes=read.remote, local_bytes=read.local)
            for topic, read in row.topics.items()
        ),
        throttled_ms=row.throttled_ms,
    )


def client_of(message: pb.ClientRow) -> ClientRow:
    return ClientRow(
        ClientName(message.principal, message.client_id, message.address),
        connections=message.connections,
        software=dict.fromkeys(message.software),
        groups=dict.fromkeys(message.groups),
        topics={one.topic: TierBytes(one.remote_bytes, one.local_bytes) for one in message.topics},
        throttled_ms=message.throttled_ms,
    )


def addresses_message(nodes: NodeAddresses) -> pb.NodeAddresses:
    rows = sorted(nodes.replaced.items())
    return pb.NodeAddresses(
        replaced=(pb.NodeAddress(node_id=node, host=one.host, port=one.port) for node, one in rows),
        keeps_others=nodes.keeps_others,
    )


def addresses_of(message: pb.NodeAddresses) -> NodeAddresses:
    return NodeAddresses(
        replaced={
            one.node_id: NodeAddress(host=one.host, port=one.port) for one in message.replaced
        },
        keeps_others=message.keeps_others,
    )


def key_of(message: pb.PartitionId) -> PartitionKey:
    return PartitionKey(Uuid(message.topic_id), message.partition)


def read_message(request: RemoteRead) -> pb.ReadCall:
    return pb.ReadCall(
        topic_id=request.topic_id.raw,
        partition=request.partition,
        offset=request.offset,
        upper_offset=request.upper_offset,
        max_bytes=request.max_bytes,
        at_least_one=request.at_least_one,
        read_committed=request.read_committed,
        parent=request.parent,
    )


def read_of(message: pb.ReadCall) -> RemoteRead:
    return RemoteRead(
        topic_id=Uuid(message.topic_id),
        partition=message.partition,
        offset=message.offset,
        upper_offset=message.upper_offset,
        max_bytes=message.max_bytes,
        at_least_one=message.at_least_one,
        read_committed=message.read_committed,
        parent=message.parent,
    )


def records_message(records: RemoteRecords) -> pb.ReadAnswer:
    """All but the records themselves."""
    return pb.ReadAnswer(
        next_offset=records.next_offset,
        aborted=(
            pb.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in records.aborted
        ),
        exhausted=records.exhausted,
        missing=(pb.OffsetRun(start=start, end=end) for start, end in records.missing),
    )


def records_of(message: pb.ReadAnswer, raw: RawBytes) -> RemoteRecords:
    return RemoteRecords(
        records=raw,
        size_bytes=sum(map(len, raw)),
        next_offset=message.next_offset,
        aborted=tuple((one.producer_id, one.first_offset) for one in message.aborted),
        exhausted=message.exhausted,
        missing=tuple((one.start, one.end) for one in message.missing),
    )


def timestamp_message(found: TimestampedOffset | None) -> pb.TimestampAnswer:
    if found is None:
        return pb.TimestampAnswer()
    return pb.TimestampAnswer(
        is_found=True,
        offset=found.offset,
        timestamp_ms=found.timestamp_ms,
        leader_epoch=found.leader_epoch,
    )


def timestamp_of(message: pb.TimestampAnswer) -> TimestampedOffset | None:
    if not message.is_found:
        return None
    return TimestampedOffset(
        offset=message.offset,
        timestamp_ms=message.timestamp_ms,
        leader_epoch=message.leader_epoch,
    )


def error_message(error: Exception) -> pb.CallError:
    """Any error of the tier; one that is no RemoteStorageError is a bug of the core."""
    if not isinstance(error, RemoteStorageError):
        return pb.CallError(kind=Internal.kind.name, message=_sendable(repr(error)))
    found = pb.CallError(kind=error.kind.name, message=_sendable(str(error)))
    if isinstance(error, ChangedMeanwhile):
        found.name = _CHANGED
    if isinstance(error, OffsetOutOfRange):
        found.name = _OUT_OF_RANGE
        if error.log_start_offset is not None:
            found.log_start_offset = error.log_start_offset
        if error.high_watermark is not None:
            found.high_watermark = error.high_watermark
    return found


def _sendable(text: str) -> str:
    """What is no Unicode text, as in the path of a file, is shown escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def error_of(message: pb.CallError) -> RemoteStorageError:
    """A kind that only a later version knows is one that may pass: nothing is skipped for it."""
    if message.name == _CHANGED:
        return ChangedMeanwhile(message.message)
    if message.name == _OUT_OF_RANGE:
        return OffsetOutOfRange(
            message.message,
            log_start_offset=(
                message.log_start_offset if message.HasField("log_start_offset") else None
            ),
            high_watermark=message.high_watermark if message.HasField("high_watermark") else None,
        )
    kind = ErrorKind.__members__.get(message.kind)
    return Unavailable(message.message) if kind is None else error_of_kind(kind, message.message)

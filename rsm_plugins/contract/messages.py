"""Converts kip405's values to messages of rsm_plugins.v1 and back; raises Invalid if it cannot."""

from kip405.contracts import (
    ExpectedSegment,
    Presence,
    SegmentPresence,
    StoredObject,
    StoreIdentity,
)
from kip405.errors import Invalid
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import ByteRange, FileSlice, SegmentLocator
from rsm_plugins.files.segment_files import ScratchFile
from rsm_plugins.v1 import storage_pb2 as pb

CONTRACT_VERSION = 1
CHUNK_BYTES = 1024 * 1024
MESSAGE_MAX_BYTES = 2 * 1024 * 1024
STAT_MAX_SEGMENTS = 1000
DELETE_MAX_SEGMENTS = 1000
LIST_PAGE_OBJECTS = 500
INDEXES_MAX_BYTES = 512 * 1024 * 1024
LOG_MAX_BYTES = 2**31 - 1  # Kafka's segment.bytes is an int32

_PRESENCES: dict[Presence, pb.Presence] = {
    Presence.COMPLETE: pb.PRESENCE_COMPLETE,
    Presence.MISSING: pb.PRESENCE_MISSING,
    Presence.DIFFERENT: pb.PRESENCE_DIFFERENT,
}
_BY_NUMBER: dict[int, Presence] = {number: presence for presence, number in _PRESENCES.items()}


def locator_message(locator: SegmentLocator) -> pb.SegmentLocator:
    partition = locator.segment_id.topic_id_partition
    return pb.SegmentLocator(
        cluster_id=locator.cluster_id,
        topic_id=partition.topic_id.raw,
        topic=partition.topic,
        partition=partition.partition,
        segment_id=locator.segment_id.id.raw,
        start_offset=locator.start_offset,
        custom_metadata=locator.custom_metadata,
    )


def locator_value(message: pb.SegmentLocator) -> SegmentLocator:
    """Invalid names the field that is not valid."""
    try:
        partition = TopicIdPartition(
            topic_id=Uuid(message.topic_id), topic=message.topic, partition=message.partition
        )
        segment_id = RemoteLogSegmentId(topic_id_partition=partition, id=Uuid(message.segment_id))
    except ValueError as error:
        raise Invalid(f"the segment locator cannot be: {error}") from error
    custom = message.custom_metadata if message.HasField("custom_metadata") else None
    return SegmentLocator(
        cluster_id=message.cluster_id,
        segment_id=segment_id,
        start_offset=message.start_offset,
        custom_metadata=custom,
    )


def slice_message(file_slice: FileSlice) -> pb.FileSlice:
    return pb.FileSlice(
        path=file_slice.path, position=file_slice.position, size_bytes=file_slice.size_bytes
    )


def slice_value(message: pb.FileSlice) -> FileSlice:
    """Invalid if the path is not absolute or the range is not valid."""
    if not message.path.startswith("/") or "\0" in message.path:
        raise Invalid(f"{message.path!r} is not an absolute path")
    if message.position < 0 or message.size_bytes < 0:
        raise Invalid(
            f"{message.size_bytes} bytes at {message.position} of {message.path} are no range"
        )
    return FileSlice(path=message.path, position=message.position, size_bytes=message.size_bytes)


def scratch_message(scratch: ScratchFile) -> pb.ScratchFile:
    return pb.ScratchFile(
        path=scratch.path,
        nonce=scratch.nonce,
        position=scratch.position,
        size_bytes=scratch.size_bytes,
    )


def scratch_value(message: pb.ScratchFile) -> ScratchFile:
    return ScratchFile(
        path=message.path,
        nonce=message.nonce,
        position=message.position,
        size_bytes=message.size_bytes,
    )


def range_value(start: int, end: int) -> ByteRange:
    """Invalid if it is not a half-open range."""
    try:
        return ByteRange(start=start, end=end)
    except ValueError as error:
        raise Invalid(str(error)) from error


def identity_message(identity: StoreIdentity) -> pb.StoreIdentity:
    return pb.StoreIdentity(
        store_id=identity.store_id.raw,
        cluster_id=identity.cluster_id,
        created_ms=identity.created_ms,
    )


def identity_value(message: pb.StoreIdentity) -> StoreIdentity:
    try:
        store_id = Uuid(message.store_id)
    except ValueError as error:
        raise Invalid(f"the store identity cannot be: {error}") from error
    return StoreIdentity(
        store_id=store_id, cluster_id=message.cluster_id, created_ms=message.created_ms
    )


def expected_message(segment: ExpectedSegment) -> pb.ExpectedSegment:
    return pb.ExpectedSegment(
        locator=locator_message(segment.locator),
        log_size_bytes=segment.log_size_bytes,
        indexes_size_bytes=segment.indexes_size_bytes,
    )


def expected_value(message: pb.ExpectedSegment) -> ExpectedSegment:
    return ExpectedSegment(
        locator=locator_value(message.locator),
        log_size_bytes=message.log_size_bytes,
        indexes_size_bytes=message.indexes_size_bytes,
    )


def presence_message(presence: SegmentPresence) -> pb.SegmentPresence:
    return pb.SegmentPresence(
        presence=_PRESENCES[presence.presence],
        manifest_present=presence.manifest_present,
        detail=presence.detail,
    )


def presence_value(message: pb.SegmentPresence) -> SegmentPresence:
    """Invalid for an unknown presence, which is never read as complete."""
    if message.presence not in _BY_NUMBER:
        raise Invalid(f"presence {message.presence} is not known")
    return SegmentPresence(
        presence=_BY_NUMBER[message.presence],
        manifest_present=message.manifest_present,
        detail=message.detail,
    )


def partition_message(partition: TopicIdPartition) -> pb.TopicIdPartition:
    return pb.TopicIdPartition(
        topic_id=partition.topic_id.raw, topic=partition.topic, partition=partition.partition
    )


def partition_value(message: pb.TopicIdPartition) -> TopicIdPartition:
    try:
        return TopicIdPartition(
            topic_id=Uuid(message.topic_id), topic=message.topic, partition=message.partition
        )
    except ValueError as error:
        raise Invalid(f"the partition cannot be: {error}") from error


def object_message(found: StoredObject) -> pb.StoredObject:
    return pb.StoredObject(
        name=found.name, size_bytes=found.size_bytes, modified_ms=found.modified_ms
    )


def object_value(message: pb.StoredObject) -> StoredObject:
    return StoredObject(
        name=message.name, size_bytes=message.size_bytes, modified_ms=message.modified_ms
    )

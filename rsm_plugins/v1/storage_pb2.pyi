from kip405.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Presence(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRESENCE_UNSPECIFIED: _ClassVar[Presence]
    PRESENCE_COMPLETE: _ClassVar[Presence]
    PRESENCE_MISSING: _ClassVar[Presence]
    PRESENCE_DIFFERENT: _ClassVar[Presence]
PRESENCE_UNSPECIFIED: Presence
PRESENCE_COMPLETE: Presence
PRESENCE_MISSING: Presence
PRESENCE_DIFFERENT: Presence

class SegmentLocator(_message.Message):
    __slots__ = ("cluster_id", "topic_id", "topic", "partition", "segment_id", "start_offset", "custom_metadata")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_METADATA_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    topic_id: bytes
    topic: str
    partition: int
    segment_id: bytes
    start_offset: int
    custom_metadata: bytes
    def __init__(self, cluster_id: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., segment_id: _Optional[bytes] = ..., start_offset: _Optional[int] = ..., custom_metadata: _Optional[bytes] = ...) -> None: ...

class FileSlice(_message.Message):
    __slots__ = ("path", "position", "size_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    position: int
    size_bytes: int
    def __init__(self, path: _Optional[str] = ..., position: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class StoreIdentity(_message.Message):
    __slots__ = ("store_id", "cluster_id", "created_ms")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    store_id: bytes
    cluster_id: str
    created_ms: int
    def __init__(self, store_id: _Optional[bytes] = ..., cluster_id: _Optional[str] = ..., created_ms: _Optional[int] = ...) -> None: ...

class ReadIdentityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadIdentityResponse(_message.Message):
    __slots__ = ("identity",)
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    identity: StoreIdentity
    def __init__(self, identity: _Optional[_Union[StoreIdentity, _Mapping]] = ...) -> None: ...

class CreateIdentityRequest(_message.Message):
    __slots__ = ("identity",)
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    identity: StoreIdentity
    def __init__(self, identity: _Optional[_Union[StoreIdentity, _Mapping]] = ...) -> None: ...

class CreateIdentityResponse(_message.Message):
    __slots__ = ("identity",)
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    identity: StoreIdentity
    def __init__(self, identity: _Optional[_Union[StoreIdentity, _Mapping]] = ...) -> None: ...

class CopyLogSegmentDataRequest(_message.Message):
    __slots__ = ("header", "indexes_chunk", "log_chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    INDEXES_CHUNK_FIELD_NUMBER: _ClassVar[int]
    LOG_CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: CopyHeader
    indexes_chunk: bytes
    log_chunk: bytes
    def __init__(self, header: _Optional[_Union[CopyHeader, _Mapping]] = ..., indexes_chunk: _Optional[bytes] = ..., log_chunk: _Optional[bytes] = ...) -> None: ...

class CopyHeader(_message.Message):
    __slots__ = ("locator", "log_size_bytes", "log_crc32c", "indexes_size_bytes", "indexes_crc32c", "log_file", "end_offset")
    LOCATOR_FIELD_NUMBER: _ClassVar[int]
    LOG_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_CRC32C_FIELD_NUMBER: _ClassVar[int]
    INDEXES_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEXES_CRC32C_FIELD_NUMBER: _ClassVar[int]
    LOG_FILE_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    locator: SegmentLocator
    log_size_bytes: int
    log_crc32c: int
    indexes_size_bytes: int
    indexes_crc32c: int
    log_file: FileSlice
    end_offset: int
    def __init__(self, locator: _Optional[_Union[SegmentLocator, _Mapping]] = ..., log_size_bytes: _Optional[int] = ..., log_crc32c: _Optional[int] = ..., indexes_size_bytes: _Optional[int] = ..., indexes_crc32c: _Optional[int] = ..., log_file: _Optional[_Union[FileSlice, _Mapping]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class CopyLogSegmentDataResponse(_message.Message):
    __slots__ = ("plugin_metadata",)
    PLUGIN_METADATA_FIELD_NUMBER: _ClassVar[int]
    plugin_metadata: bytes
    def __init__(self, plugin_metadata: _Optional[bytes] = ...) -> None: ...

class WriteManifestRequest(_message.Message):
    __slots__ = ("locator", "manifest")
    LOCATOR_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    locator: SegmentLocator
    manifest: bytes
    def __init__(self, locator: _Optional[_Union[SegmentLocator, _Mapping]] = ..., manifest: _Optional[bytes] = ...) -> None: ...

class WriteManifestResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadManifestRequest(_message.Message):
    __slots__ = ("locator",)
    LOCATOR_FIELD_NUMBER: _ClassVar[int]
    locator: SegmentLocator
    def __init__(self, locator: _Optional[_Union[SegmentLocator, _Mapping]] = ...) -> None: ...

class ReadManifestResponse(_message.Message):
    __slots__ = ("manifest",)
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    manifest: bytes
    def __init__(self, manifest: _Optional[bytes] = ...) -> None: ...

class FetchLogSegmentRequest(_message.Message):
    __slots__ = ("locator", "start", "end", "shared_volume_nonce", "scratch")
    LOCATOR_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SHARED_VOLUME_NONCE_FIELD_NUMBER: _ClassVar[int]
    SCRATCH_FIELD_NUMBER: _ClassVar[int]
    locator: SegmentLocator
    start: int
    end: int
    shared_volume_nonce: str
    scratch: ScratchFile
    def __init__(self, locator: _Optional[_Union[SegmentLocator, _Mapping]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., shared_volume_nonce: _Optional[str] = ..., scratch: _Optional[_Union[ScratchFile, _Mapping]] = ...) -> None: ...

class ScratchFile(_message.Message):
    __slots__ = ("path", "nonce", "position", "size_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    nonce: bytes
    position: int
    size_bytes: int
    def __init__(self, path: _Optional[str] = ..., nonce: _Optional[bytes] = ..., position: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class FetchIndexesRequest(_message.Message):
    __slots__ = ("locator",)
    LOCATOR_FIELD_NUMBER: _ClassVar[int]
    locator: SegmentLocator
    def __init__(self, locator: _Optional[_Union[SegmentLocator, _Mapping]] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: FetchHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[FetchHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class FetchHeader(_message.Message):
    __slots__ = ("size_bytes", "file_slice", "instance", "in_scratch")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILE_SLICE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    IN_SCRATCH_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    file_slice: FileSlice
    instance: str
    in_scratch: bool
    def __init__(self, size_bytes: _Optional[int] = ..., file_slice: _Optional[_Union[FileSlice, _Mapping]] = ..., instance: _Optional[str] = ..., in_scratch: _Optional[bool] = ...) -> None: ...

class ExpectedSegment(_message.Message):
    __slots__ = ("locator", "log_size_bytes", "indexes_size_bytes")
    LOCATOR_FIELD_NUMBER: _ClassVar[int]
    LOG_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEXES_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    locator: SegmentLocator
    log_size_bytes: int
    indexes_size_bytes: int
    def __init__(self, locator: _Optional[_Union[SegmentLocator, _Mapping]] = ..., log_size_bytes: _Optional[int] = ..., indexes_size_bytes: _Optional[int] = ...) -> None: ...

class StatRequest(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[ExpectedSegment]
    def __init__(self, segments: _Optional[_Iterable[_Union[ExpectedSegment, _Mapping]]] = ...) -> None: ...

class SegmentPresence(_message.Message):
    __slots__ = ("presence", "manifest_present", "detail")
    PRESENCE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_PRESENT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    presence: Presence
    manifest_present: bool
    detail: str
    def __init__(self, presence: _Optional[_Union[Presence, str]] = ..., manifest_present: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...

class StatResponse(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentPresence]
    def __init__(self, segments: _Optional[_Iterable[_Union[SegmentPresence, _Mapping]]] = ...) -> None: ...

class TopicIdPartition(_message.Message):
    __slots__ = ("topic_id", "topic", "partition")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    topic: str
    partition: int
    def __init__(self, topic_id: _Optional[bytes] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class ListObjectsRequest(_message.Message):
    __slots__ = ("cluster_id", "partition")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    partition: TopicIdPartition
    def __init__(self, cluster_id: _Optional[str] = ..., partition: _Optional[_Union[TopicIdPartition, _Mapping]] = ...) -> None: ...

class ListObjectsResponse(_message.Message):
    __slots__ = ("objects",)
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[StoredObject]
    def __init__(self, objects: _Optional[_Iterable[_Union[StoredObject, _Mapping]]] = ...) -> None: ...

class StoredObject(_message.Message):
    __slots__ = ("name", "size_bytes", "modified_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    size_bytes: int
    modified_ms: int
    def __init__(self, name: _Optional[str] = ..., size_bytes: _Optional[int] = ..., modified_ms: _Optional[int] = ...) -> None: ...

class DeleteLogSegmentDataRequest(_message.Message):
    __slots__ = ("locator",)
    LOCATOR_FIELD_NUMBER: _ClassVar[int]
    locator: SegmentLocator
    def __init__(self, locator: _Optional[_Union[SegmentLocator, _Mapping]] = ...) -> None: ...

class DeleteLogSegmentDataResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteLogSegmentsRequest(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentLocator]
    def __init__(self, segments: _Optional[_Iterable[_Union[SegmentLocator, _Mapping]]] = ...) -> None: ...

class DeletedSegment(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.ErrorDetail
    def __init__(self, error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class DeleteLogSegmentsResponse(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[DeletedSegment]
    def __init__(self, segments: _Optional[_Iterable[_Union[DeletedSegment, _Mapping]]] = ...) -> None: ...

class CheckPathRequest(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileSlice
    def __init__(self, file: _Optional[_Union[FileSlice, _Mapping]] = ...) -> None: ...

class CheckPathResponse(_message.Message):
    __slots__ = ("readable", "file_size_bytes", "head_crc32c", "instance")
    READABLE_FIELD_NUMBER: _ClassVar[int]
    FILE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEAD_CRC32C_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    readable: bool
    file_size_bytes: int
    head_crc32c: int
    instance: str
    def __init__(self, readable: _Optional[bool] = ..., file_size_bytes: _Optional[int] = ..., head_crc32c: _Optional[int] = ..., instance: _Optional[str] = ...) -> None: ...

from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BlocksMetadata(_message.Message):
    __slots__ = ("quorum_size", "ensemble_size", "length", "last_entry_id", "state", "format_version", "cluster_id", "topic_id", "topic", "partition", "segment_id", "start_offset", "end_offset", "log_crc32c", "block_size_bytes", "blocks", "point_log_positions", "point_positions", "indexes")
    QUORUM_SIZE_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_CRC32C_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    POINT_LOG_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    POINT_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    quorum_size: int
    ensemble_size: int
    length: int
    last_entry_id: int
    state: int
    format_version: int
    cluster_id: str
    topic_id: bytes
    topic: str
    partition: int
    segment_id: bytes
    start_offset: int
    end_offset: int
    log_crc32c: int
    block_size_bytes: int
    blocks: _containers.RepeatedCompositeFieldContainer[LogBlock]
    point_log_positions: _containers.RepeatedScalarFieldContainer[int]
    point_positions: _containers.RepeatedScalarFieldContainer[int]
    indexes: bytes
    def __init__(self, quorum_size: _Optional[int] = ..., ensemble_size: _Optional[int] = ..., length: _Optional[int] = ..., last_entry_id: _Optional[int] = ..., state: _Optional[int] = ..., format_version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., segment_id: _Optional[bytes] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., log_crc32c: _Optional[int] = ..., block_size_bytes: _Optional[int] = ..., blocks: _Optional[_Iterable[_Union[LogBlock, _Mapping]]] = ..., point_log_positions: _Optional[_Iterable[int]] = ..., point_positions: _Optional[_Iterable[int]] = ..., indexes: _Optional[bytes] = ...) -> None: ...

class LogBlock(_message.Message):
    __slots__ = ("log_position", "log_size_bytes", "entry_count")
    LOG_POSITION_FIELD_NUMBER: _ClassVar[int]
    LOG_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENTRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    log_position: int
    log_size_bytes: int
    entry_count: int
    def __init__(self, log_position: _Optional[int] = ..., log_size_bytes: _Optional[int] = ..., entry_count: _Optional[int] = ...) -> None: ...

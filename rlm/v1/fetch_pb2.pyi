from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IsolationLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READ_UNCOMMITTED: _ClassVar[IsolationLevel]
    READ_COMMITTED: _ClassVar[IsolationLevel]

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    REMOTE: _ClassVar[Tier]
    LOCAL: _ClassVar[Tier]

class Tiers(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ALL_TIERS: _ClassVar[Tiers]
    REMOTE_ONLY: _ClassVar[Tiers]

class ObjectKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOG: _ClassVar[ObjectKind]
    INDEXES: _ClassVar[ObjectKind]
READ_UNCOMMITTED: IsolationLevel
READ_COMMITTED: IsolationLevel
TIER_UNSPECIFIED: Tier
REMOTE: Tier
LOCAL: Tier
ALL_TIERS: Tiers
REMOTE_ONLY: Tiers
LOG: ObjectKind
INDEXES: ObjectKind

class TopicRef(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("topic", "partition", "start_offset", "end_offset", "max_bytes", "isolation_level", "tiers")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    topic: TopicRef
    partition: int
    start_offset: int
    end_offset: int
    max_bytes: int
    isolation_level: IsolationLevel
    tiers: Tiers
    def __init__(self, topic: _Optional[_Union[TopicRef, _Mapping]] = ..., partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., isolation_level: _Optional[_Union[IsolationLevel, str]] = ..., tiers: _Optional[_Union[Tiers, str]] = ...) -> None: ...

class OffsetRange(_message.Message):
    __slots__ = ("start_offset", "end_offset")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    end_offset: int
    def __init__(self, start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class AbortedTransaction(_message.Message):
    __slots__ = ("producer_id", "first_offset")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    first_offset: int
    def __init__(self, producer_id: _Optional[int] = ..., first_offset: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("batches", "next_offset", "aborted_transactions", "high_watermark", "last_stable_offset", "log_start_offset", "tier", "missing")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ABORTED_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    batches: bytes
    next_offset: int
    aborted_transactions: _containers.RepeatedCompositeFieldContainer[AbortedTransaction]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    tier: Tier
    missing: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    def __init__(self, batches: _Optional[bytes] = ..., next_offset: _Optional[int] = ..., aborted_transactions: _Optional[_Iterable[_Union[AbortedTransaction, _Mapping]]] = ..., high_watermark: _Optional[int] = ..., last_stable_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., tier: _Optional[_Union[Tier, str]] = ..., missing: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("topic", "partition", "timestamp", "isolation_level", "tiers")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    topic: TopicRef
    partition: int
    timestamp: int
    isolation_level: IsolationLevel
    tiers: Tiers
    def __init__(self, topic: _Optional[_Union[TopicRef, _Mapping]] = ..., partition: _Optional[int] = ..., timestamp: _Optional[int] = ..., isolation_level: _Optional[_Union[IsolationLevel, str]] = ..., tiers: _Optional[_Union[Tiers, str]] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("offset", "timestamp_ms", "leader_epoch")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    leader_epoch: int
    def __init__(self, offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class DescribeTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TieredTopic]
    def __init__(self, topics: _Optional[_Iterable[_Union[TieredTopic, _Mapping]]] = ...) -> None: ...

class TieredTopic(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[TieredPartition]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[TieredPartition, _Mapping]]] = ...) -> None: ...

class TieredPartition(_message.Message):
    __slots__ = ("partition", "remote_log_start_offset", "remote_next_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOTE_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    remote_log_start_offset: int
    remote_next_offset: int
    def __init__(self, partition: _Optional[int] = ..., remote_log_start_offset: _Optional[int] = ..., remote_next_offset: _Optional[int] = ...) -> None: ...

class DescribeEndpointsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeEndpointsResponse(_message.Message):
    __slots__ = ("endpoints",)
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    def __init__(self, endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("grpc_address", "role", "node_id", "heartbeat_age_ms", "version")
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    grpc_address: str
    role: str
    node_id: int
    heartbeat_age_ms: int
    version: str
    def __init__(self, grpc_address: _Optional[str] = ..., role: _Optional[str] = ..., node_id: _Optional[int] = ..., heartbeat_age_ms: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class DescribePartitionRequest(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: TopicRef
    partition: int
    def __init__(self, topic: _Optional[_Union[TopicRef, _Mapping]] = ..., partition: _Optional[int] = ...) -> None: ...

class PartitionDescription(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "leader", "leader_epoch", "remote_log_start_offset", "remote_next_offset", "local_log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset", "lag_bytes", "lag_segments", "last_error", "copy_reason", "trim_reason", "frozen", "remote_size_bytes", "remote_segments", "alarms", "expiry_reason", "holes", "hole_offsets", "loss_in_ms", "hole_ranges", "unfinished_copies", "unfinished_copy_bytes", "local_size_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOTE_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOCAL_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    COPY_REASON_FIELD_NUMBER: _ClassVar[int]
    TRIM_REASON_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    REMOTE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REMOTE_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_REASON_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    HOLE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LOSS_IN_MS_FIELD_NUMBER: _ClassVar[int]
    HOLE_RANGES_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_COPIES_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_COPY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    leader: int
    leader_epoch: int
    remote_log_start_offset: int
    remote_next_offset: int
    local_log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    lag_bytes: int
    lag_segments: int
    last_error: str
    copy_reason: str
    trim_reason: str
    frozen: str
    remote_size_bytes: int
    remote_segments: int
    alarms: _containers.RepeatedScalarFieldContainer[str]
    expiry_reason: str
    holes: int
    hole_offsets: int
    loss_in_ms: int
    hole_ranges: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    unfinished_copies: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    unfinished_copy_bytes: int
    local_size_bytes: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., remote_log_start_offset: _Optional[int] = ..., remote_next_offset: _Optional[int] = ..., local_log_start_offset: _Optional[int] = ..., last_stable_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_segments: _Optional[int] = ..., last_error: _Optional[str] = ..., copy_reason: _Optional[str] = ..., trim_reason: _Optional[str] = ..., frozen: _Optional[str] = ..., remote_size_bytes: _Optional[int] = ..., remote_segments: _Optional[int] = ..., alarms: _Optional[_Iterable[str]] = ..., expiry_reason: _Optional[str] = ..., holes: _Optional[int] = ..., hole_offsets: _Optional[int] = ..., loss_in_ms: _Optional[int] = ..., hole_ranges: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., unfinished_copies: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., unfinished_copy_bytes: _Optional[int] = ..., local_size_bytes: _Optional[int] = ...) -> None: ...

class ListSegmentsRequest(_message.Message):
    __slots__ = ("topic", "partition", "all_states")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ALL_STATES_FIELD_NUMBER: _ClassVar[int]
    topic: TopicRef
    partition: int
    all_states: bool
    def __init__(self, topic: _Optional[_Union[TopicRef, _Mapping]] = ..., partition: _Optional[int] = ..., all_states: _Optional[bool] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "segment_id", "start_offset", "next_offset", "size_bytes", "max_timestamp_ms", "state", "leader_epochs", "disputed", "store_id", "broker_id", "objects_stem", "custom_metadata", "event_timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    DISPUTED_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_STEM_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_METADATA_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    segment_id: bytes
    start_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp_ms: int
    state: str
    leader_epochs: _containers.RepeatedCompositeFieldContainer[EpochEntry]
    disputed: bool
    store_id: bytes
    broker_id: int
    objects_stem: str
    custom_metadata: bytes
    event_timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., segment_id: _Optional[bytes] = ..., start_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., max_timestamp_ms: _Optional[int] = ..., state: _Optional[str] = ..., leader_epochs: _Optional[_Iterable[_Union[EpochEntry, _Mapping]]] = ..., disputed: _Optional[bool] = ..., store_id: _Optional[bytes] = ..., broker_id: _Optional[int] = ..., objects_stem: _Optional[str] = ..., custom_metadata: _Optional[bytes] = ..., event_timestamp_ms: _Optional[int] = ...) -> None: ...

class EpochEntry(_message.Message):
    __slots__ = ("epoch", "start_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class DescribeRemoteLogRequest(_message.Message):
    __slots__ = ("topic", "partition", "tiers", "start_offset", "max_segments")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    topic: TopicRef
    partition: int
    tiers: Tiers
    start_offset: int
    max_segments: int
    def __init__(self, topic: _Optional[_Union[TopicRef, _Mapping]] = ..., partition: _Optional[int] = ..., tiers: _Optional[_Union[Tiers, str]] = ..., start_offset: _Optional[int] = ..., max_segments: _Optional[int] = ...) -> None: ...

class RemoteLog(_message.Message):
    __slots__ = ("cluster_id", "topic", "topic_id", "partition", "remote_log_start_offset", "leader_epochs", "segments", "tiers")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    topic: str
    topic_id: bytes
    partition: int
    remote_log_start_offset: int
    leader_epochs: _containers.RepeatedCompositeFieldContainer[EpochEntry]
    segments: _containers.RepeatedCompositeFieldContainer[ReadableSegment]
    tiers: Tiers
    def __init__(self, cluster_id: _Optional[str] = ..., topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., remote_log_start_offset: _Optional[int] = ..., leader_epochs: _Optional[_Iterable[_Union[EpochEntry, _Mapping]]] = ..., segments: _Optional[_Iterable[_Union[ReadableSegment, _Mapping]]] = ..., tiers: _Optional[_Union[Tiers, str]] = ...) -> None: ...

class ReadableSegment(_message.Message):
    __slots__ = ("segment_metadata", "next_offset", "shared_end_offset")
    SEGMENT_METADATA_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SHARED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    segment_metadata: bytes
    next_offset: int
    shared_end_offset: int
    def __init__(self, segment_metadata: _Optional[bytes] = ..., next_offset: _Optional[int] = ..., shared_end_offset: _Optional[int] = ...) -> None: ...

class ReadObjectRequest(_message.Message):
    __slots__ = ("topic", "partition", "segment_id", "kind", "start_position", "end_position")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    START_POSITION_FIELD_NUMBER: _ClassVar[int]
    END_POSITION_FIELD_NUMBER: _ClassVar[int]
    topic: TopicRef
    partition: int
    segment_id: bytes
    kind: ObjectKind
    start_position: int
    end_position: int
    def __init__(self, topic: _Optional[_Union[TopicRef, _Mapping]] = ..., partition: _Optional[int] = ..., segment_id: _Optional[bytes] = ..., kind: _Optional[_Union[ObjectKind, str]] = ..., start_position: _Optional[int] = ..., end_position: _Optional[int] = ...) -> None: ...

class ReadObjectResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class BuildRemoteLogAuxStateRequest(_message.Message):
    __slots__ = ("topic", "partition", "end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: TopicRef
    partition: int
    end_offset: int
    def __init__(self, topic: _Optional[_Union[TopicRef, _Mapping]] = ..., partition: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class RemoteLogAuxState(_message.Message):
    __slots__ = ("segment_id", "remote_log_start_offset", "next_offset", "leader_epochs", "producer_snapshot")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    segment_id: bytes
    remote_log_start_offset: int
    next_offset: int
    leader_epochs: _containers.RepeatedCompositeFieldContainer[EpochEntry]
    producer_snapshot: bytes
    def __init__(self, segment_id: _Optional[bytes] = ..., remote_log_start_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., leader_epochs: _Optional[_Iterable[_Union[EpochEntry, _Mapping]]] = ..., producer_snapshot: _Optional[bytes] = ...) -> None: ...

class CopyRequest(_message.Message):
    __slots__ = ("topic", "partition", "up_to_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    UP_TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: TopicRef
    partition: int
    up_to_offset: int
    def __init__(self, topic: _Optional[_Union[TopicRef, _Mapping]] = ..., partition: _Optional[int] = ..., up_to_offset: _Optional[int] = ...) -> None: ...

class CopyResponse(_message.Message):
    __slots__ = ("first_uncopied_offset", "reason")
    FIRST_UNCOPIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    first_uncopied_offset: int
    reason: str
    def __init__(self, first_uncopied_offset: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

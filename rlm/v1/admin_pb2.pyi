from rlm.v1 import fetch_pb2 as _fetch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnableTopicRequest(_message.Message):
    __slots__ = ("topic", "trim", "retention_ms", "retention_bytes", "local_retention_ms", "local_retention_bytes", "force", "yes", "remote_copy_lag_ms", "remote_copy_lag_bytes", "offload_deletion_lag_ms", "keep_remote", "layout")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TRIM_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    YES_FIELD_NUMBER: _ClassVar[int]
    REMOTE_COPY_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    REMOTE_COPY_LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    OFFLOAD_DELETION_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    KEEP_REMOTE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    trim: bool
    retention_ms: int
    retention_bytes: int
    local_retention_ms: int
    local_retention_bytes: int
    force: bool
    yes: bool
    remote_copy_lag_ms: int
    remote_copy_lag_bytes: int
    offload_deletion_lag_ms: int
    keep_remote: bool
    layout: str
    def __init__(self, topic: _Optional[str] = ..., trim: _Optional[bool] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., local_retention_ms: _Optional[int] = ..., local_retention_bytes: _Optional[int] = ..., force: _Optional[bool] = ..., yes: _Optional[bool] = ..., remote_copy_lag_ms: _Optional[int] = ..., remote_copy_lag_bytes: _Optional[int] = ..., offload_deletion_lag_ms: _Optional[int] = ..., keep_remote: _Optional[bool] = ..., layout: _Optional[str] = ...) -> None: ...

class PlanTopicRequest(_message.Message):
    __slots__ = ("enable", "local_only")
    ENABLE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    enable: EnableTopicRequest
    local_only: bool
    def __init__(self, enable: _Optional[_Union[EnableTopicRequest, _Mapping]] = ..., local_only: _Optional[bool] = ...) -> None: ...

class TopicPlan(_message.Message):
    __slots__ = ("topic", "refusal", "warnings", "local_retention_ms", "local_retention_bytes", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    refusal: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    local_retention_ms: int
    local_retention_bytes: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionPlan]
    def __init__(self, topic: _Optional[str] = ..., refusal: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., local_retention_ms: _Optional[int] = ..., local_retention_bytes: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionPlan, _Mapping]]] = ...) -> None: ...

class PartitionPlan(_message.Message):
    __slots__ = ("partition", "leader", "replicas", "problem", "segments", "size_bytes", "local_bytes", "freed_bytes", "objects", "requests", "copy_bytes_per_second")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    COPY_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    partition: int
    leader: int
    replicas: int
    problem: str
    segments: int
    size_bytes: int
    local_bytes: int
    freed_bytes: int
    objects: int
    requests: int
    copy_bytes_per_second: int
    def __init__(self, partition: _Optional[int] = ..., leader: _Optional[int] = ..., replicas: _Optional[int] = ..., problem: _Optional[str] = ..., segments: _Optional[int] = ..., size_bytes: _Optional[int] = ..., local_bytes: _Optional[int] = ..., freed_bytes: _Optional[int] = ..., objects: _Optional[int] = ..., requests: _Optional[int] = ..., copy_bytes_per_second: _Optional[int] = ...) -> None: ...

class DescribeCostsRequest(_message.Message):
    __slots__ = ("local_only",)
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    local_only: bool
    def __init__(self, local_only: _Optional[bool] = ...) -> None: ...

class CostsResponse(_message.Message):
    __slots__ = ("topics", "currency", "storage_per_gib_month", "put_per_1000", "get_per_1000", "local_per_gib_month", "reads")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    STORAGE_PER_GIB_MONTH_FIELD_NUMBER: _ClassVar[int]
    PUT_PER_1000_FIELD_NUMBER: _ClassVar[int]
    GET_PER_1000_FIELD_NUMBER: _ClassVar[int]
    LOCAL_PER_GIB_MONTH_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicGrowth]
    currency: str
    storage_per_gib_month: float
    put_per_1000: float
    get_per_1000: float
    local_per_gib_month: float
    reads: _containers.RepeatedCompositeFieldContainer[StoreReads]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicGrowth, _Mapping]]] = ..., currency: _Optional[str] = ..., storage_per_gib_month: _Optional[float] = ..., put_per_1000: _Optional[float] = ..., get_per_1000: _Optional[float] = ..., local_per_gib_month: _Optional[float] = ..., reads: _Optional[_Iterable[_Union[StoreReads, _Mapping]]] = ...) -> None: ...

class TopicGrowth(_message.Message):
    __slots__ = ("topic", "remote_bytes", "remote_segments", "bytes_a_day", "requests_a_day", "local_grows")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REMOTE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REMOTE_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_A_DAY_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_A_DAY_FIELD_NUMBER: _ClassVar[int]
    LOCAL_GROWS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    remote_bytes: int
    remote_segments: int
    bytes_a_day: int
    requests_a_day: int
    local_grows: bool
    def __init__(self, topic: _Optional[str] = ..., remote_bytes: _Optional[int] = ..., remote_segments: _Optional[int] = ..., bytes_a_day: _Optional[int] = ..., requests_a_day: _Optional[int] = ..., local_grows: _Optional[bool] = ...) -> None: ...

class StoreReads(_message.Message):
    __slots__ = ("node_id", "requests", "within_ms", "problem")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    requests: int
    within_ms: int
    problem: str
    def __init__(self, node_id: _Optional[int] = ..., requests: _Optional[int] = ..., within_ms: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class RetentionPlan(_message.Message):
    __slots__ = ("topic", "retention_ms", "retention_bytes", "retention_in_force_ms", "retention_in_force_bytes", "deletable")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_IN_FORCE_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_IN_FORCE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELETABLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    retention_ms: int
    retention_bytes: int
    retention_in_force_ms: int
    retention_in_force_bytes: int
    deletable: _containers.RepeatedCompositeFieldContainer[DeletableRecords]
    def __init__(self, topic: _Optional[str] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retention_in_force_ms: _Optional[int] = ..., retention_in_force_bytes: _Optional[int] = ..., deletable: _Optional[_Iterable[_Union[DeletableRecords, _Mapping]]] = ...) -> None: ...

class DeletableRecords(_message.Message):
    __slots__ = ("partition", "start_offset", "end_offset", "size_bytes", "oldest_ms", "newest_ms")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_MS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int
    oldest_ms: int
    newest_ms: int
    def __init__(self, partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., newest_ms: _Optional[int] = ...) -> None: ...

class AcceptRetentionRequest(_message.Message):
    __slots__ = ("topic", "retention_ms", "retention_bytes", "yes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    YES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    retention_ms: int
    retention_bytes: int
    yes: bool
    def __init__(self, topic: _Optional[str] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., yes: _Optional[bool] = ...) -> None: ...

class AcceptRetentionResponse(_message.Message):
    __slots__ = ("plan", "topic")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    plan: RetentionPlan
    topic: TopicDescription
    def __init__(self, plan: _Optional[_Union[RetentionPlan, _Mapping]] = ..., topic: _Optional[_Union[TopicDescription, _Mapping]] = ...) -> None: ...

class DisableTopicRequest(_message.Message):
    __slots__ = ("topic", "delete_remote", "confirm")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_REMOTE_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    delete_remote: bool
    confirm: bool
    def __init__(self, topic: _Optional[str] = ..., delete_remote: _Optional[bool] = ..., confirm: _Optional[bool] = ...) -> None: ...

class SetTrimRequest(_message.Message):
    __slots__ = ("topic", "on", "giveback", "force", "confirm")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    GIVEBACK_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    on: bool
    giveback: bool
    force: bool
    confirm: bool
    def __init__(self, topic: _Optional[str] = ..., on: _Optional[bool] = ..., giveback: _Optional[bool] = ..., force: _Optional[bool] = ..., confirm: _Optional[bool] = ...) -> None: ...

class SetTrimResponse(_message.Message):
    __slots__ = ("topic", "warnings")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    topic: TopicDescription
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[_Union[TopicDescription, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicDescription]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicDescription, _Mapping]]] = ...) -> None: ...

class ListCandidatesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCandidatesResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[CandidateTopic]
    def __init__(self, topics: _Optional[_Iterable[_Union[CandidateTopic, _Mapping]]] = ...) -> None: ...

class CandidateTopic(_message.Message):
    __slots__ = ("topic", "state", "mode")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    state: str
    mode: str
    def __init__(self, topic: _Optional[str] = ..., state: _Optional[str] = ..., mode: _Optional[str] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("topic", "topic_id", "mode", "state", "trim", "retention_ms", "retention_bytes", "local_retention_ms", "local_retention_bytes", "originals", "partitions", "remote_size_bytes", "remote_segments", "notes", "warnings", "gone", "present_topic_id", "pending_deletion", "min_insync_replicas", "unclean_leader_election", "offload", "layout")
    class OriginalsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TRIM_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    ORIGINALS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REMOTE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REMOTE_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    PRESENT_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PENDING_DELETION_FIELD_NUMBER: _ClassVar[int]
    MIN_INSYNC_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    UNCLEAN_LEADER_ELECTION_FIELD_NUMBER: _ClassVar[int]
    OFFLOAD_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    mode: str
    state: str
    trim: bool
    retention_ms: int
    retention_bytes: int
    local_retention_ms: int
    local_retention_bytes: int
    originals: _containers.ScalarMap[str, str]
    partitions: int
    remote_size_bytes: int
    remote_segments: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    gone: bool
    present_topic_id: bytes
    pending_deletion: PendingDeletion
    min_insync_replicas: int
    unclean_leader_election: bool
    offload: Offload
    layout: str
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., mode: _Optional[str] = ..., state: _Optional[str] = ..., trim: _Optional[bool] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., local_retention_ms: _Optional[int] = ..., local_retention_bytes: _Optional[int] = ..., originals: _Optional[_Mapping[str, str]] = ..., partitions: _Optional[int] = ..., remote_size_bytes: _Optional[int] = ..., remote_segments: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ..., warnings: _Optional[_Iterable[str]] = ..., gone: _Optional[bool] = ..., present_topic_id: _Optional[bytes] = ..., pending_deletion: _Optional[_Union[PendingDeletion, _Mapping]] = ..., min_insync_replicas: _Optional[int] = ..., unclean_leader_election: _Optional[bool] = ..., offload: _Optional[_Union[Offload, _Mapping]] = ..., layout: _Optional[str] = ...) -> None: ...

class Offload(_message.Message):
    __slots__ = ("copy_lag_ms", "copy_lag_bytes", "deletion_lag_ms", "copy_lag_of", "deletion_lag_of")
    COPY_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    COPY_LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELETION_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    COPY_LAG_OF_FIELD_NUMBER: _ClassVar[int]
    DELETION_LAG_OF_FIELD_NUMBER: _ClassVar[int]
    copy_lag_ms: int
    copy_lag_bytes: int
    deletion_lag_ms: int
    copy_lag_of: str
    deletion_lag_of: str
    def __init__(self, copy_lag_ms: _Optional[int] = ..., copy_lag_bytes: _Optional[int] = ..., deletion_lag_ms: _Optional[int] = ..., copy_lag_of: _Optional[str] = ..., deletion_lag_of: _Optional[str] = ...) -> None: ...

class PendingDeletion(_message.Message):
    __slots__ = ("kind", "topic", "topic_id", "by", "decided_ms", "due_in_ms", "retention_ms", "retention_bytes", "retention_in_force_ms", "retention_in_force_bytes", "partition", "segments", "records", "size_bytes", "waits")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    DECIDED_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_IN_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_IN_FORCE_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_IN_FORCE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    topic: str
    topic_id: bytes
    by: str
    decided_ms: int
    due_in_ms: int
    retention_ms: int
    retention_bytes: int
    retention_in_force_ms: int
    retention_in_force_bytes: int
    partition: int
    segments: int
    records: int
    size_bytes: int
    waits: str
    def __init__(self, kind: _Optional[str] = ..., topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., by: _Optional[str] = ..., decided_ms: _Optional[int] = ..., due_in_ms: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retention_in_force_ms: _Optional[int] = ..., retention_in_force_bytes: _Optional[int] = ..., partition: _Optional[int] = ..., segments: _Optional[int] = ..., records: _Optional[int] = ..., size_bytes: _Optional[int] = ..., waits: _Optional[str] = ...) -> None: ...

class ListDeletionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDeletionsResponse(_message.Message):
    __slots__ = ("deletions",)
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    deletions: _containers.RepeatedCompositeFieldContainer[PendingDeletion]
    def __init__(self, deletions: _Optional[_Iterable[_Union[PendingDeletion, _Mapping]]] = ...) -> None: ...

class UndoDeletionRequest(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class DiscardPartitionRequest(_message.Message):
    __slots__ = ("topic", "partition", "confirm")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    confirm: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., confirm: _Optional[bool] = ...) -> None: ...

class DiscardPlan(_message.Message):
    __slots__ = ("topic", "partition", "frozen", "segments", "records", "size_bytes", "oldest_ms", "newest_ms", "local_log_start_offset", "local_log_end_offset", "delay_ms", "own_segments", "own_size_bytes", "own_only_remote_records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_MS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOCAL_LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    OWN_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    OWN_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OWN_ONLY_REMOTE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    frozen: str
    segments: int
    records: int
    size_bytes: int
    oldest_ms: int
    newest_ms: int
    local_log_start_offset: int
    local_log_end_offset: int
    delay_ms: int
    own_segments: int
    own_size_bytes: int
    own_only_remote_records: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., frozen: _Optional[str] = ..., segments: _Optional[int] = ..., records: _Optional[int] = ..., size_bytes: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., newest_ms: _Optional[int] = ..., local_log_start_offset: _Optional[int] = ..., local_log_end_offset: _Optional[int] = ..., delay_ms: _Optional[int] = ..., own_segments: _Optional[int] = ..., own_size_bytes: _Optional[int] = ..., own_only_remote_records: _Optional[int] = ...) -> None: ...

class FreezeRequest(_message.Message):
    __slots__ = ("topic", "why")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    why: str
    def __init__(self, topic: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class FreezeResponse(_message.Message):
    __slots__ = ("freezes",)
    FREEZES_FIELD_NUMBER: _ClassVar[int]
    freezes: _containers.RepeatedCompositeFieldContainer[Freeze]
    def __init__(self, freezes: _Optional[_Iterable[_Union[Freeze, _Mapping]]] = ...) -> None: ...

class Freeze(_message.Message):
    __slots__ = ("topic", "stopped", "by", "why", "since_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    stopped: str
    by: str
    why: str
    since_ms: int
    def __init__(self, topic: _Optional[str] = ..., stopped: _Optional[str] = ..., by: _Optional[str] = ..., why: _Optional[str] = ..., since_ms: _Optional[int] = ...) -> None: ...

class ListCopyLimitsRequest(_message.Message):
    __slots__ = ("local_only",)
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    local_only: bool
    def __init__(self, local_only: _Optional[bool] = ...) -> None: ...

class SetCopyLimitRequest(_message.Message):
    __slots__ = ("node_id", "bytes_per_second")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    bytes_per_second: int
    def __init__(self, node_id: _Optional[int] = ..., bytes_per_second: _Optional[int] = ...) -> None: ...

class ListCopyLimitsResponse(_message.Message):
    __slots__ = ("decided", "nodes")
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    decided: _containers.RepeatedCompositeFieldContainer[CopyLimit]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeCopyLimit]
    def __init__(self, decided: _Optional[_Iterable[_Union[CopyLimit, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[NodeCopyLimit, _Mapping]]] = ...) -> None: ...

class CopyLimit(_message.Message):
    __slots__ = ("node_id", "bytes_per_second", "by", "decided_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    DECIDED_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    bytes_per_second: int
    by: str
    decided_ms: int
    def __init__(self, node_id: _Optional[int] = ..., bytes_per_second: _Optional[int] = ..., by: _Optional[str] = ..., decided_ms: _Optional[int] = ...) -> None: ...

class NodeCopyLimit(_message.Message):
    __slots__ = ("node_id", "configured_bytes_per_second", "bytes_per_second", "overruled", "problem")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    OVERRULED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    configured_bytes_per_second: int
    bytes_per_second: int
    overruled: CopyLimit
    problem: str
    def __init__(self, node_id: _Optional[int] = ..., configured_bytes_per_second: _Optional[int] = ..., bytes_per_second: _Optional[int] = ..., overruled: _Optional[_Union[CopyLimit, _Mapping]] = ..., problem: _Optional[str] = ...) -> None: ...

class ReloadConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReloadConfigResponse(_message.Message):
    __slots__ = ("applied", "needs_restart")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    NEEDS_RESTART_FIELD_NUMBER: _ClassVar[int]
    applied: _containers.RepeatedCompositeFieldContainer[SettingChange]
    needs_restart: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, applied: _Optional[_Iterable[_Union[SettingChange, _Mapping]]] = ..., needs_restart: _Optional[_Iterable[str]] = ...) -> None: ...

class SettingChange(_message.Message):
    __slots__ = ("key", "before", "after")
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    key: str
    before: str
    after: str
    def __init__(self, key: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("topic", "local_only", "mask_secrets")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    MASK_SECRETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    local_only: bool
    mask_secrets: bool
    def __init__(self, topic: _Optional[str] = ..., local_only: _Optional[bool] = ..., mask_secrets: _Optional[bool] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("partitions", "freezes", "services", "readers", "problems", "deletions")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FREEZES_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[_fetch_pb2.PartitionDescription]
    freezes: _containers.RepeatedCompositeFieldContainer[Freeze]
    services: _containers.RepeatedCompositeFieldContainer[ServiceStatus]
    readers: _containers.RepeatedCompositeFieldContainer[ReaderStatus]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    deletions: _containers.RepeatedCompositeFieldContainer[PendingDeletion]
    def __init__(self, partitions: _Optional[_Iterable[_Union[_fetch_pb2.PartitionDescription, _Mapping]]] = ..., freezes: _Optional[_Iterable[_Union[Freeze, _Mapping]]] = ..., services: _Optional[_Iterable[_Union[ServiceStatus, _Mapping]]] = ..., readers: _Optional[_Iterable[_Union[ReaderStatus, _Mapping]]] = ..., problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., deletions: _Optional[_Iterable[_Union[PendingDeletion, _Mapping]]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("kind", "severity", "subject", "text", "topic", "since_ms", "node_ids", "risk")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    kind: str
    severity: str
    subject: str
    text: str
    topic: str
    since_ms: int
    node_ids: _containers.RepeatedScalarFieldContainer[int]
    risk: str
    def __init__(self, kind: _Optional[str] = ..., severity: _Optional[str] = ..., subject: _Optional[str] = ..., text: _Optional[str] = ..., topic: _Optional[str] = ..., since_ms: _Optional[int] = ..., node_ids: _Optional[_Iterable[int]] = ..., risk: _Optional[str] = ...) -> None: ...

class ReaderStatus(_message.Message):
    __slots__ = ("grpc_address", "version", "heartbeat_age_ms", "alive")
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    grpc_address: str
    version: str
    heartbeat_age_ms: int
    alive: bool
    def __init__(self, grpc_address: _Optional[str] = ..., version: _Optional[str] = ..., heartbeat_age_ms: _Optional[int] = ..., alive: _Optional[bool] = ...) -> None: ...

class ServiceStatus(_message.Message):
    __slots__ = ("node_id", "version", "grpc_address", "proxy_address", "heartbeat_age_ms", "problems", "reachable", "stores", "health", "log_dirs", "copying", "verifications", "alive")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROXY_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    COPYING_FIELD_NUMBER: _ClassVar[int]
    VERIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    version: str
    grpc_address: str
    proxy_address: str
    heartbeat_age_ms: int
    problems: _containers.RepeatedScalarFieldContainer[str]
    reachable: bool
    stores: _containers.RepeatedCompositeFieldContainer[StoreStatus]
    health: str
    log_dirs: _containers.RepeatedCompositeFieldContainer[LogDirStatus]
    copying: CopyingStatus
    verifications: _containers.RepeatedCompositeFieldContainer[RunningVerification]
    alive: bool
    def __init__(self, node_id: _Optional[int] = ..., version: _Optional[str] = ..., grpc_address: _Optional[str] = ..., proxy_address: _Optional[str] = ..., heartbeat_age_ms: _Optional[int] = ..., problems: _Optional[_Iterable[str]] = ..., reachable: _Optional[bool] = ..., stores: _Optional[_Iterable[_Union[StoreStatus, _Mapping]]] = ..., health: _Optional[str] = ..., log_dirs: _Optional[_Iterable[_Union[LogDirStatus, _Mapping]]] = ..., copying: _Optional[_Union[CopyingStatus, _Mapping]] = ..., verifications: _Optional[_Iterable[_Union[RunningVerification, _Mapping]]] = ..., alive: _Optional[bool] = ...) -> None: ...

class RunningVerification(_message.Message):
    __slots__ = ("topic", "deep", "progress")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEEP_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    deep: bool
    progress: VerifyProgress
    def __init__(self, topic: _Optional[str] = ..., deep: _Optional[bool] = ..., progress: _Optional[_Union[VerifyProgress, _Mapping]] = ...) -> None: ...

class CopyingStatus(_message.Message):
    __slots__ = ("segments_left", "bytes_left", "bytes_per_second", "left_ms", "unmeasured_partitions", "limit_bytes_per_second")
    SEGMENTS_LEFT_FIELD_NUMBER: _ClassVar[int]
    BYTES_LEFT_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    UNMEASURED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    segments_left: int
    bytes_left: int
    bytes_per_second: int
    left_ms: int
    unmeasured_partitions: int
    limit_bytes_per_second: int
    def __init__(self, segments_left: _Optional[int] = ..., bytes_left: _Optional[int] = ..., bytes_per_second: _Optional[int] = ..., left_ms: _Optional[int] = ..., unmeasured_partitions: _Optional[int] = ..., limit_bytes_per_second: _Optional[int] = ...) -> None: ...

class LogDirStatus(_message.Message):
    __slots__ = ("path", "size_bytes", "free_bytes", "growth_bytes_per_second", "full_in_ms", "untrimmable_bytes", "unmeasured_partitions", "under_pressure")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    GROWTH_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    FULL_IN_MS_FIELD_NUMBER: _ClassVar[int]
    UNTRIMMABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNMEASURED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    UNDER_PRESSURE_FIELD_NUMBER: _ClassVar[int]
    path: str
    size_bytes: int
    free_bytes: int
    growth_bytes_per_second: float
    full_in_ms: int
    untrimmable_bytes: int
    unmeasured_partitions: int
    under_pressure: bool
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., growth_bytes_per_second: _Optional[float] = ..., full_in_ms: _Optional[int] = ..., untrimmable_bytes: _Optional[int] = ..., unmeasured_partitions: _Optional[int] = ..., under_pressure: _Optional[bool] = ...) -> None: ...

class StoreStatus(_message.Message):
    __slots__ = ("name", "store_id", "plugin", "uri", "problem", "segments", "size_bytes", "alarms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    name: str
    store_id: bytes
    plugin: str
    uri: str
    problem: str
    segments: int
    size_bytes: int
    alarms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., store_id: _Optional[bytes] = ..., plugin: _Optional[str] = ..., uri: _Optional[str] = ..., problem: _Optional[str] = ..., segments: _Optional[int] = ..., size_bytes: _Optional[int] = ..., alarms: _Optional[_Iterable[str]] = ...) -> None: ...

class InspectStoresRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InspectStoresResponse(_message.Message):
    __slots__ = ("stores",)
    STORES_FIELD_NUMBER: _ClassVar[int]
    stores: _containers.RepeatedCompositeFieldContainer[StoreReport]
    def __init__(self, stores: _Optional[_Iterable[_Union[StoreReport, _Mapping]]] = ...) -> None: ...

class StoreReport(_message.Message):
    __slots__ = ("name", "uri", "problem", "findings", "verdicts")
    NAME_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    uri: str
    problem: str
    findings: _containers.RepeatedCompositeFieldContainer[StoreFinding]
    verdicts: _containers.RepeatedCompositeFieldContainer[StoreVerdict]
    def __init__(self, name: _Optional[str] = ..., uri: _Optional[str] = ..., problem: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[StoreFinding, _Mapping]]] = ..., verdicts: _Optional[_Iterable[_Union[StoreVerdict, _Mapping]]] = ...) -> None: ...

class StoreFinding(_message.Message):
    __slots__ = ("kind", "state", "days", "applies_to", "value")
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    APPLIES_TO_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    state: str
    days: int
    applies_to: str
    value: int
    def __init__(self, kind: _Optional[str] = ..., state: _Optional[str] = ..., days: _Optional[int] = ..., applies_to: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class StoreVerdict(_message.Message):
    __slots__ = ("level", "text")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    level: str
    text: str
    def __init__(self, level: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class PartitionRequest(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class AcceptLossRequest(_message.Message):
    __slots__ = ("topic", "partition", "apply", "without_store_ids")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    APPLY_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_STORE_IDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    apply: bool
    without_store_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., apply: _Optional[bool] = ..., without_store_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AcceptLossResponse(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[LostRange]
    def __init__(self, ranges: _Optional[_Iterable[_Union[LostRange, _Mapping]]] = ...) -> None: ...

class LostRange(_message.Message):
    __slots__ = ("start_offset", "end_offset", "segments", "size_bytes", "why")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    end_offset: int
    segments: int
    size_bytes: int
    why: str
    def __init__(self, start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., segments: _Optional[int] = ..., size_bytes: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("topic", "deep", "local_only")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEEP_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    deep: bool
    local_only: bool
    def __init__(self, topic: _Optional[str] = ..., deep: _Optional[bool] = ..., local_only: _Optional[bool] = ...) -> None: ...

class VerifyResponse(_message.Message):
    __slots__ = ("progress", "issue", "partition")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ISSUE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    progress: VerifyProgress
    issue: VerifyIssue
    partition: VerifiedPartition
    def __init__(self, progress: _Optional[_Union[VerifyProgress, _Mapping]] = ..., issue: _Optional[_Union[VerifyIssue, _Mapping]] = ..., partition: _Optional[_Union[VerifiedPartition, _Mapping]] = ...) -> None: ...

class VerifyProgress(_message.Message):
    __slots__ = ("node_id", "segments", "segments_total", "size_bytes", "size_total_bytes")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    segments: int
    segments_total: int
    size_bytes: int
    size_total_bytes: int
    def __init__(self, node_id: _Optional[int] = ..., segments: _Optional[int] = ..., segments_total: _Optional[int] = ..., size_bytes: _Optional[int] = ..., size_total_bytes: _Optional[int] = ...) -> None: ...

class VerifyIssue(_message.Message):
    __slots__ = ("kind", "is_finding", "topic", "partition", "start_offset", "end_offset", "segment_id", "object_name", "text", "action")
    KIND_FIELD_NUMBER: _ClassVar[int]
    IS_FINDING_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    kind: str
    is_finding: bool
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    segment_id: bytes
    object_name: str
    text: str
    action: str
    def __init__(self, kind: _Optional[str] = ..., is_finding: _Optional[bool] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., segment_id: _Optional[bytes] = ..., object_name: _Optional[str] = ..., text: _Optional[str] = ..., action: _Optional[str] = ...) -> None: ...

class VerifiedPartition(_message.Message):
    __slots__ = ("topic", "partition", "node_id", "offsets", "segments", "findings", "unchecked")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    UNCHECKED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    node_id: int
    offsets: PartitionOffsets
    segments: int
    findings: int
    unchecked: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., node_id: _Optional[int] = ..., offsets: _Optional[_Union[PartitionOffsets, _Mapping]] = ..., segments: _Optional[int] = ..., findings: _Optional[int] = ..., unchecked: _Optional[_Iterable[str]] = ...) -> None: ...

class PartitionOffsets(_message.Message):
    __slots__ = ("local_log_start_offset", "last_stable_offset", "local_log_end_offset", "remote_log_start_offset", "remote_log_end_offset")
    LOCAL_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOCAL_LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    local_log_start_offset: int
    last_stable_offset: int
    local_log_end_offset: int
    remote_log_start_offset: int
    remote_log_end_offset: int
    def __init__(self, local_log_start_offset: _Optional[int] = ..., last_stable_offset: _Optional[int] = ..., local_log_end_offset: _Optional[int] = ..., remote_log_start_offset: _Optional[int] = ..., remote_log_end_offset: _Optional[int] = ...) -> None: ...

class CopyClosedRequest(_message.Message):
    __slots__ = ("targets", "keep_local_bytes", "up_to_offset", "local_only")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    KEEP_LOCAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    UP_TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[CopyTarget]
    keep_local_bytes: int
    up_to_offset: int
    local_only: bool
    def __init__(self, targets: _Optional[_Iterable[_Union[CopyTarget, _Mapping]]] = ..., keep_local_bytes: _Optional[int] = ..., up_to_offset: _Optional[int] = ..., local_only: _Optional[bool] = ...) -> None: ...

class CopyTarget(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class CopyClosedResponse(_message.Message):
    __slots__ = ("progress", "partition")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    progress: CopyProgress
    partition: CopiedPartition
    def __init__(self, progress: _Optional[_Union[CopyProgress, _Mapping]] = ..., partition: _Optional[_Union[CopiedPartition, _Mapping]] = ...) -> None: ...

class CopyProgress(_message.Message):
    __slots__ = ("topic", "partition", "node_id", "doing", "segments", "segments_total", "size_bytes", "size_total_bytes", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    node_id: int
    doing: str
    segments: int
    segments_total: int
    size_bytes: int
    size_total_bytes: int
    error: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., node_id: _Optional[int] = ..., doing: _Optional[str] = ..., segments: _Optional[int] = ..., segments_total: _Optional[int] = ..., size_bytes: _Optional[int] = ..., size_total_bytes: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class CopiedPartition(_message.Message):
    __slots__ = ("topic", "partition", "node_id", "segments", "size_bytes", "first_uncopied_offset", "local_log_start_offset", "complete", "why")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_UNCOPIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOCAL_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    node_id: int
    segments: int
    size_bytes: int
    first_uncopied_offset: int
    local_log_start_offset: int
    complete: bool
    why: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., node_id: _Optional[int] = ..., segments: _Optional[int] = ..., size_bytes: _Optional[int] = ..., first_uncopied_offset: _Optional[int] = ..., local_log_start_offset: _Optional[int] = ..., complete: _Optional[bool] = ..., why: _Optional[str] = ...) -> None: ...

class ExplainPartitionRequest(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("topic", "partition", "leader", "leader_epoch", "offsets", "high_watermark", "offset", "location", "readable", "unreadable_reason", "segment", "store", "remote_since_ms", "local_segment", "remote_log_start_cause", "lag_segments", "lag_bytes", "copy_reason", "trim_reason", "frozen", "sentences")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    READABLE_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    REMOTE_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_CAUSE_FIELD_NUMBER: _ClassVar[int]
    LAG_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    COPY_REASON_FIELD_NUMBER: _ClassVar[int]
    TRIM_REASON_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    SENTENCES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    offsets: PartitionOffsets
    high_watermark: int
    offset: int
    location: str
    readable: bool
    unreadable_reason: str
    segment: _fetch_pb2.Segment
    store: str
    remote_since_ms: int
    local_segment: LocalSegment
    remote_log_start_cause: str
    lag_segments: int
    lag_bytes: int
    copy_reason: str
    trim_reason: str
    frozen: str
    sentences: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., offsets: _Optional[_Union[PartitionOffsets, _Mapping]] = ..., high_watermark: _Optional[int] = ..., offset: _Optional[int] = ..., location: _Optional[str] = ..., readable: _Optional[bool] = ..., unreadable_reason: _Optional[str] = ..., segment: _Optional[_Union[_fetch_pb2.Segment, _Mapping]] = ..., store: _Optional[str] = ..., remote_since_ms: _Optional[int] = ..., local_segment: _Optional[_Union[LocalSegment, _Mapping]] = ..., remote_log_start_cause: _Optional[str] = ..., lag_segments: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., copy_reason: _Optional[str] = ..., trim_reason: _Optional[str] = ..., frozen: _Optional[str] = ..., sentences: _Optional[_Iterable[str]] = ...) -> None: ...

class LocalSegment(_message.Message):
    __slots__ = ("base_offset", "next_offset", "size_bytes")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    next_offset: int
    size_bytes: int
    def __init__(self, base_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class DiagnoseRequest(_message.Message):
    __slots__ = ("local_only",)
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    local_only: bool
    def __init__(self, local_only: _Optional[bool] = ...) -> None: ...

class DiagnoseResponse(_message.Message):
    __slots__ = ("services",)
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    services: _containers.RepeatedCompositeFieldContainer[ServiceDocuments]
    def __init__(self, services: _Optional[_Iterable[_Union[ServiceDocuments, _Mapping]]] = ...) -> None: ...

class ServiceDocuments(_message.Message):
    __slots__ = ("node_id", "documents", "problem")
    class DocumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    documents: _containers.ScalarMap[str, bytes]
    problem: str
    def __init__(self, node_id: _Optional[int] = ..., documents: _Optional[_Mapping[str, bytes]] = ..., problem: _Optional[str] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("topic", "after", "local_only", "mask_secrets")
    class AfterEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    MASK_SECRETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    after: _containers.ScalarMap[int, int]
    local_only: bool
    mask_secrets: bool
    def __init__(self, topic: _Optional[str] = ..., after: _Optional[_Mapping[int, int]] = ..., local_only: _Optional[bool] = ..., mask_secrets: _Optional[bool] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "sources")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[TaskEvent]
    sources: _containers.RepeatedCompositeFieldContainer[EventSource]
    def __init__(self, events: _Optional[_Iterable[_Union[TaskEvent, _Mapping]]] = ..., sources: _Optional[_Iterable[_Union[EventSource, _Mapping]]] = ...) -> None: ...

class TaskEvent(_message.Message):
    __slots__ = ("node_id", "number", "at_ms", "task", "topic", "partition", "failed", "text")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    number: int
    at_ms: int
    task: str
    topic: str
    partition: int
    failed: bool
    text: str
    def __init__(self, node_id: _Optional[int] = ..., number: _Optional[int] = ..., at_ms: _Optional[int] = ..., task: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., failed: _Optional[bool] = ..., text: _Optional[str] = ...) -> None: ...

class EventSource(_message.Message):
    __slots__ = ("node_id", "newest", "has_gap", "running", "problem")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    HAS_GAP_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    newest: int
    has_gap: bool
    running: _containers.RepeatedCompositeFieldContainer[RunningTask]
    problem: str
    def __init__(self, node_id: _Optional[int] = ..., newest: _Optional[int] = ..., has_gap: _Optional[bool] = ..., running: _Optional[_Iterable[_Union[RunningTask, _Mapping]]] = ..., problem: _Optional[str] = ...) -> None: ...

class RunningTask(_message.Message):
    __slots__ = ("pool", "topic", "partition")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    pool: str
    topic: str
    partition: int
    def __init__(self, pool: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class PlanExpiryRequest(_message.Message):
    __slots__ = ("topic", "local_only")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    local_only: bool
    def __init__(self, topic: _Optional[str] = ..., local_only: _Optional[bool] = ...) -> None: ...

class PlanExpiryResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ExpiryPlan]
    def __init__(self, partitions: _Optional[_Iterable[_Union[ExpiryPlan, _Mapping]]] = ...) -> None: ...

class ExpiryPlan(_message.Message):
    __slots__ = ("topic", "partition", "remote_log_start_offset", "new_remote_log_start_offset", "segments", "size_bytes", "oldest_timestamp_ms", "newest_timestamp_ms", "reason", "problem")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEW_REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    remote_log_start_offset: int
    new_remote_log_start_offset: int
    segments: int
    size_bytes: int
    oldest_timestamp_ms: int
    newest_timestamp_ms: int
    reason: str
    problem: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., remote_log_start_offset: _Optional[int] = ..., new_remote_log_start_offset: _Optional[int] = ..., segments: _Optional[int] = ..., size_bytes: _Optional[int] = ..., oldest_timestamp_ms: _Optional[int] = ..., newest_timestamp_ms: _Optional[int] = ..., reason: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("topics", "confirm")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    confirm: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., confirm: _Optional[bool] = ...) -> None: ...

class PurgeResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicEnd]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicEnd, _Mapping]]] = ...) -> None: ...

class TopicEnd(_message.Message):
    __slots__ = ("topic", "topic_id", "state", "segments", "size_bytes", "due_in_ms", "waits", "records", "oldest_ms", "newest_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DUE_IN_MS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    state: str
    segments: int
    size_bytes: int
    due_in_ms: int
    waits: str
    records: int
    oldest_ms: int
    newest_ms: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., state: _Optional[str] = ..., segments: _Optional[int] = ..., size_bytes: _Optional[int] = ..., due_in_ms: _Optional[int] = ..., waits: _Optional[str] = ..., records: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., newest_ms: _Optional[int] = ...) -> None: ...

class ProveAccessRequest(_message.Message):
    __slots__ = ("topic", "tier")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    tier: bool
    def __init__(self, topic: _Optional[str] = ..., tier: _Optional[bool] = ...) -> None: ...

class ProveAccessResponse(_message.Message):
    __slots__ = ("missing",)
    MISSING_FIELD_NUMBER: _ClassVar[int]
    missing: _containers.RepeatedCompositeFieldContainer[Acl]
    def __init__(self, missing: _Optional[_Iterable[_Union[Acl, _Mapping]]] = ...) -> None: ...

class Acl(_message.Message):
    __slots__ = ("principal", "operation", "resource_type", "resource_name")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    principal: str
    operation: str
    resource_type: str
    resource_name: str
    def __init__(self, principal: _Optional[str] = ..., operation: _Optional[str] = ..., resource_type: _Optional[str] = ..., resource_name: _Optional[str] = ...) -> None: ...

class ListClientsRequest(_message.Message):
    __slots__ = ("topic", "local_only")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LOCAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    local_only: bool
    def __init__(self, topic: _Optional[str] = ..., local_only: _Optional[bool] = ...) -> None: ...

class ListClientsResponse(_message.Message):
    __slots__ = ("clients", "problems", "direct_groups", "share_starts", "direct_problem", "proxied_groups")
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    DIRECT_GROUPS_FIELD_NUMBER: _ClassVar[int]
    SHARE_STARTS_FIELD_NUMBER: _ClassVar[int]
    DIRECT_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROXIED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    clients: _containers.RepeatedCompositeFieldContainer[KafkaClient]
    problems: _containers.RepeatedCompositeFieldContainer[ClientsProblem]
    direct_groups: _containers.RepeatedCompositeFieldContainer[DirectGroup]
    share_starts: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    direct_problem: str
    proxied_groups: _containers.RepeatedCompositeFieldContainer[DirectGroup]
    def __init__(self, clients: _Optional[_Iterable[_Union[KafkaClient, _Mapping]]] = ..., problems: _Optional[_Iterable[_Union[ClientsProblem, _Mapping]]] = ..., direct_groups: _Optional[_Iterable[_Union[DirectGroup, _Mapping]]] = ..., share_starts: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ..., direct_problem: _Optional[str] = ..., proxied_groups: _Optional[_Iterable[_Union[DirectGroup, _Mapping]]] = ...) -> None: ...

class KafkaClient(_message.Message):
    __slots__ = ("principal", "client_id", "address", "software", "groups", "connections", "throttled_ms", "topics")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    principal: str
    client_id: str
    address: str
    software: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    connections: int
    throttled_ms: int
    topics: _containers.RepeatedCompositeFieldContainer[ClientTopic]
    def __init__(self, principal: _Optional[str] = ..., client_id: _Optional[str] = ..., address: _Optional[str] = ..., software: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., connections: _Optional[int] = ..., throttled_ms: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[ClientTopic, _Mapping]]] = ...) -> None: ...

class ClientTopic(_message.Message):
    __slots__ = ("topic", "remote_bytes", "local_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REMOTE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    remote_bytes: int
    local_bytes: int
    def __init__(self, topic: _Optional[str] = ..., remote_bytes: _Optional[int] = ..., local_bytes: _Optional[int] = ...) -> None: ...

class ClientsProblem(_message.Message):
    __slots__ = ("node_id", "problem")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    problem: str
    def __init__(self, node_id: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class DirectGroup(_message.Message):
    __slots__ = ("group", "positions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    group: str
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    def __init__(self, group: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ...) -> None: ...

class GroupPosition(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

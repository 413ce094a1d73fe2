from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerHello(_message.Message):
    __slots__ = ("oldest_protocol", "newest_protocol", "software_version", "worker", "recent_ends")
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NEWEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    RECENT_ENDS_FIELD_NUMBER: _ClassVar[int]
    oldest_protocol: int
    newest_protocol: int
    software_version: str
    worker: int
    recent_ends: int
    def __init__(self, oldest_protocol: _Optional[int] = ..., newest_protocol: _Optional[int] = ..., software_version: _Optional[str] = ..., worker: _Optional[int] = ..., recent_ends: _Optional[int] = ...) -> None: ...

class CoreHello(_message.Message):
    __slots__ = ("oldest_protocol", "newest_protocol", "software_version", "client_bytes_per_second", "log_level")
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NEWEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    oldest_protocol: int
    newest_protocol: int
    software_version: str
    client_bytes_per_second: int
    log_level: str
    def __init__(self, oldest_protocol: _Optional[int] = ..., newest_protocol: _Optional[int] = ..., software_version: _Optional[str] = ..., client_bytes_per_second: _Optional[int] = ..., log_level: _Optional[str] = ...) -> None: ...

class TopicName(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class PartitionMarks(_message.Message):
    __slots__ = ("high_watermark", "last_stable_offset", "log_start_offset")
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    def __init__(self, high_watermark: _Optional[int] = ..., last_stable_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ...) -> None: ...

class OffsetRun(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class EpochEntry(_message.Message):
    __slots__ = ("epoch", "start_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class LeaderEpochs(_message.Message):
    __slots__ = ("entries", "log_end_offset", "remote_log_start_offset")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[EpochEntry]
    log_end_offset: int
    remote_log_start_offset: int
    def __init__(self, entries: _Optional[_Iterable[_Union[EpochEntry, _Mapping]]] = ..., log_end_offset: _Optional[int] = ..., remote_log_start_offset: _Optional[int] = ...) -> None: ...

class WindowStart(_message.Message):
    __slots__ = ("window_ms", "offset")
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    window_ms: int
    offset: int
    def __init__(self, window_ms: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class PartitionView(_message.Message):
    __slots__ = ("topic_id", "topic", "partition", "remote_log_start_offset", "remote_next_offset", "watermarks", "led_here", "leader_epoch", "frozen", "unsettled_next_offset", "empty", "epochs", "refusal", "window_starts")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOTE_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WATERMARKS_FIELD_NUMBER: _ClassVar[int]
    LED_HERE_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    UNSETTLED_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_STARTS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    topic: str
    partition: int
    remote_log_start_offset: int
    remote_next_offset: int
    watermarks: PartitionMarks
    led_here: bool
    leader_epoch: int
    frozen: bool
    unsettled_next_offset: int
    empty: _containers.RepeatedCompositeFieldContainer[OffsetRun]
    epochs: LeaderEpochs
    refusal: str
    window_starts: _containers.RepeatedCompositeFieldContainer[WindowStart]
    def __init__(self, topic_id: _Optional[bytes] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., remote_log_start_offset: _Optional[int] = ..., remote_next_offset: _Optional[int] = ..., watermarks: _Optional[_Union[PartitionMarks, _Mapping]] = ..., led_here: _Optional[bool] = ..., leader_epoch: _Optional[int] = ..., frozen: _Optional[bool] = ..., unsettled_next_offset: _Optional[int] = ..., empty: _Optional[_Iterable[_Union[OffsetRun, _Mapping]]] = ..., epochs: _Optional[_Union[LeaderEpochs, _Mapping]] = ..., refusal: _Optional[str] = ..., window_starts: _Optional[_Iterable[_Union[WindowStart, _Mapping]]] = ...) -> None: ...

class TopicRow(_message.Message):
    __slots__ = ("topic_id", "record_name", "broker_name")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    record_name: str
    broker_name: str
    def __init__(self, topic_id: _Optional[bytes] = ..., record_name: _Optional[str] = ..., broker_name: _Optional[str] = ...) -> None: ...

class PartitionId(_message.Message):
    __slots__ = ("topic_id", "partition")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class NodeAddress(_message.Message):
    __slots__ = ("node_id", "host", "port")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    host: str
    port: int
    def __init__(self, node_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class NodeAddresses(_message.Message):
    __slots__ = ("replaced", "keeps_others")
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    KEEPS_OTHERS_FIELD_NUMBER: _ClassVar[int]
    replaced: _containers.RepeatedCompositeFieldContainer[NodeAddress]
    keeps_others: bool
    def __init__(self, replaced: _Optional[_Iterable[_Union[NodeAddress, _Mapping]]] = ..., keeps_others: _Optional[bool] = ...) -> None: ...

class Views(_message.Message):
    __slots__ = ("is_whole", "ready", "has_topics", "topics", "partitions", "gone", "node_addresses", "own_topic_ids")
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    HAS_TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    NODE_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    OWN_TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    is_whole: bool
    ready: bool
    has_topics: bool
    topics: _containers.RepeatedCompositeFieldContainer[TopicRow]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionView]
    gone: _containers.RepeatedCompositeFieldContainer[PartitionId]
    node_addresses: NodeAddresses
    own_topic_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, is_whole: _Optional[bool] = ..., ready: _Optional[bool] = ..., has_topics: _Optional[bool] = ..., topics: _Optional[_Iterable[_Union[TopicRow, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[PartitionView, _Mapping]]] = ..., gone: _Optional[_Iterable[_Union[PartitionId, _Mapping]]] = ..., node_addresses: _Optional[_Union[NodeAddresses, _Mapping]] = ..., own_topic_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class BarrierCall(_message.Message):
    __slots__ = ("topic", "partition", "deadline_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: TopicName
    partition: int
    deadline_ms: int
    def __init__(self, topic: _Optional[_Union[TopicName, _Mapping]] = ..., partition: _Optional[int] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class BarrierAnswer(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: PartitionView
    def __init__(self, view: _Optional[_Union[PartitionView, _Mapping]] = ...) -> None: ...

class WatermarksCall(_message.Message):
    __slots__ = ("topic", "partition", "deadline_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: TopicName
    partition: int
    deadline_ms: int
    def __init__(self, topic: _Optional[_Union[TopicName, _Mapping]] = ..., partition: _Optional[int] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class ReadCall(_message.Message):
    __slots__ = ("topic_id", "partition", "offset", "upper_offset", "max_bytes", "at_least_one", "read_committed", "parent")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    UPPER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_ONE_FIELD_NUMBER: _ClassVar[int]
    READ_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    offset: int
    upper_offset: int
    max_bytes: int
    at_least_one: bool
    read_committed: bool
    parent: str
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., upper_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., at_least_one: _Optional[bool] = ..., read_committed: _Optional[bool] = ..., parent: _Optional[str] = ...) -> None: ...

class AbortedTransaction(_message.Message):
    __slots__ = ("producer_id", "first_offset")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    first_offset: int
    def __init__(self, producer_id: _Optional[int] = ..., first_offset: _Optional[int] = ...) -> None: ...

class ReadAnswer(_message.Message):
    __slots__ = ("next_offset", "aborted", "exhausted", "missing")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    aborted: _containers.RepeatedCompositeFieldContainer[AbortedTransaction]
    exhausted: bool
    missing: _containers.RepeatedCompositeFieldContainer[OffsetRun]
    def __init__(self, next_offset: _Optional[int] = ..., aborted: _Optional[_Iterable[_Union[AbortedTransaction, _Mapping]]] = ..., exhausted: _Optional[bool] = ..., missing: _Optional[_Iterable[_Union[OffsetRun, _Mapping]]] = ...) -> None: ...

class TimestampCall(_message.Message):
    __slots__ = ("topic_id", "partition", "timestamp_ms", "start_offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    timestamp_ms: int
    start_offset: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class TimestampAnswer(_message.Message):
    __slots__ = ("is_found", "offset", "timestamp_ms", "leader_epoch")
    IS_FOUND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    is_found: bool
    offset: int
    timestamp_ms: int
    leader_epoch: int
    def __init__(self, is_found: _Optional[bool] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class RaiseStartCall(_message.Message):
    __slots__ = ("view", "offset")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    view: PartitionView
    offset: int
    def __init__(self, view: _Optional[_Union[PartitionView, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class RaiseStartAnswer(_message.Message):
    __slots__ = ("remote_log_start_offset",)
    REMOTE_LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    remote_log_start_offset: int
    def __init__(self, remote_log_start_offset: _Optional[int] = ...) -> None: ...

class TokenCall(_message.Message):
    __slots__ = ("subject", "refused_token_id")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    subject: str
    refused_token_id: str
    def __init__(self, subject: _Optional[str] = ..., refused_token_id: _Optional[str] = ...) -> None: ...

class TokenAnswer(_message.Message):
    __slots__ = ("principal", "token_id", "hmac", "lifetime_ms", "refused_cause", "refused_message")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    HMAC_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_CAUSE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    principal: str
    token_id: str
    hmac: str
    lifetime_ms: int
    refused_cause: str
    refused_message: str
    def __init__(self, principal: _Optional[str] = ..., token_id: _Optional[str] = ..., hmac: _Optional[str] = ..., lifetime_ms: _Optional[int] = ..., refused_cause: _Optional[str] = ..., refused_message: _Optional[str] = ...) -> None: ...

class TokenLeft(_message.Message):
    __slots__ = ("subject",)
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    def __init__(self, subject: _Optional[str] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("cancelled_call_id",)
    CANCELLED_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    cancelled_call_id: int
    def __init__(self, cancelled_call_id: _Optional[int] = ...) -> None: ...

class CallError(_message.Message):
    __slots__ = ("kind", "message", "name", "log_start_offset", "high_watermark")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    name: str
    log_start_offset: int
    high_watermark: int
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., name: _Optional[str] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ...) -> None: ...

class ClientBytes(_message.Message):
    __slots__ = ("client_id", "size_bytes", "principal")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    size_bytes: int
    principal: str
    def __init__(self, client_id: _Optional[str] = ..., size_bytes: _Optional[int] = ..., principal: _Optional[str] = ...) -> None: ...

class ClientWait(_message.Message):
    __slots__ = ("client_id", "duration_ms", "kind", "principal")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    duration_ms: int
    kind: str
    principal: str
    def __init__(self, client_id: _Optional[str] = ..., duration_ms: _Optional[int] = ..., kind: _Optional[str] = ..., principal: _Optional[str] = ...) -> None: ...

class ClientTopic(_message.Message):
    __slots__ = ("topic", "remote_bytes", "local_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REMOTE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    remote_bytes: int
    local_bytes: int
    def __init__(self, topic: _Optional[str] = ..., remote_bytes: _Optional[int] = ..., local_bytes: _Optional[int] = ...) -> None: ...

class ClientRow(_message.Message):
    __slots__ = ("principal", "client_id", "address", "connections", "software", "groups", "topics", "throttled_ms")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_MS_FIELD_NUMBER: _ClassVar[int]
    principal: str
    client_id: str
    address: str
    connections: int
    software: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    topics: _containers.RepeatedCompositeFieldContainer[ClientTopic]
    throttled_ms: int
    def __init__(self, principal: _Optional[str] = ..., client_id: _Optional[str] = ..., address: _Optional[str] = ..., connections: _Optional[int] = ..., software: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., topics: _Optional[_Iterable[_Union[ClientTopic, _Mapping]]] = ..., throttled_ms: _Optional[int] = ...) -> None: ...

class Counts(_message.Message):
    __slots__ = ("passed_bytes", "spliced", "held_ms", "events", "purgatory_size", "clients")
    class HeldMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PASSED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPLICED_FIELD_NUMBER: _ClassVar[int]
    HELD_MS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    PURGATORY_SIZE_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    passed_bytes: int
    spliced: _containers.RepeatedCompositeFieldContainer[ClientBytes]
    held_ms: _containers.ScalarMap[str, int]
    events: _containers.RepeatedCompositeFieldContainer[CountedEvent]
    purgatory_size: int
    clients: _containers.RepeatedCompositeFieldContainer[ClientRow]
    def __init__(self, passed_bytes: _Optional[int] = ..., spliced: _Optional[_Iterable[_Union[ClientBytes, _Mapping]]] = ..., held_ms: _Optional[_Mapping[str, int]] = ..., events: _Optional[_Iterable[_Union[CountedEvent, _Mapping]]] = ..., purgatory_size: _Optional[int] = ..., clients: _Optional[_Iterable[_Union[ClientRow, _Mapping]]] = ...) -> None: ...

class CountedEvent(_message.Message):
    __slots__ = ("name", "labels", "count", "duration_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    count: int
    duration_ms: int
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., count: _Optional[int] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class ToCore(_message.Message):
    __slots__ = ("call_id", "hello", "barrier", "watermarks", "read", "timestamp", "raise_start", "cancel", "counts", "token", "token_left")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    WATERMARKS_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    RAISE_START_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LEFT_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    hello: WorkerHello
    barrier: BarrierCall
    watermarks: WatermarksCall
    read: ReadCall
    timestamp: TimestampCall
    raise_start: RaiseStartCall
    cancel: Cancel
    counts: Counts
    token: TokenCall
    token_left: TokenLeft
    def __init__(self, call_id: _Optional[int] = ..., hello: _Optional[_Union[WorkerHello, _Mapping]] = ..., barrier: _Optional[_Union[BarrierCall, _Mapping]] = ..., watermarks: _Optional[_Union[WatermarksCall, _Mapping]] = ..., read: _Optional[_Union[ReadCall, _Mapping]] = ..., timestamp: _Optional[_Union[TimestampCall, _Mapping]] = ..., raise_start: _Optional[_Union[RaiseStartCall, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., counts: _Optional[_Union[Counts, _Mapping]] = ..., token: _Optional[_Union[TokenCall, _Mapping]] = ..., token_left: _Optional[_Union[TokenLeft, _Mapping]] = ...) -> None: ...

class ClientWaits(_message.Message):
    __slots__ = ("waits",)
    WAITS_FIELD_NUMBER: _ClassVar[int]
    waits: _containers.RepeatedCompositeFieldContainer[ClientWait]
    def __init__(self, waits: _Optional[_Iterable[_Union[ClientWait, _Mapping]]] = ...) -> None: ...

class ToWorker(_message.Message):
    __slots__ = ("call_id", "hello", "views", "barrier", "watermarks", "read", "timestamp", "raise_start", "error", "waits", "token")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    WATERMARKS_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    RAISE_START_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    hello: CoreHello
    views: Views
    barrier: BarrierAnswer
    watermarks: PartitionMarks
    read: ReadAnswer
    timestamp: TimestampAnswer
    raise_start: RaiseStartAnswer
    error: CallError
    waits: ClientWaits
    token: TokenAnswer
    def __init__(self, call_id: _Optional[int] = ..., hello: _Optional[_Union[CoreHello, _Mapping]] = ..., views: _Optional[_Union[Views, _Mapping]] = ..., barrier: _Optional[_Union[BarrierAnswer, _Mapping]] = ..., watermarks: _Optional[_Union[PartitionMarks, _Mapping]] = ..., read: _Optional[_Union[ReadAnswer, _Mapping]] = ..., timestamp: _Optional[_Union[TimestampAnswer, _Mapping]] = ..., raise_start: _Optional[_Union[RaiseStartAnswer, _Mapping]] = ..., error: _Optional[_Union[CallError, _Mapping]] = ..., waits: _Optional[_Union[ClientWaits, _Mapping]] = ..., token: _Optional[_Union[TokenAnswer, _Mapping]] = ...) -> None: ...

"""Settings records as values: one key each, with JSON values in final format. Pure.

Keys (docs/reference/formats.md): cluster, store/<uuid>, topic/<topic id>, deletion/<topic id>,
start|trim|holes|divergence|discard|history/<topic id>/<partition>, service/<node id>, reader/<gRPC
address>, freeze, freeze/<topic id>, copy-limit, copy-limit/<node id>. Every value has v, kind,
node_id, leader_epoch, writer, time_ms. Fields that this version does not know are kept in `extra`
and written again. The view decides which settings record counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kip405.ids import PartitionKey, Uuid
from kip405.lineage import Lineage
from kip405.segments import Layout
from rlmm.formats import Formats
from rlmm.ledger import Hole

NO_LEADER_EPOCH = -1
"""`leader_epoch` of settings records that no partition leader writes: cluster, store, service,
freeze, copy-limit.
"""

MODES = ("copy", "tier")
TOPIC_STATES = ("enabled", "kept", "deleting")
DELETION_GONE = "gone"
DELETION_PURGE = "purge"
DELETION_DISABLE = "disable"
KEPT_LEFTOVERS = "leftovers"
"""`deletion_cause` of a topic that is kept though nobody decided that (rlm/topics/leftovers.py)."""
DIVERGENCE_ACTIONS = ("adopt", "discard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The writer of a settings record, its leader epoch, and the time."""

    node_id: int
    leader_epoch: int
    writer: Uuid
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """Identity of the cluster and of this product's two topics, and the default store of topics."""

    KIND: ClassVar[str] = "cluster"
    cluster_id: str
    ledger_topic_id: Uuid
    settings_topic_id: Uuid
    default_store_id: Uuid | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRecord:
    """One store: the plugin that serves it, its uri, and the prefix of every object.

    `names`: what configurations call it; a name refers to one store permanently. Written only if
    there are any.
    """

    KIND: ClassVar[str] = "store"
    store_id: Uuid
    plugin: str
    uri: str
    prefix: str
    names: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.store_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalRetention:
    """How long and how much of a partition is kept in both tiers together; -1 = unlimited."""

    retention_ms: int = -1
    retention_bytes: int = -1

    def laxer(self, other: "TotalRetention") -> "TotalRetention":
        """The longer time and the larger size of both."""
        return TotalRetention(
            retention_ms=_laxer(self.retention_ms, other.retention_ms),
            retention_bytes=_laxer(self.retention_bytes, other.retention_bytes),
        )


def _laxer(one: int, other: int) -> int:
    return -1 if min(one, other) < 0 else max(one, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadThresholds:
    """When closed segments are copied, and how long brokers keep them then; None = not set here.

    `copy_lag_*`: remote.copy.lag.ms and .bytes of KIP-1241, -1 = as local retention.
    `deletion_lag_ms`: offload.deletion.lag.ms of PIP-17.
    """

    copy_lag_ms: int | None = None
    copy_lag_bytes: int | None = None
    deletion_lag_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBack:
    """A taken-over retention was given back to the brokers, as a disk of theirs was nearly full.

    `limits`: values of retention.ms or .bytes that this product sets on the topic meanwhile,
    `former_limits` those that it set before. `ended_ms` (wall): when the retention was taken over
    again, None = it is given back now.
    """

    limits: Mapping[str, str]
    since_ms: int
    ended_ms: int | None = None
    former_limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """Decisions for a topic. Retention in ms and bytes, -1 = unlimited, local -2 = as total.

    `originals`: the topic-level configs before this product altered any, or as another tool set
    them since (None = was not set there); never a value that this product set (H14).

    `enforced`: data beyond it may be deleted, if it is beyond `total` too. A shorter retention is
    enforced some time after it was decided (`DeletionRecord`). None = a version that does not know
    this field wrote the record, so nothing may be deleted yet.

    `layout`: of its new segments; None = as the configuration's rules say.
    """

    KIND: ClassVar[str] = "topic"
    topic_id: Uuid
    name: str
    mode: str
    state: str
    trim: bool
    retention_ms: int
    retention_bytes: int
    local_retention_ms: int
    local_retention_bytes: int
    originals: Mapping[str, str | None] = field(default_factory=dict)
    enforced: TotalRetention | None = None
    deletion_cause: str = ""
    offload: OffloadThresholds = OffloadThresholds()
    given_back: GivenBack | None = None
    layout: Layout | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _one_of("mode", self.mode, MODES)
        _one_of("state", self.state, TOPIC_STATES)

    @property
    def total(self) -> TotalRetention:
        """The total retention that was decided."""
        return TotalRetention(retention_ms=self.retention_ms, retention_bytes=self.retention_bytes)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.topic_id}"

    def is_named(self, name: str) -> bool:
        """Whether it has this name or id."""
        return name in (self.name, str(self.topic_id))


DELETES_BY_RETENTION = "retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionRecord:
    """A decision that makes data of a topic deletable, which may still be undone: its data is kept
    for `delay_ms` after this record was appended.

    `what`: retention (a shorter total retention); later versions may have others. `decided_ms` is
    by the writer's clock and only shown.
    """

    KIND: ClassVar[str] = "deletion"
    topic_id: Uuid
    what: str
    by: str
    delay_ms: int
    decided_ms: int
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.topic_id}"


CAUSE_ENABLE = "enable"
CAUSE_RETENTION = "retention"
CAUSE_DELETE_RECORDS = "delete-records"
CAUSE_COMMAND = "command"
STOPS_TRIM, STOPS_DELETE, STOPS_SWEEP = "trim", "delete", "sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """Remote log start offset of a partition; it only ever rises (H2). `cause`: enable, retention,
    delete-records, command.

    `decided_epoch`: leader epoch under which it was decided; the stamp's epoch is that of its last
    writer, which may have republished it. None = an older version wrote it without the epoch (H4).
    """

    KIND: ClassVar[str] = "start"
    partition: PartitionKey
    remote_log_start_offset: int
    cause: str
    decided_epoch: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimRecord:
    """Trim intent: the local log is about to start at `bound`, planned under `planned_epoch`."""

    KIND: ClassVar[str] = "trim"
    partition: PartitionKey
    bound: int
    planned_epoch: int
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HolesRecord:
    """Offsets of a partition that are in no tier (H15), ascending."""

    KIND: ClassVar[str] = "holes"
    partition: PartitionKey
    holes: tuple[Hole, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceRecord:
    """An operator's decision on a frozen partition (H4): where the history of `epoch` ends from now
    on.
    """

    KIND: ClassVar[str] = "divergence"
    partition: PartitionKey
    action: str
    epoch: int
    offset: int
    cause: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _one_of("action", self.action, DIVERGENCE_ACTIONS)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.partition}"


NO_RECORD_YET = -1
"""`last_epoch` of a log that had no records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardRecord:
    """An operator's decision to give up all that is remote of a frozen partition (H4). It is
    deleted `delay_ms` after this record was appended, and until then the decision can be undone.

    `epoch`: of the leader whose log stays. `last_epoch`: of that log's last record then, `offset`:
    where the log ended. `why`: the reason of the freeze. `decided_ms` is by the writer's clock and
    only shown. `former_start`: the remote log start that is removed when all is deleted, as what
    comes may be lower, and `former_start_epoch`, under which it was decided (-1 = not known); None
    = it was not removed yet. `delay_ms` is 0 then.
    """

    KIND: ClassVar[str] = "discard"
    partition: PartitionKey
    by: str
    why: str
    epoch: int
    last_epoch: int
    offset: int
    delay_ms: int
    decided_ms: int
    former_start: int | None = None
    former_start_epoch: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecord:
    """What a partition's leader knows beyond the segments (H4): why the partition is frozen (None =
    it is not), and its history, merged with the remote one. `others` are histories of earlier
    records: a replica with such a log may be elected again, and know no more than its newest
    epochs.

    The record stays once it was written: a tombstone has no leader epoch, so that of a stale leader
    could remove a newer leader's record.
    """

    KIND: ClassVar[str] = "history"
    partition: PartitionKey
    frozen: str | None
    lineage: Lineage
    others: tuple[Lineage, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRecord:
    """Heartbeat of one service; addresses by endpoint (proxy, grpc, http), each host:port. The
    stamp has the node id. `stores` are those that it is configured for and knows; None = it does
    not say. `give_back`: topics whose retention should be given back, as a log directory of this
    broker is nearly full, and the retention.bytes that would free enough there.
    """

    KIND: ClassVar[str] = "service"
    node_id: int
    listen: Mapping[str, str]
    advertised: Mapping[str, str]
    version: str
    stores: tuple[Uuid, ...] | None = None
    give_back: Mapping[Uuid, int] = field(default_factory=dict)
    formats: Formats | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRecord:
    """Heartbeat of a service without a broker, by its gRPC address (host:port): it answers reads of
    the remote tier. It is not a broker's service and never counts as one; the stamp's node id is
    -1.
    """

    KIND: ClassVar[str] = "reader"
    grpc_address: str
    http_address: str
    version: str
    formats: Formats | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.grpc_address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRecord:
    """What is stopped everywhere (STOPS_...), by whom and why; topic_id None = every topic."""

    KIND: ClassVar[str] = "freeze"
    topic_id: Uuid | None
    stopped: tuple[str, ...]
    by: str
    why: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.KIND if self.topic_id is None else f"{self.KIND}/{self.topic_id}"


LEAST_COPY_BYTES_PER_SECOND = 1 << 20
"""At this rate a segment of Kafka's default size, 1 GiB, takes 17 minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLimitRecord:
    """How many bytes a second one service copies at most, whatever it is configured for: that of a
    node, or with node_id None every service whose node has no record of its own (KIP-956).

    `decided_ms` is by the clock of the service that was asked, and only shown.
    """

    KIND: ClassVar[str] = "copy-limit"
    node_id: int | None
    bytes_per_second: int
    by: str
    decided_ms: int
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.bytes_per_second < LEAST_COPY_BYTES_PER_SECOND:
            raise ValueError(
                f"bytes_per_second {self.bytes_per_second} is below {LEAST_COPY_BYTES_PER_SECOND}"
            )

    @property
    def key(self) -> str:
        return copy_limit_key(self.node_id)


def copy_limit_key(node_id: int | None) -> str:
    """The key of a node's copy limit, or with None of that for all."""
    return CopyLimitRecord.KIND if node_id is None else f"{CopyLimitRecord.KIND}/{node_id}"


SettingsRecord = (
    ClusterRecord
    | StoreRecord
    | TopicRecord
    | DeletionRecord
    | StartRecord
    | TrimRecord
    | HolesRecord
    | DivergenceRecord
    | DiscardRecord
    | HistoryRecord
    | ServiceRecord
    | ReaderRecord
    | FreezeRecord
    | CopyLimitRecord
)

FENCED_RECORDS = (
    TopicRecord,
    DeletionRecord,
    DiscardRecord,
    HistoryRecord,
    DivergenceRecord,
    HolesRecord,
    CopyLimitRecord,
)
"""Settings records whose late record could undo a newer one. Heartbeats only go on, starts only
rise, and a freeze that lands late errs on the safe side: each stops the same.
"""


def topic_of(record: SettingsRecord) -> Uuid | None:
    """The topic that a settings record is about, None = none."""
    match record:
        case TopicRecord() | DeletionRecord() | FreezeRecord():
            return record.topic_id
        case StartRecord() | TrimRecord() | HolesRecord() | HistoryRecord():
            return record.partition.topic_id
        case DivergenceRecord() | DiscardRecord():
            return record.partition.topic_id
        case _:
            return None


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{what} {value!r} is none of {', '.join(allowed)}")

"""The values and narrow Protocols that the API needs of the rest of the service.

The composition root provides them: the tasks and snapshots behind `PartitionStatuses`, the copy
task behind `CopyNow`, and this service's broker, settings and ledger directly.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kip405.ids import PartitionKey, Uuid
from rlm.broker.answers import LocalRecords, OwnOffsets
from rlm.broker.leadership import LedPartition
from rlm.config.running import SettingChanges
from rlm.plans.coverage import LostRange
from rlm.plans.deletions import PendingDeletion
from rlm.plans.explanation import Explanation
from rlm.plans.problems import Problem
from rlm.plans.remote_extent import RemoteExtent
from rlm.stores.reports import StoreReport
from rlm.topics.discards import DiscardPlan, PendingDiscard
from rlm.topics.ports import Broker as TopicBroker
from rlm.topics.purge import TopicEnd
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import TopicRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """All that `rlm status` shows of one partition. Offsets are half-open; -1 = not known yet.

    `remote_next_offset` is the first offset after the remote data of the lineage, -1 without any.
    `lag_*` are closed segments that are not remote yet, None where that is not known. The texts are
    empty when all is well: `copy_reason` and `trim_reason` say why nothing is copied or trimmed
    now, `expiry_reason` what total retention does, `frozen` why the partition is frozen (H4).
    `holes` on record above the remote log start have `hole_offsets` lost offsets (H15), the lowest
    of them in `hole_ranges`; `unfinished_copies` are ranges whose copy has begun, the lowest too;
    `loss_at_ms` (wall time) is when the broker's own retention deletes records that are not remote,
    None where that is not to come, or not known. `ledger_segments` are in whatever state, of them
    `deleting_segments` in DELETE_SEGMENT_STARTED. `lag_oldest_ms` (wall time) is the newest record
    of the first segment of the lag; `behind_since_ms` (monotonic) since when there is a lag and
    none was copied, apart from what waits as its topic says. Both None without a known lag.
    """

    topic: str
    topic_id: Uuid
    partition: int
    leader: int
    leader_epoch: int
    remote_log_start_offset: int = -1
    remote_next_offset: int = -1
    local_log_start_offset: int = -1
    last_stable_offset: int = -1
    high_watermark: int = -1
    log_end_offset: int = -1
    lag_bytes: int | None = None
    lag_segments: int | None = None
    last_error: str = ""
    copy_reason: str = ""
    trim_reason: str = ""
    expiry_reason: str = ""
    frozen: str = ""
    remote_size_bytes: int = 0
    remote_segments: int = 0
    alarms: tuple[str, ...] = field(default=())
    holes: int = 0
    hole_offsets: int = 0
    hole_ranges: tuple[tuple[int, int], ...] = ()
    unfinished_copies: tuple[tuple[int, int], ...] = ()
    unfinished_copy_bytes: int = 0
    local_size_bytes: int | None = None
    loss_at_ms: int | None = None
    ledger_segments: int = 0
    deleting_segments: int = 0
    lag_oldest_ms: int | None = None
    behind_since_ms: int | None = None
    key: PartitionKey = field(init=False, compare=False, repr=False)
    """Kept, as whatever is made of a status is found by it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", PartitionKey(self.topic_id, self.partition))

    def loss_in_ms(self, now_ms: int) -> int | None:
        """Time left until `loss_at_ms`; 0 = any moment."""
        return None if self.loss_at_ms is None else max(0, self.loss_at_ms - now_ms)

    @property
    def is_frozen(self) -> bool | None:
        """None before the first snapshot under this leadership."""
        is_known = self.log_end_offset >= 0
        return bool(self.frozen) if self.frozen or is_known else None


class ConfigReload(Protocol):
    """Reloads the settings of this service (rlm/service/reloading.py)."""

    async def reload(self) -> SettingChanges:
        """Invalid: they cannot be used, and nothing was changed."""
        ...


class PartitionStatuses(Protocol):
    """Status of the partitions of tiered topics that this service's broker leads."""

    def led(self, problems: Sequence[Problem]) -> Sequence[PartitionStatus]:
        """The last known status, with the alarms among the present problems; never waits. A status
        that is unchanged is the same object.
        """
        ...

    async def current(self, key: PartitionKey) -> PartitionStatus:
        """A new status. Fenced: not led here. Unavailable: something is not up to date yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOutcome:
    """`first_uncopied_offset`, and the reason why copying stopped there."""

    first_uncopied_offset: int
    reason: str


class Explanations(Protocol):
    """Explains partitions that this service's broker leads (rlm.service.explanation)."""

    async def explain(self, led: LedPartition, offset: int | None) -> Explanation:
        """By a new snapshot; `offset` None = the partition as a whole. Fenced: not led here.
        Unavailable: something is not up to date yet.
        """
        ...


class CopyNow(Protocol):
    """Runs the copy task of a partition at once."""

    async def copy_now(self, key: PartitionKey, up_to_offset: int | None) -> CopyOutcome:
        """Copy closed segments up to an offset (exclusive; None = all that is eligible).

        Answers when done or when nothing more is eligible. Fenced: not led here. Busy: the queue is
        full. What the task raises passes.
        """
        ...


class Broker(TopicBroker, OwnOffsets, Protocol):
    """The direct listener of this service's broker (rlm.broker.OwnBroker)."""

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        leader_epoch: int = -1,
        read_committed: bool = False,
        max_wait_ms: int = 0,
    ) -> LocalRecords: ...


class Ledger(Protocol):
    """The metadata of segments (the manager of rlmm)."""

    def ledger(self, key: PartitionKey) -> PartitionLedger: ...

    def partitions(self) -> tuple[PartitionKey, ...]:
        """Every user partition that has a record."""
        ...

    async def barrier(self, key: PartitionKey, deadline_ms: int) -> None:
        """Returns once the view has passed an end offset taken after this call."""
        ...


class StoreDoctor(Protocol):
    """Inspects the set-up of the stores (rlm.service.dependencies.ServiceStores)."""

    async def inspect(self) -> Sequence[StoreReport]:
        """New reports; the report of a store that does not answer says so."""
        ...


class Pending(Protocol):
    """Deletions that can still be undone (rlm.topics.deletions)."""

    def __call__(self, record: TopicRecord) -> PendingDeletion | None:
        """What is pending for a topic, None = nothing."""
        ...


class PendingDiscards(Protocol):
    """Remote parts of frozen partitions that are given up (rlm.topics.discards)."""

    def pending(self, topic: str = "") -> tuple[PendingDiscard, ...]:
        """The decisions on record; `topic` empty = of all topics."""
        ...


class Problems(Protocol):
    """The problems of this service now, alarms first; empty = none."""

    def __call__(self) -> Sequence[Problem]: ...


class Losses(Protocol):
    """Data that is lost permanently, and may be accepted as lost (rlm.tasks.accept_loss)."""

    async def accept(
        self, key: PartitionKey, *, by: str, apply: bool, without: Collection[Uuid]
    ) -> tuple[LostRange, ...]: ...


class Purge(Protocol):
    """Deleted topics with remote data (rlm.topics.purge)."""

    def listed(self) -> tuple[TopicEnd, ...]: ...

    def extent(self, topic_id: Uuid) -> RemoteExtent: ...

    async def confirm(self, names: Sequence[str]) -> None: ...

    async def keep(self, name: str) -> tuple[TopicRecord, ...]: ...


class CommandAudit(Protocol):
    """Writes down commands (rlm.tasks.audit_log)."""

    async def command_given(
        self,
        *,
        command: str,
        by: str,
        is_proven: bool,
        address: str,
        request: Mapping[str, Any],
    ) -> None:
        """Returns once the line is on disk. Unavailable: it is not."""
        ...


class Discards(PendingDiscards, Protocol):
    """Partitions that are discarded, with what an operator decides."""

    async def plan(self, key: PartitionKey) -> DiscardPlan: ...

    async def decide(self, key: PartitionKey, *, by: str) -> DiscardPlan: ...

    async def undo(self, key: PartitionKey) -> None: ...

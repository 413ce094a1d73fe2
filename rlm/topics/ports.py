"""The Protocols that the topic verbs depend on (settings, brokers, groups, disk), and their errors.

The implementations are rlmm's Settings and manager, rlm.broker.OwnBroker, `cluster` and
`local_logs` here; tests use fakes. An error class that carries more than a message is defined here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kip405.errors import Fenced
from kip405.ids import PartitionKey
from rlm.broker.answers import TopicConfigValue, TopicDescription
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import SettingsRecord
from rlmm.settings_view import SettingsView


class Settings(Protocol):
    """The settings topic (rlmm.settings.Settings)."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def problem(self) -> str | None:
        """Why nothing may be deleted or trimmed now."""
        ...

    def damage_of_start(self, partition: PartitionKey) -> str | None:
        """Why what was read of a partition's remote log start may not be all there is
        (rlmm.metadata_log): no mere lack of an answer, which a barrier shows.
        """
        ...

    @property
    def view(self) -> SettingsView: ...

    async def barrier(self, deadline_ms: int) -> None:
        """Returns once the view has all that was published before the call."""
        ...

    async def publish(
        self, record: SettingsRecord, leader_epoch: int = -1, seen: int | None = None
    ) -> None:
        """Returns once the settings record was read back and counts; Fenced where it does not.
        `seen`: `view.next_offset` when it was decided.
        """
        ...

    async def tombstone(self, key: str, leader_epoch: int = -1, seen: int | None = None) -> None:
        """Remove a settings record; returns when that was read back. Fenced, `seen`: as
        `publish`.
        """
        ...


class Broker(Protocol):
    """Our own broker's direct listener (rlm.broker.OwnBroker)."""

    async def topic(self, name: str) -> TopicDescription: ...

    async def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]: ...

    async def topic_config(self, topic: str) -> Mapping[str, TopicConfigValue]: ...

    async def alter_topic_config(
        self,
        topic: str,
        *,
        set_values: Mapping[str, str],
        unset: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None: ...


class LeaderOffsets(Protocol):
    """ListOffsets from the broker that leads a partition; a read, so routing it is harmless."""

    async def offset(self, topic: TopicDescription, partition: int, timestamp: int) -> int:
        """The offset, -1 where nothing matches; Unavailable without a leader."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """The committed offset of a group in a partition."""

    group: str
    partition: int
    offset: int


class Groups(Protocol):
    """Groups of all brokers that commit offsets of a topic."""

    async def committed(self, topic: TopicDescription) -> tuple[GroupOffset, ...]:
        """Committed offsets of classic, consumer and streams groups."""
        ...


class ShareGroups(Protocol):
    """Start offsets of share groups (rlm.broker.share_groups.BrokerShareGroups)."""

    async def starts_now(self, topic: str) -> Mapping[int, int]:
        """By partition, the lowest start offset of any share group that reads it; requested now."""
        ...


class Ledger(Protocol):
    """The metadata of segments (rlmm's manager)."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def problem(self) -> str | None:
        """Why nothing may be deleted or trimmed now (H6)."""
        ...

    def damage_of(self, key: PartitionKey) -> str | None:
        """The same of the partition's segments."""
        ...

    def ledger(self, key: PartitionKey) -> PartitionLedger: ...

    async def barrier(self, key: PartitionKey, deadline_ms: int) -> None: ...

    def partitions(self) -> tuple[PartitionKey, ...]:
        """Every user partition that has a record."""
        ...


class Disk(Protocol):
    """Space of this broker's log.dirs."""

    async def free_bytes(self) -> int: ...


class NotLeader(Fenced):
    """Another service must do this: that of the broker which leads the partition."""

    def __init__(self, message: str, *, leader: int) -> None:
        super().__init__(message)
        self.leader = leader

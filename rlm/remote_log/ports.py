"""The narrow Protocols that the tasks depend on: ledger, settings, stores, our own broker.

The implementations are rlmm's manager and settings, rlm.stores and rlm.broker.OwnBroker; tests use
fakes.
"""

from collections.abc import Mapping
from typing import Protocol

from kip405.contracts import RemoteLogMetadataManager, RemoteStorageManager
from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from rlm.broker.answers import LocalRecords, OwnOffsets, TopicConfigValue, TopicDescription
from rlm.stores.stores import CopyTarget
from rlmm.ledger import PartitionLedger, SegmentEntry
from rlmm.settings_records import SettingsRecord
from rlmm.settings_view import SettingsView


class Ledger(RemoteLogMetadataManager, Protocol):
    """The segment metadata (rlmm's manager)."""

    @property
    def problem(self) -> str | None:
        """Why nothing may be deleted or trimmed (H6); None = the ledger is sound."""
        ...

    @property
    def damage(self) -> str | None:
        """Why what was read may not be all there is (rlmm.metadata_log): no mere lack of an answer,
        which a barrier shows.
        """
        ...

    def damage_of(self, key: PartitionKey) -> str | None:
        """The same of the records of one partition."""
        ...

    def ledger(self, key: PartitionKey) -> PartitionLedger: ...

    def entry(self, segment_id: RemoteLogSegmentId) -> SegmentEntry | None:
        """One entry of its partition's ledger, without the work for the others."""
        ...

    async def repair(self, key: PartitionKey, leader_epoch: int) -> int:
        """Republish the lawful record of every disputed segment (H3); returns their number."""
        ...


class Settings(Protocol):
    """The settings topic."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def problem(self) -> str | None: ...

    def damage_of_start(self, partition: PartitionKey) -> str | None:
        """Why what was read of a partition's remote log start may not be all there is."""
        ...

    @property
    def view(self) -> SettingsView: ...

    async def barrier(self, deadline_ms: int) -> None: ...

    async def publish(self, record: SettingsRecord, leader_epoch: int) -> None:
        """Returns once the settings record was read back and counts; Fenced where it does not."""
        ...

    async def tombstone(self, key: str, leader_epoch: int = -1, seen: int | None = None) -> None:
        """Remove a settings record; returns when that was read back. Fenced where it does not
        count. `seen`: `view.next_offset` when it was decided.
        """
        ...

    async def reassert(self, partition: PartitionKey, leader_epoch: int) -> int:
        """Republish the partition's settings records that newer, overruled records contradict;
        returns how many.
        """
        ...


class Stores(Protocol):
    """The configured stores of this service (rlm.stores.Stores)."""

    def manager(self, store_id: Uuid) -> RemoteStorageManager:
        """The plugin that is configured for a store; Unavailable names a store without one.

        The caller must check whether the plugin still serves that store (H11).
        """
        ...


class Targets(Protocol):
    """The target store of new segments, by the rules of the configuration (rlm.stores.Targets)."""

    def target(self, partition: TopicIdPartition) -> CopyTarget:
        """Unavailable: the store is not known (yet). Invalid: the rules name no store."""
        ...


class Broker(OwnOffsets, Protocol):
    """Our own broker's direct listener."""

    async def topic(self, name: str) -> TopicDescription: ...

    async def topic_config(
        self, topic: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, TopicConfigValue]: ...

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, leader_epoch: int = -1
    ) -> LocalRecords: ...


class ShareGroups(Protocol):
    """Start offsets of share groups, which a trim must not pass (H19)."""

    async def start_offset(self, topic: str, partition: int) -> int | None:
        """Lowest start offset of any share group that reads the partition; None for none.

        The answer may be a few seconds old.
        """
        ...

    async def starts_now(self, topic: str) -> Mapping[int, int]:
        """The same by partition, asked now."""
        ...


class ClusterRetention(Protocol):
    """What the brokers say of their own retention of a topic (G1)."""

    async def bounded(self, topic: str) -> str | None:
        """The brokers whose own retention of the topic is not off, and their values, by the answer
        of every live broker; None = it is off at all of them.

        The answer may be a few seconds old. RemoteStorageError: some broker did not answer.
        """
        ...

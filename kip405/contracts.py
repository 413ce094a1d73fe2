"""The two contracts of KIP-405 as Protocols, with their guarantees.

A RemoteStorageManager keeps objects and knows nothing of the ledger. Stores and the gRPC client
implement all of it; a caller declares the narrow Protocol that it needs (reader, writer, admin). A
RemoteLogMetadataManager keeps the metadata of segments and knows no store. Errors are
kip405.errors, nothing else. Source: the interfaces of these names in
org.apache.kafka.server.log.remote.storage.
"""

import enum
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kip405.crc import ByteBuffer
from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import (
    ByteRange,
    FileSlice,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentLocator,
)


class IndexType(enum.Enum):
    """Sections of the indexes object; the numbers are the format's (docs/reference/formats.md)."""

    OFFSET = 0
    TIMESTAMP = 1
    PRODUCER_SNAPSHOT = 2
    TRANSACTION = 3
    LEADER_EPOCH = 4
    ABORTED_TRANSACTIONS = 16
    CHUNK_CHECKSUMS = 17
    REMOTE_LOG_INDEX = 18


class Presence(enum.Enum):
    COMPLETE = "complete"
    MISSING = "missing"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """Content of rlm-store.json: which store this is and which cluster owns it (H11)."""

    store_id: Uuid
    cluster_id: str
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSegment:
    """The expected state of a complete segment in the store; sizes in bytes."""

    locator: SegmentLocator
    log_size_bytes: int
    indexes_size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPresence:
    """Answer of stat for one segment; `detail` names the object that is missing or different."""

    presence: Presence
    manifest_present: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object found by listing; `name` is the key below the store's prefix, with slashes."""

    name: str
    size_bytes: int
    modified_ms: int


class FindingKind(enum.Enum):
    """What a store can report about itself that bears on the safety of the data in it (H11)."""

    VERSIONING = "versioning"
    OBJECT_LOCK = "object_lock"
    LIFECYCLE_EXPIRY = "lifecycle_expiry"
    MULTIPART_ABORT = "multipart_abort"
    FREE_SPACE = "free_space"
    REPLICATION = "replication"


NEEDED_VERSIONS = "Enabled, as the layout pinterest needs it"
UNFIT_VERSIONS = "unfit"
"""States of the versioning of a store whose segments are versions of objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFinding:
    """One fact about the present set-up of the store; values only, the caller evaluates them.

    `state` is the store's own term ("Enabled", "absent", "unknown: <why it could not be read>").
    `days` is a period where the kind has one (expiry, abort, lock), `applies_to` the key prefix to
    which it is limited ("" = everything), `value` a number in the kind's unit (bytes, copies).
    """

    kind: FindingKind
    state: str
    days: int | None = None
    applies_to: str = ""
    value: int | None = None


class SegmentReader(Protocol):
    """Reads the bytes of segments; all that the read path needs."""

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> ByteBuffer | FileSlice:
        """The range clipped to the object's size, in memory or as a slice of a file that caller and
        store can both read.
        """
        ...

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """The whole indexes object, unchecked: the caller knows its CRC-32C from the custom
        metadata.
        """
        ...


class SegmentWriter(Protocol):
    """Writes one copy attempt: log and indexes first, the manifest last."""

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        """Store log and indexes object durably, whole or not at all visible under their names.

        Idempotent: existing objects of the same locator are overwritten. Returns the plugin's own
        metadata (<= 64 bytes). Corrupt where the bytes stored do not have the CRC-32C given.
        """
        ...

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        """Store the manifest durably. Called last; only then is a segment complete."""
        ...


class StoreAdmin(Protocol):
    """Finds out which store this is and what it has, and removes objects.

    These calls decide what is trimmed, adopted or deleted. The manifest is read here and not by
    SegmentReader: it proves that a segment is complete, and the read path never needs it.
    """

    async def read_identity(self) -> StoreIdentity | None:
        """The store's identity object, None where it was never created; Corrupt if unreadable."""
        ...

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        """Write the identity only if there is none; returns the one that is there afterwards."""
        ...

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        """The manifest's bytes; NotFound where the attempt never got that far."""
        ...

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        """Presence and size of log, indexes and manifest of each, in the order asked, seen in the
        store now.
        """
        ...

    def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        """Every object below the cluster, or of one partition, in the order of names."""
        ...

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        """Remove the manifest first, then log and indexes; an object that is already missing is no
        error.
        """
        ...

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        """Remove many, each as `delete_log_segment_data` does, in as few requests as the store has.

        Answers for each in the order given: None, or why something of it may still be there. An
        error that concerns all may be raised instead.
        """
        ...

    async def inspect(self) -> tuple[StoreFinding, ...]:
        """How the store is set up, as far as it reports it: see FindingKind. Never fails for one
        value that cannot be read: its `state` says why.
        """
        ...


class RemoteStorageManager(SegmentReader, SegmentWriter, StoreAdmin, Protocol):
    """What a store implements. Every method is safe to call concurrently and to repeat."""

    async def close(self) -> None:
        """Release connections and files. Only the owner, which opened the store, calls it; so it is
        in none of the narrower Protocols.
        """
        ...


class RemoteLogMetadataManager(Protocol):
    """Records the metadata of segments, strongly consistent: what a method has written, every view
    taken later shows.

    Source: org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager of Kafka 4.3. Each
    method has a caller in the product. Where Kafka's own would serve no caller well:

    - `publish` stands for addRemoteLogSegmentMetadata and updateRemoteLogSegmentMetadata. The log
      of metadata is compacted, so each record is a whole segment, and no update is a delta. A
      writer names the leader epoch and the state by which it decided: both may be over by now (H3).
    - putRemotePartitionDeleteMetadata has its leader epoch too, since the partition of a deleted
      topic has no leader.
    - onPartitionLeadershipChanges and onStopPartitions are not needed: the epoch comes with each
      write, and every process reads the metadata of every partition, whoever leads it.
    - remoteLogSegmentMetadata, highestOffsetForEpoch, listRemoteLogSegments and remoteLogSize ask
      for one leader epoch. Here one immutable view of the partition answers all questions of a
      decision (rlmm.ledger.PartitionLedger), for the whole merged lineage and up to the log's end
      (H4). It knows holes (H15) and disputed segments (H3), and counts offsets once where segments
      overlap.
    - nextSegmentWithTxnIndex is not needed: each segment is stored with the complete list of its
      aborted transactions, those included that a later segment ends (H9).
    - isReady is of all partitions together.
    """

    @property
    def is_ready(self) -> bool:
        """Everything that was there at the start has been read."""
        ...

    async def barrier(self, key: PartitionKey, deadline_ms: int) -> None:
        """Returns once views of the partition have all that was published before this call;
        Unavailable after `deadline_ms`.
        """
        ...

    async def publish(
        self, metadata: RemoteLogSegmentMetadata, leader_epoch: int, expected_previous: int
    ) -> None:
        """Record a segment's new state; returns once it was read back as the newest of its key.

        `expected_previous`: id of the state the writer acts on, -1 = none. FINISHED is allowed
        after any state: a correction may bring data back (adoption, H6). Invalid: another change
        that LAWFUL_SEGMENT_CHANGES does not have. Fenced: another writer was newer, or the
        partition is being deleted. Unavailable: not written. An error that says that the outcome is
        unknown (H10): pass a barrier, then look.
        """
        ...

    async def tombstone(self, segment_id: RemoteLogSegmentId, leader_epoch: int) -> None:
        """Remove a segment after DELETE_SEGMENT_FINISHED; errors as `publish`."""
        ...

    async def put_remote_partition_delete_metadata(
        self, metadata: RemotePartitionDeleteMetadata, leader_epoch: int
    ) -> None:
        """Record how far the deletion of a partition has come, under the epoch of its leader, or
        the newest one known where it has none any more; returns once that was read back.

        Invalid: a change that LAWFUL_PARTITION_CHANGES does not have. Other errors as `publish`.
        """
        ...

    async def tombstone_partition_delete(self, key: PartitionKey, leader_epoch: int) -> None:
        """Remove the partition-delete record: the deletion is over, or was revoked before anything
        was deleted. Errors as `publish`.
        """
        ...

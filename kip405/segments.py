"""Remote log segments as values: metadata, the custom-metadata envelope, sources and locations.

Offsets in RemoteLogSegmentMetadata are Kafka's: end_offset is inclusive; `next_offset` is the
half-open end. Sources: org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
docs/reference/formats.md.
"""

import enum
import struct
from dataclasses import dataclass, field, replace

from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid


class RemoteLogSegmentState(enum.IntEnum):
    """The ids are Kafka's and are stored."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(enum.IntEnum):
    """States of the deletion of a whole partition; the ids are Kafka's."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED

LAWFUL_SEGMENT_CHANGES: dict[RemoteLogSegmentState | None, frozenset[RemoteLogSegmentState]] = {
    None: frozenset({_STARTED}),
    _STARTED: frozenset({_STARTED, _FINISHED, _DELETING}),
    _FINISHED: frozenset({_FINISHED, _DELETING}),
    _DELETING: frozenset({_DELETING, _DELETED}),
    _DELETED: frozenset({_DELETED}),
}


def is_lawful_change(before: RemoteLogSegmentState | None, after: RemoteLogSegmentState) -> bool:
    """Whether Kafka's state machine allows `after` to follow `before` (None = no record yet)."""
    return after in LAWFUL_SEGMENT_CHANGES[before]


_MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
_REMOVING = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
_REMOVED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED

LAWFUL_PARTITION_CHANGES: dict[
    RemotePartitionDeleteState | None, frozenset[RemotePartitionDeleteState]
] = {
    None: frozenset({_MARKED}),
    _MARKED: frozenset({_MARKED, _REMOVING}),
    _REMOVING: frozenset({_REMOVING, _REMOVED}),
    _REMOVED: frozenset({_REMOVED}),
}
"""Source: RemotePartitionDeleteState.isValidTransition (None = no record yet)."""

CUSTOM_METADATA_MAX_BYTES = 128
PLUGIN_METADATA_MAX_BYTES = 64
ENVELOPE_VERSION = 1
_ENVELOPE = struct.Struct(">BB16sBIII")
LAYOUT_AT = 1
"""Where the envelope has its layout byte."""
_UINT32_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class EpochEntry:
    """A leader epoch and the first offset written under it."""

    epoch: int
    start_offset: int


class Layout(enum.IntEnum):
    """How the objects of a segment are named and written; the ids are stored. A layout's text is
    that of settings, commands and manifests.
    """

    KAFKA = 0
    BLOCKS = 1
    PINTEREST = 2

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """The layout of that text; ValueError names all of them."""
        for layout in cls:
            if str(layout) == text:
                return layout
        raise ValueError(f"layout {text!r} is none of {', '.join(map(str, cls))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetadata:
    """The envelope around the plugin's bytes; sizes and checksums are 0 in COPY_SEGMENT_STARTED."""

    store_id: Uuid
    entropy_bits: int = 0
    indexes_size_bytes: int = 0
    log_crc32c: int = 0
    indexes_crc32c: int = 0
    plugin: bytes = b""
    layout: Layout = Layout.KAFKA

    def __post_init__(self) -> None:
        if len(self.plugin) > PLUGIN_METADATA_MAX_BYTES:
            raise ValueError(f"plugin metadata has {len(self.plugin)} bytes, at most 64 allowed")
        if not 0 <= self.entropy_bits <= 32:
            raise ValueError(f"entropy bits {self.entropy_bits} not in 0..32")
        for number in (self.indexes_size_bytes, self.log_crc32c, self.indexes_crc32c):
            if not 0 <= number <= _UINT32_MAX:
                raise ValueError(f"{number} is no uint32 (size or checksum of a segment)")

    def encode(self) -> bytes:
        """u8 version, u8 layout, 16 bytes store, u8 entropy bits, three uint32, then the plugin's
        bytes.
        """
        head = _ENVELOPE.pack(
            ENVELOPE_VERSION,
            self.layout,
            self.store_id.raw,
            self.entropy_bits,
            self.indexes_size_bytes,
            self.log_crc32c,
            self.indexes_crc32c,
        )
        return head + self.plugin

    @classmethod
    def decode(cls, data: bytes) -> "CustomMetadata":
        """ValueError names what is wrong: too short, unknown version or layout."""
        if len(data) < _ENVELOPE.size:
            raise ValueError(
                f"custom metadata has {len(data)} bytes, at least {_ENVELOPE.size} needed"
            )
        version, layout, store, bits, indexes_size, log_crc, indexes_crc = _ENVELOPE.unpack_from(
            data
        )
        if version != ENVELOPE_VERSION:
            raise ValueError(f"custom metadata version {version} is not known")
        try:
            known_layout = Layout(layout)
        except ValueError as error:
            raise ValueError(f"object layout {layout} is not known") from error
        return cls(
            store_id=Uuid(store),
            entropy_bits=bits,
            indexes_size_bytes=indexes_size,
            log_crc32c=log_crc,
            indexes_crc32c=indexes_crc,
            plugin=bytes(data[_ENVELOPE.size :]),
            layout=known_layout,
        )


def layout_note(custom_metadata: bytes | None) -> str:
    """`layout <name>` for people, where it is known and not `kafka`; else empty."""
    if not custom_metadata:
        return ""
    try:
        layout = CustomMetadata.decode(custom_metadata).layout
    except ValueError:
        return ""
    return "" if layout is Layout.KAFKA else f"layout {layout}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadata:
    """Everything the ledger knows about one copy of one segment, in one state."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: tuple[EpochEntry, ...]
    segment_size_bytes: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    txn_index_empty: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset:
            raise ValueError(f"offsets {self.start_offset}..{self.end_offset} are no range")
        if not self.segment_leader_epochs:
            raise ValueError(f"segment {self.segment_id} has no leader epochs")
        if (
            self.custom_metadata is not None
            and len(self.custom_metadata) > CUSTOM_METADATA_MAX_BYTES
        ):
            raise ValueError(
                f"custom metadata has {len(self.custom_metadata)} bytes, at most 128 allowed"
            )

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.segment_id.topic_id_partition

    @property
    def next_offset(self) -> int:
        """First offset after the segment."""
        return self.end_offset + 1

    def custom(self) -> CustomMetadata:
        """The decoded envelope; ValueError where there is none or it is unknown."""
        if self.custom_metadata is None:
            raise ValueError(f"segment {self.segment_id} has no custom metadata")
        return CustomMetadata.decode(self.custom_metadata)

    def in_state(
        self,
        state: RemoteLogSegmentState,
        *,
        event_timestamp_ms: int,
        broker_id: int,
        custom_metadata: bytes | None = None,
    ) -> "RemoteLogSegmentMetadata":
        """The same segment in another state; custom metadata is kept unless given."""
        return replace(
            self,
            state=state,
            event_timestamp_ms=event_timestamp_ms,
            broker_id=broker_id,
            custom_metadata=self.custom_metadata if custom_metadata is None else custom_metadata,
        )

    def locator(self, cluster_id: str) -> "SegmentLocator":
        return SegmentLocator(
            cluster_id=cluster_id,
            segment_id=self.segment_id,
            start_offset=self.start_offset,
            custom_metadata=self.custom_metadata,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartitionDeleteMetadata:
    """How far the deletion of a whole partition has come, and which broker says so."""

    topic_id_partition: TopicIdPartition
    event_timestamp_ms: int
    broker_id: int
    state: RemotePartitionDeleteState


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLocator:
    """All that a store needs to find the objects of one copy attempt."""

    cluster_id: str
    segment_id: RemoteLogSegmentId
    start_offset: int
    custom_metadata: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """Half-open range of byte positions in one object."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"bytes {self.start}..{self.end} are no range")

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSlice:
    """A byte range of a file on a volume that plugin and client can both read.

    With a `keeper` the file was lent: the range may be overwritten once nothing refers to the
    keeper any more, so whoever reads the file must hold the slice until it has.
    """

    path: str
    position: int
    size_bytes: int
    keeper: object = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegmentData:
    """What one copy passes to the store: the segment file and the complete indexes object.

    `end_offset` (inclusive) is for stores that keep metadata beside objects; None: not known.
    """

    log: FileSlice
    log_crc32c: int
    indexes: bytes
    indexes_crc32c: int
    end_offset: int | None = None

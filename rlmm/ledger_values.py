"""The value of a ledger record, byte for byte as Kafka's own metadata topic has it. Pure.

It is framed as Kafka's AbstractApiMessageSerde does: `uvarint frame version 1, uvarint api key,
uvarint version 0`, then the flexible message, which is RemoteLogSegmentMetadataRecord (api key 0)
with the full state each time, or RemotePartitionDeleteMetadataRecord (api key 2). Kafka's own
formatter prints these bytes. Source: storage/src/main/resources/message/*.json (4.3).
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from kip405.batches import uvarint
from kip405.errors import Corrupt
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import (
    EpochEntry,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)

T = TypeVar("T")

_FRAME_VERSION: Final = 1
_KNOWN_KINDS: Final = ((0, 0), (2, 0))
"""Api key and version of the records that are read here."""
_FRAME: Final = b"\x01\x00\x00"
_PARTITION_DELETE_FRAME: Final = b"\x01\x02\x00"
_TXN_INDEX_EMPTY_TAG: Final = 0
_NULL: Final = 0
_INT32 = struct.Struct(">i")
_OFFSETS = struct.Struct(">qqiqq")
_EPOCH = struct.Struct(">iq")
_DELETION = struct.Struct(">iqb")
_EPOCH_MIN_BYTES: Final = _EPOCH.size + 1


def encode_value(metadata: RemoteLogSegmentMetadata) -> bytes:
    """The exact bytes of a ledger value; the manifest's `segment_metadata` holds the same."""
    out = bytearray(value_prefix(metadata.topic_id_partition))
    out += metadata.segment_id.id.raw + b"\x00"
    out += _OFFSETS.pack(
        metadata.start_offset,
        metadata.end_offset,
        metadata.broker_id,
        metadata.max_timestamp_ms,
        metadata.event_timestamp_ms,
    )
    out += uvarint(len(metadata.segment_leader_epochs) + 1)
    for entry in metadata.segment_leader_epochs:
        out += _EPOCH.pack(entry.epoch, entry.start_offset) + b"\x00"
    out += _INT32.pack(metadata.segment_size_bytes)
    custom = metadata.custom_metadata
    out += uvarint(_NULL) if custom is None else uvarint(len(custom) + 1) + custom
    out += metadata.state.to_bytes(1, "big")
    out += b"\x01\x00\x01\x01" if metadata.txn_index_empty else b"\x00"
    return bytes(out)


def encode_partition_delete(deletion: RemotePartitionDeleteMetadata) -> bytes:
    """The exact bytes of the value of a partition-delete record."""
    fields = deletion.broker_id, deletion.event_timestamp_ms, deletion.state
    partition = _partition_bytes(deletion.topic_id_partition)
    return _PARTITION_DELETE_FRAME + partition + _DELETION.pack(*fields) + b"\x00"


def value_prefix(partition: TopicIdPartition) -> bytes:
    """With what the values of the partition's segments begin."""
    return _FRAME + _partition_bytes(partition)


def _partition_bytes(partition: TopicIdPartition) -> bytes:
    name = partition.topic.encode("utf-8")
    ids = partition.topic_id.raw + _INT32.pack(partition.partition)
    return uvarint(len(name) + 1) + name + ids + b"\x00"


def decode_value(data: bytes) -> RemoteLogSegmentMetadata:
    """Checked decoding; Corrupt names what is wrong. Unknown tagged fields are read over."""
    return _decode(data, _read_record)


def decode_partition_delete(data: bytes) -> RemotePartitionDeleteMetadata:
    """Checked decoding, as `decode_value`."""
    return _decode(data, _read_partition_delete)


def _decode(data: bytes, read: Callable[["_Reader"], T]) -> T:
    try:
        reader = _Reader(data)
        value = read(reader)
    except (ValueError, struct.error, UnicodeDecodeError) as error:
        raise Corrupt(f"ledger value: {error}") from error
    if reader.position != len(data):
        raise Corrupt(f"ledger value: {len(data) - reader.position} bytes are left over")
    return value


def _read_frame(reader: "_Reader", api_key: int) -> None:
    frame = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame != (1, api_key, 0):
        raise ValueError(f"frame, api key and version are {frame}, only {(1, api_key, 0)} is known")


def _read_partition(reader: "_Reader") -> TopicIdPartition:
    topic = str(reader.sized("topic name"), "utf-8")
    topic_id = Uuid(reader.take(16))
    partition: int = reader.unpack(_INT32)[0]
    reader.tags()
    return TopicIdPartition(topic_id=topic_id, topic=topic, partition=partition)


def _read_partition_delete(reader: "_Reader") -> RemotePartitionDeleteMetadata:
    _read_frame(reader, 2)
    partition = _read_partition(reader)
    broker_id, event_timestamp_ms, state = reader.unpack(_DELETION)
    reader.tags()
    return RemotePartitionDeleteMetadata(
        topic_id_partition=partition,
        broker_id=broker_id,
        event_timestamp_ms=event_timestamp_ms,
        state=RemotePartitionDeleteState(state),
    )


def _read_record(reader: "_Reader") -> RemoteLogSegmentMetadata:
    _read_frame(reader, 0)
    partition = _read_partition(reader)
    segment = Uuid(reader.take(16))
    reader.tags()
    start, end, broker_id, max_timestamp, event_timestamp = reader.unpack(_OFFSETS)
    epochs = _read_epochs(reader)
    size: int = reader.unpack(_INT32)[0]
    custom = reader.nullable_sized("custom metadata")
    state = RemoteLogSegmentState(reader.take(1)[0])
    tags = reader.tags()
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=segment),
        start_offset=start,
        end_offset=end,
        broker_id=broker_id,
        max_timestamp_ms=max_timestamp,
        event_timestamp_ms=event_timestamp,
        segment_leader_epochs=epochs,
        segment_size_bytes=size,
        custom_metadata=custom,
        state=state,
        txn_index_empty=_read_flag(tags.get(_TXN_INDEX_EMPTY_TAG)),
    )


def _read_epochs(reader: "_Reader") -> tuple[EpochEntry, ...]:
    count = reader.uvarint() - 1
    if count < 0:
        raise ValueError("segment leader epochs are null")
    if count * _EPOCH_MIN_BYTES > reader.left:
        raise ValueError(f"{count} leader epochs cannot be in {reader.left} bytes")
    entries = []
    for _ in range(count):
        epoch, offset = reader.unpack(_EPOCH)
        reader.tags()
        entries.append(EpochEntry(epoch=epoch, start_offset=offset))
    return tuple(entries)


def _read_flag(data: bytes | None) -> bool:
    if data is None:
        return False
    if len(data) != 1:
        raise ValueError(f"a boolean has 1 byte, not {len(data)}")
    return data != b"\x00"


@dataclass(slots=True)
class _Reader:
    """Bounds-checked cursor over one value; raises ValueError where the bytes end too early."""

    data: bytes
    position: int = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise ValueError(f"{size} bytes expected at {self.position}, {self.left} are left")
        start = self.position
        self.position += size
        return self.data[start : self.position]

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError(f"a varint at {self.position} is longer than 5 bytes")

    def nullable_sized(self, what: str) -> bytes | None:
        size = self.uvarint() - 1
        if size < 0:
            return None
        if size > self.left:
            raise ValueError(f"{what} of {size} bytes, {self.left} are left")
        return self.take(size)

    def sized(self, what: str) -> bytes:
        data = self.nullable_sized(what)
        if data is None:
            raise ValueError(f"{what} is null")
        return data

    def tags(self) -> dict[int, bytes]:
        """Tagged fields of one struct; tags must ascend."""
        found: dict[int, bytes] = {}
        last = -1
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            if tag <= last:
                raise ValueError(f"tag {tag} follows tag {last}")
            last = tag
            found[tag] = self.take(self.uvarint())
        return found


def unknown_kind(value: bytes) -> str | None:
    """Api key and version where the frame is whole, and they are of no record that is known."""
    reader = _Reader(value)
    try:
        frame_version, api_key, version = (reader.uvarint() for _ in range(3))
    except ValueError:
        return None
    if frame_version != _FRAME_VERSION or (api_key, version) in _KNOWN_KINDS:
        return None
    return f"api key {api_key}, version {version}"

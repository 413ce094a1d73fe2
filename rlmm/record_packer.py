"""Ledger records as Kafka delivers them to packed bytes, without objects in between. Pure.

`pack_usual` reads what nearly every record is: a segment of a partition that was seen before, with
one leader epoch, in the bytes that `encode_value` writes. For anything else it answers None, and
the caller decodes with all checks (`records.decode_record`). It must never read other than that
does.
"""

import struct
from typing import Final, NamedTuple

from kip405.errors import Corrupt
from kip405.ids import PartitionKey
from kip405.segments import RemoteLogSegmentState
from rlmm.ledger_values import value_prefix
from rlmm.packed import (
    HAS_CUSTOM,
    HEAD_OF_ONE_EPOCH,
    TXN_INDEX_EMPTY,
    UNCERTAIN,
    Names,
    pack,
)
from rlmm.records import LedgerKey, LedgerRecord, RecordHeaders

_KEY_BYTES: Final = 36
_PARTITION_BYTES: Final = 20
_BODY = struct.Struct(">16sBqqiqqBiqBiB")
"""Segment id, its tags, offsets, broker, timestamps, count of epochs + 1, the epoch with its tags,
size, length of the custom metadata + 1.
"""
_ONE_EPOCH: Final = 2
_ONE_BYTE_VARINT: Final = 0x80
_ENDS: Final = {
    bytes([state]) + tags: (int(state), flags)
    for state in RemoteLogSegmentState
    for tags, flags in ((b"\x00", 0), (b"\x01\x00\x01\x01", TXN_INDEX_EMPTY))
}
"""By state and tags, the last bytes of a value, the state's id and flags of the packed bytes."""
_WRITERS_MOST: Final = 4_096
RawHeaders = tuple[tuple[str, bytes], ...]


class _Partition(NamedTuple):
    key: PartitionKey
    topic_index: int
    prefix: bytes


class _Writer(NamedTuple):
    leader_epoch: int
    expected_previous: int
    writer_index: int


class RecordPacker:
    """Packs the records of one ledger partition; topics and writers are remembered in `names`."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._partitions: dict[bytes, _Partition] = {}
        self._writers: dict[RawHeaders, _Writer] = {}

    def pack(self, record: LedgerRecord) -> bytes:
        """Any record of a segment; from then on those of its partition are usual."""
        metadata = record.metadata
        if metadata is not None:
            raw = LedgerKey(partition=record.key.partition, segment_id=None).encode()
            self._partitions[raw] = _Partition(
                key=record.key.partition,
                topic_index=self._names.topic_index(metadata.topic_id_partition),
                prefix=value_prefix(metadata.topic_id_partition),
            )
        return pack(record, self._names)

    def pack_usual(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: RawHeaders,
        offset: int,
        timestamp_ms: int,
    ) -> tuple[PartitionKey, bytes] | None:
        """Partition and packed bytes of a usual record, None for any other."""
        if key is None or value is None or len(key) != _KEY_BYTES:
            return None
        partition = self._partitions.get(key[:_PARTITION_BYTES])
        if partition is None or not value.startswith(partition.prefix):
            return None
        writer = self._writers.get(headers) or self._writer(headers)
        at = len(partition.prefix)
        if writer is None or len(value) < at + _BODY.size:
            return None
        segment, tags, start, end, broker, max_ms, event_ms, epochs, *rest = _BODY.unpack_from(
            value, at
        )
        epoch, epoch_start, epoch_tags, size_bytes, custom_size = rest
        at += _BODY.size
        behind = at + custom_size - 1 if custom_size else at
        found = _ENDS.get(value[behind:])
        if (
            found is None
            or custom_size >= _ONE_BYTE_VARINT
            or epochs != _ONE_EPOCH
            or tags
            or epoch_tags
            or segment != key[_PARTITION_BYTES:]
            or not 0 <= start <= end
        ):
            return None
        state_id, flags = found
        head = HEAD_OF_ONE_EPOCH.pack(
            segment,
            offset,
            writer.leader_epoch,
            state_id,
            writer.expected_previous,
            timestamp_ms,
            writer.writer_index,
            partition.topic_index,
            start,
            end,
            size_bytes,
            1,
            max_ms,
            event_ms,
            broker,
            flags | HAS_CUSTOM if custom_size else flags,
            epoch,
            epoch_start,
        )
        return partition.key, head + value[at:behind] + UNCERTAIN

    def _writer(self, headers: RawHeaders) -> _Writer | None:
        """Those of a writer are the same again and again; None where they are not lawful."""
        try:
            found = RecordHeaders.decode(headers)
        except Corrupt:
            return None
        if len(self._writers) >= _WRITERS_MOST:
            self._writers.clear()
        index = self._names.writer_index(found.writer)
        writer = _Writer(found.leader_epoch, found.expected_previous, index)
        self._writers[headers] = writer
        return writer

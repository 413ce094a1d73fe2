"""Cuts a part of a segment out as a segment of its own, with new indexes. Pure.

Index entries are spaced as a broker spaces them by default. Source: LogSegment.append,
onBecomeInactiveSegment.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kip405.batches import BatchHeader, walk
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt
from kip405.indexes import encode_transaction_index, transaction_index

INDEX_INTERVAL_BYTES = 4096
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSegment:
    """Half-open byte positions in the whole log, and the indexes of the batches between them."""

    start_position: int
    end_position: int
    offset_index: bytes
    time_index: bytes


class _Indexes:
    """Builds offset and time index batch by batch, as a log segment does on append."""

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._newest = self._written = (-1, 0)
        self._since_entry = 0
        self.size_bytes = 0
        self.offsets = bytearray()
        self.times = bytearray()

    def append(self, header: BatchHeader) -> None:
        relative = header.last_offset - self._base_offset
        if header.max_timestamp_ms > self._newest[0]:
            self._newest = (header.max_timestamp_ms, relative)
        if self._since_entry > INDEX_INTERVAL_BYTES:
            self.offsets += _OFFSET_ENTRY.pack(relative, self.size_bytes)
            self.append_time()
            self._since_entry = 0
        self._since_entry += header.size_bytes
        self.size_bytes += header.size_bytes

    def append_time(self) -> None:
        """Also once at the end, so that the newest record is found."""
        if self._newest[0] > self._written[0]:
            self.times += _TIME_ENTRY.pack(*self._newest)
            self._written = self._newest


def cut_segment(log: ByteBuffer, start_offset: int, next_offset: int) -> CutSegment:
    """The batches of [start_offset, next_offset); Corrupt where a batch crosses a border."""
    indexes = _Indexes(start_offset)
    start_position = 0
    for position, header in walk(log):
        if header.last_offset < start_offset:
            continue
        if header.base_offset >= next_offset:
            break
        if header.base_offset < start_offset or header.last_offset >= next_offset:
            raise Corrupt(
                f"batch {header.base_offset}..{header.last_offset} lies across "
                f"the border of {start_offset}..{next_offset - 1}"
            )
        if indexes.size_bytes == 0:
            start_position = position
        indexes.append(header)
    if indexes.size_bytes == 0:
        raise Corrupt(f"there is no batch in {start_offset}..{next_offset - 1}")
    indexes.append_time()
    return CutSegment(
        start_position=start_position,
        end_position=start_position + indexes.size_bytes,
        offset_index=bytes(indexes.offsets),
        time_index=bytes(indexes.times),
    )


def cut_transaction_index(data: ByteBuffer, start_offset: int, next_offset: int) -> bytes:
    """The entries of transactions whose abort is in the part, where a broker expects them."""
    return encode_transaction_index(
        entry
        for entry in transaction_index(data)
        if start_offset <= entry.aborted.last_offset < next_offset
    )


def encode_partition_metadata(topic_id: object) -> bytes:
    """partition.metadata. Source: PartitionMetadata.encode."""
    return f"version: 0\ntopic_id: {topic_id}\n".encode("ascii")


def encode_offset_checkpoint(offsets: Iterable[tuple[str, int, int]]) -> bytes:
    """Rows of topic, partition, offset. Source: OffsetCheckpointFile."""
    lines = [f"{topic} {partition} {offset}\n" for topic, partition, offset in offsets]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode("ascii")

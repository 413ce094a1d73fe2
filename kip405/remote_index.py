"""The remote index files of an early KIP-405, byte for byte; integers are big-endian.

A remotelogindex entry says where in the store a sequence of records lies: the *RDI* (remote data
identifier) is `<store id>/<object key>?<position>`. The remoteoffsetindex and the remotetimeindex
have entries as Kafka's offset index and time index, but point into the remotelogindex. The entries
of one segment, one after the other, are section 18 of its indexes object. A record of the
remotelogsegmentindex says which of the entries are of one segment, with the checksums and aborted
transactions that its readers need. Pure. Source: version 34 of KIP-405.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kip405.batches import BatchHeader
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt
from kip405.ids import Uuid

ENTRY_MAGIC: Final = 0
INTERVAL_BYTES: Final = 1 << 20
"""How much of a log one entry is for, at least, by default."""
_HEAD = struct.Struct(">hhI")  # magic, length of the whole entry, CRC-32 of what follows
_BODY = struct.Struct(">qqqqih")
_FIXED_BYTES = _HEAD.size + _BODY.size
_MOST_ENTRY_BYTES = 2**15 - 1
MOST_RDI_BYTES: Final = _MOST_ENTRY_BYTES - _FIXED_BYTES
"""KIP-405's rdiLength allows 32,767 bytes, its length of the whole entry, an int16 too, fewer."""
OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
_RECORD_HEAD = struct.Struct(">hiI")  # magic, length of the whole record, CRC-32 of what follows
_RECORD_BODY = struct.Struct(">16sqqqIiiii")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogIndexEntry:
    """Records [first_offset, last_offset] (inclusive) and where they are.

    `first_timestamp_ms` is the first record's, `last_timestamp_ms` the largest, as in Kafka's time
    index. ValueError for an RDI that makes the entry longer than its int16 can say.
    """

    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    data_size_bytes: int
    rdi: str

    def __post_init__(self) -> None:
        size = len(self.rdi.encode())
        if size > MOST_RDI_BYTES:
            raise ValueError(f"an RDI has at most {MOST_RDI_BYTES} bytes in UTF-8, not {size}")
        if not 0 <= self.first_offset <= self.last_offset or self.data_size_bytes <= 0:
            raise ValueError(
                f"no sequence of records: offsets {self.first_offset}..{self.last_offset}, "
                f"{self.data_size_bytes} bytes"
            )

    def encode(self) -> bytes:
        """The entry with its head."""
        rdi = self.rdi.encode()
        body = _BODY.pack(
            self.first_offset,
            self.last_offset,
            self.first_timestamp_ms,
            self.last_timestamp_ms,
            self.data_size_bytes,
            len(rdi),
        )
        body += rdi
        return _HEAD.pack(ENTRY_MAGIC, _HEAD.size + len(body), zlib.crc32(body)) + body

    @property
    def position(self) -> int:
        """Where in the object the sequence begins. Corrupt: the RDI names no position."""
        return parse_rdi(self.rdi)[1]


def rdi_of(remote_object: str, position: int) -> str:
    """The RDI of a position in `<store id>/<object key>`."""
    return f"{remote_object}?{position}"


def parse_rdi(rdi: str) -> tuple[str, int]:
    """`<store id>/<object key>` and the position; Corrupt for other text."""
    remote_object, mark, position = rdi.rpartition("?")
    is_number = position.isascii() and position.isdigit()
    if not mark or "/" not in remote_object or not is_number:
        raise Corrupt(f"RDI {rdi[:200]!r} is not <store id>/<object key>?<position>")
    return remote_object, int(position)


def decode_entry(data: ByteBuffer, position: int) -> tuple[RemoteLogIndexEntry, int]:
    """The entry at a position, and the position after it; Corrupt unless it is whole and sound."""
    view = memoryview(data)[position:]
    if len(view) < _FIXED_BYTES:
        raise Corrupt(f"remote log index: entry at {position} is cut short at {len(view)} bytes")
    magic, length, crc = _HEAD.unpack_from(view)
    if magic != ENTRY_MAGIC or not _FIXED_BYTES <= length <= len(view):
        raise Corrupt(f"remote log index: entry at {position} has magic {magic}, length {length}")
    body = view[_HEAD.size : length]
    if zlib.crc32(body) != crc:
        raise Corrupt(f"remote log index: entry at {position} has a wrong checksum")
    first, last, first_ms, last_ms, size, rdi_size = _BODY.unpack_from(body)
    rdi = bytes(body[_BODY.size :])
    if rdi_size != len(rdi):
        raise Corrupt(f"remote log index: RDI at {position} has {len(rdi)} bytes, not {rdi_size}")
    try:
        entry = RemoteLogIndexEntry(
            first_offset=first,
            last_offset=last,
            first_timestamp_ms=first_ms,
            last_timestamp_ms=last_ms,
            data_size_bytes=size,
            rdi=rdi.decode(),
        )
    except ValueError as error:
        raise Corrupt(f"remote log index: entry at {position}: {error}") from error
    return entry, position + length


def decode_entries(
    data: ByteBuffer, position: int = 0
) -> Iterator[tuple[int, RemoteLogIndexEntry]]:
    """(position, entry) of each from a position on; Corrupt at the first that is not sound."""
    while position < len(data):
        entry, after = decode_entry(data, position)
        yield position, entry
        position = after


def segment_entries(
    data: ByteBuffer, log_size_bytes: int, start_offset: int, end_offset: int
) -> tuple[RemoteLogIndexEntry, ...]:
    """The entries of one whole segment. Corrupt unless they are of one object, cover its log from
    the first to the last byte without a gap, and ascend within its offsets (end inclusive).
    """
    entries = tuple(entry for _, entry in decode_entries(data))
    position, offset, remote_object = 0, start_offset, None
    for entry in entries:
        found, at = parse_rdi(entry.rdi)
        if at != position or entry.first_offset < offset or found != (remote_object or found):
            raise Corrupt(
                f"remote log index: entry of {found} at {at}, offset {entry.first_offset}; "
                f"{remote_object} at {position} expected, offset {offset} at least"
            )
        position, offset, remote_object = at + entry.data_size_bytes, entry.last_offset + 1, found
    if position != log_size_bytes or offset > end_offset + 1 or not entries:
        raise Corrupt(
            f"remote log index: {len(entries)} entries end at {position}, offset {offset}; the "
            f"segment has {log_size_bytes} bytes, up to offset {end_offset}"
        )
    return entries


class EntryBuilder:
    """Makes the entries of a segment from its batches in order; one entry for at least
    `interval_bytes` of the log, fewer at its end.
    """

    def __init__(self, remote_object: str, interval_bytes: int) -> None:
        self._remote_object = remote_object
        self._interval_bytes = interval_bytes
        self._encoded = bytearray()
        self._position = 0
        self._first: BatchHeader | None = None
        self._last_offset = self._largest_ms = -1

    def batch(self, position: int, header: BatchHeader) -> None:
        """The next batch, at this position of the log."""
        if self._first is not None and position - self._position >= self._interval_bytes:
            self._close(position)
        if self._first is None:
            self._first, self._position, self._largest_ms = header, position, -1
        self._last_offset = header.last_offset
        self._largest_ms = max(self._largest_ms, header.max_timestamp_ms)

    def finish(self, log_size_bytes: int) -> bytes:
        """All entries, encoded: section 18 of the indexes object."""
        self._close(log_size_bytes)
        return bytes(self._encoded)

    def _close(self, end: int) -> None:
        if self._first is not None:
            self._encoded += RemoteLogIndexEntry(
                first_offset=self._first.base_offset,
                last_offset=self._last_offset,
                first_timestamp_ms=self._first.base_timestamp_ms,
                last_timestamp_ms=self._largest_ms,
                data_size_bytes=end - self._position,
                rdi=rdi_of(self._remote_object, self._position),
            ).encode()
        self._first = None


def largest_timestamp(entries: ByteBuffer) -> int:
    """The last timestamp in ms of a remotetimeindex; -1 where it is empty."""
    last = len(entries) - TIME_ENTRY.size
    return int(TIME_ENTRY.unpack_from(entries, last)[0]) if last >= 0 else -1


def index_files(
    entries: Sequence[tuple[int, RemoteLogIndexEntry]], base_offset: int, largest_ms: int = -1
) -> tuple[bytes, bytes]:
    """remoteoffsetindex and remotetimeindex over entries at positions. The latter has an entry
    wherever the largest timestamp so far grows, as Kafka's; `largest_ms` is that of the entries
    before. ValueError: too far from the base.
    """
    offsets, times = bytearray(), bytearray()
    try:
        for position, entry in entries:
            offsets += OFFSET_ENTRY.pack(entry.first_offset - base_offset, position)
            if entry.last_timestamp_ms > largest_ms:
                largest_ms = entry.last_timestamp_ms
                times += TIME_ENTRY.pack(largest_ms, position)
    except struct.error as error:
        raise ValueError(f"entries do not fit an index of base {base_offset}: {error}") from error
    return bytes(offsets), bytes(times)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord:
    """Which entries [position, position + size_bytes) of a remotelogindex are of one segment.

    `indexes_crc32c` is that of the whole indexes object that they were taken from. `checksums` and
    `aborted` are its sections 17 and 16.
    """

    segment_id: Uuid
    start_offset: int
    end_offset: int
    log_size_bytes: int
    indexes_crc32c: int
    position: int
    size_bytes: int
    checksums: bytes
    aborted: bytes

    def encode(self) -> bytes:
        """The record with its head: int16 magic 0, int32 length, CRC-32."""
        body = _RECORD_BODY.pack(
            self.segment_id.raw,
            self.start_offset,
            self.end_offset,
            self.log_size_bytes,
            self.indexes_crc32c,
            self.position,
            self.size_bytes,
            len(self.checksums),
            len(self.aborted),
        )
        body += self.checksums + self.aborted
        return (
            _RECORD_HEAD.pack(ENTRY_MAGIC, _RECORD_HEAD.size + len(body), zlib.crc32(body)) + body
        )


def decode_record(data: ByteBuffer, position: int) -> tuple[SegmentRecord, int]:
    """The record at a position, and the position after it; Corrupt unless it is whole and sound."""
    view = memoryview(data)[position:]
    least = _RECORD_HEAD.size + _RECORD_BODY.size
    if len(view) < least:
        raise Corrupt(f"remote segment index: record at {position} is cut short")
    magic, length, crc = _RECORD_HEAD.unpack_from(view)
    if magic != ENTRY_MAGIC or not least <= length <= len(view):
        raise Corrupt(
            f"remote segment index: record at {position} has magic {magic}, {length} bytes"
        )
    body = view[_RECORD_HEAD.size : length]
    if zlib.crc32(body) != crc:
        raise Corrupt(f"remote segment index: record at {position} has a wrong checksum")
    raw, start, end, log_size, indexes_crc, at, size, checksums, aborted = _RECORD_BODY.unpack_from(
        body
    )
    rest = bytes(body[_RECORD_BODY.size :])
    if min(checksums, aborted, at, size) < 0 or checksums + aborted != len(rest):
        raise Corrupt(f"remote segment index: record at {position} has impossible sizes")
    record = SegmentRecord(
        segment_id=Uuid(raw),
        start_offset=start,
        end_offset=end,
        log_size_bytes=log_size,
        indexes_crc32c=indexes_crc,
        position=at,
        size_bytes=size,
        checksums=rest[:checksums],
        aborted=rest[checksums:],
    )
    return record, position + length

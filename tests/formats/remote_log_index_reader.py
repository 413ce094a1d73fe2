"""Reads the remote index files of KIP-405's first form, by its text alone. Standard library.

It is the second reader of the files in `state.dir/remote-index/`, by another hand than their
writer, and imports nothing of this project. Numbers are big-endian. A remotelogindex is a sequence
of entries; the checksum is zlib's CRC-32 of what follows it in the entry:

    int16 magic 0, int16 length of the whole entry, int32 checksum,
    int64 first offset, int64 last offset, int64 first timestamp, int64 last timestamp,
    int32 data length, int16 length of the RDI, RDI

An RDI, the identifier of remote data, is the UTF-8 text `store id/object key?position`. As the
length of a whole entry is an int16, an RDI has 32,767 - 46 bytes at most, although its own length
could say 32,767. The other two files are as Kafka's .index and .timeindex, of 8 and 12 bytes an
entry, but lead into the remotelogindex: int32 offset - base offset, int32 position of an entry
there; int64 timestamp, int32 offset - base offset. Base offset is the first one, as in the name.
"""

import itertools
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAGIC = 0
INT16_MAX = 32_767
_HEAD = struct.Struct(">hhI")
_BODY = struct.Struct(">qqqqih")
FIXED_BYTES = _HEAD.size + _BODY.size
RDI_MAX_BYTES = INT16_MAX - FIXED_BYTES
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class Unreadable(Exception):
    """The bytes are not what the text says; the message names the position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteData:
    """What an RDI points at: where the records of an entry begin."""

    store: str
    key: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIndexEntry:
    """Records of a remote segment; `position` and `length` are the entry's own in its file."""

    position: int
    length: int
    first_offset: int
    last_offset: int
    first_timestamp: int
    last_timestamp: int
    data_length: int
    rdi: RemoteData


def base_offset(file_name: str) -> int:
    """The first offset, by which a file is named with 20 digits."""
    digits = file_name[:20]
    _need(len(digits) == 20 and digits.isascii() and digits.isdecimal(), f"name {file_name!r}")
    return int(digits)


def read_log_index(data: bytes) -> tuple[LogIndexEntry, ...]:
    """All entries of a remotelogindex; Unreadable where one contradicts the text."""
    entries = []
    position = 0
    while position < len(data):
        entry = read_entry(data, position)
        entries.append(entry)
        position += entry.length
    for before, after in itertools.pairwise(entries):
        _need(before.last_offset < after.first_offset, f"{after.position}: offsets overlap")
    return tuple(entries)


def read_entry(data: bytes, position: int) -> LogIndexEntry:
    """The entry at a position of a remotelogindex."""
    _need(position + FIXED_BYTES <= len(data), f"{position}: no room for an entry")
    magic, length, checksum = _HEAD.unpack_from(data, position)
    _need(magic == MAGIC, f"{position}: magic {magic}")
    end = position + length
    _need(length >= FIXED_BYTES and end <= len(data), f"{position}: entry of {length} bytes")
    checked = data[position + _HEAD.size : end]
    _need(zlib.crc32(checked) == checksum, f"{position}: checksum {checksum:08x} is wrong")
    first, last, first_time, last_time, data_length, rdi_length = _BODY.unpack_from(checked)
    rdi = checked[_BODY.size :]
    _need(rdi_length == len(rdi), f"{position}: RDI of {rdi_length} bytes, {len(rdi)} are left")
    _need(0 <= first <= last, f"{position}: offsets {first} to {last}")
    _need(data_length > 0, f"{position}: data of {data_length} bytes")
    return LogIndexEntry(
        position=position,
        length=length,
        first_offset=first,
        last_offset=last,
        first_timestamp=first_time,
        last_timestamp=last_time,
        data_length=data_length,
        rdi=read_rdi(rdi),
    )


def read_rdi(rdi: bytes) -> RemoteData:
    """The parts of an RDI. A key may have slashes and question marks; a store id has neither."""
    try:
        text = rdi.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"RDI {rdi!r:.60} is not UTF-8") from error
    store, slash, rest = text.partition("/")
    key, mark, position = rest.rpartition("?")
    is_whole = bool(store and slash and key and mark)
    _need(is_whole and position.isascii() and position.isdecimal(), f"RDI {text!r:.60}")
    return RemoteData(store=store, key=key, position=int(position))


def read_offset_index(
    data: bytes, base: int, entries: Iterable[LogIndexEntry]
) -> tuple[tuple[int, int], ...]:
    """Pairs of an offset and the position of the entry of the remotelogindex that begins there."""
    _need(len(data) % _OFFSET_ENTRY.size == 0, f"{len(data)} bytes are no whole entries")
    firsts = {one.position: one.first_offset for one in entries}
    pairs = tuple((base + more, position) for more, position in _OFFSET_ENTRY.iter_unpack(data))
    for offset, position in pairs:
        _need(firsts.get(position) == offset, f"offset {offset} does not begin at {position}")
    _need(list(pairs) == sorted(set(pairs)), "offsets do not ascend")
    return pairs


def read_time_index(
    data: bytes, base: int, entries: Sequence[LogIndexEntry]
) -> tuple[tuple[int, int], ...]:
    """Pairs of a timestamp and an offset: every record before that offset has at most that time,
    as in Kafka's own time index.
    """
    _need(len(data) % _TIME_ENTRY.size == 0, f"{len(data)} bytes are no whole entries")
    pairs = tuple((timestamp, base + more) for timestamp, more in _TIME_ENTRY.iter_unpack(data))
    for timestamp, offset in pairs:
        covered = any(one.first_offset <= offset <= one.last_offset for one in entries)
        _need(covered, f"offset {offset} of time {timestamp} is in no entry")
    for before, after in itertools.pairwise(pairs):
        _need(before[0] < after[0] and before[1] < after[1], f"{after} comes after {before}")
    return pairs


def find_offset(data: bytes, base: int, offset_index: bytes, offset: int) -> LogIndexEntry | None:
    """The last entry that begins at or before an offset, through the offset index, then by steps
    from entry to entry, as the index need not have each. None: the offset is below all.
    """
    pairs = [(base + more, at) for more, at in _OFFSET_ENTRY.iter_unpack(offset_index)]
    at = bisect_right([one[0] for one in pairs], offset) - 1
    position = pairs[at][1] if at >= 0 else 0
    found = None
    while position < len(data):
        entry = read_entry(data, position)
        if entry.first_offset > offset:
            break
        found, position = entry, position + entry.length
    return found


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Unreadable(otherwise)

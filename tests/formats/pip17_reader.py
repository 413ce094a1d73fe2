"""Reads PIP-17's index object and data object, by the text of the proposal alone. Standard library.

It is the second reader of the layout `blocks`, by another hand than its writer, and imports nothing
of this project. Numbers are big-endian. An index object:

    DE 47 DE 47, int32 index length, int64 data object length, int64 block header length,
    int32 blocks, int32 length of the metadata, metadata,
    per block: int64 first entry id, int32 part number, int64 position of the block

What follows the blocks within the index length are the `sections` that the metadata points at. A
data object is one block after the other, each but the last of one size:

    FB DB AB CB, int64 header length, int64 block length with header, int64 first entry id, zeros,
    per entry: int32 length, int64 entry id, data; the rest of the block repeats FE DC DE AD

The proposal has the index in part 1 and blocks from part 2; here the index is an object of its own,
so that blocks begin with part 1.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

INDEX_MAGIC = bytes.fromhex("de47de47")
BLOCK_MAGIC = bytes.fromhex("fbdbabcb")
PADDING = bytes.fromhex("fedcdead")
HEADER_BYTES = 128
FIRST_PART = 1
_INDEX_HEADER = struct.Struct(">4siqqii")
_MAPPING = struct.Struct(">qiq")
_BLOCK_HEADER = struct.Struct(">4sqqq")
_ENTRY_HEADER = struct.Struct(">iq")


class Unreadable(Exception):
    """The bytes are not what the text says; the message names the position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One block, as the index has it."""

    first_entry_id: int
    part: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """An index object."""

    data_length: int
    header_length: int
    metadata: bytes
    blocks: tuple[Mapping, ...]
    sections: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry; `position` is that of its length, in the data object."""

    id: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a data object."""

    position: int
    length: int
    first_entry_id: int
    entries: tuple[Entry, ...]
    padding_bytes: int


def read_index(data: bytes) -> Index:
    """A whole index object; Unreadable where it contradicts the text."""
    _need(len(data) >= _INDEX_HEADER.size, f"{len(data)} bytes are no index header")
    magic, length, data_length, header_length, count, metadata_length = _INDEX_HEADER.unpack_from(
        data
    )
    _need(magic == INDEX_MAGIC, f"index begins with {magic.hex()}")
    _need(length == len(data), f"index length {length}, and the object has {len(data)} bytes")
    _need(count > 0 and metadata_length >= 0, f"{count} blocks, metadata of {metadata_length}")
    begin = _INDEX_HEADER.size + metadata_length
    end = begin + count * _MAPPING.size
    _need(end <= length, f"blocks end at {end}, the index at {length}")
    blocks = tuple(
        Mapping(first_entry_id=first, part=part, position=position)
        for first, part, position in _MAPPING.iter_unpack(data[begin:end])
    )
    _check_mappings(blocks, data_length)
    return Index(
        data_length=data_length,
        header_length=header_length,
        metadata=data[_INDEX_HEADER.size : begin],
        blocks=blocks,
        sections=data[end:],
    )


def read_blocks(data: bytes, index: Index) -> tuple[Block, ...]:
    """All blocks of a data object; Unreadable where they contradict index or text."""
    _need(len(data) == index.data_length, f"data of {len(data)} bytes, not {index.data_length}")
    ends = [one.position for one in index.blocks[1:]] + [len(data)]
    found = []
    for mapping, end in zip(index.blocks, ends, strict=True):
        block = read_block(data, mapping.position, index.header_length)
        _need(
            block.position + block.length == end,
            f"block at {block.position} is {block.length} long and should end at {end}",
        )
        _need(block.first_entry_id == mapping.first_entry_id, f"block at {block.position}: entry")
        found.append(block)
    _need(len({one.length for one in found[:-1]}) <= 1, "blocks before the last differ in size")
    if len(found) > 1:
        _need(found[-1].length <= found[0].length, "the last block is longer than the others")
    _need(found[-1].padding_bytes == 0, "the last block is padded, and its size is to be exact")
    ids = [entry.id for block in found for entry in block.entries]
    _need(ids == sorted(set(ids)), "entry ids do not ascend")
    return tuple(found)


def read_block(data: bytes, position: int, header_length: int = HEADER_BYTES) -> Block:
    """The block at a position of a data object."""
    _need(position + header_length <= len(data), f"{position}: no room for a header")
    magic, own_header_length, length, first = _BLOCK_HEADER.unpack_from(data, position)
    _need(magic == BLOCK_MAGIC, f"{position}: block begins with {magic.hex()}")
    _need(own_header_length == header_length == HEADER_BYTES, f"{position}: {own_header_length}")
    rest = data[position + _BLOCK_HEADER.size : position + header_length]
    _need(not any(rest), f"{position}: the rest of the header is not zero")
    end = position + length
    _need(position + header_length < end <= len(data), f"{position}: block of {length} bytes")
    entries = tuple(_entries(data, position + header_length, end))
    _need(bool(entries), f"{position}: block without an entry")
    _need(entries[0].id == first, f"{position}: first entry is {entries[0].id}, not {first}")
    last = entries[-1]
    padding = end - (last.position + _ENTRY_HEADER.size + len(last.data))
    return Block(
        position=position,
        length=length,
        first_entry_id=first,
        entries=entries,
        padding_bytes=padding,
    )


def find_entry(data: bytes, index: Index, entry_id: int) -> Entry | None:
    """The last entry whose id is at most `entry_id`, by a search in the index and one block."""
    firsts = [one.first_entry_id for one in index.blocks]
    at = bisect_right(firsts, entry_id) - 1
    if at < 0:
        return None
    block = read_block(data, index.blocks[at].position, index.header_length)
    return [one for one in block.entries if one.id <= entry_id][-1]


def _entries(data: bytes, position: int, end: int) -> Iterator[Entry]:
    """Until the padding, which is no length: as an int32 it is negative."""
    while end - position >= _ENTRY_HEADER.size and data[position : position + 4] != PADDING:
        length, entry_id = _ENTRY_HEADER.unpack_from(data, position)
        begin = position + _ENTRY_HEADER.size
        _need(0 <= length <= end - begin, f"{position}: entry of {length} bytes")
        yield Entry(id=entry_id, position=position, data=data[begin : begin + length])
        position = begin + length
    rest = data[position:end]
    _need(rest == (PADDING * (len(rest) // 4 + 1))[: len(rest)], f"{position}: wrong padding")


def _check_mappings(blocks: tuple[Mapping, ...], data_length: int) -> None:
    parts = [one.part for one in blocks]
    _need(parts == list(range(FIRST_PART, FIRST_PART + len(parts))), f"part numbers {parts}")
    positions = [one.position for one in blocks]
    _need(positions[0] == 0 and positions[-1] < data_length, f"positions {positions}")
    size = positions[1] if len(positions) > 1 else 0
    _need(positions == [at * size for at in range(len(positions))], f"positions {positions}")
    firsts = [one.first_entry_id for one in blocks]
    _need(firsts == sorted(set(firsts)), f"first entry ids {firsts}")


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Unreadable(otherwise)

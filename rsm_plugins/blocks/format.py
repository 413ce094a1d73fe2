"""Blocks byte for byte: headers, entries, filling, and the mappings of the index object.

A data object is a sequence of blocks. A block is a header of 128 bytes and then entries, each of
which is one record batch as Kafka stored it. Entries never span blocks. All blocks but the last
have the same size, and a pattern fills what no entry uses. All integers are big-endian. Source:
PIP-17 of Apache Pulsar. This module must not know files or stores.
"""

import struct
from dataclasses import dataclass
from typing import Final

from kip405.crc import ByteBuffer
from kip405.errors import Corrupt

FORMAT_VERSION: Final = 1
BLOCK_MAGIC: Final = bytes.fromhex("FBDBABCB")
BLOCK_HEADER_BYTES: Final = 128
ENTRY_HEADER_BYTES: Final = 12
ENTRY_MAX_BYTES: Final = 2**31 - 1
FILLING: Final = bytes.fromhex("FEDCDEAD")
INDEX_MAGIC: Final = bytes.fromhex("DE47DE47")

_BLOCK = struct.Struct(">4sqqq")
_ENTRY = struct.Struct(">iq")
_INDEX = struct.Struct(">4siqqii")
_MAPPING = struct.Struct(">qiq")
INDEX_HEADER_BYTES: Final = _INDEX.size
MAPPING_BYTES: Final = _MAPPING.size
_INDEX_MAX_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block: where it is in the data object, and which bytes of the raw log it holds.

    `size_bytes` counts header, entries and filling; `number` is that of the multipart part.
    """

    number: int
    first_entry_id: int
    position: int
    size_bytes: int
    log_position: int
    log_size_bytes: int
    entry_count: int

    @property
    def log_end(self) -> int:
        return self.log_position + self.log_size_bytes

    @property
    def first_entry(self) -> int:
        """Position of the first entry in the data object."""
        return self.position + BLOCK_HEADER_BYTES

    @property
    def entries_end(self) -> int:
        """Position in the data object where the filling begins."""
        return self.first_entry + self.log_size_bytes + self.entry_count * ENTRY_HEADER_BYTES

    @property
    def end(self) -> int:
        return self.position + self.size_bytes


def block_header(size_bytes: int, first_entry_id: int) -> bytes:
    """The header of a block with this size, header and filling included."""
    head = _BLOCK.pack(BLOCK_MAGIC, BLOCK_HEADER_BYTES, size_bytes, first_entry_id)
    return head.ljust(BLOCK_HEADER_BYTES, b"\0")


def check_block_header(data: ByteBuffer, block: Block) -> None:
    """Corrupt unless these 128 bytes are exactly the header that the index promises."""
    if bytes(data) != block_header(block.size_bytes, block.first_entry_id):
        raise Corrupt(
            f"the header of block {block.number} at position {block.position} is not that of a "
            f"block of {block.size_bytes} bytes from entry {block.first_entry_id} on"
        )


def entry_header(size_bytes: int, entry_id: int) -> bytes:
    """What precedes the bytes of an entry."""
    return _ENTRY.pack(size_bytes, entry_id)


def read_entry_header(data: ByteBuffer, position: int) -> tuple[int, int]:
    """(size in bytes, id) of the entry whose header is at a position of the buffer."""
    size_bytes, entry_id = _ENTRY.unpack_from(data, position)
    return size_bytes, entry_id


def filling(size_bytes: int) -> bytes:
    """So many bytes of the pattern, which may end in the middle of it."""
    whole, rest = divmod(size_bytes, len(FILLING))
    return FILLING * whole + FILLING[:rest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One mapping of the index: the first entry of a block, and where the block is."""

    first_entry_id: int
    number: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawIndex:
    """An index object whose metadata is still bytes."""

    data_size_bytes: int
    metadata: ByteBuffer
    mappings: tuple[Mapping, ...]


def encode_index(index: RawIndex) -> bytes:
    """The index object. ValueError where it would exceed 2 GiB, which its length field cannot
    express.
    """
    size_bytes = INDEX_HEADER_BYTES + len(index.metadata) + len(index.mappings) * MAPPING_BYTES
    if size_bytes > _INDEX_MAX_BYTES:
        raise ValueError(f"an index object of {size_bytes} bytes is longer than 2 GiB")
    head = _INDEX.pack(
        INDEX_MAGIC,
        size_bytes,
        index.data_size_bytes,
        BLOCK_HEADER_BYTES,
        len(index.mappings),
        len(index.metadata),
    )
    mappings = b"".join(
        _MAPPING.pack(one.first_entry_id, one.number, one.position) for one in index.mappings
    )
    return head + bytes(index.metadata) + mappings


def decode_index(data: ByteBuffer) -> RawIndex:
    """The inverse of `encode_index`; Corrupt for a wrong magic or length, or impossible
    mappings.
    """
    if len(data) < INDEX_HEADER_BYTES:
        raise Corrupt(f"index object has {len(data)} bytes, at least {INDEX_HEADER_BYTES} needed")
    magic, size_bytes, data_bytes, header_bytes, count, metadata_bytes = _INDEX.unpack_from(data)
    if magic != INDEX_MAGIC:
        raise Corrupt(f"index object begins with {magic.hex()}, not {INDEX_MAGIC.hex()}")
    expected = INDEX_HEADER_BYTES + metadata_bytes + count * MAPPING_BYTES
    if size_bytes != len(data) or min(metadata_bytes, count) < 0 or expected != size_bytes:
        raise Corrupt(
            f"index object of {len(data)} bytes claims {size_bytes}, with {metadata_bytes} of "
            f"metadata and {count} mappings"
        )
    if header_bytes != BLOCK_HEADER_BYTES or data_bytes < 0:
        raise Corrupt(
            f"index object: block headers of {header_bytes} bytes in {data_bytes} bytes of data"
        )
    view = memoryview(data)
    end = INDEX_HEADER_BYTES + metadata_bytes
    mappings = tuple(
        Mapping(first_entry_id=entry, number=number, position=position)
        for entry, number, position in _MAPPING.iter_unpack(view[end:])
    )
    _check_mappings(mappings, data_bytes)
    return RawIndex(
        data_size_bytes=data_bytes, metadata=view[INDEX_HEADER_BYTES:end], mappings=mappings
    )


def _check_mappings(mappings: tuple[Mapping, ...], data_bytes: int) -> None:
    entry, position = -1, 0
    for index, one in enumerate(mappings):
        is_next = one.number == index + 1 and one.first_entry_id > entry
        if not is_next or not position <= one.position < data_bytes or (one.position and not index):
            raise Corrupt(f"index object: mapping {index} is {one}, in {data_bytes} bytes of data")
        entry, position = one.first_entry_id, one.position + BLOCK_HEADER_BYTES
    if bool(mappings) != bool(data_bytes):
        raise Corrupt(f"index object: {len(mappings)} blocks in {data_bytes} bytes of data")

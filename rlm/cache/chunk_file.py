"""One chunk as a file of the disk cache: its name, its header, and whether what is read is whole.

Header: magic `RLMC`, u8 version, 16 bytes segment id, uint32 number, uint32 size, uint32 CRC-32C of
the chunk; then the chunk. A cache, not a format that outlives us: what is not understood is a miss.
Pure.
"""

import re
import struct

from kip405.crc import crc32c
from kip405.ids import Uuid
from rlm.cache.chunks import ChunkKey

_HEADER = struct.Struct(">4sB16sIII")
_MAGIC = b"RLMC"
_VERSION = 1
_NAME = re.compile(r"([0-9a-f]{32})-([0-9]{1,9})\.chunk")
HEADER_BYTES = _HEADER.size


def file_name(key: ChunkKey) -> str:
    """Name below the cache's folder: files are spread over 256 folders by the segment's id."""
    segment, number = key
    text = segment.raw.hex()
    return f"{text[:2]}/{text}-{number}.chunk"


def key_of(name: str) -> ChunkKey | None:
    """The chunk that a file's last name says it holds; None for any other file."""
    found = _NAME.fullmatch(name)
    return (Uuid(bytes.fromhex(found[1])), int(found[2])) if found else None


def header_of(key: ChunkKey, data: bytes) -> bytes:
    """What is written before the chunk."""
    segment, number = key
    return _HEADER.pack(_MAGIC, _VERSION, segment.raw, number, len(data), crc32c(data))


def chunk_of(key: ChunkKey, header: bytes, data: bytes) -> bytes | None:
    """The chunk, None unless header and bytes are those that were written for this key."""
    whole = len(header) == HEADER_BYTES and header == header_of(key, data)
    return data if whole else None

"""Every parser of bytes fed every prefix and random bytes: Corrupt (ValueError for values), never a
stray error.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.batches import batch_headers, check_crc, cut_batches, read_header, size_at
from kip405.errors import Corrupt, Invalid
from kip405.ids import MAX_OFFSET, Uuid
from kip405.indexes import ChunkChecksums, IndexesObject, decode_aborted, transaction_index
from kip405.records import find_timestamp, records
from kip405.segments import CustomMetadata
from tests.kip405.batch_builder import batch, legacy, smallest_legacy
from tests.kip405.segment_builder import scanned

Parser = Callable[[bytes], object]


def checked_header(data: bytes) -> None:
    header = read_header(data)
    check_crc(data, 0, header)


PARSERS: dict[str, Parser] = {
    "read_header": read_header,
    "check_crc": checked_header,
    "size_at": lambda data: size_at(data, 0),
    "batch_headers": lambda data: list(batch_headers(data)),
    "cut_batches": lambda data: cut_batches(data, 5, 1 << 20, True, MAX_OFFSET),
    "cut_batches_late": lambda data: cut_batches(data, MAX_OFFSET, 1 << 20, True, MAX_OFFSET),
    "scanned": scanned,
    "records": lambda data: list(records(data, max_bytes=1 << 16)),
    "find_timestamp": lambda data: find_timestamp(data, 0),
    "transaction_index": lambda data: list(transaction_index(data)),
    "decode_aborted": decode_aborted,
    "chunk_checksums": lambda data: ChunkChecksums.decode(data, 100),
    "indexes_object": lambda data: IndexesObject.parse(data, check_sections=True),
    "custom_metadata": CustomMetadata.decode,
}


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.binary(max_size=200))
def test_random_bytes(name: str, data: bytes) -> None:
    attempt(PARSERS[name], data)


@pytest.mark.parametrize("name", PARSERS)
@given(magic=st.integers(0, 3), length=st.integers(0, 90), rest=st.binary(max_size=100))
def test_random_bytes_with_a_plausible_head(
    name: str, magic: int, length: int, rest: bytes
) -> None:
    head = bytes(8) + length.to_bytes(4, "big") + bytes(4) + bytes([magic])
    attempt(PARSERS[name], head + rest)


@pytest.mark.parametrize("name", ["check_crc", "batch_headers", "scanned"])
@pytest.mark.parametrize("whole", [batch(0), legacy(0, magic=0), legacy(0), smallest_legacy(0)])
def test_every_prefix_of_a_batch_is_corrupt(name: str, whole: bytes) -> None:
    PARSERS[name](whole)
    for size in range(1, len(whole)):
        with pytest.raises(Corrupt):
            PARSERS[name](whole[:size])


@pytest.mark.parametrize("whole", [batch(0), legacy(0, magic=0), legacy(0), smallest_legacy(0)])
def test_every_prefix_of_a_header_is_corrupt(whole: bytes) -> None:
    needed = {0: 26, 1: 34, 2: 61}[whole[16]]
    assert read_header(whole[:needed]) == read_header(whole)
    for size in range(needed):
        with pytest.raises(Corrupt, match="cut short"):
            read_header(whole[:size])


def test_every_prefix_of_custom_metadata_is_refused() -> None:
    whole = CustomMetadata(store_id=Uuid(bytes(range(16)))).encode()
    assert CustomMetadata.decode(whole).store_id == Uuid(bytes(range(16)))
    for size in range(len(whole)):
        with pytest.raises(ValueError, match="at least 31 needed"):
            CustomMetadata.decode(whole[:size])


def attempt(parse: Parser, data: bytes) -> None:
    """Anything but our own refusal (Corrupt, Invalid, ValueError) fails the test."""
    try:
        parse(data)
    except (Corrupt, Invalid, ValueError):
        return

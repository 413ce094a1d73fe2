"""CRC-32C against its published check value and against itself in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.crc import ChunkedCrc32c, crc32c, joined_crc32c

CHECK = b"123456789"  # RFC 3720's check value for CRC-32C is e3069283


@pytest.mark.parametrize(
    "make", [bytes, bytearray, memoryview, lambda data: memoryview(b"x" + data)[1:]]
)
def test_check_value_over_every_kind_of_buffer(make: type[bytes]) -> None:
    assert crc32c(make(CHECK)) == 0xE3069283


def test_view_larger_than_a_piece() -> None:
    data = bytes(range(256)) * 3000
    assert crc32c(memoryview(data)) == crc32c(data)


def test_empty() -> None:
    assert crc32c(b"") == 0
    assert crc32c(b"", 5) == 5
    assert ChunkedCrc32c(4).chunks == ()


@given(st.binary(max_size=600), st.binary(max_size=600))
def test_g09_the_checksum_of_a_whole_follows_from_those_of_its_parts(a: bytes, b: bytes) -> None:
    assert joined_crc32c(crc32c(a), crc32c(b), len(b)) == crc32c(a + b)


def test_g09_parts_as_large_as_those_of_an_upload() -> None:
    first, second = bytes(range(256)) * 4096, b"Kafka" * 1_000_003
    assert joined_crc32c(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_chunks_of_pieces_that_end_with_a_chunk(make: type[bytes]) -> None:
    data = bytes(range(256)) * 16
    checksums = ChunkedCrc32c(1024)
    for position in range(0, len(data), 512):
        checksums.update(make(data[position : position + 512]))
    assert checksums.whole == crc32c(data)
    assert checksums.chunks == tuple(crc32c(data[at : at + 1024]) for at in range(0, 4096, 1024))


def test_chunk_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="not positive"):
        ChunkedCrc32c(0)


@given(st.lists(st.binary(max_size=20)), st.integers(1, 16))
def test_chunks_do_not_depend_on_the_feeds(feeds: list[bytes], chunk_size: int) -> None:
    whole = b"".join(feeds)
    checksums = ChunkedCrc32c(chunk_size)
    for feed in feeds:
        checksums.update(memoryview(feed))
    assert checksums.whole == crc32c(whole)
    assert checksums.size_bytes == len(whole)
    assert checksums.chunks == tuple(
        crc32c(whole[at : at + chunk_size]) for at in range(0, len(whole), chunk_size)
    )

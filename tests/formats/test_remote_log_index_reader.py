"""The second reader of the remote index files on bytes that are spelled out here, by its text."""

import struct
import zlib

import pytest

from tests.formats.remote_log_index_reader import (
    FIXED_BYTES,
    RDI_MAX_BYTES,
    LogIndexEntry,
    RemoteData,
    Unreadable,
    base_offset,
    find_offset,
    read_entry,
    read_log_index,
    read_offset_index,
    read_rdi,
    read_time_index,
)

_STORE = "jF8s79t9SrG_PNqlwv7bAA"
# firstOffset 1000, lastOffset 1009, 1.7e12 ms and 9 s later, 300 bytes, 28 bytes of RDI
_FIRST = bytes.fromhex(
    "00000000000003e8" "00000000000003f1" "0000018bcfe56800" "0000018bcfe58b28" "0000012c" "001c"
) + b"jF8s79t9SrG_PNqlwv7bAA/a/b?0"  # fmt: skip
_SECOND = bytes.fromhex(
    "00000000000003f2" "00000000000003f2" "0000018bcfe58b28" "0000018bcfe58b28" "00000040" "001e"
) + b"jF8s79t9SrG_PNqlwv7bAA/a/b?300"  # fmt: skip
LOG_INDEX = (
    bytes.fromhex("0000" "004a" "e9994c97") + _FIRST + bytes.fromhex("0000" "004c" "328b9549")
    + _SECOND
)  # fmt: skip
OFFSET_INDEX = bytes.fromhex("00000000000000000000000a0000004a")
TIME_INDEX = bytes.fromhex("0000018bcfe58b2800000009")


def test_the_log_index() -> None:
    first, second = read_log_index(LOG_INDEX)
    assert first == LogIndexEntry(
        position=0,
        length=74,
        first_offset=1000,
        last_offset=1009,
        first_timestamp=1_700_000_000_000,
        last_timestamp=1_700_000_009_000,
        data_length=300,
        rdi=RemoteData(store=_STORE, key="a/b", position=0),
    )
    assert (second.position, second.first_offset, second.last_offset) == (74, 1010, 1010)
    assert second.rdi.position == first.rdi.position + first.data_length


def test_the_other_two_lead_into_it() -> None:
    entries = read_log_index(LOG_INDEX)
    assert read_offset_index(OFFSET_INDEX, 1000, entries) == ((1000, 0), (1010, 74))
    assert read_time_index(TIME_INDEX, 1000, entries) == ((1_700_000_009_000, 1009),)
    with pytest.raises(Unreadable, match="does not begin at 0"):
        read_offset_index(OFFSET_INDEX, 1001, entries)
    with pytest.raises(Unreadable, match="in no entry"):
        read_time_index(TIME_INDEX, 2000, entries)
    for read, data in ((read_offset_index, OFFSET_INDEX), (read_time_index, TIME_INDEX)):
        with pytest.raises(Unreadable, match="no whole entries"):
            read(data[:-1], 1000, entries)


@pytest.mark.parametrize("index", [OFFSET_INDEX, OFFSET_INDEX[:8], b""])
def test_an_offset_is_found_with_a_full_and_a_sparse_index(index: bytes) -> None:
    found = {at: find_offset(LOG_INDEX, 1000, index, at) for at in (999, 1000, 1009, 1010, 5000)}
    assert {at: one and one.first_offset for at, one in found.items()} == {
        999: None, 1000: 1000, 1009: 1000, 1010: 1010, 5000: 1010,
    }  # fmt: skip


def test_no_flipped_bit_passes() -> None:
    for position in range(len(LOG_INDEX)):
        for bit in range(8):
            damaged = bytearray(LOG_INDEX)
            damaged[position] ^= 1 << bit
            with pytest.raises(Unreadable):
                read_log_index(bytes(damaged))


def test_no_cut_passes() -> None:
    for length in set(range(1, len(LOG_INDEX))) - {74}:
        with pytest.raises(Unreadable):
            read_log_index(LOG_INDEX[:length])


def test_the_longest_rdi_is_shorter_than_its_length_allows() -> None:
    assert (FIXED_BYTES, RDI_MAX_BYTES) == (46, 32_721)
    rdi = b"s/" + b"k" * (RDI_MAX_BYTES - 4) + b"?0"
    body = struct.pack(">qqqqih", 0, 0, 0, 0, 1, len(rdi)) + rdi
    entry = struct.pack(">hhI", 0, 32_767, zlib.crc32(body)) + body
    assert read_entry(entry, 0).length == 32_767
    with pytest.raises(struct.error):
        struct.pack(">h", FIXED_BYTES + len(rdi) + 1)


@pytest.mark.parametrize("text", ["", "s", "s/k", "s/?0", "/k?0", "s/k?", "s/k?-1", "s/k?1 "])
def test_what_is_no_rdi(text: str) -> None:
    with pytest.raises(Unreadable):
        read_rdi(text.encode())


def test_an_rdi_whose_key_has_a_question_mark() -> None:
    assert read_rdi(b"s/a?b/c?12") == RemoteData(store="s", key="a?b/c", position=12)
    with pytest.raises(Unreadable, match="not UTF-8"):
        read_rdi(b"s/\xff?0")


def test_the_name_is_the_first_offset() -> None:
    assert base_offset("00000000000000001000.remotelogindex") == 1000
    with pytest.raises(Unreadable):
        base_offset("1000.remotelogindex")

"""Headers, walking and cutting of batches made by aiokafka's encoder and by hand."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.batches import Compression, batch_headers, check_crc, cut_batches, read_header, size_at
from kip405.errors import Corrupt
from kip405.ids import MAX_OFFSET
from tests.kip405.batch_builder import (
    batch,
    control_batch,
    legacy,
    log_of,
    smallest_legacy,
    with_attributes,
)

NO_LIMIT = 1 << 40


def test_every_field_of_a_header() -> None:
    data = batch(700, 4, epoch=9, first_ms=5_000, compression=1, transactional=True, producer_id=77)
    header = read_header(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (700, 703, 704)
    assert (header.size_bytes, header.magic, header.leader_epoch) == (len(data), 2, 9)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (5_000, 5_003)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 0, 0)
    assert (header.record_count, header.compression) == (4, Compression.GZIP)
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    check_crc(data, 0, header)


def test_flags() -> None:
    assert read_header(control_batch(5, 0)).is_control
    assert read_header(with_attributes(batch(0), 0x08)).is_log_append_time
    with pytest.raises(Corrupt, match="7 is not a valid"):
        _ = read_header(with_attributes(batch(0), 0x07)).compression


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_message_is_read_by_offset_and_size(magic: int) -> None:
    data = legacy(42, magic=magic, timestamp_ms=1_234)
    header = read_header(data)
    assert (header.base_offset, header.last_offset, header.size_bytes) == (42, 42, len(data))
    assert (header.leader_epoch, header.producer_id, header.record_count) == (-1, -1, 1)
    assert header.max_timestamp_ms == (1_234 if magic else -1)
    assert not header.is_transactional
    check_crc(data, 0, header)


def test_iterating_over_a_log_that_was_upgraded() -> None:
    parts = [smallest_legacy(3), legacy(4, magic=0), legacy(5), batch(6, 2), control_batch(8, 1)]
    found = list(batch_headers(b"".join(parts)))
    assert [header.base_offset for _, header in found] == [3, 4, 5, 6, 8]
    assert [position for position, _ in found] == [
        sum(map(len, parts[:index])) for index in range(len(parts))
    ]


def test_iterating_over_a_part() -> None:
    first, second, third = batch(0), batch(3), batch(6)
    part = batch_headers(first + second + third, len(first), len(first) + len(second))
    assert [(position, header.base_offset) for position, header in part] == [(len(first), 3)]
    with pytest.raises(ValueError, match="no range"):
        list(batch_headers(first, 0, len(first) + 1))


def test_a_cut_and_descending_offsets_are_reported_with_their_position() -> None:
    first = batch(10)
    with pytest.raises(Corrupt, match=rf"position {len(first)} .*cut short"):
        list(batch_headers(first + batch(13)[:-1]))
    with pytest.raises(Corrupt, match="offset 12 after 12"):
        list(batch_headers(first + batch(12)))


def test_every_flipped_byte_of_a_batch_is_noticed() -> None:
    # Base offset, size and epoch lie before the checksum's range: Kafka rewrites them.
    data = batch(0, 2)
    for at in range(16, len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x40
        with pytest.raises(Corrupt):
            check_crc(broken, 0, read_header(broken))


def test_flipped_byte_of_a_legacy_message_is_noticed() -> None:
    broken = bytearray(legacy(0))
    broken[-1] ^= 1
    with pytest.raises(Corrupt, match="crc is"):
        check_crc(broken, 0, read_header(broken))


@pytest.mark.parametrize("size", [-1, 0, 13, -(2**31)])
def test_impossible_size_is_corrupt_and_never_loops(size: int) -> None:
    broken = bytearray(batch(0))
    struct.pack_into(">i", broken, 8, size)
    for use in (
        lambda: read_header(broken),
        lambda: size_at(broken, 0),
        lambda: cut_batches(broken, 0, NO_LIMIT, True, MAX_OFFSET),
        lambda: list(batch_headers(broken)),
    ):
        with pytest.raises(Corrupt):
            use()


def test_size_at_knows_the_size_from_twelve_bytes() -> None:
    data = batch(0)
    assert size_at(data[:12], 0) == len(data)
    assert size_at(data[:11], 0) is None
    assert size_at(data, 0, 11) is None


LOG = log_of(100, [3, 3, 3, 3])
ONE = len(LOG) // 4


def cut(
    first_offset: int,
    max_bytes: int = NO_LIMIT,
    min_one: bool = False,
    upper_offset: int = MAX_OFFSET,
    buffer: bytes = LOG,
) -> tuple[int, int, int]:
    return cut_batches(memoryview(buffer), first_offset, max_bytes, min_one, upper_offset)


def test_cut_begins_at_the_batch_that_holds_the_offset() -> None:
    assert cut(100) == (0, 4 * ONE, 112)
    assert cut(102) == (0, 4 * ONE, 112)
    assert cut(103) == (ONE, 4 * ONE, 112)
    assert cut(50) == (0, 4 * ONE, 112)


def test_cut_keeps_max_bytes_in_whole_batches() -> None:
    assert cut(103, 2 * ONE) == (ONE, 3 * ONE, 109)
    assert cut(103, 2 * ONE - 1) == (ONE, 2 * ONE, 106)
    assert cut(103, ONE - 1) == (ONE, ONE, 103)
    assert cut(103, 0) == (ONE, ONE, 103)


def test_cut_gives_at_least_one_batch_when_asked() -> None:
    assert cut(103, 0, min_one=True) == (ONE, 2 * ONE, 106)
    assert cut(103, ONE + 1, min_one=True) == (ONE, 2 * ONE, 106)


def test_cut_stops_before_the_upper_offset() -> None:
    assert cut(100, upper_offset=106) == (0, 2 * ONE, 106)
    assert cut(100, min_one=True, upper_offset=100) == (0, 0, 100)


def test_cut_stops_at_a_batch_that_is_not_wholly_there() -> None:
    assert cut(100, buffer=LOG[:-1]) == (0, 3 * ONE, 109)
    assert cut(109, min_one=True, buffer=LOG[:-1]) == (3 * ONE, 3 * ONE, 109)
    assert size_at(LOG[:-1], 3 * ONE) == ONE


def test_cut_beyond_the_buffer_says_where_to_read_on() -> None:
    assert cut(112) == (4 * ONE, 4 * ONE, 112)
    assert cut(100, buffer=b"") == (0, 0, 100)


def test_cut_passes_a_gap_of_offsets() -> None:
    gap = batch(0, 3) + batch(10, 3)
    assert cut(5, buffer=gap) == (len(gap) // 2, len(gap), 13)


def test_cut_of_legacy_messages_down_to_the_smallest() -> None:
    old = legacy(3, magic=0) + legacy(4) + smallest_legacy(5)
    assert cut(4, buffer=old) == (len(legacy(3, magic=0)), len(old), 6)
    assert cut(5, buffer=old) == (len(old) - 26, len(old), 6)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.integers(0, 26),
    st.integers(0, 900),
    st.booleans(),
    st.integers(0, 30),
    st.integers(0, 60),
)
def test_a_cut_agrees_with_an_iteration(
    counts: list[int], first: int, max_bytes: int, min_one: bool, upper: int, missing: int
) -> None:
    whole = log_of(0, counts)
    buffer = whole[: max(len(whole) - missing, 0)]
    taken: list[tuple[int, int, int]] = []
    size = 0
    for position, header in batch_headers(whole):
        if header.last_offset < first:
            continue
        end = position + header.size_bytes
        too_large = size + header.size_bytes > max_bytes and not (min_one and not taken)
        if end > len(buffer) or header.base_offset >= upper or too_large:
            break
        taken.append((position, end, header.next_offset))
        size += header.size_bytes
    start, end, next_offset = cut_batches(buffer, first, max_bytes, min_one, upper)
    if taken:
        assert (start, end, next_offset) == (taken[0][0], taken[-1][1], taken[-1][2])
    else:
        assert start == end
        assert next_offset == first

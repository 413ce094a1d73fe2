"""Kafka's index files by example and by brute force; the aborted list (H9); the indexes object."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.errors import Corrupt
from kip405.indexes import (
    AbortedTransaction,
    ChunkChecksums,
    IndexesObject,
    OffsetIndex,
    TimeIndex,
    TransactionIndexEntry,
    aborted_for_fetch,
    build_indexes_object,
    complete_aborted_list,
    decode_aborted,
    encode_aborted,
    encode_transaction_index,
    transaction_index,
)
from kip405.segments import ByteRange

BASE = 1_000


def offset_index(*pairs: tuple[int, int]) -> OffsetIndex:
    return OffsetIndex(memoryview(b"".join(struct.pack(">ii", *pair) for pair in pairs)), BASE)


def time_index(*pairs: tuple[int, int]) -> TimeIndex:
    return TimeIndex(memoryview(b"".join(struct.pack(">qi", *pair) for pair in pairs)), BASE)


def test_offset_index_lookups() -> None:
    index = offset_index((9, 4_100), (19, 8_200))
    assert len(index) == 2
    assert index.entry(1) == (1_019, 8_200)
    assert [index.lookup(offset) for offset in (0, 1_008, 1_009, 1_018, 1_019, 9_999)] == [
        0, 0, 4_100, 4_100, 8_200, 8_200,
    ]  # fmt: skip
    assert [index.upper_position(offset) for offset in (1_000, 1_009, 1_010, 1_020)] == [
        4_100, 4_100, 8_200, None,
    ]  # fmt: skip
    assert [index.end_position(offset) for offset in (1_000, 1_009, 1_010)] == [
        8_200, 8_200, None,
    ]  # fmt: skip
    assert [index.upper_offset(position) for position in (0, 4_100, 4_101, 8_201)] == [
        1_009, 1_009, 1_019, None,
    ]  # fmt: skip


def test_empty_indexes_begin_at_the_segments_start() -> None:
    assert offset_index().lookup(BASE) == 0
    assert offset_index().upper_position(BASE) is None
    assert time_index().lookup(5) == BASE


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=12), st.integers(0, 700)
)
def test_offset_index_agrees_with_brute_force(steps: list[tuple[int, int]], offset: int) -> None:
    pairs, at, position = [], 0, 0
    for step, size in steps:
        at, position = at + step, position + size
        pairs.append((at, position))
    index = offset_index(*pairs)
    index.check(position + 1)
    absolute = BASE + offset
    below = [where for relative, where in pairs if BASE + relative <= absolute]
    above = [where for relative, where in pairs if BASE + relative >= absolute]
    assert index.lookup(absolute) == (below[-1] if below else 0)
    assert index.upper_position(absolute) == (above[0] if above else None)


@pytest.mark.parametrize(
    "pairs",
    [[(5, 10), (5, 20)], [(5, 10), (6, 10)], [(5, 10), (4, 20)], [(5, 100)], [(-2, 5)], [(5, -9)]],
)
def test_offset_index_that_cannot_be_is_corrupt(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(Corrupt, match="offset index"):
        offset_index(*pairs).check(100)


def test_time_index_lookups() -> None:
    index = time_index((500, 9), (700, 19))
    assert len(index) == 2
    assert [index.lookup(target) for target in (0, 499, 500, 699, 700, 999)] == [
        1_000, 1_000, 1_009, 1_009, 1_019, 1_019,
    ]  # fmt: skip
    index.check()
    time_index((-1, 0), (0, 0)).check()


@pytest.mark.parametrize("pairs", [[(500, 9), (499, 10)], [(500, 9), (501, 8)], [(500, -1)]])
def test_time_index_that_cannot_be_is_corrupt(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(Corrupt, match="time index"):
        time_index(*pairs).check()


def test_torn_entries_are_corrupt_at_every_length() -> None:
    for size in range(1, 8):
        with pytest.raises(Corrupt, match="multiple of 8"):
            OffsetIndex(memoryview(bytes(8 + size)), BASE)
    for size in range(1, 12):
        with pytest.raises(Corrupt, match="multiple of 12"):
            TimeIndex(memoryview(bytes(12 + size)), BASE)
    for size in range(1, 34):
        with pytest.raises(Corrupt, match="multiple of 34"):
            list(transaction_index(bytes(34 + size)))
    for size in range(1, 24):
        with pytest.raises(Corrupt, match="multiple of 24"):
            decode_aborted(bytes(24 + size))


def entry(producer: int, first: int, last: int, stable: int) -> TransactionIndexEntry:
    return TransactionIndexEntry(AbortedTransaction(producer, first, last), stable)


def test_transaction_index_layout_is_kafkas() -> None:
    data = bytes.fromhex("00000000000000000007000000000000000a00000000000000140000000000000015")
    assert list(transaction_index(data)) == [entry(7, 10, 20, 21)]
    assert encode_transaction_index([entry(7, 10, 20, 21)]) == data


@pytest.mark.parametrize("raw", [(1, 7, 10, 20, 21), (0, 7, 20, 10, 21), (0, 7, -1, 10, 21)])
def test_transaction_index_that_cannot_be_is_corrupt(raw: tuple[int, ...]) -> None:
    with pytest.raises(Corrupt, match="entry 0"):
        list(transaction_index(struct.pack(">hqqqq", *raw)))


def test_h09_abort_whose_marker_lies_segments_later_is_in_the_list() -> None:
    # P writes at 100-900 and aborts with a marker at 5000; the segment is [0, 1000).
    files = [
        b"",
        encode_transaction_index([entry(8, 1_500, 1_600, 100)]),
        encode_transaction_index([entry(7, 100, 5_000, 5_001)]),
        b"torn file that must not be read",
    ]
    listed, complete = complete_aborted_list(iter(files), 0, 1_000)
    assert listed == (AbortedTransaction(7, 100, 5_000),)
    assert complete


def test_h09_files_read_to_the_end_without_proof_say_so() -> None:
    listed, complete = complete_aborted_list(
        [encode_transaction_index([entry(7, 100, 400, 401)])], 0, 1_000
    )
    assert listed == (AbortedTransaction(7, 100, 400),)
    assert not complete


def test_h09_proof_is_a_last_stable_offset_at_the_segments_end() -> None:
    proof, none = entry(7, 100, 400, 1_000), entry(7, 100, 400, 999)
    assert complete_aborted_list([encode_transaction_index([proof])], 0, 1_000)[1]
    assert not complete_aborted_list([encode_transaction_index([none])], 0, 1_000)[1]


def test_h09_only_what_touches_the_segment_is_listed_and_once() -> None:
    inside = [entry(1, 900, 1_100, 901), entry(2, 1_200, 1_300, 901), entry(2, 1_200, 1_300, 901)]
    outside = [entry(3, 0, 999, 901), entry(4, 2_000, 2_100, 2_101)]
    listed, complete = complete_aborted_list(
        [encode_transaction_index([*inside, *outside])], 1_000, 2_000
    )
    assert listed == (AbortedTransaction(1, 900, 1_100), AbortedTransaction(2, 1_200, 1_300))
    assert complete


def test_aborted_for_fetch_has_the_brokers_order_and_touches_the_answer() -> None:
    aborted = (
        AbortedTransaction(5, 50, 60),
        AbortedTransaction(4, 20, 30),
        AbortedTransaction(3, 0, 19),
        AbortedTransaction(4, 20, 40),
        AbortedTransaction(2, 55, 99),
    )
    assert aborted_for_fetch(aborted, 20, 55) == ((5, 50), (4, 20))
    assert aborted_for_fetch(aborted, 19, 20) == ((3, 0),)
    assert aborted_for_fetch((), 0, 100) == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**62)), max_size=5
    )
)
def test_aborted_list_round_trip(raw: list[tuple[int, int, int]]) -> None:
    aborted = tuple(AbortedTransaction(pid, min(a, b), max(a, b)) for pid, a, b in raw)
    assert decode_aborted(encode_aborted(aborted)) == aborted


def test_aborted_list_that_cannot_be_is_corrupt() -> None:
    with pytest.raises(Corrupt, match=r"offsets 9\.\.8"):
        decode_aborted(struct.pack(">qqq", 1, 9, 8))


LOG = bytes(range(250))
CHECKSUMS = ChunkChecksums(
    chunk_size_bytes=100, crcs=tuple(crc32c(LOG[at : at + 100]) for at in (0, 100, 200))
)


def test_chunk_checksums_round_trip_and_check() -> None:
    decoded = ChunkChecksums.decode(CHECKSUMS.encode(), len(LOG))
    assert decoded == CHECKSUMS
    decoded.check(2, LOG[200:])
    with pytest.raises(Corrupt, match="chunk 1: crc"):
        decoded.check(1, LOG[:100])
    with pytest.raises(Corrupt, match="chunk 3 of 3"):
        decoded.check(3, b"")


def test_chunk_checksums_of_another_size_or_cut_short_are_corrupt() -> None:
    data = CHECKSUMS.encode()
    for size in range(len(data)):
        with pytest.raises(Corrupt):
            ChunkChecksums.decode(data[:size], len(LOG))
    for log_size in (200, 301):
        with pytest.raises(Corrupt, match="3 checksums of 100 byte chunks"):
            ChunkChecksums.decode(data, log_size)
    with pytest.raises(Corrupt, match="0 byte chunks"):
        ChunkChecksums.decode(bytes(4), 0)


def test_g9_a_range_of_chunks_is_whole_and_each_chunk_has_its_checksum() -> None:
    for start, end in ((0, 100), (0, 200), (100, 250), (0, 250)):
        wanted = ByteRange(start=start, end=end)
        CHECKSUMS.check_range(wanted, memoryview(LOG)[start:end])
        with pytest.raises(Corrupt, match=f"bytes {start}..{end} came as {end - start - 1} bytes"):
            CHECKSUMS.check_range(wanted, LOG[start : end - 1])
        damaged = LOG[start : end - 1] + b"\xff"
        with pytest.raises(Corrupt, match="crc is"):
            CHECKSUMS.check_range(wanted, damaged)


SECTIONS: dict[IndexType, bytes] = {
    IndexType.CHUNK_CHECKSUMS: CHECKSUMS.encode(),
    IndexType.OFFSET: b"offset index",
    IndexType.TRANSACTION: b"",
}
OBJECT = build_indexes_object(SECTIONS)


def section(parsed: IndexesObject, index_type: IndexType) -> bytes:
    view = parsed.section(index_type)
    assert view is not None
    return bytes(view)


def test_indexes_object_round_trip() -> None:
    parsed = IndexesObject.parse(OBJECT, check_sections=True)
    assert parsed.types == frozenset(SECTIONS)
    for index_type, data in SECTIONS.items():
        assert section(parsed, index_type) == data
    # An empty section is not an absent one.
    assert parsed.section(IndexType.TIMESTAMP) is None


def test_indexes_object_does_not_depend_on_the_order_given() -> None:
    assert build_indexes_object(dict(reversed(SECTIONS.items()))) == OBJECT


def test_indexes_object_without_sections() -> None:
    assert IndexesObject.parse(build_indexes_object({})).types == frozenset()


def test_indexes_object_cut_short_or_longer_is_corrupt() -> None:
    for size in range(len(OBJECT)):
        with pytest.raises(Corrupt, match="indexes object"):
            IndexesObject.parse(OBJECT[:size])
    with pytest.raises(Corrupt, match="sections end at"):
        IndexesObject.parse(OBJECT + b"x")


def test_every_flipped_byte_of_an_indexes_object_is_noticed() -> None:
    for at in range(len(OBJECT)):
        broken = bytearray(OBJECT)
        broken[at] ^= 0x10
        with pytest.raises(Corrupt):
            IndexesObject.parse(broken, check_sections=True)


def test_a_broken_section_spoils_only_itself() -> None:
    broken = bytearray(OBJECT)
    broken[-1] ^= 1
    parsed = IndexesObject.parse(broken)
    assert section(parsed, IndexType.OFFSET) == SECTIONS[IndexType.OFFSET]
    assert parsed.section(IndexType.CHUNK_CHECKSUMS, check=False) is not None
    with pytest.raises(Corrupt, match="section 17"):
        parsed.section(IndexType.CHUNK_CHECKSUMS)


def hand_made(*sections: tuple[int, int, bytes]) -> bytes:
    """An object with (type, position, bytes) as given, and a right header checksum."""
    header = b"RLMI\x01" + bytes([len(sections)])
    for number, position, data in sections:
        header += struct.pack(">BIII", number, position, len(data), crc32c(data))
    return header + struct.pack(">I", crc32c(header)) + b"".join(data for *_, data in sections)


def test_sections_of_unknown_types_are_passed_over() -> None:
    parsed = IndexesObject.parse(hand_made((0, 36, b"ab"), (99, 38, b"c")), check_sections=True)
    assert parsed.types == frozenset({IndexType.OFFSET})


def test_sections_that_overlap_leave_gaps_or_repeat_are_corrupt() -> None:
    for sections in (
        [(0, 35, b"ab"), (1, 37, b"c")],
        [(0, 36, b"ab"), (1, 37, b"c")],
        [(0, 36, b"ab"), (0, 38, b"c")],
    ):
        with pytest.raises(Corrupt, match="expected once"):
            IndexesObject.parse(hand_made(*sections))

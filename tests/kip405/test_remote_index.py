"""The remote index files of KIP-405 (version 34), byte for byte."""

import random
import struct
import zlib
from dataclasses import replace

import pytest

from kip405.batches import batch_headers
from kip405.errors import Corrupt
from kip405.ids import Uuid
from kip405.remote_index import (
    MOST_RDI_BYTES,
    EntryBuilder,
    RemoteLogIndexEntry,
    SegmentRecord,
    decode_entries,
    decode_entry,
    decode_record,
    index_files,
    parse_rdi,
    segment_entries,
)
from tests.kip405.batch_builder import batch

LOG = b"".join(
    batch(base, 5, first_ms=1_000 + base % 7, value=b"v" * 90) for base in range(0, 100, 5)
)


def entry(first: int = 10, last: int = 19, rdi: str = "store/key?7") -> RemoteLogIndexEntry:
    return RemoteLogIndexEntry(
        first_offset=first,
        last_offset=last,
        first_timestamp_ms=100,
        last_timestamp_ms=200,
        data_size_bytes=5,
        rdi=rdi,
    )


def built(interval_bytes: int, log: bytes = LOG) -> bytes:
    builder = EntryBuilder("store/key", interval_bytes)
    for position, header in batch_headers(log):
        builder.batch(position, header)
    return builder.finish(len(log))


def test_an_entry_has_the_fields_of_the_kip() -> None:
    body = struct.pack(">qqqqih", 10, 19, 100, 200, 5, 11) + b"store/key?7"
    expected = struct.pack(">hhI", 0, 57, zlib.crc32(body)) + body
    assert entry().encode() == expected and len(expected) == 57
    assert decode_entry(b"..." + expected + b"..", 3) == (entry(), 60)
    assert entry().position == 7


def test_the_longest_rdi_fills_the_length_of_an_entry() -> None:
    longest = entry(rdi="s/" + "k" * (MOST_RDI_BYTES - 4) + "?0")
    assert len(longest.encode()) == 2**15 - 1
    assert decode_entry(longest.encode(), 0) == (longest, 2**15 - 1)
    with pytest.raises(ValueError, match="at most 32721 bytes in UTF-8, not 32722"):
        entry(rdi="s/" + "k" * (MOST_RDI_BYTES - 3) + "?0")
    with pytest.raises(ValueError, match="at most 32721"):
        entry(rdi="s/" + "\u00e4" * (MOST_RDI_BYTES // 2) + "?0")  # bytes count, not characters


@pytest.mark.parametrize("rdi", ["", "store/key", "store?5", "store/key?", "store/key?-1", "s/k?x"])
def test_an_rdi_that_names_no_position_is_refused(rdi: str) -> None:
    with pytest.raises(Corrupt, match="is not <store id>/<object key>"):
        parse_rdi(rdi)


def test_every_flipped_bit_of_an_entry_is_found() -> None:
    whole = entry().encode()
    for number in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[number // 8] ^= 1 << number % 8
        with pytest.raises(Corrupt):
            decode_entry(damaged, 0)
    for size in range(len(whole)):
        with pytest.raises(Corrupt):
            decode_entry(whole[:size], 0)


@pytest.mark.parametrize("interval_bytes", [1, 500, 1 << 20])
def test_entries_cover_the_log_in_whole_batches(interval_bytes: int) -> None:
    entries = segment_entries(built(interval_bytes), len(LOG), 0, 99)
    headers = dict(batch_headers(LOG))
    assert len(entries) == {1: 20, 500: len(entries), 1 << 20: 1}[interval_bytes]
    for one in entries:
        assert headers[one.position].base_offset == one.first_offset
        inside = [
            header
            for at, header in headers.items()
            if one.position <= at < one.position + one.data_size_bytes
        ]
        assert inside[-1].last_offset == one.last_offset
        assert inside[0].base_timestamp_ms == one.first_timestamp_ms
        assert max(header.max_timestamp_ms for header in inside) == one.last_timestamp_ms
    assert all(one.data_size_bytes >= interval_bytes for one in entries[:-1])


@pytest.mark.parametrize(
    ("size_bytes", "start", "end"),
    [(len(LOG) - 1, 0, 99), (len(LOG) + 1, 0, 99), (len(LOG), 1, 99), (len(LOG), 0, 98)],
)
def test_entries_of_another_segment_are_refused(size_bytes: int, start: int, end: int) -> None:
    with pytest.raises(Corrupt):
        segment_entries(built(500), size_bytes, start, end)


def test_entries_with_a_gap_or_of_two_objects_are_refused() -> None:
    entries = [one for _, one in decode_entries(built(500))]
    other = replace(entries[1], rdi=entries[1].rdi.replace("key", "other"))
    for wrong in ([*entries[:1], *entries[2:]], [entries[0], other, *entries[2:]], []):
        with pytest.raises(Corrupt):
            segment_entries(b"".join(one.encode() for one in wrong), len(LOG), 0, 99)


def test_positions_are_found_by_offset_and_timestamp() -> None:
    rng = random.Random(1)
    placed, at, offset = [], 0, 1_000
    for _ in range(50):
        last = offset + rng.randrange(5)
        first_ms = rng.randrange(1_000)
        one = RemoteLogIndexEntry(
            first_offset=offset,
            last_offset=last,
            first_timestamp_ms=first_ms,
            last_timestamp_ms=first_ms + rng.randrange(100),
            data_size_bytes=1,
            rdi="s/k?0",
        )
        placed.append((at, one))
        at, offset = at + len(one.encode()), last + 1 + rng.randrange(3)
    offsets, times = index_files(placed, 1_000)
    assert len(offsets) == 8 * 50 and len(times) % 12 == 0
    for wanted in range(995, offset + 2):
        expected = [position for position, one in placed if one.first_offset <= wanted]
        found = [at for first, at in struct.iter_unpack(">ii", offsets) if first <= wanted - 1_000]
        assert found == expected
    for wanted in range(1_150):
        expected = [position for position, one in placed if one.last_timestamp_ms >= wanted]
        found = [at for largest, at in struct.iter_unpack(">qi", times) if largest >= wanted]
        assert found[:1] == expected[:1]


def test_offsets_beyond_int32_do_not_fit_one_index() -> None:
    with pytest.raises(ValueError, match="do not fit an index of base 0"):
        index_files([(0, entry(first=2**31, last=2**31))], 0)


def test_every_flipped_bit_of_a_segment_record_is_found() -> None:
    record = SegmentRecord(
        segment_id=Uuid(bytes(16)),
        start_offset=1,
        end_offset=9,
        log_size_bytes=70,
        indexes_crc32c=5,
        position=0,
        size_bytes=80,
        checksums=b"12345678",
        aborted=bytes(24),
    )
    whole = record.encode()
    assert decode_record(b"." + whole, 1) == (record, len(whole) + 1)
    for number in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[number // 8] ^= 1 << number % 8
        with pytest.raises(Corrupt):
            decode_record(damaged, 0)

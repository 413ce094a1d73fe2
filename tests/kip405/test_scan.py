"""The one pass over a segment file that proves what is copied (H13)."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip405.crc import crc32c
from kip405.errors import Corrupt
from kip405.lineage import Lineage
from kip405.records import ControlType, records
from kip405.scan import SegmentScan, SegmentScanner
from tests.kip405.batch_builder import batch, control_batch, legacy, log_of
from tests.kip405.segment_builder import entries, lineage, scanned

SEGMENT = batch(100, 3, epoch=4) + batch(103, 2, epoch=4) + batch(105, 1, epoch=7, first_ms=9_000)


def scan_in_feeds(data: bytes, sizes: list[int], chunk_size_bytes: int = 64) -> SegmentScan:
    scanner = SegmentScanner(base_offset=0, next_offset=1_000, chunk_size_bytes=chunk_size_bytes)
    position = 0
    for size in sizes:
        scanner.feed(memoryview(data)[position : position + size])
        position += size
    scanner.feed(memoryview(data)[position:])
    return scanner.finish()


def test_a_scan_reports_what_the_segment_holds() -> None:
    scan = scanned(SEGMENT, base_offset=100, next_offset=106, chunk_size_bytes=100)
    assert (scan.first_offset, scan.last_offset, scan.max_timestamp_ms) == (100, 105, 9_000)
    assert scan.epochs == entries({4: 100, 7: 105})
    assert scan.last_base_offsets == (103, 105)
    assert (scan.batch_count, scan.size_bytes) == (3, len(SEGMENT))
    assert scan.crc32c == crc32c(SEGMENT)
    assert scan.chunk_crcs == tuple(
        crc32c(SEGMENT[at : at + 100]) for at in range(0, len(SEGMENT), 100)
    )
    assert not scan.has_transactions


def test_transactions_are_noticed() -> None:
    log = batch(0, 2, transactional=True, producer_id=7) + control_batch(2, 0)
    assert scanned(log).has_transactions


def test_control_batches_are_shown_with_their_bytes() -> None:
    log = batch(0, 2, transactional=True, producer_id=7) + control_batch(2, 1, producer_id=7)
    found: list[tuple[int, int | None]] = []
    scanner = SegmentScanner(
        base_offset=0,
        on_control=lambda header, buffer, position: found.extend(
            (header.producer_id, one.control_type) for one in records(buffer, position)
        ),
    )
    for at in range(0, len(log), 50):
        scanner.feed(log[at : at + 50])
    scanner.finish()
    assert found == [(7, ControlType.COMMIT)]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 90), max_size=30))
def test_feeds_may_split_batches_anywhere(sizes: list[int]) -> None:
    assert scan_in_feeds(SEGMENT, sizes) == scan_in_feeds(SEGMENT, [])


def test_feeds_may_come_in_one_buffer_that_is_filled_again() -> None:
    buffer = bytearray(70)
    scanner = SegmentScanner(base_offset=100, next_offset=106, chunk_size_bytes=64)
    for at in range(0, len(SEGMENT), len(buffer)):
        piece = SEGMENT[at : at + len(buffer)]
        buffer[: len(piece)] = piece
        scanner.feed(memoryview(buffer)[: len(piece)])
        buffer[:] = bytes(len(buffer))
    whole = scanned(SEGMENT, base_offset=100, next_offset=106, chunk_size_bytes=64)
    assert scanner.finish() == whole


def test_one_byte_feeds() -> None:
    log = legacy(98, magic=0) + legacy(99) + SEGMENT
    assert scan_in_feeds(log, [1] * len(log)) == scan_in_feeds(log, [])


def test_legacy_batches_have_no_epoch() -> None:
    scan = scanned(legacy(0) + legacy(1) + batch(2, epoch=3))
    assert scan.epochs == entries({3: 2})
    assert scan.last_offset == 4


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "no batch"),
        (SEGMENT[:-1], "cut short"),
        (SEGMENT[:5], "cut short"),
        (batch(99), r"99\.\.101, expected within 100\.\.110"),
        (log_of(100, [3, 9]), r"103\.\.111, expected within 103\.\.110"),
        (batch(105) + batch(100), r"100\.\.102, expected within 108"),
        (batch(100, epoch=5) + batch(103, epoch=4), "epoch 4 after 5"),
    ],
)
def test_what_is_refused(data: bytes, match: str) -> None:
    with pytest.raises(Corrupt, match=match):
        scanned(data, base_offset=100, next_offset=111)


def test_a_flipped_byte_is_found_with_its_position_in_the_file() -> None:
    first = len(batch(100, 3))
    broken = bytearray(SEGMENT)
    broken[first + 70] ^= 1
    for sizes in ([], [first + 65], [10] * 30):
        with pytest.raises(Corrupt, match=rf"file position {first}: .*crc is"):
            scan_in_feeds(bytes(broken), sizes)


def test_a_size_beyond_the_limit_is_refused_before_it_is_collected() -> None:
    broken = bytearray(SEGMENT)
    struct.pack_into(">i", broken, 8, 2**31 - 13)
    scanner = SegmentScanner(base_offset=100, next_offset=106)
    with pytest.raises(Corrupt, match="claims 2147483647 bytes"):
        scanner.feed(broken[:20])


def test_h13_epochs_of_the_batches_must_agree_with_the_checkpoint() -> None:
    scan = scanned(SEGMENT)
    assert scan.agrees_with(lineage({2: 0, 4: 50, 7: 105}))
    assert scan.agrees_with(lineage({4: 100, 7: 104}))  # nothing was written at 104
    assert not scan.agrees_with(lineage({4: 50, 7: 103}))
    assert not scan.agrees_with(lineage({4: 50, 7: 106}))
    assert not scan.agrees_with(lineage({4: 50, 6: 105}))
    assert not scan.agrees_with(lineage({4: 50, 5: 103, 7: 105}))
    assert scan.agrees_with(lineage({7: 105}))  # what is below is not known (H8)
    assert not scan.agrees_with(lineage({7: 103}))
    assert not scan.agrees_with(Lineage())


def test_h13_every_epoch_is_compared_by_its_first_and_by_its_last_batch() -> None:
    log = batch(0, 10) + batch(10, 10, epoch=1) + batch(20, 10, epoch=1)
    scan = scanned(log)
    assert scan.agrees_with(lineage({0: 0, 1: 10}))
    assert not scan.agrees_with(lineage({0: 0, 1: 11}))
    assert not scan.agrees_with(lineage({0: 0, 1: 10, 2: 20}))


def test_h09_a_transaction_before_plain_batches_is_remembered() -> None:
    log = batch(0, 2, transactional=True, producer_id=7) + control_batch(2, 0) + batch(3, 2)
    assert scanned(log).has_transactions


def test_the_newest_timestamp_may_be_of_any_batch() -> None:
    log = batch(0, 2, first_ms=9_000) + batch(2, 2, first_ms=1_000)
    assert scanned(log).max_timestamp_ms == 9_001

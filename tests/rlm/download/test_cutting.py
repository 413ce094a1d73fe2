"""A part of a segment has the right batches and indexes that lead to them."""

import pytest

from kip405.batches import batch_headers
from kip405.errors import Corrupt
from kip405.indexes import (
    AbortedTransaction,
    OffsetIndex,
    TimeIndex,
    TransactionIndexEntry,
    encode_transaction_index,
    transaction_index,
)
from rlm.download.plan import INDEX_INTERVAL_BYTES, cut_segment, cut_transaction_index
from tests.kip405.batch_builder import batch

LOG = b"".join(
    batch(base, 10, first_ms=1_000 + base, value=b"v" * 150) for base in range(100, 400, 10)
)


def test_the_batches_between_the_offsets() -> None:
    cut = cut_segment(LOG, 150, 300)
    part = LOG[cut.start_position : cut.end_position]
    assert [header.base_offset for _, header in batch_headers(part)] == list(range(150, 300, 10))


def test_every_offset_and_time_is_found_through_the_new_indexes() -> None:
    cut = cut_segment(LOG, 150, 300)
    part = LOG[cut.start_position : cut.end_position]
    offsets = OffsetIndex(memoryview(cut.offset_index), 150)
    times = TimeIndex(memoryview(cut.time_index), 150)
    offsets.check(len(part))
    times.check()
    assert len(offsets) > 2
    assert times.entry(len(times) - 1) == (1_000 + 299, 299)
    for offset in range(150, 300):
        position = offsets.lookup(offset)
        first = next(header for _, header in batch_headers(part, position))
        assert first.base_offset <= offset
        assert offset - first.base_offset <= 10 + 10 * INDEX_INTERVAL_BYTES // 1_000
        assert times.lookup(1_000 + offset) <= offset


def test_a_part_that_is_the_whole() -> None:
    cut = cut_segment(LOG, 100, 400)
    assert (cut.start_position, cut.end_position) == (0, len(LOG))


@pytest.mark.parametrize(("start", "end"), [(155, 300), (150, 305), (400, 500), (0, 100)])
def test_a_border_inside_a_batch_and_an_empty_part_are_errors(start: int, end: int) -> None:
    with pytest.raises(Corrupt):
        cut_segment(LOG, start, end)


def test_aborts_go_with_the_segment_that_ends_them() -> None:
    entries = [
        TransactionIndexEntry(AbortedTransaction(7, first, last), 0)
        for first, last in ((90, 120), (140, 160), (170, 310))
    ]
    kept = cut_transaction_index(encode_transaction_index(entries), 150, 300)
    assert [entry.aborted.last_offset for entry in transaction_index(kept)] == [160]

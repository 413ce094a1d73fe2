"""Indexes that are built again from batches alone lead where those of a broker lead."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.batches import BatchHeader, batch_headers
from kip405.errors import Corrupt
from kip405.indexes import AbortedTransaction, OffsetIndex, TimeIndex, transaction_index
from kip405.rebuilt_indexes import INDEX_INTERVAL_BYTES, IndexBuilder, TransactionTracker
from tests.kip405.batch_builder import batch

VALUE = b"v" * 1_500


def built(base_offset: int, log: bytes) -> tuple[OffsetIndex, TimeIndex]:
    builder = IndexBuilder(base_offset)
    for position, header in batch_headers(log):
        builder.add(position, header)
    offsets, times = builder.finish()
    return OffsetIndex(memoryview(offsets), base_offset), TimeIndex(memoryview(times), base_offset)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 90_000)), min_size=1, max_size=30))
def test_every_offset_and_time_is_found(batches: list[tuple[int, int]]) -> None:
    log, offset = b"", 100
    for count, first_ms in batches:
        log += batch(offset, count, value=VALUE, first_ms=first_ms)
        offset += count
    index, times = built(100, log)
    index.check(len(log))
    times.check()
    headers = list(batch_headers(log))
    starts = {position: header for position, header in headers}
    for at in range(len(index)):
        indexed, position = index.entry(at)
        assert starts[position].base_offset <= indexed == starts[position].last_offset
    for wanted in range(100, offset):
        position = index.lookup(wanted)
        assert starts[position].base_offset <= wanted
    for wanted_ms in {header.max_timestamp_ms for _, header in headers}:
        first = min(one.base_offset for _, one in headers if one.max_timestamp_ms >= wanted_ms)
        assert times.lookup(wanted_ms) <= first + 3
    latest = max(header.max_timestamp_ms for _, header in headers)
    assert times.entry(len(times) - 1)[0] == latest


def test_entries_are_at_least_an_interval_apart() -> None:
    log = b"".join(batch(at, 1, value=VALUE, first_ms=at) for at in range(40))
    index, _ = built(0, log)
    positions = [index.entry(at)[1] for at in range(len(index))]
    assert len(positions) > 5
    steps = zip([0, *positions], positions, strict=False)
    assert all(after - before > INDEX_INTERVAL_BYTES for before, after in steps)


def test_an_offset_that_fits_no_index_is_an_error() -> None:
    with pytest.raises(Corrupt, match="too far"):
        IndexBuilder(0).add(0, header_at(1 << 31))


def header_at(offset: int, producer_id: int = -1) -> BatchHeader:
    _, header = next(batch_headers(batch(0, 1)))
    return header._replace(base_offset=offset, last_offset=offset, producer_id=producer_id)


@dataclass
class Model:
    """Every aborted transaction, and what is open, with all offsets written down."""

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)


ACTIONS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(["data", "abort", "commit", "roll"])), max_size=60
)


@given(ACTIONS)
def test_h09_a_list_is_complete_once_nothing_that_began_in_it_is_open(
    actions: list[tuple[int, str]],
) -> None:
    tracker, model = TransactionTracker(), Model()
    bases, offset = [0], 0
    for producer, action in actions:
        if action == "roll":
            if offset > bases[-1]:
                bases.append(offset)
            continue
        if action == "data":
            tracker.data(header_at(offset, producer))
            model.open.setdefault(producer, offset)
        else:
            tracker.marker(header_at(offset, producer), is_abort=action == "abort")
            first = model.open.pop(producer, None)
            if first is not None and action == "abort":
                model.aborted.append(AbortedTransaction(producer, first, offset))
        offset += 1
    assert tracker.first_open_offset == min(model.open.values(), default=None)
    for start, end in zip(bases, [*bases[1:], offset], strict=True):
        if start == end:
            continue
        touching = [
            one for one in model.aborted if one.last_offset >= start and one.first_offset < end
        ]
        assert list(tracker.aborted_in(start, end)) == touching
        own = [one for one in model.aborted if start <= one.last_offset < end]
        found = list(transaction_index(tracker.transaction_index(start, end)))
        assert [one.aborted for one in found] == own
        for entry in found:
            assert start <= entry.aborted.last_offset < end
            assert entry.last_stable_offset <= entry.aborted.last_offset + 1


def test_the_last_stable_offset_of_an_entry_is_that_of_the_oldest_open_one() -> None:
    tracker = TransactionTracker()
    for offset, producer in ((0, 1), (5, 2), (7, 3)):
        tracker.data(header_at(offset, producer))
    tracker.marker(header_at(9, 1), is_abort=True)
    tracker.marker(header_at(10, 3), is_abort=True)
    tracker.marker(header_at(11, 2), is_abort=True)
    entries = transaction_index(tracker.transaction_index(0, 12))
    assert [one.last_stable_offset for one in entries] == [5, 5, 12]


def test_a_marker_without_records_ends_nothing() -> None:
    tracker = TransactionTracker()
    tracker.marker(header_at(3, 1), is_abort=True)
    assert tracker.transaction_index(0, 100) == b""
    assert tracker.aborted_in(0, 100) == ()


def test_what_ended_before_is_forgotten() -> None:
    tracker = TransactionTracker()
    tracker.data(header_at(0, 1))
    tracker.marker(header_at(9, 1), is_abort=True)
    tracker.forget_below(9)
    assert len(tracker.aborted_in(0, 10)) == 1
    tracker.forget_below(10)
    assert tracker.aborted_in(0, 10) == ()

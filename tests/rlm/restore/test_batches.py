"""Stored bytes become batches that a broker takes, with the same records, however they are cut."""

import struct
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.batches import NO_EPOCH, Compression, batch_headers, check_crc, read_header
from kip405.errors import Corrupt, Invalid
from kip405.indexes import AbortedTransaction
from kip405.records import records
from rlm.restore.batches import REBUILT_BYTES, OutgoingBatch, SegmentFeed, next_sequence
from tests.kip405.batch_builder import batch, control_batch, legacy, with_attributes, with_right_crc
from tests.rlm.restore.world import Row, row_of, rows_of

LOG_APPEND_TIME, DELETE_HORIZON = 0x08, 0x40


def feed_of(log: bytes, **wanted: int) -> SegmentFeed:
    headers = [header for _, header in batch_headers(log)]
    bounds = {"start_offset": headers[0].base_offset, "end_offset": headers[-1].next_offset}
    bounds["from_offset"] = bounds["start_offset"]
    return SegmentFeed(aborted=(), **{**bounds, **wanted})


def taken(feed: SegmentFeed, *pieces: bytes) -> list[OutgoingBatch]:
    found = [one for piece in pieces for one in feed.feed(piece)]
    feed.finish()
    assert feed.is_done
    return found


def rows(batches: Sequence[OutgoingBatch]) -> list[Row]:
    """As a broker would have them; each batch is one that it takes."""
    found = []
    sequence = 5
    for one in batches:
        data = one.of_producer(42, 3, sequence)
        header = read_header(data)
        check_crc(data, 0, header)
        assert (header.base_offset, header.leader_epoch, header.size_bytes) == (
            0,
            NO_EPOCH,
            len(data),
        )
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
            42,
            3,
            sequence,
        )
        assert header.record_count == one.record_count == header.last_offset + 1
        assert header.is_transactional
        assert not header.attributes & (LOG_APPEND_TIME | DELETE_HORIZON)
        found += [row_of(record) for record in records(data)]
        sequence = next_sequence(sequence, one.record_count)
    return found


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_is_sent_as_it_is_stored(compression: Compression) -> None:
    log = batch(100, 7, epoch=9, compression=compression, value=b"v" * 500, producer_id=1)
    [sent] = taken(feed_of(log), log)
    assert rows([sent]) == rows_of(log)
    assert sent.data[61:] == log[61:]
    assert (sent.start_offset, sent.next_offset) == (100, 107)


KINDS = st.sampled_from(["plain", "kept", "aborted", "control", "stamped", "horizon", "gap"])


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[AbortedTransaction], list[tuple[int, Row]]]:
    """A log, its aborted transactions, and its visible records by offset."""
    log, aborted, visible = b"", [], []
    offset = draw(st.integers(0, 1000))
    for kind in draw(st.lists(KINDS, min_size=1, max_size=8)):
        count = draw(st.integers(1, 4))
        codec = draw(st.integers(0, 4))
        is_open = kind in ("kept", "aborted")
        made = batch(
            offset,
            count,
            compression=codec,
            first_ms=draw(st.integers(-1, 1 << 42)),
            transactional=is_open,
            producer_id=(7 if kind == "aborted" else 8) if is_open else -1,
        )
        if kind == "control":
            made = control_batch(offset, 1)
        elif kind == "stamped":
            made = with_attributes(made, LOG_APPEND_TIME)
        elif kind == "horizon":
            made = with_attributes(made, DELETE_HORIZON)
        elif kind == "aborted":
            aborted.append(AbortedTransaction(7, offset, offset + count))
            made += control_batch(offset + count, 0)
        elif kind == "gap":
            offset += draw(st.integers(1, 5))
            made = batch(offset, count, compression=codec)
        if kind not in ("control", "aborted"):
            visible += [(one.offset, row_of(one)) for one in records(made)]
        log += made
        offset = max(header.next_offset for _, header in batch_headers(made))
    return log, aborted, visible


@given(logs(), st.data())
def test_any_cut_gives_the_same_and_any_offset_the_rest(
    made: tuple[bytes, list[AbortedTransaction], list[tuple[int, Row]]], data: st.DataObject
) -> None:
    log, aborted, visible = made
    headers = [header for _, header in batch_headers(log)]
    start, end = headers[0].base_offset, headers[-1].next_offset
    from_offset = data.draw(st.integers(start, end))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=6)))
    pieces = [log[a:b] for a, b in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    feed = SegmentFeed(start_offset=start, end_offset=end, from_offset=from_offset, aborted=aborted)
    batches = taken(feed, *pieces)
    assert rows(batches) == [row for offset, row in visible if offset >= from_offset]
    borders = [(one.start_offset, one.next_offset) for one in batches]
    assert borders == sorted(borders)
    for one in batches:  # whoever goes on behind a batch gets what comes after it
        again = SegmentFeed(
            start_offset=start, end_offset=end, from_offset=one.next_offset, aborted=aborted
        )
        expected = [row for offset, row in visible if offset >= one.next_offset]
        assert rows(taken(again, log)) == expected


def test_what_is_built_again_is_cut_to_batches_of_bounded_size() -> None:
    log = with_attributes(batch(0, 40, value=b"v" * 100_000), LOG_APPEND_TIME)
    batches = taken(feed_of(log), log)
    assert rows(batches) == rows_of(log)
    assert len(batches) > 5
    assert max(len(one.data) for one in batches) <= REBUILT_BYTES
    assert [one.next_offset for one in batches[:-1]] == [one.start_offset for one in batches[1:]]


@pytest.mark.parametrize("first_ms", [-3, -1, 0, 1 << 61])
@pytest.mark.parametrize("compression", list(Compression))
def test_times_stay_that_builders_have_a_meaning_for(
    first_ms: int, compression: Compression
) -> None:
    """-1 is that of a record without a time; made by hand, as aiokafka does not write it."""
    made = bytearray(batch(0, 6, value=b"v" * 100_000, compression=compression))
    struct.pack_into(">qq", made, 27, first_ms, first_ms + 5)
    log = with_right_crc(made)
    assert [row[0] for row in rows_of(log)] == list(range(first_ms, first_ms + 6))
    batches = taken(feed_of(log, from_offset=0), log)
    assert rows(batches) == rows_of(log)
    for from_offset in range(1, 6):
        batches = taken(feed_of(log, from_offset=from_offset), log)
        assert rows(batches) == rows_of(log)[from_offset:]
        newest = max(read_header(one.data).max_timestamp_ms for one in batches)
        assert newest == first_ms + 5


def damaged() -> Iterator[tuple[bytes, dict[str, int], str]]:
    good = batch(0, 5)
    yield good[:-1] + bytes([good[-1] ^ 1]), {}, "crc"
    yield good + batch(3, 5), {}, "offset 3 comes after 4"
    yield good, {"end_offset": 3}, "across the border"
    yield good, {"start_offset": 2, "from_offset": 2}, "across the border"


@pytest.mark.parametrize(("log", "wanted", "match"), list(damaged()))
def test_damage_is_an_error(log: bytes, wanted: dict[str, int], match: str) -> None:
    bounds = {"start_offset": 0, "end_offset": 8, "from_offset": 0, **wanted}
    with pytest.raises(Corrupt, match=match):
        SegmentFeed(aborted=(), **bounds).feed(log)


def test_a_log_that_ends_within_a_batch_is_corrupt() -> None:
    log = batch(0, 5)
    feed = feed_of(log)
    assert feed.feed(log[:-1]) == []
    with pytest.raises(Corrupt, match="within a batch"):
        feed.finish()


def test_old_formats_are_named() -> None:
    log = legacy(0)
    with pytest.raises(Invalid, match="record format 1"):
        feed_of(log).feed(log)


def test_sequences_begin_again_at_zero() -> None:
    assert next_sequence(0x7FFFFFFF, 1) == 0
    assert next_sequence(0x7FFFFFFE, 3) == 1

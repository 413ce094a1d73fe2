"""Cutting batches out of chunks, against a plain scan of the whole log (batch_headers)."""

import struct
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.batches import BatchHeader, batch_headers
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt
from kip405.indexes import OffsetIndex
from rlm.plans.fetch import ChunkWindow, Cut, ReadBounds, cut
from tests.kip405.batch_builder import batch, legacy

ZSTD = 4


@dataclass(frozen=True)
class Log:
    data: bytes
    next_offset: int


def v2(base: int, records: int, body: int, attributes: int) -> bytes:
    """A batch of magic 2 whose records are filler: only headers are looked at."""
    delta = records - 1
    return (
        struct.pack(">qiibIhi", base, 49 + body, 3, 2, 0, attributes, delta)
        + struct.pack(">qqqhii", 1, 2, -1, -1, -1, records)
        + bytes([0xAB]) * body
    )


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Batches of all magics, gaps as compaction leaves them, sizes from empty to many chunks."""
    data, offset = b"", draw(st.integers(0, 50))
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.sampled_from((0, 0, 0, 1, 7)))
        magic = draw(st.sampled_from((2, 2, 2, 1, 0)))
        if magic == 2:
            count = draw(st.integers(1, 20))
            data += v2(
                offset,
                count,
                draw(st.sampled_from((0, 1, 30, 200))),
                draw(st.sampled_from((0, 1, ZSTD, 0x10))),
            )
            offset += count
        else:
            value = draw(st.sampled_from((None, b"", b"v" * 90)))
            data += legacy(offset, magic=magic, timestamp_ms=0x0400_0000, value=value)
            offset += 1
    return Log(data, offset)


@st.composite
def bounds(draw: st.DrawFn) -> ReadBounds:
    return ReadBounds(
        offset=draw(st.integers(0, 200)),
        upper_offset=draw(st.one_of(st.integers(0, 250), st.just(2**62))),
        max_bytes=draw(st.sampled_from((0, 1, 61, 150, 400, 10_000))),
        at_least_one=draw(st.booleans()),
    )


def expected(log: bytes, position: int, asked: ReadBounds) -> Cut:
    """What the whole log says, batch by batch."""
    taken: list[BatchHeader] = []
    start, exhausted = position, True
    for at, header in batch_headers(log, position):
        after = at + header.size_bytes
        if header.last_offset < asked.offset:
            start = after
            continue
        if header.last_offset >= asked.upper_offset:
            break
        if after - start > asked.max_bytes and (taken or not asked.at_least_one):
            exhausted = False
            break
        taken.append(header)
    size = sum(header.size_bytes for header in taken)
    return Cut(
        start=start,
        end=start + size,
        next_offset=taken[-1].last_offset + 1 if taken else asked.offset,
        exhausted=exhausted,
    )


@st.composite
def indexes(draw: st.DrawFn, log: bytes) -> OffsetIndex:
    """An entry for some of the batches, or for some runs of batches that a follower appended."""
    entries, first = b"", None
    for at, header in batch_headers(log):
        first = at if first is None else first
        if draw(st.booleans()):
            continue  # it belongs to the next run
        if draw(st.booleans()):
            entries += struct.pack(">ii", header.last_offset, first)
        first = None
    return OffsetIndex(memoryview(entries), 0)


def cut_loading(
    log: bytes, size: int, position: int, asked: ReadBounds, index: OffsetIndex | None = None
) -> tuple[Cut, ChunkWindow]:
    """Cut as the task does: load what is needed, drop what was passed, until nothing is needed."""
    loaded: dict[int, bytes] = {}
    window = ChunkWindow(size, len(log), loaded)
    for _ in range(2 * (len(log) // size + 2)):
        found = cut(window, position, asked, index)
        if found.needed is None:
            return found, window
        start, end = found.needed
        assert found.end <= start < end <= len(log)
        assert start // size not in loaded, "asked for what is there"
        for number in range(start // size, -(-end // size)):
            loaded[number] = log[number * size : (number + 1) * size]
        position = found.start
        for passed in [number for number in loaded if (number + 1) * size <= position]:
            del loaded[passed]
    raise AssertionError("the scan never ends")


def borders(log: bytes, offset: int) -> list[int]:
    """Positions that an index may answer for the offset."""
    return [0] + [at for at, header in batch_headers(log) if header.base_offset <= offset]


@given(logs(), bounds(), st.integers(1, 300), st.data())
def test_any_chunk_size_gives_what_the_whole_log_gives(
    log: Log, asked: ReadBounds, size: int, data: st.DataObject
) -> None:
    position = data.draw(st.sampled_from(borders(log.data, asked.offset)))
    index = data.draw(st.none() | indexes(log.data))
    found, window = cut_loading(log.data, size, position, asked, index)
    assert found == expected(log.data, position, asked)
    joined = b"".join(window.slices(found.start, found.end))
    assert joined == log.data[found.start : found.end]


class CountedWindow(ChunkWindow):
    """Counts the places at which the scan looked for a header."""

    looked_at: int = 0

    def headers_at(self, position: int) -> tuple[ByteBuffer, int] | None:
        self.looked_at += 1
        return super().headers_at(position)


def test_batches_between_both_ends_are_not_looked_at() -> None:
    data = b"".join(v2(base, 1, 20, 0) for base in range(1_000))
    size = len(v2(0, 1, 20, 0))
    entries = b"".join(struct.pack(">ii", at, at * size) for at in range(0, 1_000, 10))
    index = OffsetIndex(memoryview(entries), 0)
    # Chunks of one batch: each header is looked for at a place of its own.
    window = CountedWindow(size, len(data), {at: v2(at, 1, 20, 0) for at in range(1_000)})
    asked = ReadBounds(offset=15, upper_offset=900, max_bytes=1 << 30, at_least_one=True)
    found = cut(window, index.lookup(15), asked, index)
    assert (found.start, found.end, found.next_offset) == (15 * size, 900 * size, 900)
    assert found.exhausted and found.needed is None
    assert window.looked_at < 40


@pytest.mark.parametrize("ends_by", ["max_bytes", "what is loaded"])
def test_an_answer_that_ends_where_the_index_points_knows_its_next_offset(ends_by: str) -> None:
    data = b"".join(v2(base, 1, 20, 0) for base in range(100))
    size = len(v2(0, 1, 20, 0))
    entries = b"".join(struct.pack(">ii", at, at * size) for at in range(0, 100, 10))
    end = 40 * size + size // 2
    chunks = {0: data} if ends_by == "max_bytes" else {0: data[:end]}
    window = ChunkWindow(len(chunks[0]), len(data), chunks)
    max_bytes = end if ends_by == "max_bytes" else len(data)
    asked = ReadBounds(offset=0, upper_offset=100, max_bytes=max_bytes, at_least_one=True)
    found = cut(window, 0, asked, OffsetIndex(memoryview(entries), 0))
    assert (found.start, found.end, found.next_offset) == (0, 40 * size, 40)


def test_the_index_passes_over_nothing_that_is_not_loaded() -> None:
    data = b"".join(v2(base, 1, 20, 0) for base in range(30))
    size = len(v2(0, 1, 20, 0))
    entries = b"".join(struct.pack(">ii", at, at * size) for at in (22, 25))
    chunks = {at: data[at * 10 * size : (at + 1) * 10 * size] for at in (0, 2)}
    window = ChunkWindow(10 * size, len(data), chunks)
    asked = ReadBounds(offset=0, upper_offset=30, max_bytes=len(data), at_least_one=True)
    found = cut(window, 0, asked, OffsetIndex(memoryview(entries), 0))
    assert (found.start, found.end, found.next_offset) == (0, 10 * size, 10)


@pytest.mark.parametrize("wrong_by", [-1, 1, 30])
def test_an_index_that_is_wrong_about_its_batch_passes_over_nothing(wrong_by: int) -> None:
    data = b"".join(v2(base, 1, 20, 0) for base in range(100))
    size = len(v2(0, 1, 20, 0))
    entries = b"".join(struct.pack(">ii", at, at * size + wrong_by) for at in (40, 60))
    window = ChunkWindow(len(data), len(data), {0: data})
    asked = ReadBounds(offset=0, upper_offset=100, max_bytes=1 << 30, at_least_one=True)
    found = cut(window, 0, asked, OffsetIndex(memoryview(entries), 0))
    assert (found.start, found.end, found.next_offset) == (0, len(data), 100)


@given(logs(), st.integers(1, 300), st.sampled_from((1, 100, 1_000)))
def test_reading_on_gives_every_batch_once(log: Log, size: int, max_bytes: int) -> None:
    got, offset, position = b"", 0, 0
    while offset < log.next_offset:
        asked = ReadBounds(
            offset=offset, upper_offset=log.next_offset, max_bytes=max_bytes, at_least_one=True
        )
        found, window = cut_loading(log.data, size, position, asked)
        assert found.next_offset > offset
        got += b"".join(window.slices(found.start, found.end))
        offset, position = found.next_offset, found.end
    assert got == log.data


@given(logs(), bounds(), st.integers(1, 300), st.data())
def test_damaged_headers_are_corrupt_and_nothing_else(
    log: Log, asked: ReadBounds, size: int, data: st.DataObject
) -> None:
    damaged = bytearray(log.data)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.sampled_from((0, 1, 3, 0x7F, 0x80, 0xFF)))
    cut_short = bytes(damaged[: data.draw(st.integers(1, len(damaged)))])
    try:
        found, _ = cut_loading(cut_short, size, 0, asked)
    except Corrupt as error:
        assert str(error).startswith("batch at ")
    else:
        assert 0 <= found.start <= found.end <= len(cut_short)


def whole(log: bytes, offset: int = 0, upper_offset: int = 2**62) -> Cut:
    asked = ReadBounds(
        offset=offset, upper_offset=upper_offset, max_bytes=1 << 30, at_least_one=True
    )
    return cut(ChunkWindow(len(log), len(log), {0: log}), 0, asked)


GOOD = batch(0, 3)


@pytest.mark.parametrize(
    "damaged",
    [
        GOOD[:8] + b"\x00\x00\x00\x00" + GOOD[12:],
        GOOD[:8] + b"\xff\xff\xff\xff" + GOOD[12:],
        GOOD[:8] + b"\x7f\xff\xff\xff" + GOOD[12:],
        GOOD[:16] + b"\x03" + GOOD[17:],
        GOOD[:16] + b"\xff" + GOOD[17:],
        GOOD[:23] + b"\xff\xff\xff\xff" + GOOD[27:],
        b"\xff" + GOOD[1:],
        GOOD[:-1],
        GOOD[:20],
        GOOD + b"\x00",
        batch(5, 3) + batch(7, 1),
    ],
    ids=[
        "no length",
        "negative length",
        "length beyond the log",
        "magic 3",
        "magic -1",
        "negative delta",
        "negative offset",
        "cut body",
        "cut header",
        "a byte after the last batch",
        "descending offsets",
    ],
)
def test_bytes_that_are_no_batches_are_corrupt(damaged: bytes) -> None:
    with pytest.raises(Corrupt, match="batch at "):
        whole(damaged)


def test_the_smallest_message_there_is_may_end_a_log() -> None:
    """Magic 0 without key and value has 26 bytes, less than what is read of a header."""
    smallest = struct.pack(">qiIbbii", 4, 14, 0, 0, 0, -1, -1)
    found = whole(legacy(3, magic=0) + smallest)
    assert (found.next_offset, found.exhausted) == (5, True)


def limited(log: bytes, max_bytes: int, *, offset: int = 0, at_least_one: bool = True) -> Cut:
    asked = ReadBounds(
        offset=offset, upper_offset=2**62, max_bytes=max_bytes, at_least_one=at_least_one
    )
    return cut(ChunkWindow(len(log), len(log), {0: log}), 0, asked)


def test_a_batch_that_fits_exactly_is_given_and_one_byte_less_leaves_it_out() -> None:
    first, second = batch(0, 3), batch(3, 3)
    size = len(first) + len(second)
    assert limited(first + second, size).next_offset == 6
    assert limited(first + second, size - 1).next_offset == 3
    assert limited(first + second, len(first) - 1).next_offset == 3
    assert limited(first + second, len(first) - 1, at_least_one=False).next_offset == 0


def test_what_is_skipped_does_not_count_against_the_limit() -> None:
    skipped, first, second = batch(0, 40), batch(40, 3), batch(43, 3)
    found = limited(skipped + first + second, len(first) + len(second), offset=41)
    assert (found.start, found.next_offset) == (len(skipped), 46)


def test_a_batch_that_claims_less_than_its_header_is_corrupt() -> None:
    torn = bytearray(GOOD[:60])
    struct.pack_into(">i", torn, 8, 48)
    with pytest.raises(Corrupt, match="batch at 0: magic 2, 48 bytes"):
        whole(bytes(torn))
    smallest = v2(0, 1, 0, 0)
    assert whole(smallest).next_offset == 1

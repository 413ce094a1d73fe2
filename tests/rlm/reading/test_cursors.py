"""Readers are recognised by the offset at which they continue; windows grow, shrink and cross
segment borders.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.segments import RemoteLogSegmentMetadata
from rlm.reading.cursors import Cursor, Cursors
from rlm.reading.values import ReadLimits
from tests.builders.ledger import PARTITION, metadata

CHUNK = 1 << 20
SEGMENT = 16 * CHUNK
RECORDS = 1_000
LIMITS = ReadLimits(memory_bytes=256 << 20)


def segment(number: int, size_bytes: int = SEGMENT) -> RemoteLogSegmentMetadata:
    made = metadata(number + 1, number * RECORDS, (number + 1) * RECORDS, {0: 0})
    return replace(made, segment_size_bytes=size_bytes)


def following(count: int, size_bytes: int = SEGMENT):  # type: ignore[no-untyped-def]
    def found(offset: int) -> RemoteLogSegmentMetadata | None:
        number = offset // RECORDS
        return segment(number, size_bytes) if number < count else None

    return found


def reader_at(cursors: Cursors, offset: int, now_ms: int = 0) -> Cursor:
    return cursors.at(PARTITION.key, offset, now_ms)


def read(cursor: Cursor, offset: int, next_offset: int) -> None:
    cursor.reads += 1
    cursor.start_offset, cursor.next_offset = offset, next_offset


def test_who_reads_on_or_again_is_the_same_reader() -> None:
    cursors = Cursors(LIMITS)
    one = reader_at(cursors, 0)
    read(one, 0, 10)
    assert reader_at(cursors, 10) is one
    assert reader_at(cursors, 0) is one
    other = reader_at(cursors, 500)
    assert other is not one
    read(other, 500, 5)  # a reader that continues here is preferred to one that may repeat
    assert reader_at(cursors, 5) is other
    read(other, 500, 500)
    assert reader_at(cursors, 500) is other
    assert len(cursors) == 2


def test_idle_readers_are_forgotten_and_reported() -> None:
    cursors = Cursors(LIMITS)
    one, other = reader_at(cursors, 0, 0), reader_at(cursors, 500, 6_000)
    assert reader_at(cursors, 500, 10_001) is other
    assert cursors.gone() == (one,)
    assert cursors.gone() == ()
    assert reader_at(cursors, 0, 10_001) is not one


def test_g10_readers_are_bounded_per_partition_and_in_all() -> None:
    cursors = Cursors(replace(LIMITS, readers_per_partition=3, most_readers=5))
    for number in range(50):
        reader_at(cursors, number * 100, number)
        assert len(cursors) <= 3
    for number in range(50):
        key = PARTITION.key._replace(partition=number)
        cursors.at(key, 0, 100 + number)
        assert len(cursors) <= 5
    assert len(cursors.gone()) == 95


def test_the_window_doubles_while_the_reader_keeps_up() -> None:
    cursor = reader_at(Cursors(LIMITS), 0)
    seen = []
    for _ in range(40):
        cursor.grow(LIMITS.window_bytes, CHUNK, has_waited=False)
        seen.append(cursor.window_bytes >> 20)
    assert sorted(set(seen)) == [4, 8, 16, 32, 64]
    assert seen == sorted(seen) and seen[0] == 4


def test_a_reader_that_waited_gets_more_at_once() -> None:
    cursor = reader_at(Cursors(LIMITS), 0)
    for _ in range(3):
        cursor.grow(LIMITS.window_bytes, 1, has_waited=True)
    assert cursor.window_bytes == 32 << 20


def test_where_readers_jump_about_new_ones_begin_with_less() -> None:
    """And with more again once one reads on."""
    cursors = Cursors(replace(LIMITS, readers_per_partition=1))
    windows = [reader_at(cursors, number * 100).window_bytes for number in range(30)]
    assert windows[0] == LIMITS.start_window_bytes and windows[-1] == 0
    for number in range(30):
        one = reader_at(cursors, 100_000 + number * 1_000)
        read(one, one.start_offset, one.start_offset + 5)
        read(one, one.start_offset, one.start_offset + 9)
    assert reader_at(cursors, 5).window_bytes == LIMITS.start_window_bytes


def test_a_reader_without_a_window_gets_one_when_it_reads_on() -> None:
    cursors = Cursors(LIMITS)
    cursor = reader_at(cursors, 0)
    cursor.window_bytes = 0
    cursor.grow(LIMITS.window_bytes, 1, has_waited=True)
    assert cursor.window_bytes >= CHUNK


def planned(cursor: Cursor, window: int, count: int = 10, size_bytes: int = SEGMENT) -> list[str]:
    plan = cursor.ahead(
        window_bytes=window,
        range_bytes=LIMITS.range_bytes,
        chunk_bytes=CHUNK,
        following=following(count, size_bytes),
    )
    return [
        f"{one.segment.start_offset // RECORDS}:{one.start >> 20}-{-(-one.end // CHUNK)}"
        for one in plan
    ]


def test_small_windows_ask_for_small_ranges_and_large_ones_for_whole_segments() -> None:
    cursor = reader_at(Cursors(LIMITS), 0)
    cursor.moved(segment(0), CHUNK // 2, CHUNK)
    assert planned(cursor, 4 * CHUNK) == ["0:1-3"]
    assert planned(cursor, 4 * CHUNK) == []
    assert planned(cursor, 64 * CHUNK) == [
        "0:3-16",
        *(f"{number}:0-{end}" for number in (1, 2, 3) for end in (0, 16)),
    ]
    assert planned(cursor, 64 * CHUNK) == []
    cursor.moved(segment(1), 0, CHUNK)
    assert planned(cursor, 64 * CHUNK) == ["4:0-0", "4:0-16"]


def test_eight_readers_of_default_memory_still_ask_for_a_segment_at_a_time() -> None:
    """<= 200 GET per GiB at 16 MiB segments needs two requests a segment."""
    cursors = Cursors(LIMITS)
    for number in range(8):
        cursors.at(PARTITION.key._replace(partition=number), 0, 0)
    cursor = cursors.at(PARTITION.key, 0, 0)
    cursor.moved(segment(0), 8 * CHUNK, CHUNK)
    cursor.asked(segment(0), SEGMENT, CHUNK)
    window = min(cursors.window_share_bytes, LIMITS.window_bytes)
    assert planned(cursor, window) == ["1:0-0"]
    cursor.moved(segment(0), 13 * CHUNK, CHUNK)
    assert planned(cursor, window) == ["1:0-16", "2:0-0"]


def test_nothing_is_planned_beyond_the_last_segment() -> None:
    cursor = reader_at(Cursors(LIMITS), 0)
    cursor.moved(segment(0), 0, CHUNK)
    assert planned(cursor, 64 * CHUNK, count=1) == ["0:0-16"]
    assert planned(cursor, 64 * CHUNK, count=1) == []


def test_many_readers_share_the_memory() -> None:
    cursors = Cursors(LIMITS)
    for number in range(200):
        cursors.at(PARTITION.key._replace(partition=number), 0, 0)
    assert cursors.window_share_bytes * 200 <= LIMITS.ahead_bytes < LIMITS.chunk_bytes


@pytest.mark.parametrize("window_chunks", [1, 2, 3, 7, 24, 64])
@given(st.lists(st.integers(1, 5 * CHUNK), min_size=1, max_size=60), st.integers(1, 40))
def test_what_is_asked_for_is_gapless_and_within_the_window(
    window_chunks: int, steps: list[int], segment_chunks: int
) -> None:
    """Whatever the sizes: every chunk once, in order, never further than the window."""
    size, window = segment_chunks * CHUNK - 77, window_chunks * CHUNK
    cursor = reader_at(Cursors(LIMITS), 0)
    at, asked_until = 0, 0
    cursor.moved(segment(0, size), 0, CHUNK)
    for step in steps:
        plan = cursor.ahead(
            window_bytes=window,
            range_bytes=LIMITS.range_bytes,
            chunk_bytes=CHUNK,
            following=following(1_000, size),
        )
        for one in plan:
            base = one.segment.start_offset // RECORDS * size
            assert one.end - one.start <= LIMITS.range_bytes
            if one.end > one.start:
                assert one.start % CHUNK == 0
                assert base + one.start <= max(asked_until, at) + CHUNK
                asked_until = base + one.end
                assert asked_until - at <= window
        at = min(at + step, max(asked_until, at + 1))
        number, position = divmod(at, size)
        cursor.moved(segment(number, size), position, CHUNK)

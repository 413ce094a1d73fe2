"""What is left to export, and how it is cut."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rlm_spark.pipelines.chunks import (
    Chunk,
    ChunkSize,
    Interval,
    Span,
    covered,
    cut,
    new_chunks,
    without,
)
from tiered_reads.values import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=6)


def chunk(start: int, end: int, topic_partition: TopicPartition = T0) -> Chunk:
    return Chunk(
        plan=1,
        number=0,
        topic=topic_partition.topic,
        topic_id=None,
        partition=topic_partition.partition,
        start_offset=start,
        end_offset=end,
    )


@given(INTERVALS, st.integers(0, 60), st.integers(0, 30))
def test_what_is_left_is_what_was_wanted_and_not_taken(
    taken: list[tuple[int, int]], start: int, size: int
) -> None:
    chunks = [chunk(first, first + length) for first, length in taken]
    joined = covered(chunks).get(T0, ())
    had = {offset for one in chunks for offset in range(one.start_offset, one.end_offset)}
    assert {offset for first, end in joined for offset in range(first, end)} == had
    assert all(a[1] < b[0] for a, b in itertools.pairwise(joined))
    left = without((start, start + size), joined)
    assert [offset for first, end in left for offset in range(first, end)] == [
        offset for offset in range(start, start + size) if offset not in had
    ]


@given(st.integers(0, 10**12), st.integers(1, 10**6), st.integers(1, 10**6))
def test_cuts_are_even_whole_and_never_too_large(start: int, size: int, most: int) -> None:
    most = max(most, size // 1000)
    parts = list(cut((start, start + size), most))
    assert (parts[0][0], parts[-1][1]) == (start, start + size)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
    sizes = [end - first for first, end in parts]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1


def test_a_plan_takes_turns_and_marks_what_begins_at_the_earliest() -> None:
    wanted = {
        T0: Span(start_offset=0, end_offset=30, from_earliest=True),
        T1: Span(start_offset=5, end_offset=25),
    }
    taken: dict[TopicPartition, list[Interval]] = {T1: [(10, 20)]}
    plan = new_chunks(
        7,
        wanted,
        taken,
        topic_ids={"t": "id"},
        size=ChunkSize(records=15, stored_bytes=100),
        bytes_per_offset={T1: 50.0},
    )
    assert [(one.name, one.partition, one.start_offset, one.end_offset) for one in plan] == [
        ("000007-000000", 0, 0, 15),
        ("000007-000001", 1, 5, 6),
        ("000007-000002", 0, 15, 30),
        ("000007-000003", 1, 6, 8),
        ("000007-000004", 1, 8, 10),
        ("000007-000005", 1, 20, 21),
        ("000007-000006", 1, 21, 23),
        ("000007-000007", 1, 23, 25),
    ]
    assert [one.from_earliest for one in plan] == [True] + [False] * 7
    assert {one.topic_id for one in plan} == {"id"}


def test_little_work_is_cut_for_all_workers_but_not_into_crumbs() -> None:
    size = ChunkSize(records=1_000_000)
    assert size.shared(total_offsets=3_000_000, workers=4).records == 250_000
    assert size.shared(total_offsets=10_000, workers=4).records == 50_000
    assert size.shared(total_offsets=10**9, workers=4).records == 1_000_000
    assert ChunkSize(records=10).shared(total_offsets=10**9, workers=4).records == 10

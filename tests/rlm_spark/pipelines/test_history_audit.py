"""Holes, overlaps and other histories among the segments of one partition."""

import pytest

from rlm_spark.pipelines.findings import AuditedSegment, audit_history
from tests.kip405.segment_builder import segment
from tiered_reads.values import TopicPartition

TOPIC_PARTITION = TopicPartition("t", 0)


def audited(start: int, next_offset: int, epochs: dict[int, int]) -> AuditedSegment:
    return AuditedSegment(metadata=segment(start, next_offset - 1, epochs), objects_stem="stem")


@pytest.mark.parametrize(
    ("rows", "log_start", "holes"),
    [
        ([(0, 10), (10, 20)], 0, []),
        ([(0, 10), (12, 20)], 0, ["10 to 12"]),
        ([(0, 10), (12, 20)], 12, []),
        ([(0, 10), (12, 20)], 11, ["11 to 12"]),
        ([(5, 10)], -1, []),
        ([(5, 10)], 3, ["3 to 5"]),
        ([], 3, []),
        ([(0, 10), (5, 20), (25, 30), (40, 50)], 0, ["20 to 25", "30 to 40"]),
    ],
)
def test_holes(rows: list[tuple[int, int]], log_start: int, holes: list[str]) -> None:
    segments = [audited(start, end, {0: start}) for start, end in rows]
    found = audit_history(TOPIC_PARTITION, segments, log_start)
    assert [one.detail.removeprefix("no segment has the offsets ") for one in found.findings] == (
        holes
    )
    assert all(str(one.kind.value) == "hole" for one in found.findings)


def test_copies_of_two_leaders_overlap_lawfully() -> None:
    rows = [audited(0, 10, {0: 0}), audited(6, 20, {0: 6})]
    found = audit_history(TOPIC_PARTITION, rows, 0)
    assert found.findings == ()
    assert (found.overlapping_offsets, found.outside, found.below_start) == (4, 0, 0)


def test_h04_a_segment_counts_up_to_where_it_leaves_the_history() -> None:
    """Epoch 1 began at 10 elsewhere: what the old leader had beyond that is no one's history."""
    old = audited(0, 20, {0: 0})
    new = audited(15, 30, {1: 15})
    lost = audit_history(TOPIC_PARTITION, [old, new], 0)
    assert lost.findings == ()
    middle = audited(10, 15, {1: 10})
    assert audit_history(TOPIC_PARTITION, [old, middle, new], 0).overlapping_offsets == 0
    beyond = audited(12, 14, {0: 12})
    assert audit_history(TOPIC_PARTITION, [old, middle, new, beyond], 0).outside == 1

"""What people are shown before they delete it: every offset counted once, times of both ends."""

from dataclasses import replace

from rlm.plans.remote_extent import RemoteExtent, remote_extent
from tests.builders.ledger import metadata


def test_offsets_are_counted_once() -> None:
    segments = [
        replace(metadata(number, start, end, {0: 0}), max_timestamp_ms=at_ms)
        for number, start, end, at_ms in (
            (1, 0, 10, 5_000),
            (2, 5, 20, 9_000),
            (3, 6, 8, 7_000),
            (4, 30, 40, 6_000),
        )
    ]
    found = remote_extent(reversed(segments))
    assert found == RemoteExtent(
        segments=4, records=30, size_bytes=4, oldest_ms=5_000, newest_ms=9_000
    )
    assert "30 records in 4 segments, 4 B, from 1970-01-01 00:00:05 to" in str(found)


def test_nothing_has_no_times() -> None:
    found = remote_extent([])
    assert (found.records, found.oldest_ms) == (0, None)
    assert str(found).endswith("0 segments, 0 B")

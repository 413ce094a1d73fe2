"""What a shorter retention ends beyond what is ended already."""

from dataclasses import replace

import pytest

from kip405.ids import MAX_OFFSET
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.log_dir.scanner import PartitionLog
from rlm.plans.deletable import DeletableRecords, deletable_records
from rlm.plans.expiry import ExpiryView
from rlmm.settings_records import TotalRetention
from tests.builders.ledger import PARTITION, MemoryLedger, metadata

NOW_MS = 1_000_000
HELD = TotalRetention()


def view(*, start: int | None = 0, with_times: bool = True) -> ExpiryView:
    """Three segments of 10 offsets and 100 bytes, 300, 200 and 100 ms old."""
    ledger = MemoryLedger()
    for number in range(3):
        first = number * 10
        at_ms = NOW_MS - 300 + number * 100 if with_times else -1
        segment = metadata(number + 1, first, first + 10, {0: 0})
        ledger.copied(replace(segment, max_timestamp_ms=at_ms, segment_size_bytes=100))
    empty = PartitionLog(
        topic=PARTITION.topic,
        partition=PARTITION.partition,
        topic_id=None,
        directory="",
        segments=(),
        lineage=Lineage(()),
        recovery_point=None,
    )
    return ExpiryView(
        ledger=ledger.ledger(PARTITION.key),
        lineage=Lineage((EpochEntry(epoch=0, start_offset=0),)),
        log_end_offset=MAX_OFFSET,
        remote_log_start_offset=start,
        remote_log_start_epoch=0,
        log=empty,
        local_log_start_offset=MAX_OFFSET,
        holes=(),
        copying=(),
        retention=HELD,
        now_ms=NOW_MS,
        most_percent=None,
    )


def found(start: int, end: int, size_bytes: int, oldest_ms: int, newest_ms: int) -> object:
    return DeletableRecords(
        partition=PARTITION.partition,
        start_offset=start,
        next_offset=end,
        size_bytes=size_bytes,
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
    )


@pytest.mark.parametrize(
    ("start", "before", "after", "expected"),
    [
        (0, HELD, TotalRetention(retention_ms=150), found(0, 20, 200, NOW_MS - 300, NOW_MS - 200)),
        (
            0,
            TotalRetention(retention_ms=250),
            TotalRetention(retention_ms=150),
            found(10, 20, 100, NOW_MS - 200, NOW_MS - 200),
        ),
        (
            15,
            HELD,
            TotalRetention(retention_ms=150),
            found(15, 20, 100, NOW_MS - 200, NOW_MS - 200),
        ),
        (0, HELD, TotalRetention(retention_bytes=250), None),
        (0, HELD, TotalRetention(retention_bytes=100), found(0, 20, 200, 999_700, 999_800)),
        (0, TotalRetention(retention_ms=150), TotalRetention(retention_ms=250), None),
        (0, HELD, TotalRetention(retention_ms=400), None),
        (None, HELD, TotalRetention(retention_ms=1), None),
    ],
)
def test_what_becomes_deletable(
    start: int | None, before: TotalRetention, after: TotalRetention, expected: object
) -> None:
    assert deletable_records(view(start=start), before=before, after=after) == expected


def test_records_without_timestamps_have_no_oldest() -> None:
    after = TotalRetention(retention_bytes=200)
    assert deletable_records(view(with_times=False), before=HELD, after=after) == found(
        0, 10, 100, -1, -1
    )

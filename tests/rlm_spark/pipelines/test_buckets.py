"""Days and hours of timestamps, and the folders that they name."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_spark.pipelines.buckets import NULL_FOLDER, SPANS_US, folder_of, split

LIMIT = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch_of(stamps_us: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(stamps_us, pa.int64()).view(pa.timestamp("us", tz="UTC")),
            pa.array(range(len(stamps_us)), pa.int64()),
        ],
        names=["timestamp", "offset"],
    )


@given(st.lists(st.integers(-LIMIT, LIMIT), max_size=40), st.sampled_from(["day", "hour"]))
def test_every_row_goes_to_its_bucket_once_in_order(stamps: list[int], by: str) -> None:
    parts = list(split(batch_of(stamps), by))
    rows = [
        (bucket, offset) for bucket, part in parts for offset in part.column("offset").to_pylist()
    ]
    assert sorted(offset for _, offset in rows) == list(range(len(stamps)))
    assert all(bucket == stamps[offset] // SPANS_US[by] for bucket, offset in rows)
    assert len({bucket for bucket, _ in parts}) == len(parts)
    for _, part in parts:
        offsets = part.column("offset").to_pylist()
        assert offsets == sorted(offsets)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59)))
def test_folders_have_the_utc_date_and_hour(naive: datetime) -> None:
    when = naive.replace(tzinfo=UTC)
    stamp = (when - EPOCH) // timedelta(microseconds=1)
    ((day, _),) = split(batch_of([stamp]), "day")
    ((hour, _),) = split(batch_of([stamp]), "hour")
    assert folder_of("t", day, "day") == f"topic=t/date={when.date().isoformat()}"
    assert folder_of("t", hour, "hour") == (
        f"topic=t/date={when.date().isoformat()}/hour={when.hour:02d}"
    )


@pytest.mark.parametrize("stamp", [-LIMIT, LIMIT, -62_135_596_800_000_001, 253_402_300_800_000_000])
def test_years_that_no_calendar_has_are_null(stamp: int) -> None:
    ((hour, _),) = split(batch_of([stamp]), "hour")
    assert folder_of("t", hour, "hour") == f"topic=t/date={NULL_FOLDER}/hour={NULL_FOLDER}"

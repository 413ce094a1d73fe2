"""Every kind of difference that is planted in a read is found, with its kind and offset."""

import gzip
from pathlib import Path

import pytest

from rlm_sandbox.demo.comparison import Comparison, Kind, RecordCheck, Yardstick
from rlm_sandbox.demo.content import DemoRecord
from tests.demo.builders import ABORTED_OFFSETS, GAP_OFFSET, PARTITION, manifest, right_read
from tests.demo.builders import yardstick as made_yardstick

Read = list[tuple[int, DemoRecord]]


@pytest.fixture
def yardstick() -> Yardstick:
    return made_yardstick()


def compared(yardstick: Yardstick, read: Read, partition: int = PARTITION) -> Comparison:
    check = RecordCheck(yardstick)
    for offset, one in read:
        check.see(partition, offset, one.timestamp_ms, one.key, one.value, one.headers)
    check.comparison.finish()
    return check.comparison


def test_a_right_read_is_equal(yardstick: Yardstick) -> None:
    result = compared(yardstick, right_read(yardstick))
    assert result.is_equal
    assert result.read_records == result.expected_records == 18


def test_read_uncommitted_expects_aborted_records_too() -> None:
    everything = made_yardstick(committed_only=False)
    assert compared(everything, right_read(everything)).is_equal
    result = compared(everything, right_read(made_yardstick()))
    assert result.counts == {Kind.MISSING: len(ABORTED_OFFSETS)}


def test_an_aborted_record_given_to_a_committed_reader(yardstick: Yardstick) -> None:
    read = right_read(made_yardstick(committed_only=False))
    result = compared(yardstick, read)
    assert result.counts == {Kind.NOT_EXPECTED: len(ABORTED_OFFSETS)}
    assert [one.offset for one in result.shown] == list(ABORTED_OFFSETS)


def test_missing_records_are_named_in_runs(yardstick: Yardstick) -> None:
    read = right_read(yardstick)
    del read[3:6], read[-2:]
    result = compared(yardstick, read)
    assert result.counts == {Kind.MISSING: 5}
    # The aborted records and the gap between 3 and 7 are no part of what should have come.
    assert [str(one) for one in result.shown] == [
        "partition 1 offset 3 missing: up to 8",
        "partition 1 offset 19 missing: up to 20",
    ]


def test_an_empty_read_misses_everything(yardstick: Yardstick) -> None:
    assert compared(yardstick, []).counts == {Kind.MISSING: 18}


def test_a_record_given_twice(yardstick: Yardstick) -> None:
    read = right_read(yardstick)
    result = compared(yardstick, [*read[:8], read[5], *read[8:]])
    assert result.counts == {Kind.TWICE: 1}
    assert result.shown[0].offset == read[5][0]


def test_the_last_record_given_twice(yardstick: Yardstick) -> None:
    read = right_read(yardstick)
    assert compared(yardstick, [*read, read[-1]]).counts == {Kind.TWICE: 1}


def test_records_in_another_order(yardstick: Yardstick) -> None:
    read = right_read(yardstick)
    read[2], read[3] = read[3], read[2]
    result = compared(yardstick, read)
    assert result.counts == {Kind.OUT_OF_ORDER: 1}
    assert result.shown[0].offset == 2


def test_a_record_where_none_can_be(yardstick: Yardstick) -> None:
    read = right_read(yardstick)
    result = compared(yardstick, [*read, (GAP_OFFSET, read[0][1]), (99, read[0][1])])
    assert result.counts == {Kind.NOT_EXPECTED: 2}


def test_a_foreign_partition(yardstick: Yardstick) -> None:
    result = compared(yardstick, right_read(yardstick), partition=3)
    assert result.counts == {Kind.NOT_EXPECTED: 18, Kind.MISSING: 18}


def test_another_timestamp(yardstick: Yardstick) -> None:
    read = right_read(yardstick)
    offset, record = read[4]
    read[4] = (offset, record._replace(timestamp_ms=record.timestamp_ms + 1))
    result = compared(yardstick, read)
    assert result.counts == {Kind.TIMESTAMP: 1}
    assert str(record.timestamp_ms) in result.shown[0].detail


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": None}, "key is null, not b'"),
        ({"key": b""}, "key is empty, not b'"),
        ({"value": None}, "value is null, not b'"),
        ({"value": b""}, "value is empty, not b'"),
        ({"value": b"other"}, "value is b'other', not b'"),
        ({"headers": (("source", b"demo"), ("trace", b"x"))}, "headers is (('source'"),
        ({"headers": ()}, "headers is empty, not (('source'"),
    ],
)
def test_an_altered_field_is_named(
    yardstick: Yardstick, change: dict[str, object], said: str
) -> None:
    read = right_read(yardstick)
    index = next(
        at for at, (_, one) in enumerate(read) if one.key and one.value and len(one.headers) == 2
    )
    offset, record = read[index]
    read[index] = (offset, record._replace(**change))  # type: ignore[arg-type]
    result = compared(yardstick, read)
    assert result.counts == {Kind.ALTERED: 1}
    assert result.shown[0].offset == offset
    assert said in result.shown[0].detail
    assert ";" not in result.shown[0].detail, "only the altered field is named"


def test_header_order_counts(yardstick: Yardstick) -> None:
    read = right_read(yardstick)
    index = next(at for at, (_, one) in enumerate(read) if len(one.headers) > 1)
    offset, record = read[index]
    read[index] = (offset, record._replace(headers=record.headers[::-1]))
    assert compared(yardstick, read).counts == {Kind.ALTERED: 1}


def test_a_saved_manifest_has_a_line_for_each_record(tmp_path: Path) -> None:
    made = manifest()
    made.save(tmp_path / "manifest.csv.gz")
    with gzip.open(tmp_path / "manifest.csv.gz", "rt", encoding="ascii") as file:
        lines = file.read().splitlines()
    assert len(lines) == made.records + made.aborted_records == 20
    offsets = [int(line.split(",")[1]) for line in lines]
    assert offsets == sorted(offsets)
    assert [line.split(",")[-1] for line in lines].count("1") == len(ABORTED_OFFSETS)

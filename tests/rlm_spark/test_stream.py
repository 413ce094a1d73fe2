"""The stream reader, driven as PySpark drives it, over topics in memory and a clock by hand."""

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
)

from rlm_spark.errors import PlannedLossError
from rlm_spark.plan.offsets import OffsetError
from rlm_spark.plan.options import parse_stream
from rlm_spark.plan.planning import PlannedRange
from rlm_spark.source.available_now import LimitedStreamReader
from rlm_spark.source.micro_batches import AvailableNowError, Waiting
from rlm_spark.source.pyspark_readers import Document, TieredStreamReader
from rlm_spark.source.schema import full_schema
from rlm_spark.source.source import stream_reader
from tests.tiered_reads.fake_tiers import FakeLog, FakePositions, FakeTiers, topic
from tiered_reads.values import TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
START_MS = 1_700_000_000_000


@dataclass(slots=True)
class FakeTime:
    now_ms: int = START_MS
    slept_ms: float = 0

    def waiting(self) -> Waiting:
        return Waiting(now_ms=lambda: self.now_ms, sleep_ms=self._sleep)

    def _sleep(self, duration_ms: float) -> None:
        self.slept_ms += duration_ms


class Driver:
    """Drives a reader as PySpark does: everything passes through JSON."""

    def __init__(
        self, positions: FakePositions, time: FakeTime | None = None, **options: str
    ) -> None:
        needed = {
            "subscribe": "t",
            "kafka.bootstrap.servers": "k",
            "readMode": "kafka_only",
            "startingOffsets": "earliest",
        }
        query = parse_stream({**needed, **options}, user="ann", read_text=str)
        self.reader = LimitedStreamReader(
            query,
            full_schema(include_headers=False),
            FakeTiers(positions).tiers(),
            (time or FakeTime()).waiting(),
        )

    def initial(self) -> Document:
        return _through_json(self.reader.initialOffset())

    def latest(self, start: Document, limit: ReadLimit | None = None) -> Document:
        wanted = limit or self.reader.getDefaultReadLimit()
        return _through_json(self.reader.latestOffset(_through_json(start), wanted))

    def plan(self, start: Document, end: Document) -> list[tuple[int, int, int]]:
        found = self.reader.partitions(_through_json(start), _through_json(end))
        return [_row(partition.value) for partition in found]

    def read(self, start: Document, end: Document) -> list[tuple[int, int]]:
        rows = []
        for partition in self.reader.partitions(start, end):
            for batch in self.reader.read(pickle.loads(pickle.dumps(partition))):
                rows += [(row["partition"], row["offset"]) for row in batch.to_pylist()]
        return rows


def _row(planned: PlannedRange) -> tuple[int, int, int]:
    assert not planned.to_latest
    assert not planned.from_earliest
    return planned.topic_partition.partition, planned.wanted.start_offset, planned.wanted.end_offset


def _through_json(document: Mapping[str, Mapping[str, int]]) -> Document:
    parsed: Document = json.loads(json.dumps(document))
    return parsed


def test_offsets_are_the_next_to_read_in_sparks_json() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 5), FakeLog([0] * 3, start=7)))
    driver = Driver(positions)

    start = driver.initial()
    end = driver.latest(start)

    assert json.dumps(start) == '{"t": {"0": 0, "1": 7}}'
    assert json.dumps(end) == '{"t": {"0": 5, "1": 10}}'
    assert driver.read(start, end) == [
        *((0, offset) for offset in range(5)),
        *((1, offset) for offset in range(7, 10)),
    ]


def test_a_new_stream_starts_at_the_end_by_default() -> None:
    positions = FakePositions(topic("t", FakeLog([100, 200, 300])))

    assert Driver(positions, startingOffsets="latest").initial() == {"t": {"0": 3}}
    assert Driver(positions, startingOffsets='{"t":{"0":1}}').initial() == {"t": {"0": 1}}
    assert Driver(positions, startingTimestamp="200").initial() == {"t": {"0": 1}}
    by_strategy = Driver(
        positions, startingTimestamp="301", startingOffsetsByTimestampStrategy="latest"
    )
    assert by_strategy.initial() == {"t": {"0": 3}}


LATE = {
    "latest": {"startingOffsets": "latest"},
    "one": {"startingOffsets": '{"t":{"0":-1}}'},
    "dated": {"startingTimestamp": "301", "startingOffsetsByTimestampStrategy": "latest"},
}


@pytest.mark.parametrize("late", LATE)
def test_what_begins_at_the_end_begins_there_however_often_spark_asks(late: str) -> None:
    """MicroBatchExecution asks for the end after initialOffset, and then for that again."""
    positions = FakePositions(topic("t", FakeLog([100, 200, 300])))
    driver = Driver(positions, None, **LATE[late])
    start = driver.initial()
    positions.logs[P0].append(2, 400)
    end = driver.latest(start)
    positions.logs[P0].append(2, 400)

    assert driver.initial() == start == end == {"t": {"0": 3}}
    assert driver.plan(start, end) == []
    assert driver.plan(end, driver.latest(end)) == [(0, 3, 7)]


@pytest.mark.parametrize("late", LATE)
def test_before_pyspark_4_2_the_end_is_asked_for_first(late: str) -> None:
    positions = FakePositions(topic("t", FakeLog([100, 200, 300])))
    driver = Driver(positions, None, **LATE[late])
    end = driver.reader.latestOffset()
    positions.logs[P0].append(2, 400)

    start = driver.initial()

    assert start == end == {"t": {"0": 3}}
    assert driver.plan(end, driver.reader.latestOffset()) == [(0, 3, 5)]


@pytest.mark.parametrize("late", LATE)
def test_a_restart_in_the_first_micro_batch_loses_nothing_and_goes_on(late: str) -> None:
    positions = FakePositions(topic("t", FakeLog([100, 200, 300])))
    before = Driver(positions, None, **LATE[late])
    start = before.initial()
    positions.logs[P0].append(2, 400)
    logged = before.latest(start)
    positions.logs[P0].append(2, 400)

    after = Driver(positions, None, **LATE[late])

    assert after.plan(logged, logged) == []  # AcceptsLatestSeenOffset
    assert after.plan(after.initial(), logged) == []
    assert after.plan(logged, after.latest(logged)) == [(0, 3, 7)]


def test_a_topic_that_is_missing_at_the_start_is_an_error() -> None:
    with pytest.raises(OffsetError, match="unknown topics t"):
        Driver(FakePositions({})).initial()


def test_nothing_new_is_the_start_itself() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 5)))
    driver = Driver(positions)
    end = driver.latest(driver.initial())

    assert driver.latest(end) == end


def test_a_restart_goes_on_from_the_checkpoint_and_repeats_a_batch_alike() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 9)))
    before = Driver(positions, maxOffsetsPerTrigger="4")
    start = before.initial()
    end = before.latest(start)
    rows = before.read(start, end)
    positions.logs[P0].append(20)

    after = Driver(positions, maxOffsetsPerTrigger="4", startingOffsets="latest")

    assert after.read(start, end) == rows
    assert after.latest(end) == {"t": {"0": 8}}


def test_max_offsets_per_trigger_is_shared_in_proportion() -> None:
    """KafkaMicroBatchSourceSuite: 101, 11 and 1 records, 10 a trigger."""
    positions = FakePositions(topic("t", *(FakeLog([0] * size) for size in (101, 11, 1))))
    driver = Driver(positions, maxOffsetsPerTrigger="10")

    first = driver.latest(driver.initial())
    second = driver.latest(first)

    assert driver.reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert first == {"t": {"0": 8, "1": 1, "2": 1}}
    assert second == {"t": {"0": 17, "1": 2, "2": 1}}


def test_read_all_available_beats_the_options() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 50)))
    driver = Driver(positions, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5")

    assert driver.latest(driver.initial(), ReadAllAvailable()) == {"t": {"0": 50}}


def test_min_offsets_per_trigger_waits_but_not_longer_than_max_trigger_delay() -> None:
    time = FakeTime()
    positions = FakePositions(topic("t", FakeLog([0] * 3)))
    driver = Driver(positions, time, minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    start = driver.initial()

    first = driver.latest(start)
    positions.logs[P0].append(3)
    early = driver.latest(first)
    positions.logs[P0].append(7)
    enough = driver.latest(first)
    positions.logs[P0].append(1)
    time.now_ms += 4_999
    too_early = driver.latest(enough)
    time.now_ms += 1
    late = driver.latest(enough)

    assert driver.reader.getDefaultReadLimit() == ReadMinRows(10)
    assert first == {"t": {"0": 3}}, "the first trigger waits for nothing, as in Spark"
    assert early == first
    assert enough == {"t": {"0": 13}}
    assert too_early == enough
    assert late == {"t": {"0": 14}}


def test_min_and_max_together() -> None:
    time = FakeTime()
    positions = FakePositions(topic("t", FakeLog([0] * 3)))
    driver = Driver(
        positions, time, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="12", maxTriggerDelay="5s"
    )
    first = driver.latest(driver.initial())
    positions.logs[P0].append(9)
    waiting = driver.latest(first)
    positions.logs[P0].append(20)
    second = driver.latest(first)

    assert driver.reader.getDefaultReadLimit() == ReadMaxRows(12)
    assert (first, waiting, second) == (
        {"t": {"0": 3}},
        {"t": {"0": 3}},
        {"t": {"0": 15}},
    )


def test_new_partitions_count_from_their_earliest_for_the_limits() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    driver = Driver(positions, maxOffsetsPerTrigger="10", failOnDataLoss="false")
    end = driver.latest(driver.initial())
    positions.logs[P1] = FakeLog([0] * 20, start=1_000)

    grown = driver.latest(end)

    assert grown == {"t": {"0": 10, "1": 1_010}}
    assert driver.plan(end, grown) == [(1, 1_000, 1_010)]


def test_new_partitions_start_at_earliest() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 5)))
    driver = Driver(positions, startingOffsets="latest")
    start = driver.initial()
    positions.logs[P1] = FakeLog([0] * 4)

    end = driver.latest(start)

    assert driver.plan(start, end) == [(1, 0, 4)]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_new_partition_that_does_not_start_at_zero_is_data_loss(
    fail: str, caplog: pytest.LogCaptureFixture
) -> None:
    positions = FakePositions({**topic("t", FakeLog()), P1: FakeLog([0] * 4, start=3)})
    driver = Driver(positions, failOnDataLoss=fail)
    start, end = {"t": {"0": 0}}, {"t": {"0": 0, "1": 7}}

    if fail == "true":
        with pytest.raises(
            PlannedLossError, match="Added partition t-1 starts from 3 instead of 0"
        ):
            driver.plan(start, end)
    else:
        assert driver.plan(start, end) == [(1, 3, 7)]
        assert "Added partition t-1 starts from 3 instead of 0" in caplog.text


@pytest.mark.parametrize("fail", ["true", "false"])
def test_deleted_partitions_are_data_loss(fail: str, caplog: pytest.LogCaptureFixture) -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 5), FakeLog([0] * 5)))
    driver = Driver(positions, failOnDataLoss=fail)
    start = driver.initial()
    del positions.logs[P1]

    end = driver.latest(start)

    assert end == {"t": {"0": 5}}
    if fail == "true":
        with pytest.raises(PlannedLossError) as raised:
            driver.plan(start, end)
        assert "Partitions t-1 have been deleted" in str(raised.value)
        assert 'set the source option "failOnDataLoss" to "false"' in str(raised.value)
    else:
        assert driver.plan(start, end) == [(0, 0, 5)]
        assert "Partitions t-1 have been deleted" in caplog.text


def test_a_new_partition_deleted_before_it_was_read_is_data_loss() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 5)))
    driver = Driver(positions)

    with pytest.raises(PlannedLossError, match="Cannot find initial offsets for partitions t-2"):
        driver.plan({"t": {"0": 0}}, {"t": {"0": 5, "2": 4}})


@pytest.mark.parametrize("fail", ["true", "false"])
def test_offsets_that_go_back_are_read_again_and_then_data_loss(
    fail: str, caplog: pytest.LogCaptureFixture
) -> None:
    time = FakeTime()
    positions = FakePositions(topic("t", FakeLog([0] * 4)))
    driver = Driver(positions, time, failOnDataLoss=fail)
    start: Document = {"t": {"0": 9}}

    end = driver.latest(start)

    assert end == {"t": {"0": 4}}
    assert positions.latest_calls == 3
    assert time.slept_ms == 20
    if fail == "true":
        with pytest.raises(PlannedLossError, match="t-0 offset was changed from 9 to 4"):
            driver.plan(start, end)
    else:
        assert driver.plan(start, end) == []
        assert "t-0 offset was changed from 9 to 4" in caplog.text


def test_a_stale_answer_is_not_taken_for_offsets_that_went_back() -> None:
    """KAFKA-7703."""
    positions = FakePositions(topic("t", FakeLog([0] * 9)))
    positions.backwards = [{P0: 2}]
    driver = Driver(positions)

    assert driver.latest({"t": {"0": 5}}) == {"t": {"0": 9}}


def test_available_now_ends_exactly_at_its_first_latest_offsets() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 25), FakeLog([0] * 5)))
    driver = Driver(positions, maxOffsetsPerTrigger="12", minOffsetsPerTrigger="11")
    driver.reader.prepareForTriggerAvailableNow()
    at = driver.initial()
    rows: list[tuple[int, int]] = []
    ends = []
    while (end := driver.latest(at)) != at:
        rows += driver.read(at, end)
        ends.append(end)
        at = end
        positions.logs[P0].append(7)
        positions.logs.setdefault(P2, FakeLog([0]))

    assert ends[-1] == {"t": {"0": 25, "1": 5}}
    assert len(ends) == 3
    assert sorted(rows) == [(0, offset) for offset in range(25)] + [(1, o) for o in range(5)]


def test_available_now_says_when_its_end_is_out_of_reach() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 5), FakeLog([0] * 5)))
    driver = Driver(positions)
    driver.reader.prepareForTriggerAvailableNow()
    start = driver.initial()
    end = driver.latest(start)

    with pytest.raises(AvailableNowError, match="should provide the same topic partitions"):
        driver.plan(start, {"t": {"0": 5}})
    with pytest.raises(AvailableNowError, match="lower or equal offset per each topic partition"):
        driver.plan(start, {"t": {"0": 5, "1": 6}})
    kept = positions.logs.pop(P1)
    with pytest.raises(AvailableNowError, match=r"Some of partitions .* have been lost"):
        driver.plan(start, end)
    positions.logs[P1] = FakeLog(kept.timestamps_ms[:2])
    with pytest.raises(AvailableNowError, match="available offset which is less than end offset"):
        driver.plan(start, end)


def test_min_partitions_divide_a_micro_batch() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    driver = Driver(positions, minPartitions="2")
    start = driver.initial()

    assert driver.plan(start, driver.latest(start)) == [(0, 0, 5), (0, 5, 10)]


def test_the_latest_offsets_are_reported_once_seen() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    driver = Driver(positions, maxOffsetsPerTrigger="4")
    assert driver.reader.reportLatestOffset() is None

    end = driver.latest(driver.initial())
    driver.reader.commit(end)

    assert end == {"t": {"0": 4}}
    assert driver.reader.reportLatestOffset() == {"t": {"0": 10}}


def test_without_admission_control_a_trigger_takes_all(caplog: pytest.LogCaptureFixture) -> None:
    """PySpark 4.0 and 4.1 call latestOffset() without arguments."""
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    driver = Driver(positions, maxOffsetsPerTrigger="4")

    assert TieredStreamReader.latestOffset(driver.reader) == {"t": {"0": 10}}
    assert "trigger_limits_ignored" in caplog.text


def test_the_reader_goes_to_executors_without_its_connections() -> None:
    query = parse_stream(
        {"subscribe": "t", "kafka.bootstrap.servers": "k", "readMode": "kafka_only"},
        user="ann",
        read_text=str,
    )
    reader = stream_reader(query, full_schema(include_headers=False))

    assert isinstance(pickle.loads(pickle.dumps(reader)), LimitedStreamReader)


def test_stop_closes_the_positions() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    driver = Driver(positions)
    driver.initial()
    assert positions.is_open

    driver.reader.stop()

    assert not positions.is_open

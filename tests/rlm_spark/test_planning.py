"""The plan of a batch: offsets to ranges, moving edges, and tasks that bind late."""

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from rlm_spark.decode import arrow_schema
from rlm_spark.errors import DataLossError
from rlm_spark.plan.offset_specs import OptionError
from rlm_spark.plan.offsets import OffsetError
from rlm_spark.plan.options import BatchQuery, parse_batch
from rlm_spark.plan.planning import PlannedRange, plan_batch
from rlm_spark.source.reading import Tiers, planned_batches
from tests.rlm_spark.decode.encoding import Batch, Rec, simple
from tests.tiered_reads.fake_tiers import FakeLog, FakePositions, FakeTiers, topic
from tiered_reads.stopping import Stop
from tiered_reads.values import ConnectorOptions, DataLoss, Fetched, OffsetRange, TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def query(**options: str) -> BatchQuery:
    needed = {"subscribe": "t", "kafka.bootstrap.servers": "k", "readMode": "kafka_only"}
    return parse_batch({**needed, **options}, user="ann", read_text=str)


def rows(plan: list[PlannedRange]) -> list[tuple[int, int, int, bool, bool]]:
    return [
        (
            each.topic_partition.partition,
            each.wanted.start_offset,
            each.wanted.end_offset,
            each.from_earliest,
            each.to_latest,
        )
        for each in plan
    ]


def offsets_of(query_: BatchQuery, planned: PlannedRange, tiers: FakeTiers) -> list[int]:
    schema = arrow_schema(["offset"])
    batches = planned_batches(query_.connector, planned, schema, tiers.tiers())
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def test_earliest_to_latest_with_a_partition_that_is_empty() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10), FakeLog([0] * 5, 5), FakeLog()))

    plan = plan_batch(query(), positions)

    assert rows(plan) == [
        (0, 0, 10, True, True),
        (1, 5, 10, True, True),
        (2, 0, 0, True, True),
    ]


def test_fixed_offsets_do_not_move_and_empty_ranges_are_no_tasks() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10), FakeLog([0] * 10)))
    wanted = query(startingOffsets='{"t":{"0":2,"1":7}}', endingOffsets='{"t":{"0":5,"1":7}}')

    assert rows(plan_batch(wanted, positions)) == [(0, 2, 5, False, False)]


def test_min_partitions_divides_and_leaves_the_moving_edges_at_the_ends() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10), FakeLog([0] * 10), FakeLog([0])))

    plan = plan_batch(query(minPartitions="6"), positions)

    assert rows(plan) == [
        (0, 0, 3, True, False),
        (0, 3, 6, False, False),
        (0, 6, 10, False, True),
        (1, 0, 3, True, False),
        (1, 3, 6, False, False),
        (1, 6, 10, False, True),
        (2, 0, 1, True, True),
    ]


def test_max_records_per_partition() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))

    assert [row[1:3] for row in rows(plan_batch(query(maxRecordsPerPartition="4"), positions))] == [
        (0, 3),
        (3, 6),
        (6, 10),
    ]


def test_resolved_start_after_the_end_with_latest() -> None:
    positions = FakePositions(topic("t", FakeLog(), FakeLog(), FakeLog()))
    wanted = query(startingOffsets='{"t":{"0":1,"1":1,"2":1}}')

    with pytest.raises(OffsetError) as raised:
        plan_batch(wanted, positions)

    assert (
        "The resolved start offset 1 is greater than the resolved end offset 0 for topic t "
        "partition 0" in str(raised.value)
    )


def test_resolved_start_after_the_end_without_latest() -> None:
    positions = FakePositions(topic("t", FakeLog([100, 200])))
    wanted = query(startingOffsets='{"t":{"0":3}}', endingOffsetsByTimestamp='{"t":{"0":200}}')

    with pytest.raises(
        OffsetError, match="start offset 3 is greater than the resolved end offset 1 for"
    ):
        plan_batch(wanted, positions)


def test_an_end_before_the_earliest_is_nothing_to_read() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 5, start=20)))

    assert plan_batch(query(endingOffsets='{"t":{"0":10}}'), positions) == []


def test_no_match_at_the_start_fails_the_plan() -> None:
    positions = FakePositions(topic("t", FakeLog([100])))

    with pytest.raises(OptionError, match="No offset matched from request"):
        plan_batch(query(startingTimestamp="101"), positions)
    by_strategy = query(startingTimestamp="101", startingOffsetsByTimestampStrategy="latest")
    assert rows(plan_batch(by_strategy, positions)) == [(0, 1, 1, False, True)]


def test_a_plan_pickles() -> None:
    plan = plan_batch(query(), FakePositions(topic("t", FakeLog([0]))))

    assert pickle.loads(pickle.dumps(plan)) == plan


def test_a_task_sees_what_came_after_the_plan_and_a_fixed_end_does_not() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    tiers = FakeTiers(positions)
    moving, fixed = query(), query(endingOffsets='{"t":{"0":10}}')
    moving_plan, fixed_plan = plan_batch(moving, positions), plan_batch(fixed, positions)
    assert offsets_of(moving, moving_plan[0], tiers) == list(range(10))

    positions.logs[P0].append(4)

    assert offsets_of(moving, moving_plan[0], tiers) == list(range(14))
    assert offsets_of(fixed, fixed_plan[0], tiers) == list(range(10))


@pytest.mark.parametrize("new_start", [4, 10, 12])
def test_the_earliest_edge_moves_without_data_loss(new_start: int) -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    tiers = FakeTiers(positions)
    wanted = query()
    plan = plan_batch(wanted, positions)
    positions.logs[P0].append(5)

    positions.logs[P0].trim(new_start)

    assert offsets_of(wanted, plan[0], tiers) == list(range(new_start, 15))


def test_a_topic_that_is_gone_is_no_moved_edge() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    tiers = FakeTiers(positions)
    wanted = query()
    plan = plan_batch(wanted, positions)
    positions.logs[P0].trim(10)
    positions.logs[P0].is_gone = True

    with pytest.raises(DataLossError):
        offsets_of(wanted, plan[0], tiers)


def test_a_fixed_start_that_is_gone_is_data_loss() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    tiers = FakeTiers(positions)
    failing = query(startingOffsets='{"t":{"0":2}}')
    going_on = query(startingOffsets='{"t":{"0":2}}', failOnDataLoss="false")
    plan = plan_batch(failing, positions)
    positions.logs[P0].trim(6)

    with pytest.raises(DataLossError) as raised:
        offsets_of(failing, plan[0], tiers)
    assert (raised.value.start_offset, raised.value.end_offset) == (2, 6)
    assert "Some data may have been lost because they are not available in Kafka any more" in str(
        raised.value
    )
    assert offsets_of(going_on, plan[0], tiers) == [6, 7, 8, 9]


def test_a_loss_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 4, start=6)))
    tiers = FakeTiers(positions)
    going_on = query(startingOffsets='{"t":{"0":2}}', failOnDataLoss="false")

    offsets_of(going_on, plan_batch(going_on, positions)[0], tiers)

    warnings = [each.getMessage() for each in caplog.records if "data_loss" in each.getMessage()]
    assert len(warnings) == 1
    assert "Cannot fetch records in [2, 6) of t-0: aged out" in warnings[0]
    assert '"failOnDataLoss" to "true"' in warnings[0]


def test_a_cap_holds_against_growth() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    tiers = FakeTiers(positions)
    wanted = query()
    planned = replace(plan_batch(wanted, positions)[0], before_offset=12)

    positions.logs[P0].append(10)

    assert offsets_of(wanted, planned, tiers) == list(range(12))


def test_a_partition_that_is_gone_or_cut_reads_what_was_planned() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    tiers = FakeTiers(positions)
    wanted = query()
    longer = PlannedRange(
        wanted=OffsetRange(topic_partition=P0, start_offset=0, end_offset=20), to_latest=True
    )

    assert offsets_of(wanted, longer, tiers) == list(range(10))
    assert [each.end_offset for each in tiers.wanted] == [20]


def test_the_consumer_may_stop_early() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10)))
    tiers = FakeTiers(positions)
    wanted = query()
    schema = pa.schema([("offset", pa.int64())])
    batches = planned_batches(
        wanted.connector, plan_batch(wanted, positions)[0], schema, tiers.tiers()
    )

    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]

    assert not positions.is_open


def test_a_consumer_that_stops_does_not_wait_for_what_is_still_fetched() -> None:
    wanted, schema = query(), pa.schema([("value", pa.binary())])
    large = Batch(
        base_offset=0, last_offset=0, records=(Rec(offset=0, key=None, value=bytes(4 << 20)),)
    )

    def stalled_after_two(
        options: ConnectorOptions,
        wanted: OffsetRange,
        on_loss: Callable[[DataLoss], None],
        *,
        stopped_by: Stop,
    ) -> Iterator[Fetched]:
        yield Fetched(batches=large.encode(), next_offset=1)
        yield Fetched(batches=simple(1, 8).encode(), next_offset=9)
        woken = threading.Event()
        with stopped_by.running(woken.set):
            assert woken.wait(60)

    planned = PlannedRange(wanted=OffsetRange(topic_partition=P0, start_offset=0, end_offset=20))
    tiers = Tiers(read_range=stalled_after_two)
    batches = planned_batches(wanted.connector, planned, schema, tiers)
    assert next(batches).num_rows == 1
    began_s = time.monotonic()
    batches.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began_s < 50
    assert "rlm-fetch-ahead" not in {one.name for one in threading.enumerate()}

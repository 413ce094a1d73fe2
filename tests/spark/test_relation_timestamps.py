"""The cases of KafkaRelationSuite that begin or end by timestamp, and the same over both tiers."""

from collections.abc import Mapping

import pytest

from tests.scenarios.cluster import fresh
from tests.spark.conftest import Twins
from tests.spark.history import PARTITIONS
from tests.spark.lab import Lab, assert_equal, failure, seen, texts
from tests.spark.test_relation import EARLIEST, LATEST, offsets, send

pytestmark = pytest.mark.integration

FIRST, SECOND, THIRD, FINAL = (1_700_000_000_000 + 1_000 * n for n in range(4))
NEVER = 9_223_372_036_854_775_807
ALL_PARTITIONS = range(3)


@pytest.fixture
def numbers(either: Lab) -> str:
    """0 to 9 at FIRST, 10 to 19 at SECOND, 20 to 29 at THIRD; each in partition n mod 3."""
    topic = fresh("timestamps")
    either.cluster.create_topic(topic, partitions=3, configs={"retention.ms": "-1"})
    for timestamp, tens in ((FIRST, 0), (SECOND, 10), (THIRD, 20)):
        for partition in ALL_PARTITIONS:
            chosen = [n for n in range(tens, tens + 10) if n % 3 == partition]
            send(either.cluster, topic, chosen, partition, timestamp=timestamp)
    return topic


def at(topic: str, timestamp: int, **other: int) -> str:
    """One timestamp for all partitions, `p2=` another one for partition 2."""
    rows: Mapping[int, int] = dict.fromkeys(ALL_PARTITIONS, timestamp)
    return offsets(topic, {**rows, **{int(name[1:]): value for name, value in other.items()}})


def test_starting_and_ending_by_timestamp_and_offset(either: Lab, numbers: str) -> None:
    start_by, end_by = "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"
    earliest = offsets(numbers, {0: EARLIEST, 1: EARLIEST, 2: 0})
    latest = offsets(numbers, {0: LATEST, 1: LATEST, 2: 1})
    cases: list[tuple[dict[str, str], list[int]]] = [
        ({start_by: at(numbers, SECOND), end_by: at(numbers, THIRD)}, [*range(10, 20)]),
        (
            {start_by: at(numbers, FIRST), "endingOffsets": latest},
            sorted([2, *(n for n in range(30) if n % 3 != 2)]),
        ),
        ({"startingOffsets": earliest, end_by: at(numbers, THIRD)}, [*range(20)]),
        ({start_by: at(numbers, SECOND)}, [*range(10, 30)]),
        ({end_by: at(numbers, THIRD)}, [*range(20)]),
        ({"startingTimestamp": str(SECOND), "endingTimestamp": str(THIRD)}, [*range(10, 20)]),
        (
            {end_by: at(numbers, SECOND, p2=NEVER)},
            sorted([*range(10), *(n for n in range(10, 30) if n % 3 == 2)]),
        ),
    ]
    for options, wanted in cases:
        assert texts(either.values(numbers, options)) == wanted, options


def test_preferences_on_offset_related_options(either: Lab, numbers: str) -> None:
    lower = {"startingOffsetsByTimestamp": at(numbers, SECOND), "startingOffsets": "earliest"}
    highest = {**lower, "startingTimestamp": str(THIRD)}
    assert texts(either.values(numbers, highest)) == [*range(20, 30)]
    assert texts(either.values(numbers, lower)) == [*range(10, 30)]


def test_no_matched_offset_for_a_starting_timestamp(either: Lab, numbers: str) -> None:
    options = {"startingOffsetsByTimestamp": at(numbers, SECOND, p2=NEVER)}
    said = failure(lambda: either.read(numbers, options))
    assert "no offset matched from request" in said
    lenient = {**options, "startingOffsetsByTimestampStrategy": "latest"}
    wanted = [n for n in range(10, 30) if n % 3 != 2]
    assert texts(either.values(numbers, lenient)) == wanted


@pytest.mark.parametrize("mode", ["kafka_preferred", "remote_preferred"])
def test_by_timestamp_over_both_tiers(lab: Lab, twins: Twins, mode: str) -> None:
    """One third of the way in the remote part, the end near the end of the local part."""
    in_order = sorted(row.timestamp_ms for row in twins.rows)
    start, end = in_order[len(in_order) // 3], in_order[-len(in_order) // 50]
    options = {
        "startingTimestamp": str(start),
        "endingTimestamp": str(end),
        "includeHeaders": "true",
        "readMode": mode,
    }

    def first(partition: int, timestamp: int) -> int:
        rows = [row for row in twins.rows if row.partition == partition]
        return min(row.offset for row in rows if row.timestamp_ms >= timestamp)

    bounds = {p: (first(p, start), first(p, end)) for p in range(PARTITIONS)}
    assert all(first < twins.remote_ends[p] < last for p, (first, last) in bounds.items()), (
        f"{bounds} beside {twins.remote_ends}"
    )
    wanted = [
        row
        for row in twins.expected()
        if bounds[row.partition][0] <= row.offset < bounds[row.partition][1]
    ]
    assert_equal(seen(lab.read(twins.tiered, options)), wanted)

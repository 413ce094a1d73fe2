"""Offset resolution: the offset cases of KafkaRelationSuite over topics in memory."""

import re

import pytest

from rlm_spark.plan.offset_specs import (
    EARLIEST,
    LATEST,
    Assign,
    Earliest,
    GlobalTimestamp,
    Latest,
    NoMatch,
    OffsetSpec,
    OptionError,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
    checkpoint_document,
    offsets_from_checkpoint,
    offsets_from_json,
)
from rlm_spark.plan.offsets import OffsetError, assigned, bound, resolved
from tests.tiered_reads.fake_tiers import FakeLog, FakePositions, topic
from tiered_reads.values import TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
FIRST, SECOND, THIRD, FINAL = 1_000, 2_000, 3_000, 4_000


def _three_waves() -> FakePositions:
    """prepareTimestampRelatedUnitTest: 0-9, 10-19, 20-29 by value modulo 3, a second apart."""
    logs = [FakeLog() for _ in range(3)]
    for value in range(30):
        logs[value % 3].append(1, (FIRST, SECOND, THIRD)[value // 10])
    return FakePositions(topic("t", *logs))


def _both(
    positions: FakePositions, start: OffsetSpec, end: OffsetSpec
) -> list[tuple[int, int, int]]:
    topic_partitions = assigned(Subscribe(topics=("t",)), positions, must_exist=True)
    first = resolved(bound(start, topic_partitions, positions, starting=True), positions)
    last = resolved(bound(end, topic_partitions, positions, starting=False), positions)
    return [
        (topic_partition.partition, first[topic_partition], last[topic_partition])
        for topic_partition in sorted(topic_partitions)
    ]


def _all(timestamp_ms: int, no_match: NoMatch = NoMatch.ERROR) -> SpecificTimestamps:
    return SpecificTimestamps(dict.fromkeys((P0, P1, P2), timestamp_ms), no_match)


def test_earliest_to_latest_stays_unbound_until_it_is_resolved() -> None:
    positions = FakePositions(topic("t", FakeLog([0] * 10), FakeLog([0] * 5, start=5)))
    topic_partitions = assigned(Subscribe(topics=("t",)), positions, must_exist=True)

    start = bound(Earliest(), topic_partitions, positions, starting=True)
    end = bound(Latest(), topic_partitions, positions, starting=False)

    assert start == {P0: EARLIEST, P1: EARLIEST}
    assert end == {P0: LATEST, P1: LATEST}
    assert resolved(start, positions) == {P0: 0, P1: 5}
    assert resolved(end, positions) == {P0: 10, P1: 10}
    positions.logs[P0].append(3)
    assert resolved(end, positions) == {P0: 13, P1: 10}


def test_explicit_offsets_with_earliest_and_latest_among_them() -> None:
    positions = FakePositions(topic("t", *(FakeLog([0] * size) for size in (10, 10, 1))))

    found = _both(
        positions,
        SpecificOffsets({P0: EARLIEST, P1: EARLIEST, P2: 0}),
        SpecificOffsets({P0: LATEST, P1: LATEST, P2: 1}),
    )

    assert found == [(0, 0, 10), (1, 0, 10), (2, 0, 1)]


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (_all(SECOND), _all(THIRD), [(0, 4, 7), (1, 3, 7), (2, 3, 6)]),
        (
            _all(FIRST),
            SpecificOffsets({P0: LATEST, P1: LATEST, P2: 1}),
            [(0, 0, 10), (1, 0, 10), (2, 0, 1)],
        ),
        (
            SpecificOffsets({P0: EARLIEST, P1: EARLIEST, P2: 0}),
            _all(THIRD),
            [(0, 0, 7), (1, 0, 7), (2, 0, 6)],
        ),
        (_all(SECOND), Latest(), [(0, 4, 10), (1, 3, 10), (2, 3, 10)]),
        (Earliest(), _all(THIRD), [(0, 0, 7), (1, 0, 7), (2, 0, 6)]),
        (
            GlobalTimestamp(SECOND, NoMatch.ERROR),
            GlobalTimestamp(THIRD, NoMatch.ERROR),
            [(0, 4, 7), (1, 3, 7), (2, 3, 6)],
        ),
    ],
    ids=["ts-ts", "ts-offsets", "offsets-ts", "ts-latest", "earliest-ts", "global-global"],
)
def test_timestamps_and_offsets_mixed(
    start: OffsetSpec, end: OffsetSpec, wanted: list[tuple[int, int, int]]
) -> None:
    assert _both(_three_waves(), start, end) == wanted


@pytest.mark.parametrize(
    "spec",
    [
        SpecificTimestamps({P0: SECOND, P1: SECOND, P2: FINAL}, NoMatch.ERROR),
        GlobalTimestamp(FINAL, NoMatch.ERROR),
    ],
)
def test_no_match_at_the_start_is_an_error(spec: OffsetSpec) -> None:
    with pytest.raises(OptionError, match="No offset matched from request of topic-partition t-"):
        _both(_three_waves(), spec, Latest())


def test_no_match_at_the_start_is_the_end_by_strategy() -> None:
    spec = SpecificTimestamps({P0: SECOND, P1: SECOND, P2: FINAL}, NoMatch.LATEST)

    assert _both(_three_waves(), spec, Latest()) == [(0, 4, 10), (1, 3, 10), (2, 10, 10)]


def test_no_match_at_the_end_is_the_end_whatever_the_strategy() -> None:
    spec = SpecificTimestamps({P0: SECOND, P1: SECOND, P2: FINAL}, NoMatch.ERROR)

    assert _both(_three_waves(), Earliest(), spec) == [(0, 0, 4), (1, 0, 3), (2, 0, 10)]


def test_offsets_must_name_every_partition() -> None:
    with pytest.raises(OffsetError) as raised:
        _both(_three_waves(), SpecificOffsets({P0: 0, P1: 0}), Latest())

    assert "Partitions specified for Kafka start offsets don't match what are assigned" in str(
        raised.value
    )
    assert "Specified: t-0, t-1 Assigned: t-0, t-1, t-2" in str(raised.value)


@pytest.mark.parametrize(("starting", "word"), [(True, "start"), (False, "end")])
def test_timestamps_must_name_every_partition(starting: bool, word: str) -> None:
    spec = SpecificTimestamps({P0: FIRST}, NoMatch.ERROR)

    with pytest.raises(OffsetError, match=f"timestamp based {word} offsets don't match"):
        bound(spec, frozenset({P0, P1}), _three_waves(), starting=starting)


def test_a_pattern_is_searched_and_internal_topics_are_left_out() -> None:
    logs = {
        TopicPartition(name, 0): FakeLog()
        for name in ("orders-eu", "eu-orders", "other", "__consumer_offsets")
    }
    positions = FakePositions(logs)

    found = assigned(SubscribePattern(pattern=re.compile("o.*er")), positions, must_exist=True)

    assert {topic_partition.topic for topic_partition in found} == {
        "orders-eu",
        "eu-orders",
        "other",
    }


def test_a_topic_that_is_not_there_is_an_error_at_first_and_a_loss_later() -> None:
    positions = FakePositions(topic("t", FakeLog()))
    wanted = Subscribe(topics=("t", "gone"))

    with pytest.raises(OffsetError, match=r"This server does not host .* unknown topics gone"):
        assigned(wanted, positions, must_exist=True)
    assert assigned(wanted, positions, must_exist=False) == {P0}


def test_assigned_partitions_that_are_not_there_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    positions = FakePositions(topic("t", FakeLog()))

    found = assigned(Assign(partitions=frozenset({P0, P2})), positions, must_exist=True)

    assert found == {P0}
    assert "partitions=t-2" in caplog.text


def test_checkpoint_json_is_sparks_and_always_in_one_order() -> None:
    offsets = {TopicPartition("t", 10): 3, P2: 5, TopicPartition("a", 0): 1}

    document = checkpoint_document(offsets)

    assert str(document) == "{'a': {'0': 1}, 't': {'2': 5, '10': 3}}"
    assert offsets_from_checkpoint(document) == offsets
    assert offsets_from_json('{"t":{"0":23,"1":-1,"2":-2}}') == {P0: 23, P1: -1, P2: -2}
    with pytest.raises(OptionError, match=r"Expected e\.g\."):
        offsets_from_checkpoint({"t": {"0": -1}})

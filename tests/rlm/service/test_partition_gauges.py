"""Gauges of partitions, or of topics where partitions are many (metrics.per.partition)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kip405.ids import TopicPartition, Uuid
from rlm.api.ports import PartitionStatus
from rlm.service.partition_gauges import AUTO, OFF, ON, PartitionGauges
from rlm.service.partition_rows import MOST_PARTITIONS, PARTITION_ROWS
from tests.builders.clock import ManualClock

CLOCK = ManualClock()
BASE = PartitionStatus(
    topic="orders",
    topic_id=Uuid(b"1" * 16),
    partition=0,
    leader=1,
    leader_epoch=0,
    log_end_offset=9,
    lag_bytes=0,
    lag_segments=0,
)
BEHIND = replace(
    BASE,
    partition=1,
    lag_bytes=70,
    lag_segments=2,
    lag_oldest_ms=CLOCK.now - 90_000,
    behind_since_ms=CLOCK.now - 60_000,
    loss_at_ms=CLOCK.now + 30_000,
    remote_size_bytes=500,
    ledger_segments=7,
    deleting_segments=3,
    frozen="why",
)
UNKNOWN = replace(BASE, partition=2, lag_bytes=None, lag_segments=None, log_end_offset=-1)
OTHER = replace(BASE, topic="clicks", topic_id=Uuid(b"2" * 16), lag_bytes=5)
STATUSES = (BASE, BEHIND, UNKNOWN, OTHER)
ORDERS = (("topic", "orders"),)
CLICKS = (("topic", "clicks"),)
Labels = tuple[tuple[str, str], ...]


def read(
    gauges: PartitionGauges, statuses: Sequence[PartitionStatus]
) -> dict[str, dict[Labels, float]]:
    found: dict[str, dict[Labels, float]] = {}
    for name, lines in gauges.read(statuses).items():
        families = text_string_to_metric_families(f"# TYPE {name} gauge\n{lines}")
        samples = [one for family in families for one in family.samples]
        found[name] = {tuple(sorted(one.labels.items())): one.value for one in samples}
    return found


def test_a_topic_has_what_is_known_of_its_partitions() -> None:
    found = read(
        PartitionGauges(CLOCK, OFF, lambda: {TopicPartition("orders", 1): 4_000}), STATUSES
    )
    assert found["rlm_remote_copy_lag_bytes"] == {ORDERS: 70, CLICKS: 5}
    assert found["rlm_remote_copy_lag_segments"] == {ORDERS: 2, CLICKS: 0}
    assert found["rlm_remote_copy_lag_seconds"] == {ORDERS: 90}
    assert found["rlm_remote_copy_behind_seconds"] == {ORDERS: 60}
    assert found["rlm_partition_loss_seconds"] == {ORDERS: 30}
    assert found["rlm_remote_log_size_bytes"] == {ORDERS: 500, CLICKS: 0}
    assert found["rlm_remote_log_metadata_count"] == {ORDERS: 7, CLICKS: 0}
    assert found["rlm_remote_delete_lag_segments"] == {ORDERS: 3, CLICKS: 0}
    assert found["rlm_partition_frozen"] == {ORDERS: 1, CLICKS: 0}
    assert found["rlm_last_stable_offset_pinned_seconds"] == {ORDERS: 4}
    assert found["rlm_remote_next_offset"] == {}, "offsets of several partitions have no sum"


def test_h38_a_topic_of_which_nothing_is_known_has_no_sample() -> None:
    found = read(PartitionGauges(CLOCK, OFF), [UNKNOWN])
    assert found["rlm_remote_copy_lag_bytes"] == {}
    assert found["rlm_partition_frozen"] == {}


def test_lines_of_a_topic_follow_its_statuses() -> None:
    gauges = PartitionGauges(CLOCK, OFF)
    assert read(gauges, [BASE])["rlm_remote_copy_lag_bytes"] == {ORDERS: 0}
    assert read(gauges, [BASE, BEHIND])["rlm_remote_copy_lag_bytes"] == {ORDERS: 70}
    assert read(gauges, [OTHER])["rlm_remote_copy_lag_bytes"] == {CLICKS: 5}
    assert read(gauges, [])["rlm_remote_copy_lag_bytes"] == {}


@pytest.mark.parametrize(
    ("detail", "count", "is_each"),
    [
        (AUTO, MOST_PARTITIONS, True),
        (AUTO, MOST_PARTITIONS + 1, False),
        (ON, MOST_PARTITIONS + 1, True),
        (OFF, 1, False),
    ],
)
def test_many_partitions_have_one_sample_for_a_topic(
    detail: str, count: int, is_each: bool
) -> None:
    statuses = [replace(BEHIND, partition=number) for number in range(count)]
    found = read(PartitionGauges(CLOCK, detail), statuses)
    for name in ("rlm_remote_copy_lag_bytes", "rlm_remote_copy_lag_seconds"):
        assert len(found[name]) == (count if is_each else 1)


@pytest.mark.parametrize("detail", [ON, OFF])
def test_every_row_of_partitions_has_its_values(detail: str) -> None:
    pinned = {TopicPartition("orders", 1): 4_000}
    found = read(PartitionGauges(CLOCK, detail, lambda: pinned), [BEHIND])
    assert found.keys() == {row.name for row in PARTITION_ROWS}
    with_values = {name for name, samples in found.items() if samples}
    assert with_values == {row.name for row in PARTITION_ROWS if detail == ON or row.of_topic}

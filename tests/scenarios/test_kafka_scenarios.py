"""Kafka's own integration tests of tiered storage, on three brokers with two log dirs each.

The names are Kafka's (storage/src/test/java/org/apache/kafka/tiered/storage/integration). A marker
`kafka_scenario` names the test of Kafka that a test stands for, here and in other files;
tests/project/test_kafka_lists.py has the list and what is elsewhere.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions

from tests.scenarios.cluster import Cluster
from tests.scenarios.replicas import alter_log_dir, lead, reassign
from tests.scenarios.steps import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    GroupProtocol,
    TieredTopic,
)
from tests.scenarios.test_transactions import COMMITTED, UNCOMMITTED, Transaction

pytestmark = pytest.mark.integration

_CHECKPOINTS = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    ".kafka_cleanshutdown",
)


@pytest.fixture(
    params=[
        pytest.param(GroupProtocol.CLASSIC, id="classic"),
        pytest.param(GroupProtocol.CONSUMER, id="consumer", marks=pytest.mark.long),
    ]
)
def protocol(request: pytest.FixtureRequest) -> GroupProtocol:
    """In CI one group protocol, the long way both."""
    found: GroupProtocol = request.param
    return found


def _bounce(cluster: Cluster, node: int) -> None:
    for name in (f"rlm:{node}", f"broker:{node}"):
        cluster.sandbox.stop(name)


def _kill_and_erase_checkpoints(cluster: Cluster, node: int) -> None:
    """The broker will recover its log from the segments."""
    for name in (f"rlm:{node}", f"broker:{node}"):
        cluster.sandbox.kill(name)
    for folder in cluster.sandbox.log_dirs(node):
        for name in _CHECKPOINTS:
            with suppress(FileNotFoundError):
                (folder / name).unlink()


@pytest.mark.kafka_scenario("OffloadAndConsumeFromLeader", "FetchFromLeaderWithCorruptedCheckpoint")
@pytest.mark.parametrize(
    "end", [_kill_and_erase_checkpoints, pytest.param(_bounce, marks=pytest.mark.long)]
)
def test_closed_segments_are_read_from_the_store_also_after_a_restart(
    three: Cluster, protocol: GroupProtocol, end: Callable[[Cluster, int], None]
) -> None:
    one = TieredTopic(three, [[3]], protocol=protocol)
    two = TieredTopic(three, [[3]], protocol=protocol, batches=2)
    one.produce(3)
    two.produce(5)
    one.expect_segments_offloaded((0, 0), (1, 1))
    two.expect_segments_offloaded((0, 1), (2, 3))
    one.expect_earliest_local_offset(2)
    two.expect_earliest_local_offset(4)
    one.expect_fetch_from_tiered_storage(2)
    two.expect_fetch_from_tiered_storage(1, start=3)
    end(three, 3)
    three.sandbox.start("broker:3", wait=False)
    three.sandbox.start("rlm:3")
    one.expect_fetch_from_tiered_storage(2)
    two.expect_fetch_from_tiered_storage(2)
    one.produce(2)
    one.expect_segments_offloaded((0, 0), (1, 1), (2, 2), (3, 3))
    one.expect_earliest_local_offset(4)
    one.consume()


@pytest.mark.kafka_scenario("OffloadAndTxnConsumeFromLeader", "TransactionsWithTieredStore")
def test_h09_read_committed_over_segments_of_one_batch(
    three: Cluster, protocol: GroupProtocol
) -> None:
    """Each marker is a segment of its own, so a transaction ends in another segment than it began.
    A producer is fenced by a later one of its id, which aborts its transaction.
    """
    topic = TieredTopic(three, [[1, 2]], protocol=protocol)

    def transaction(name: str) -> Transaction:
        begun = Transaction(three, topic.name, name)
        for _ in range(2):
            begun.produce(1)
        return begun

    committed = transaction("committed")
    committed.commit()
    aborted = transaction("aborted")
    aborted.abort()
    fenced = transaction("fenced")
    open_one = transaction("fenced")
    with pytest.raises(KafkaException) as refused:
        fenced.commit()
    assert refused.value.args[0].code() in (KafkaError.PRODUCER_FENCED, KafkaError._FENCED)
    topic.rows = list(committed.rows)
    last_stable = open_one.rows[0].offset
    topic.expect_segments_offloaded(*((offset, offset) for offset in range(last_stable)))
    topic.expect_earliest_local_offset(last_stable)
    topic.expect_fetch_from_tiered_storage(last_stable, end=last_stable, **COMMITTED)

    topic.produce(1)
    behind, topic.rows = topic.rows[-1:], list(committed.rows)
    topic.consume(end=last_stable, **COMMITTED)
    open_one.commit()
    marker = behind[-1].offset + 1  # brokers write it after they answered
    three.wait_for(lambda: three.log_end(topic.name) == marker + 1, "the marker")
    topic.rows += [*open_one.rows, *behind]
    topic.produce(2)
    end = topic.rows[-1].offset
    topic.expect_segments_offloaded(*((offset, offset) for offset in range(end)))
    topic.consume(**COMMITTED)
    topic.rows = sorted([*topic.rows, *aborted.rows, *fenced.rows], key=lambda row: row.offset)
    topic.consume(**UNCOMMITTED)


@pytest.mark.kafka_scenario("RollAndOffloadActiveSegment")
def test_h28_the_active_segment_is_offloaded_after_one_more_append(
    three: Cluster, protocol: GroupProtocol
) -> None:
    """Kafka's own tiering closes an idle active segment, a broker without it does not."""
    topic = TieredTopic(three, [[1, 2]], protocol=protocol)
    topic.produce(4)
    topic.expect_segments_offloaded((0, 0), (1, 1), (2, 2))
    topic.expect_earliest_local_offset(3)
    topic.produce(1)
    topic.expect_segments_offloaded((0, 0), (1, 1), (2, 2), (3, 3))
    topic.expect_earliest_local_offset(4)
    topic.expect_fetch_from_tiered_storage(4)


@pytest.mark.kafka_scenario("DeleteSegments")
def test_retention_ends_segments_by_size_and_by_age(
    three: Cluster, protocol: GroupProtocol
) -> None:
    by_size = TieredTopic(three, [[1, 2]], protocol=protocol, options=("--retention-bytes", "1"))
    by_age = TieredTopic(three, [[2, 3]], protocol=protocol, options=("--retention", "1ms"))
    for topic in (by_size, by_age):
        topic.produce(4)
    for topic in (by_size, by_age):
        topic.expect_leader_epoch_checkpoint(3)
        topic.expect_segments_offloaded()
        topic.expect_list_offsets(EARLIEST, 3, topic.leader_epoch())
        topic.expect_reset_to_earliest(3)


@pytest.mark.kafka_scenario("DeleteSegmentsDueToLogStartOffsetBreach")
def test_h26_deleted_records_leave_whole_segments_also_of_older_epochs(
    three: Cluster, protocol: GroupProtocol
) -> None:
    topic = TieredTopic(three, [[1, 2]], protocol=protocol, batches=2)
    topic.produce(5)
    topic.expect_segments_offloaded((0, 1), (2, 3))
    topic.delete_records(3)
    topic.expect_segments_offloaded((2, 3))
    topic.consume(3)
    lead(three, topic.name, 2)
    topic.produce(4)
    topic.expect_segments_offloaded((2, 3), (4, 5), (6, 7))
    topic.delete_records(7)
    topic.expect_segments_offloaded((6, 7))
    topic.consume(7)


@pytest.mark.kafka_scenario("DisableRemoteLogOnTopic")
def test_a_disabled_topic_is_read_from_the_store_and_goes_on_when_it_is_enabled_again(
    three: Cluster, protocol: GroupProtocol
) -> None:
    topic, other = (TieredTopic(three, [[1, 2]], protocol=protocol) for _ in range(2))
    topic.produce(3)
    topic.expect_earliest_local_offset(2)
    three.rlm("topics", "disable", topic.name, "--confirm")
    topic.produce(2)
    other.produce(3)
    other.expect_earliest_local_offset(2)
    topic.expect_segments_offloaded((0, 0), (1, 1))
    topic.expect_fetch_from_tiered_storage(2)
    topic.enable()
    topic.expect_segments_offloaded((0, 0), (1, 1), (2, 2), (3, 3))
    topic.expect_earliest_local_offset(4)
    topic.consume()


@pytest.mark.kafka_scenario("EnableRemoteLogOnTopic")
def test_what_a_topic_had_before_it_was_enabled_is_offloaded_too(
    three: Cluster, protocol: GroupProtocol
) -> None:
    topic = TieredTopic(three, [[1, 2], [2, 3]], protocol=protocol, is_enabled=False)
    for partition in (0, 1):
        topic.produce(3, partition)
    topic.enable()
    for partition in (0, 1):
        topic.produce(1, partition)
    for partition in (0, 1):
        topic.expect_segments_offloaded((0, 0), (1, 1), (2, 2), partition=partition)
        topic.expect_earliest_local_offset(3, partition)
        topic.expect_fetch_from_tiered_storage(3, partition=partition)


@pytest.mark.kafka_scenario("ListOffsets")
def test_every_special_offset_has_its_leader_epoch(three: Cluster, protocol: GroupProtocol) -> None:
    topic = TieredTopic(three, [[1, 2]], protocol=protocol)
    topic.produce(3)
    topic.expect_earliest_local_offset(2)
    first = topic.leader_epoch()  # 0, unless a slow machine has had the leader changed
    topic.expect_list_offsets(EARLIEST, 0, first)
    topic.expect_list_offsets(LATEST_TIERED, 1, first)
    topic.expect_list_offsets(EARLIEST_LOCAL, 2, first)
    topic.expect_list_offsets(LATEST, 3, first)
    lead(three, topic.name, 2)
    topic.produce(3)
    second = topic.leader_epoch()
    assert second > first
    topic.expect_earliest_local_offset(5)
    topic.expect_list_offsets(EARLIEST, 0, first)
    topic.expect_list_offsets(LATEST_TIERED, 4, second)
    topic.expect_list_offsets(EARLIEST_LOCAL, 5, second)
    topic.expect_list_offsets(LATEST, 6, second)
    first_of = {row.timestamp_ms: row.offset for row in reversed(topic.rows)}
    for timestamp_ms, offset in first_of.items():
        topic.expect_list_offsets(timestamp_ms, offset, first if offset < 3 else second)
    topic.delete_records(2)
    topic.expect_list_offsets(EARLIEST, 2, first)
    topic.expect_list_offsets(topic.rows[1].timestamp_ms, 2, first)
    topic.delete_records(4)
    topic.expect_list_offsets(EARLIEST, 4, second)
    topic.expect_list_offsets(LATEST_TIERED, 4, second)
    topic.consume(4)


@pytest.mark.kafka_scenario("PartitionsExpand")
def test_partitions_that_are_added_are_copied_and_trimmed_too(
    three: Cluster, protocol: GroupProtocol
) -> None:
    topic = TieredTopic(three, [[1, 2]], protocol=protocol)
    topic.produce(3)
    topic.expect_earliest_local_offset(2)
    new = NewPartitions(topic.name, 3)
    three.admin.create_partitions([new])[topic.name].result(120)
    three.wait_for(
        lambda: min(three.leader(topic.name, one) for one in (1, 2)) >= 0, "leaders of the new ones"
    )
    for partition in range(3):
        topic.produce(3, partition)
    topic.expect_earliest_local_offset(5)
    for partition in (1, 2):
        topic.expect_segments_offloaded((0, 0), (1, 1), partition=partition)
        topic.expect_earliest_local_offset(2, partition)
    for partition in range(3):
        topic.consume(partition=partition)


@pytest.mark.kafka_scenario("ReassignReplicaMoveAndExpand")
@pytest.mark.parametrize(
    "replicas",
    [pytest.param([2, 1], id="expand"), pytest.param([2], id="move", marks=pytest.mark.long)],
)
def test_a_replica_that_was_added_leads_and_goes_on(
    three: Cluster, protocol: GroupProtocol, replicas: list[int]
) -> None:
    topic = TieredTopic(three, [[1]], protocol=protocol)
    topic.produce(3)
    topic.expect_earliest_local_offset(2)
    reassign(three, topic.name, replicas)
    lead(three, topic.name, 2)
    topic.produce(2)
    topic.expect_segments_offloaded((0, 0), (1, 1), (2, 2), (3, 3))
    topic.expect_earliest_local_offset(4)
    topic.consume()


@pytest.mark.kafka_scenario("ReassignReplicaShrink")
def test_a_partition_that_loses_a_replica_goes_on_under_its_new_leader(
    three: Cluster, protocol: GroupProtocol
) -> None:
    topic = TieredTopic(three, [[1, 2]], protocol=protocol)
    topic.produce(3)
    topic.expect_earliest_local_offset(2)
    reassign(three, topic.name, [2])
    three.wait_for(lambda: three.leader(topic.name) == 2, "broker 2 leads")
    topic.produce(2)
    topic.expect_segments_offloaded((0, 0), (1, 1), (2, 2), (3, 3))
    topic.expect_earliest_local_offset(4)
    topic.consume()


@pytest.mark.kafka_scenario("AlterLogDir")
def test_a_replica_that_changes_its_log_dir_leads_and_goes_on(
    three: Cluster, protocol: GroupProtocol
) -> None:
    """The leader's own replica and a follower's move; each leads afterwards."""
    topic = TieredTopic(three, [[1, 2]], protocol=protocol)
    topic.produce(3)
    topic.expect_earliest_local_offset(2)
    alter_log_dir(three, topic.name, 1)
    topic.produce(1)
    topic.expect_segments_offloaded((0, 0), (1, 1), (2, 2))
    topic.expect_earliest_local_offset(3)
    alter_log_dir(three, topic.name, 2)
    lead(three, topic.name, 2)
    topic.produce(1)
    topic.expect_segments_offloaded((0, 0), (1, 1), (2, 2), (3, 3))
    topic.expect_earliest_local_offset(4)
    topic.expect_fetch_from_tiered_storage(4)


@pytest.mark.long
def test_a_java_member_of_a_group_is_served_from_the_store(
    three: Cluster, protocol: GroupProtocol
) -> None:
    topic = TieredTopic(three, [[1, 2]], protocol=protocol)
    topic.produce(4)
    topic.expect_earliest_local_offset(3)
    topic.consume_by_java()

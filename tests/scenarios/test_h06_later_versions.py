"""A service beside a later version, which writes records of a kind of its own into the ledger (H6).

Where the real later version is missing, its record is written by hand: frame and key are all that a
service may rely on.
"""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from kip405.ids import PartitionKey
from rlm.clock import new_uuid
from rlmm.records import NO_PREVIOUS, LedgerKey, RecordHeaders, ledger_partition
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.scenarios.cluster import Cluster
from tests.scenarios.replicas import disk
from tests.scenarios.steps import TieredTopic
from tests.scenarios.test_h26_delete_records import restart_service
from tests.scenarios.test_h38_problems import Operator

pytestmark = pytest.mark.integration


def _publish(cluster: Cluster, key: PartitionKey, value: bytes | None) -> None:
    headers = RecordHeaders(leader_epoch=0, expected_previous=NO_PREVIOUS, writer=new_uuid())
    producer = Producer({"bootstrap.servers": cluster.direct})
    producer.produce(
        LEDGER_TOPIC,
        key=LedgerKey(partition=key, segment_id=None).encode() + b"*",
        value=value,
        partition=ledger_partition(key),
        headers=[(name, text) for name, text in headers.encode()],
    )
    assert producer.flush(120) == 0


def test_h06_what_a_later_version_recorded_stops_trims_of_its_partition_only(one: Cluster) -> None:
    stopped, other = (TieredTopic(one, [[1]]) for _ in range(2))
    topic_id = disk(one, stopped.name, 1).topic_id
    assert topic_id is not None
    key = PartitionKey(topic_id, 0)
    _publish(one, key, b"\x01\x07\x00new")
    for topic in (stopped, other):
        topic.produce(3)
        topic.expect_segments_offloaded((0, 0), (1, 1))
    other.expect_earliest_local_offset(2)
    one.wait_copied(stopped.name)  # a copy that is cut off would be its segment's second
    restart_service(one)
    for topic in (stopped, other):
        topic.produce(1)
    other.expect_earliest_local_offset(3)
    one.wait_for(
        lambda: "(api key 7, version 0)" in one.status(stopped.name)["trim_reason"], "the reason"
    )
    stopped.expect_segments_offloaded((0, 0), (1, 1), (2, 2))
    assert one.log_start(stopped.name) == 0
    _publish(one, key, None)
    stopped.expect_earliest_local_offset(3)
    stopped.consume()


def test_h06_no_service_starts_beside_a_newer_format_and_one_that_runs_goes_on(
    one: Cluster,
) -> None:
    topic = TieredTopic(one, [[1]])
    topic.produce(3)
    topic.expect_earliest_local_offset(2)
    _publish_setting(one, b"later", b'{"v":2}')
    operator = Operator(one)
    one.wait_for(lambda: "v=2 is not known" in operator.get("/healthz"), "it has read the record")
    topic.produce(1)
    topic.consume()  # it runs on, and trims nothing
    assert one.log_start(topic.name) == 2
    one.sandbox.kill("rlm:1")
    log = one.sandbox.layout.log("rlm:1")
    seen = log.stat().st_size
    one.sandbox.start("rlm:1", wait=False)
    one.wait_for(lambda: "v=2 is not known; this is version" in _text(log, seen), "the refusal")
    line = next(found for found in _text(log, seen).splitlines() if "this is version" in found)
    assert "settings record b'later'" in line
    assert "docs/upgrade.md" in line
    _publish_setting(one, b"later", None)
    restart_service(one)
    topic.expect_earliest_local_offset(3)
    topic.consume()


def _text(log: Path, position: int) -> str:
    return log.read_bytes()[position:].decode(errors="replace")


def _publish_setting(cluster: Cluster, key: bytes, value: bytes | None) -> None:
    with Producer({"bootstrap.servers": cluster.direct}) as producer:
        producer.produce(SETTINGS_TOPIC, key=key, value=value, partition=0)
        assert producer.flush(120) == 0

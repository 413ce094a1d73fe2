"""Logs that lost records or took another course (H4): nothing is trimmed or served wrongly."""

import shutil
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_protocol.error_codes import (
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NOT_LEADER_OR_FOLLOWER,
)
from kip405.errors import Fenced, Unavailable
from kip405.segments import RemoteLogSegmentMetadata
from rlm.api.call_metadata import call_metadata
from rlm.v1 import fetch_pb2 as pb
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rsm_plugins.contract.status import error_of_call
from tests.rlm.proxy.raw_client import RawClient
from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.objects import audited, finished_segments
from tests.scenarios.raw import PATIENT_MS, Value, at_leader, fetch, list_offset
from tests.scenarios.replicas import (
    bring_to_lead,
    disk,
    lead,
    trimmed_topic,
    wait_isr,
)

pytestmark = pytest.mark.integration

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
LATEST, EARLIEST = -1, -2


def test_h04_unclean_election_with_overlap(three: Cluster) -> None:
    topic = fresh("h04-unclean")
    rows = trimmed_topic(three, topic, [1, 2], configs=UNCLEAN)
    b_end = len(rows)
    trimmed_to = three.wait_settled(topic)

    wait_isr(three, topic, {1, 2})  # B has all of it
    three.sandbox.kill("broker:2")
    wait_isr(three, topic, {1})
    lost = three.fill(topic, mib=3, first=b_end)
    three.wait_for(lambda: remote_end(three, topic) > b_end + 1024, "copy beyond B's end")
    assert three.log_start(topic) == trimmed_to  # B lags: nothing is trimmed (H27)
    dead_end = remote_end(three, topic)

    three.sandbox.kill("broker:1")
    three.wait_for(lambda: three.leader(topic) < 0, "no leader")
    three.sandbox.start("broker:2")
    bring_to_lead(three, topic, 2)
    assert three.log_end(topic) == b_end

    async def beyond(client: RawClient) -> list[Value]:
        offsets = (b_end + 10, dead_end - 1, b_end - 1)
        return [
            await fetch(client, 12, topic, at, max_wait_ms=500 if at >= b_end else PATIENT_MS)
            for at in offsets
        ]

    in_dead, at_dead_end, last = at_leader(three, topic, beyond)
    assert not in_dead["records"]  # the dead lineage is not served
    assert not at_dead_end["records"]
    assert last["error_code"] == 0
    assert last["records"]
    three.wait_for(
        lambda: {remote_tier(three, node, topic) for node in (2, 3)} == {b_end},
        "a reader of the remote tier alone ends there too",
    )

    rows += three.fill(topic, mib=1, first=len(rows))
    assert_same(three.read_all(topic), rows)
    assert three.log_start(topic) <= b_end
    three.sandbox.start("broker:1")
    wait_isr(three, topic, {1, 2})
    rows += three.fill(topic, mib=3, first=len(rows))
    three.wait_trimmed(topic, beyond=b_end + len(lost) // 2)
    assert_same(three.read_all(topic), rows)
    lead(three, topic, 1)
    assert_same(three.read_all(topic), rows)


def remote_end(cluster: Cluster, topic: str) -> int:
    """First offset after the highest manifest in the store."""
    return max((one.end_offset + 1 for one in finished_segments(cluster, topic)), default=0)


def test_h04_emptied_log_dir(three: Cluster) -> None:
    alone, shared, given_up = fresh("h04-alone"), fresh("h04-shared"), fresh("h04-given-up")
    three.create_topic(given_up, assignment=[[3]])
    three.enable(given_up)
    three.fill(given_up, mib=4)
    trimmed_topic(three, alone, [3])
    rows_shared = trimmed_topic(three, shared, [3, 1, 2])
    for topic in (alone, given_up):
        three.wait_settled(topic)  # nothing more of them is copied
    copies, former = finished_segments(three, alone), finished_segments(three, given_up)
    end_below(three, given_up, 100)
    shared_start = three.log_start(shared)

    three.sandbox.kill("broker:3")
    for path in three.sandbox.log_dirs(3):
        shutil.rmtree(path)
    three.sandbox.start("broker:3")
    bring_to_lead(three, alone, 3)
    bring_to_lead(three, given_up, 3)
    three.wait_for(lambda: three.log_end(alone) == 0, "its log is empty")

    refusals: set[int] = set()
    not_yet = {0, NOT_LEADER_OR_FOLLOWER}  # no barrier was passed; nobody knows yet that it leads

    async def old_offsets(client: RawClient) -> tuple[list[Value], Value]:
        fetched = [await fetch(client, 12, alone, 5), await fetch(client, 17, alone, 2000)]
        return fetched, await list_offset(client, 7, alone, EARLIEST, again=False)

    def refused() -> bool:
        fetched, position = at_leader(three, alone, old_offsets)
        assert not any(one["records"] for one in fetched)
        assert position["error_code"] in {LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER}, position
        refusals.update(one["error_code"] for one in fetched)
        return KAFKA_STORAGE_ERROR in refusals

    three.wait_for(refused, "a fetch of an old offset is refused")
    assert refusals <= not_yet | {KAFKA_STORAGE_ERROR}
    never_resets(three, alone)
    three.wait_for(
        lambda: all("is frozen: " in str(remote_tier(three, node, alone)) for node in (1, 3)),
        "a reader of the remote tier alone is refused it",
    )
    three.wait_for(
        lambda: isinstance(remote_tier(three, 1, shared), int), "the remote tier of another topic"
    )

    after = three.fill(alone, mib=3)  # produce passes
    assert after[0].offset == 0
    assert_same(three.read_all(alone), after)  # and so do reads in range
    is_given_up = given_up_twice(three, given_up, former)
    wait_isr(three, shared, {1, 2, 3})
    assert disk(three, shared, 3).segments[0].base_offset >= shared_start
    lead(three, shared, 3)
    assert_same(three.read_all(shared), rows_shared)

    # By now many copy and expiration tasks have run for the partition.
    assert "outside the leader's lineage" in three.status(alone)["frozen"]
    assert not three.status(shared)["frozen"]
    assert three.log_start(alone) == 0
    assert finished_segments(three, alone) == copies
    three.rlm("partition", "adopt", alone, "-p", "0", "--yes")
    three.wait_trimmed(alone)
    assert not three.status(alone)["frozen"]
    assert_same(three.read_all(alone), after)
    three.wait_for(
        lambda: remote_tier(three, 1, alone) in range(three.log_start(alone), len(after) + 1),
        "its remote tier is that of the new log",
    )
    is_given_up()


def end_below(cluster: Cluster, topic: str, offset: int) -> None:
    """A user deletes the oldest records: the remote log start moves."""
    asked = TopicPartition(topic, 0, offset)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert admin.delete_records([asked])[asked].result(120).low_watermark >= offset


def given_up_twice(
    cluster: Cluster, topic: str, former: list[RemoteLogSegmentMetadata]
) -> Callable[[], None]:
    """Discard the remote part of a topic whose log is empty, undo that, and discard it again.
    Answers what waits until it is over, and shows that nothing of it is left or read.
    """
    discard = ("partition", "discard", topic, "-p", "0", "--yes")
    cluster.rlm("freeze", topic)  # these commands may take longer than the sandbox's short delay
    plan = cluster.rlm_json(*discard)
    assert (plan["segments"], plan["records"]) == (len(former), former[-1].next_offset)
    listed = cluster.rlm_json("deletions", "list")["deletions"]
    [pending] = [one for one in listed if one["topic"] == topic]
    assert (pending["kind"], pending["partition"]) == ("discard", 0)
    cluster.rlm("deletions", "undo", topic, "-p", "0")
    cluster.rlm("unfreeze", topic)
    rows = cluster.fill(topic, mib=3)
    assert rows[0].offset == 0
    cluster.wait_for(
        lambda: "outside the leader's lineage" in cluster.status(topic)["frozen"],
        "the log that began again is known",
    )
    assert finished_segments(cluster, topic) == former
    cluster.rlm(*discard)

    def is_over() -> None:
        cluster.wait_for(lambda: not cluster.status(topic)["frozen"], "the discard is over")
        cluster.wait_trimmed(topic)
        old, new = (
            {one.segment_id for one in found}
            for found in (former, finished_segments(cluster, topic))
        )
        assert new and not old & new
        deleted = [line for line in audited(cluster, topic) if line["event"] == "segment_deleted"]
        assert {line["segment_id"] for line in deleted} == {str(one.id) for one in old}
        assert_same(cluster.read_all(topic), rows)
        cluster.wait_for(
            lambda: (
                remote_tier(cluster, 1, topic) in range(cluster.log_start(topic), len(rows) + 1)
            ),
            "its remote tier is that of the new log",
        )

    return is_over


def remote_tier(cluster: Cluster, node: int, topic: str) -> int | str | None:
    """Where the remote tier of partition 0 ends as a service reports it, or why it is refused; None
    where the service asks to be asked again.
    """
    address = cluster.sandbox.json["brokers"][node - 1]["grpc"]
    request = pb.ListOffsetsRequest(
        topic=pb.TopicRef(name=topic), timestamp=LATEST, tiers=pb.REMOTE_ONLY
    )
    with grpc.insecure_channel(address) as channel:
        try:
            answer = FetchServiceStub(channel).ListOffsets(
                request, metadata=call_metadata("tests", None), timeout=60
            )
        except grpc.RpcError as error:
            failed = error_of_call(error, f"service at {address}")
            if isinstance(failed, Unavailable):
                return None
            assert isinstance(failed, Fenced), failed
            return str(failed)
    return int(answer.offset)


def never_resets(cluster: Cluster, topic: str) -> None:
    """A consumer at an old offset waits; neither `earliest` nor `error` ever strikes."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"waits-{topic}",
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 1500)])
    try:
        message = consumer.poll(3)
        assert message is None, (message.error(), message.offset())
    finally:
        consumer.close()

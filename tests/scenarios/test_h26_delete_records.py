"""DeleteRecords through the proxy ends both tiers, for good, before the client has an answer (H26).

One broker. What the broker itself still has is shown by its direct listener.
"""

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_protocol.apis import DELETE_RECORDS
from kip405.ids import PartitionKey, Uuid
from rlm_sandbox.readiness import service_is_ready
from tests.rlm.proxy.raw_client import RawClient
from tests.rlmm.running import running
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.objects import audited
from tests.scenarios.raw import (
    PATIENT_MS,
    Value,
    at_leader,
    connection,
    fetch,
    list_offset,
    proxy_of,
    topic_id,
    until_known,
)

pytestmark = pytest.mark.integration

OFFSET_OUT_OF_RANGE, POLICY_VIOLATION = 1, 44
TO_HIGH_WATERMARK, EARLIEST = -1, -2
_LIMIT_S = 120
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A topic of one partition whose oldest records only the store has, when nothing moves."""

    cluster: Cluster
    topic: str
    rows: list[Row]
    local_start: int


def _archive(one: Cluster, *, mib: int = 5) -> Archive:
    topic = fresh("deleted")
    one.create_topic(topic)
    one.enable(topic)
    rows = one.fill(topic, mib=mib)
    one.wait_trimmed(topic)
    local_start = one.wait_settled(topic)
    assert 2_000 < local_start < len(rows)
    return Archive(cluster=one, topic=topic, rows=rows, local_start=local_start)


def delete_by_confluent(cluster: Cluster, topic: str, offset: int) -> int:
    """The low watermark in the answer."""
    asked = TopicPartition(topic, 0, offset)
    with AdminClient({"bootstrap.servers": cluster.bootstrap}) as admin:
        return int(admin.delete_records([asked])[asked].result(_LIMIT_S).low_watermark)


def delete_by_java(cluster: Cluster, topic: str, offset: int, where: Path) -> str:
    """What kafka-delete-records.sh prints."""
    file = where / "offsets.json"
    rows = [{"topic": topic, "partition": 0, "offset": offset}]
    file.write_text(json.dumps({"partitions": rows, "version": 1}))
    done = cluster.sandbox.dist.run_tool(
        "delete-records",
        *("--bootstrap-server", cluster.bootstrap, "--offset-json-file", str(file)),
    )
    return done.stdout + done.stderr


def _delete_request(topic: str, offset: int) -> Value:
    partitions = [{"partition_index": 0, "offset": offset}]
    return {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 60_000}


async def _deleted(client: RawClient, version: int, request: Value) -> Value:
    answer = await client.call(DELETE_RECORDS, version, request)
    [row] = answer["topics"][0]["partitions"]
    return dict(row)


def earliest(cluster: Cluster, topic: str) -> int:
    """As any client sees it, through the proxy."""
    asked = TopicPartition(topic, 0)
    with AdminClient({"bootstrap.servers": cluster.bootstrap}) as admin:
        return int(
            admin.list_offsets({asked: OffsetSpec.earliest()})[asked].result(_LIMIT_S).offset
        )


def fetched(archive: Archive, offset: int) -> Value:
    """The answer of a Fetch that is held until the proxy knows (H17)."""

    async def ask(client: RawClient) -> Value:
        return await fetch(client, 11, archive.topic, offset, max_wait_ms=PATIENT_MS)

    return at_leader(archive.cluster, archive.topic, ask)


def assert_begins_at(archive: Archive, start: int) -> None:
    """Nothing below can be read; all from there on, and nothing else, by both isolation levels."""
    cluster, topic = archive.cluster, archive.topic
    assert earliest(cluster, topic) == start
    for offset in (0, start // 2, start - 1):
        answer = fetched(archive, offset)
        assert (answer["error_code"], answer["records"] or b"") == (OFFSET_OUT_OF_RANGE, b"")
    kept = [row for row in archive.rows if row.offset >= start]
    for level in ISOLATION_LEVELS:
        config: dict[str, Any] = {"isolation.level": level}
        assert_same(cluster.read_all(topic, start={0: start}, **config), kept)


def restart_service(cluster: Cluster) -> None:
    """SIGKILL, at once, and a start that knows only what was written down."""
    cluster.sandbox.kill("rlm:1")
    cluster.sandbox.start("rlm:1")
    port = cluster.sandbox.state.ports[1].http
    cluster.wait_for(lambda: service_is_ready(port), "the service is ready again")


def test_h26_what_a_client_deletes_is_gone_from_both_tiers_and_stays_gone(
    one: Cluster, tmp_path: Path
) -> None:
    archive = _archive(one)
    topic, local_start = archive.topic, archive.local_start
    in_remote_segment = local_start // 2 + 7
    assert delete_by_confluent(one, topic, in_remote_segment) == in_remote_segment
    restart_service(one)
    assert_begins_at(archive, in_remote_segment)
    assert one.log_start(topic) == local_start, "the broker had nothing to delete"

    further = in_remote_segment + 600
    printed = delete_by_java(one, topic, further, tmp_path)
    assert f"low_watermark: {further}" in printed, printed
    assert_begins_at(archive, further)
    assert delete_by_confluent(one, topic, 5) == further, "a lower offset gives nothing back"

    in_local_log = local_start + 100
    assert delete_by_confluent(one, topic, in_local_log) == in_local_log
    restart_service(one)
    assert one.log_start(topic) == in_local_log
    assert_begins_at(archive, in_local_log)
    lines = [line for line in audited(one, topic) if line["cause"] == "delete-records"]
    raised = [(line["before"], line["remote_log_start_offset"]) for line in lines]
    assert raised == [(0, in_remote_segment), (in_remote_segment, further), (further, in_local_log)]

    end = one.log_end(topic)
    assert delete_by_confluent(one, topic, TO_HIGH_WATERMARK) == end
    assert (one.log_start(topic), earliest(one, topic)) == (end, end)
    later = one.fill(topic, mib=4, first=len(archive.rows))
    one.wait_trimmed(topic, beyond=end)
    emptied = Archive(cluster=one, topic=topic, rows=later, local_start=one.log_start(topic))
    assert_begins_at(emptied, end)


def test_h26_an_answer_without_error_means_that_the_start_is_in_the_settings(one: Cluster) -> None:
    """Another reader of the settings topic has it without waiting; every version of the API."""
    archive = _archive(one, mib=4)

    async def run() -> None:
        async with (
            running(one.direct) as records,
            connection(proxy_of(one, 1)) as client,
        ):
            key = PartitionKey(Uuid(await topic_id(client, archive.topic)), 0)
            for n in range(30):
                offset = 50 * (n + 1)
                request = _delete_request(archive.topic, offset)
                row = await until_known(partial(_deleted, client, n % 3, request))
                assert (row["error_code"], row["low_watermark"]) == (0, offset)
                await records.settings.barrier(60_000)
                assert records.settings.view.remote_log_start(key) == offset
                found = await list_offset(client, 7, archive.topic, EARLIEST)
                assert (found["error_code"], found["offset"]) == (0, offset)

    asyncio.run(run())
    assert one.log_start(archive.topic) == archive.local_start


def test_h26_a_freeze_refuses_and_a_topic_that_is_not_enabled_is_the_brokers(
    one: Cluster, tmp_path: Path
) -> None:
    enabled, plain = fresh("enabled"), fresh("plain")
    for topic in (enabled, plain):
        one.create_topic(topic)
        one.fill(topic, mib=1)
    one.enable(enabled)
    one.rlm("freeze", enabled, "--why", "audit")
    with pytest.raises(KafkaException) as refused:
        delete_by_confluent(one, enabled, 10)
    assert refused.value.args[0].code() == POLICY_VIOLATION
    assert "PolicyViolation" in delete_by_java(one, enabled, 10, tmp_path)
    assert (one.log_start(enabled), earliest(one, enabled)) == (0, 0)
    assert delete_by_confluent(one, plain, 10) == 10
    assert (one.log_start(plain), earliest(one, plain)) == (10, 10)
    one.rlm("unfreeze", enabled)
    assert delete_by_confluent(one, enabled, 10) == 10
    assert (one.log_start(enabled), earliest(one, enabled)) == (10, 10)
    with pytest.raises(KafkaException) as above:
        delete_by_confluent(one, enabled, one.log_end(enabled) + 1)
    assert above.value.args[0].code() == OFFSET_OUT_OF_RANGE
    assert earliest(one, enabled) == 10

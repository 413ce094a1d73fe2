"""Total retention on a real broker: what it ends is gone, and a freeze stops it (H1, H2).

Each topic keeps its records for three seconds; the brokers' own retention would keep them for days,
and does so in mode copy.
"""

import asyncio

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kip405.ids import Uuid
from tests.rlm.proxy.fakes import RawClient
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.java import java_read, printable
from tests.scenarios.ledger_reader import LedgerReader
from tests.scenarios.objects import audited, finished_segments, names_of, objects_of
from tests.scenarios.raw import Value, at_leader, fetch
from tests.scenarios.readers import aiokafka_read, first_by_reset
from tests.scenarios.replicas import disk

pytestmark = pytest.mark.integration

OFFSET_OUT_OF_RANGE = 1
_RETENTION = ("--retention", "3s")
_MODES = {
    "tier": ("--trim", "--local-retention-bytes", "1048576", *_RETENTION),
    "copy": _RETENTION,
}


def remote_start(cluster: Cluster, topic: str) -> int:
    return int(cluster.status(topic)["remote_log_start_offset"])


def earliest(cluster: Cluster, topic: str) -> int:
    """As librdkafka sees it through the proxy."""
    asked = TopicPartition(topic, 0)
    with AdminClient({"bootstrap.servers": cluster.bootstrap}) as admin:
        return int(admin.list_offsets({asked: OffsetSpec.earliest()})[asked].result(30).offset)


def wait_expired(cluster: Cluster, topic: str) -> int:
    """Wait until nothing that is closed is left in the store; answers where the log starts now."""
    cluster.wait_copied(topic)
    cluster.wait_for(
        lambda: not names_of(objects_of(cluster), topic), f"the objects of {topic} are gone"
    )
    return remote_start(cluster, topic)


def earliest_by_java(cluster: Cluster, topic: str) -> int:
    """What kafka-get-offsets.sh prints."""
    asked = ("--topic-partitions", f"{topic}:0", "--time", "-2")
    done = cluster.sandbox.dist.run_tool(
        "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", cluster.bootstrap, *asked
    )
    return int(done.stdout.strip().rsplit(":", 1)[1])


async def assert_read(cluster: Cluster, topic: str, rows: list[Row], start: int) -> None:
    """Every client reads what is left, from the new start on, and nothing below it."""
    kept = [row for row in rows if row.offset >= start]
    assert kept, "the active segment stays"
    assert await asyncio.to_thread(earliest, cluster, topic) == start
    assert await asyncio.to_thread(earliest_by_java, cluster, topic) == start
    assert_same(await asyncio.to_thread(cluster.read_all, topic, start={0: start}), kept)
    assert_same(await aiokafka_read(cluster, topic, {0: rows[-1].offset + 1}), kept)
    assert await asyncio.to_thread(first_by_reset, cluster, topic) == start
    reset = {"auto.offset.reset": "earliest"}
    found, said = await asyncio.to_thread(java_read, cluster, topic, len(kept), config=reset)
    assert found == printable(kept), said[-2_000:]


def assert_out_of_range(cluster: Cluster, topic: str, start: int) -> None:
    for offset in (0, start - 1):

        async def ask(client: RawClient, at: int = offset) -> Value:
            return await fetch(client, 11, topic, at, max_wait_ms=15_000)

        answer = at_leader(cluster, topic, ask)
        assert (answer["error_code"], answer["records"] or b"") == (OFFSET_OUT_OF_RANGE, b"")


@pytest.mark.kafka_scenario("DeleteSegments")
@pytest.mark.parametrize("mode", list(_MODES))
async def test_what_retention_ends_is_gone_from_store_ledger_and_every_reader(
    one: Cluster, mode: str
) -> None:
    topic = fresh("ends")
    await asyncio.to_thread(one.create_topic, topic)
    await asyncio.to_thread(one.enable, topic, *_MODES[mode])
    rows = await asyncio.to_thread(one.fill, topic, mib=4)
    start = await asyncio.to_thread(wait_expired, one, topic)
    assert 3_000 < start < len(rows)
    ledger = LedgerReader(one)
    topic_id = _id_of(one, topic)

    def is_forgotten() -> bool:
        ledger.read()
        return not [row for row in ledger.of(topic_id) if row.state is not None]

    await asyncio.to_thread(one.wait_for, is_forgotten, f"the ledger forgot {topic}")
    ledger.close()
    assert not one.rlm_json("segments", topic)["segments"]
    lines = audited(one, topic)
    deleted = [line for line in lines if line["event"] == "segment_deleted"]
    assert {line["cause"] for line in deleted} <= {"retention", "below the remote log start"}
    assert max(line["end_offset"] for line in deleted) == start - 1
    assert min(line["start_offset"] for line in deleted) == 0
    assert [line["remote_log_start_offset"] for line in lines if "before" in line][-1] == start
    if mode == "tier":
        await asyncio.to_thread(one.wait_trimmed, topic, beyond=start - 1)
        await asyncio.to_thread(assert_out_of_range, one, topic, start)
        await assert_read(one, topic, rows, start)
    else:  # the broker's own retention decides how long the broker has them, and it answers
        assert one.log_start(topic) == 0
        assert_same(await asyncio.to_thread(one.read_all, topic), rows)


def test_g1_what_is_frozen_does_not_expire_before_it_is_unfrozen(one: Cluster) -> None:
    topic = fresh("stays")
    one.create_topic(topic)
    one.enable(topic, *_MODES["tier"])
    rows = one.fill(topic, mib=3)
    start = wait_expired(one, topic)
    one.rlm("freeze", topic, "--why", "an audit")
    rows += one.fill(topic, mib=3, first=len(rows))
    one.wait_copied(topic)
    kept = finished_segments(one, topic)
    assert kept
    one.wait_for(
        lambda: "frozen by command" in one.status(topic)["expiry_reason"], "expiry is frozen"
    )
    one.wait_for_expiration_tasks()
    assert remote_start(one, topic) == start
    assert finished_segments(one, topic) == kept
    one.rlm("unfreeze", topic)
    assert wait_expired(one, topic) > start


def _id_of(cluster: Cluster, topic: str) -> Uuid:
    found = disk(cluster, topic, 1).topic_id
    assert found is not None
    return found

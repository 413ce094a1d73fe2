"""Total retention on a real broker: what it ends is gone, and a freeze stops it (H1, H2).

Each topic keeps its records for three seconds; the brokers' own retention would keep them for days,
and does so in mode copy. What has become too old is gone within three runs of the cleanup.
"""

import asyncio
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentState
from rlm_sandbox.services import QUICK_SERVICE
from tests.rlm.proxy.raw_client import RawClient
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.java import java_read, printable
from tests.scenarios.ledger_reader import LedgerReader
from tests.scenarios.objects import audited, finished_segments, names_of, objects_of
from tests.scenarios.raw import PATIENT_MS, Value, at_leader, fetch
from tests.scenarios.readers import aiokafka_read, first_by_reset
from tests.scenarios.replicas import disk
from tests.scenarios.slowness import Slowness

pytestmark = pytest.mark.integration

OFFSET_OUT_OF_RANGE = 1
_RETENTION_MS = 3_000
_RETENTION = ("--retention", f"{_RETENTION_MS}ms")
_SEGMENTS = 3
_RUNS = 3
_INTERVAL_MS = QUICK_SERVICE["trim.interval.ms"]
_LONGEST_INTERVAL_MS = _INTERVAL_MS * 6 // 5
"""Intervals vary by a fifth (rlm.clock.jittered_ms)."""
_CLOCK_MS = QUICK_SERVICE["heartbeat.interval.ms"]
"""How far the time of retention may be behind: that of the newest settings record, which a service
may read late, until the next heartbeat (H16).
"""
_WORK_MS = 1_000
"""What the runs do, and the test until it has seen that, on a machine with free cores."""
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
        return int(admin.list_offsets({asked: OffsetSpec.earliest()})[asked].result(120).offset)


def wait_deleted(cluster: Cluster, topic: str) -> None:
    """Wait until nothing that is closed is left in the store."""
    cluster.wait_copied(topic)
    cluster.wait_for(
        lambda: not names_of(objects_of(cluster), topic), f"the objects of {topic} are gone"
    )


def wait_expired(cluster: Cluster, topic: str) -> int:
    """The same; answers where the log starts now."""
    wait_deleted(cluster, topic)
    return remote_start(cluster, topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gone:
    """When the last of what retention ends was gone, in ms since all of it was too old and copied.

    `start`: the remote log start was about to move above it. `reads`: a client was refused; None
    where the broker still has the records.
    """

    start: int
    objects: int
    entries: int
    reads: int | None

    def assert_in_time(self, slowness: Slowness) -> None:
        """Within three intervals, what the clock needs, and the work of the runs and of this test:
        that alone takes longer where processes wait for a core or for the disk.
        """
        times, late_ms = slowness.times, slowness.late_s * 1000
        work_ms = max(_WORK_MS * times, _WORK_MS + late_ms)
        limit_ms = _RUNS * _LONGEST_INTERVAL_MS + _CLOCK_MS + work_ms
        shown = ", ".join(
            f"{name} {ms / _INTERVAL_MS:.1f}" for name, ms in asdict(self).items() if ms is not None
        )
        print(
            f"gone after intervals: {shown}; limit {limit_ms / _INTERVAL_MS:.1f}, {times:.1f} "
            f"times slower, {late_ms:.0f} ms late"
        )
        assert max(self.start, self.objects, self.entries, self.reads or 0) <= limit_ms


def wait_in_force(cluster: Cluster, topic: str) -> None:
    """A retention that is shorter than the brokers' waits for remote.delete.delay.ms."""

    def is_in_force() -> bool:
        pending = cluster.rlm_json("deletions", "list")["deletions"]
        return topic not in [row["topic"] for row in pending]

    cluster.wait_for(is_in_force, f"the retention of {topic} is in force")


def wait_gone(cluster: Cluster, topic: str, rows: list[Row], *, reads: bool) -> tuple[int, _Gone]:
    """Wait until what is closed is gone everywhere; where the log starts then, and when.

    A run deletes at least one segment, and no more of so few (remote.delete.max.percent), so that
    three segments, which are too old at about the same time, need three runs.
    """
    wait_deleted(cluster, topic)
    raised = [line for line in audited(cluster, topic) if "before" in line]
    start = int(raised[-1]["remote_log_start_offset"])
    if reads:
        cluster.wait_for(lambda: is_out_of_range(cluster, topic, start), "reads are refused")
    refused_ms = int(time.time() * 1000)
    topic_id, ledger = _id_of(cluster, topic), LedgerReader(cluster)

    def is_forgotten() -> bool:
        ledger.read()
        return not ledger.of(topic_id)

    cluster.wait_for(is_forgotten, f"the ledger forgot {topic}")
    ledger.close()
    states = RemoteLogSegmentState
    copied_ms = ledger.last_ms(topic_id, states.COPY_SEGMENT_FINISHED)
    newest_ms = max(row.timestamp_ms for row in rows if row.offset < start)
    began_ms = max(newest_ms + _RETENTION_MS, copied_ms)
    return start, _Gone(
        start=raised[-1]["time_ms"] - began_ms,
        objects=ledger.last_ms(topic_id, states.DELETE_SEGMENT_FINISHED) - began_ms,
        entries=ledger.last_ms(topic_id, None) - began_ms,
        reads=refused_ms - began_ms if reads else None,
    )


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


def is_out_of_range(cluster: Cluster, topic: str, start: int) -> bool:
    """Whether a read of what lies below the start is refused; it may go on to be answered."""

    async def ask(client: RawClient) -> list[Value]:
        return [await fetch(client, 11, topic, at, max_wait_ms=PATIENT_MS) for at in (0, start - 1)]

    answers = at_leader(cluster, topic, ask)
    return all(
        (one["error_code"], one["records"] or b"") == (OFFSET_OUT_OF_RANGE, b"") for one in answers
    )


@pytest.mark.kafka_scenario("DeleteSegments")
@pytest.mark.parametrize("mode", list(_MODES))
async def test_what_retention_ends_is_gone_from_store_ledger_and_every_reader(
    one: Cluster, tmp_path: Path, mode: str
) -> None:
    topic = fresh("ends")
    await asyncio.to_thread(one.create_topic, topic)
    await asyncio.to_thread(one.enable, topic, *_MODES[mode])
    await asyncio.to_thread(wait_in_force, one, topic)
    rows = await asyncio.to_thread(one.fill, topic, mib=_SEGMENTS)
    is_tiered = mode == "tier"
    with Slowness(tmp_path) as slowness:
        start, gone = await asyncio.to_thread(wait_gone, one, topic, rows, reads=is_tiered)
    gone.assert_in_time(slowness)
    assert 2_800 < start < len(rows)  # fewer in a segment where batches are small
    assert await asyncio.to_thread(remote_start, one, topic) == start
    assert not one.rlm_json("segments", topic)["segments"]
    lines = audited(one, topic)
    deleted = [line for line in lines if line["event"] == "segment_deleted"]
    assert len(deleted) == _SEGMENTS
    assert {line["cause"] for line in deleted} <= {"retention", "below the remote log start"}
    assert max(line["end_offset"] for line in deleted) == start - 1
    assert min(line["start_offset"] for line in deleted) == 0
    assert [line["remote_log_start_offset"] for line in lines if "before" in line][-1] == start
    if is_tiered:
        await asyncio.to_thread(one.wait_trimmed, topic, beyond=start - 1)
        assert await asyncio.to_thread(is_out_of_range, one, topic, start)
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

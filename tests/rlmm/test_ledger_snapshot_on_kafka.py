"""A process begins with the snapshot of an earlier one, on a real broker, or with nothing of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import structs
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from structlog.testing import capture_logs

from kip405.ids import TopicPartition
from rlm_sandbox.sandbox import Sandbox
from rlmm.clients import ConnectionSettings, make_consumer
from rlmm.log_reader import LogReader, TailRecord
from rlmm.records import ledger_partition
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.rlmm.builders import DELETED, DELETING, FINISHED, KEY, STARTED, segment, uuid
from tests.rlmm.running import RunningMetadata, running
from tests.sandbox_fixtures import SandboxFactory

pytestmark = pytest.mark.integration

PARTITION = TopicPartition(LEDGER_TOPIC, ledger_partition(KEY))
GONE_BYTES = 10
OFTEN = ("broker.log.cleaner.backoff.ms=200",)
COMPACTED_AT_ONCE = {
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.0001",
    "delete.retention.ms": "100",
}


class CountingReader(LogReader):
    """Remembers what Kafka has delivered of the ledger."""

    def __init__(self, delivered: list[int], connection: ConnectionSettings) -> None:
        super().__init__(connection)
        self._delivered = delivered

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        found = await super().read(timeout_ms)
        self._delivered += [record.offset for record in found.get(PARTITION, [])]
        return found


@dataclass
class Started:
    """A process that began with the state dir; `why` are the reasons of what it dropped."""

    metadata: RunningMetadata
    delivered: list[int] = field(default_factory=list)
    why: list[str] = field(default_factory=list)

    def segments(self) -> dict[int, Any]:
        entries = self.metadata.manager.ledger(KEY).entries
        return {int.from_bytes(one.raw, "big"): entry.state for one, entry in entries.items()}


@contextlib.asynccontextmanager
async def started(
    sandbox: Sandbox, state_dir: Path, cluster_id: str = "cluster"
) -> AsyncIterator[Started]:
    delivered: list[int] = []
    with capture_logs() as logs:
        made = running(
            sandbox.direct_bootstrap,
            state_dir=state_dir,
            cluster_id=cluster_id,
            connect=partial(CountingReader, delivered),
        )
        async with made as metadata:
            await metadata.manager.barrier(KEY, 60_000)
            why = [one["why"] for one in logs if one["event"] == "ledger_snapshot_dropped"]
            yield Started(metadata, delivered, why)


async def publish(made: RunningMetadata, number: int) -> None:
    await made.manager.publish(segment(number, STARTED), 5, -1)
    await made.manager.publish(segment(number, FINISHED), 5, int(STARTED))


async def leave_snapshot(sandbox: Sandbox, state_dir: Path) -> None:
    """A process that has read the four records of two segments."""
    async with started(sandbox, state_dir) as former:
        for number in (1, 2):
            await publish(former.metadata, number)
        assert former.metadata.snapshots is not None
        await former.metadata.snapshots.write()


async def test_a_restarted_process_reads_only_what_is_new_and_drops_what_is_not_its_own(
    sandbox_factory: SandboxFactory, tmp_path: Path
) -> None:
    sandbox = sandbox_factory(services=False)
    await leave_snapshot(sandbox, tmp_path)
    both = {1: FINISHED, 2: FINISHED}
    async with started(sandbox, tmp_path) as resumed:
        assert (resumed.delivered, resumed.why, resumed.segments()) == ([3], [], both)
        await publish(resumed.metadata, 3)
    async with started(sandbox, tmp_path) as resumed:
        assert (resumed.delivered, resumed.why) == ([3, 4, 5], [])
        assert resumed.segments() == {**both, 3: FINISHED}
        assert resumed.metadata.manager.problem is None
    async with started(sandbox, tmp_path, cluster_id="other") as foreign:
        assert foreign.delivered == [0, 1, 2, 3, 4, 5]
        assert [why.split()[0] for why in foreign.why] == ["cluster_id"]
    file = tmp_path / "ledger.snapshot"
    whole = file.read_bytes()
    flipped = bytes([whole[30] ^ 1])
    for torn in (whole[: len(whole) // 2], whole[:30] + flipped + whole[31:]):
        file.write_bytes(torn)
        async with started(sandbox, tmp_path) as replayed:
            assert replayed.delivered == [0, 1, 2, 3, 4, 5]
            assert len(replayed.why) == 1
            assert replayed.segments() == {**both, 3: FINISHED}


async def test_h06_a_snapshot_of_a_ledger_that_was_recreated_is_dropped(
    sandbox_factory: SandboxFactory, tmp_path: Path
) -> None:
    sandbox = sandbox_factory(services=False)
    await leave_snapshot(sandbox, tmp_path)
    admin = AdminClient({"bootstrap.servers": sandbox.direct_bootstrap})
    for topic, done in admin.delete_topics([LEDGER_TOPIC, SETTINGS_TOPIC]).items():
        await asyncio.to_thread(done.result, 120)
        assert topic in (LEDGER_TOPIC, SETTINGS_TOPIC)
    ours = {LEDGER_TOPIC, SETTINGS_TOPIC}
    async with asyncio.timeout(180):
        while ours & await asyncio.to_thread(_listed, admin):  # noqa: ASYNC110 - Kafka has no event
            await asyncio.sleep(0.1)
    async with started(sandbox, tmp_path) as fresh:
        assert [why.split()[0] for why in fresh.why] == ["topic_id"]
        assert fresh.segments() == {}


async def test_h42_a_snapshot_of_records_that_the_ledger_has_lost_is_dropped(
    sandbox_factory: SandboxFactory, tmp_path: Path
) -> None:
    """The power failed, and another record has taken the offset of the one that was lost."""
    sandbox = sandbox_factory(services=False)
    await leave_snapshot(sandbox, tmp_path)
    log = sandbox.log_dirs()[0] / f"{LEDGER_TOPIC}-{PARTITION.partition}" / f"{0:020d}.log"
    await asyncio.to_thread(sandbox.kill, "broker:1")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - GONE_BYTES)
    await asyncio.to_thread(sandbox.start, "broker:1")
    async with running(sandbox.direct_bootstrap) as other:
        await publish(other, 7)
    async with started(sandbox, tmp_path) as replayed:
        assert replayed.delivered == [0, 1, 2, 3, 4]
        assert [why.split(",")[1] for why in replayed.why] == [" ends at 3"]
        assert replayed.segments() == {1: FINISHED, 2: STARTED, 7: FINISHED}


async def test_h03_a_snapshot_that_compaction_has_overtaken_revives_no_segment(
    sandbox_factory: SandboxFactory, tmp_path: Path
) -> None:
    """The tombstone of segment 1 came after the snapshot, and was gone before the next start."""
    sandbox = sandbox_factory(services=False, overrides=OFTEN)
    await leave_snapshot(sandbox, tmp_path)
    async with running(sandbox.direct_bootstrap) as other:
        segment_id = segment(1).segment_id
        await other.manager.publish(segment(1, DELETING), 5, int(FINISHED))
        await other.manager.publish(segment(1, DELETED), 5, int(DELETING))
        await other.manager.tombstone(segment_id, 5)
        tombstone_at = other.log.reads.read_positions[PARTITION].position - 1
        await asyncio.to_thread(_alter, sandbox.direct_bootstrap)
        async with asyncio.timeout(180):
            number = 10
            while tombstone_at in await _offsets(sandbox.direct_bootstrap):
                await publish(other, number)  # a record later than segment.ms begins a segment
                number += 1
                await asyncio.sleep(0.5)
    async with started(sandbox, tmp_path) as replayed:
        assert any("were compacted away" in why for why in replayed.why)
        assert replayed.segments().keys() == {2, *range(10, number)}
        assert uuid(1) not in replayed.metadata.manager.ledger(KEY).entries
        assert replayed.metadata.manager.problem is None


def _listed(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=120).topics)


def _alter(bootstrap: str) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in COMPACTED_AT_ONCE.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, LEDGER_TOPIC, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(120)


async def _offsets(bootstrap: str) -> list[int]:
    """What is there now of the ledger partition."""
    consumer = make_consumer(ConnectionSettings(bootstrap_servers=(bootstrap,), client_id="look"))
    partition = structs.TopicPartition(*PARTITION)
    await consumer.start()
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        found: list[int] = []
        while await consumer.position(partition) < end:
            batches = await consumer.getmany(timeout_ms=200)
            found += [record.offset for records in batches.values() for record in records]
        return found
    finally:
        await consumer.stop()

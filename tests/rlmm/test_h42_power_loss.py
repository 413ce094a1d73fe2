"""A ledger partition loses its end with the power of its broker, and grows again (H42)."""

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlm.clock import new_uuid
from rlm.service.metadata import ReadsFile
from rlmm.clients import ConnectionSettings, make_producer
from rlmm.records import (
    NO_PREVIOUS,
    LedgerKey,
    RecordHeaders,
    encode_record_value,
    ledger_partition,
)
from rlmm.settings import FreezeRecord
from rlmm.topic import LEDGER_TOPIC
from tests.builders.opened import opened
from tests.rlmm.builders import KEY, STARTED, segment
from tests.rlmm.running import RunningMetadata, running
from tests.sandbox_fixtures import SandboxFactory

pytestmark = pytest.mark.integration

PARTITION = ledger_partition(KEY)
GONE_BYTES = 10


async def test_h42_a_ledger_that_lost_its_end_and_grew_again_stops_deletes_for_good(
    sandbox_factory: SandboxFactory, tmp_path: Path
) -> None:
    sandbox = sandbox_factory(services=False)
    log = sandbox.log_dirs()[0] / f"{LEDGER_TOPIC}-{PARTITION}" / f"{0:020d}.log"
    file = ReadsFile(tmp_path, "cluster")
    async with running(sandbox.direct_bootstrap) as records:
        for number in range(3):
            await records.manager.publish(segment(number, STARTED), 5, -1)
        before = records.log.reads
        await asyncio.to_thread(sandbox.kill, "broker:1")
        await asyncio.to_thread(_cut, log)
        await asyncio.to_thread(sandbox.start, "broker:1")
        await _write_past(sandbox.direct_bootstrap, count=3)
        async with asyncio.timeout(180):
            await records.log.wait_lost()
        await _refuses_what_the_ledger_is_for(records)
        assert before.read_positions[TopicPartition(LEDGER_TOPIC, PARTITION)].position == 3
        file.write(before)
    async with running(sandbox.direct_bootstrap, reads=file) as restarted:
        async with asyncio.timeout(180):
            await restarted.log.wait_lost()
        file.write(restarted.log.reads)
        await restarted.manager.barrier(KEY, 60_000)
    async with running(sandbox.direct_bootstrap, reads=file) as again:
        await again.manager.barrier(KEY, 60_000)
        snapshot = tmp_path / "ledger.snapshot"
        remedy = f"{file.path} and {snapshot} are removed"
        assert remedy in (again.manager.problem or "")
    file.path.unlink()
    async with running(sandbox.direct_bootstrap, reads=file) as accepted:
        await accepted.manager.barrier(KEY, 60_000)
        assert accepted.manager.problem is None


async def _refuses_what_the_ledger_is_for(records: RunningMetadata) -> None:
    assert "lost records" in (records.manager.damage or "")
    with pytest.raises(Unavailable, match="lost records"):
        await records.manager.barrier(KEY, 5_000)
    with pytest.raises(Unavailable, match="lost records"):
        await records.manager.publish(segment(9, STARTED), 5, -1)
    await records.settings.publish(
        FreezeRecord(topic_id=None, stopped=("trim",), by="test", why="the ledger is not whole")
    )


def _cut(log: Path) -> None:
    """What was in the page cache only is gone: the last batch does not end any more."""
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - GONE_BYTES)


async def _write_past(bootstrap: str, *, count: int) -> None:
    """Somebody who does not know goes on writing, before any reader looks."""
    settings = ConnectionSettings(bootstrap_servers=(bootstrap,), client_id="others")
    producer: AIOKafkaProducer = make_producer(settings)
    headers = RecordHeaders(leader_epoch=5, expected_previous=NO_PREVIOUS, writer=new_uuid())
    async with opened(producer):
        for number in range(20, 20 + count):
            await producer.send_and_wait(
                LEDGER_TOPIC,
                key=LedgerKey.of(segment(number).segment_id).encode(),
                value=encode_record_value(segment(number, STARTED)),
                partition=PARTITION,
                headers=headers.encode(),
            )

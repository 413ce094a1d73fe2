"""The facts outlive their broker: tail, barrier and publish go on after a kill and a restart."""

import asyncio

import pytest

from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlm.clock import SystemClock, new_uuid
from rlmm.clients import ConnectionSettings
from rlmm.end_offsets import EndOffsetClient
from rlmm.leader_answers import EpochEnd, EpochQuestion
from rlmm.publisher import OutcomeUnknown
from rlmm.records import ledger_partition
from rlmm.settings import StartRecord
from rlmm.topic import LEDGER_TOPIC
from tests.rlmm.builders import FINISHED, KEY, STARTED, segment
from tests.rlmm.running import RunningMetadata, running
from tests.sandbox_fixtures import SandboxFactory

pytestmark = pytest.mark.integration


async def test_h10_all_goes_on_after_the_broker_was_killed(sandbox_factory: SandboxFactory) -> None:
    sandbox = sandbox_factory(services=False)
    async with (
        running(sandbox.direct_bootstrap, publish_timeout_ms=10_000) as mine,
        running(sandbox.direct_bootstrap) as other,
    ):
        await mine.manager.publish(segment(1, STARTED), 5, -1)
        await asyncio.to_thread(sandbox.kill, "broker:1")
        with pytest.raises(Unavailable):
            await mine.manager.barrier(KEY, 500)
        with pytest.raises(Unavailable):
            await _publish_in_vain(mine)
        await asyncio.to_thread(sandbox.start, "broker:1")
        async with asyncio.timeout(180):
            await _publish_at_last(mine)
        async with asyncio.timeout(180):
            await _barrier_at_last(other)
        assert other.manager.ledger(KEY).entries[segment(1).segment_id.id].state is FINISHED
        async with asyncio.timeout(180):
            while mine.manager.problem:  # noqa: ASYNC110 - gone with the next look at the topics
                await asyncio.sleep(0.1)
        start = StartRecord(partition=KEY, remote_log_start_offset=1, cause=str(new_uuid()))
        async with asyncio.timeout(180):
            await _settings_at_last(mine, start)


async def _publish_in_vain(records: RunningMetadata) -> None:
    await records.manager.publish(segment(1, FINISHED), 5, STARTED)


async def _settings_at_last(records: RunningMetadata, start: StartRecord) -> None:
    while True:
        try:
            return await records.settings.publish(start, leader_epoch=5)
        except (OutcomeUnknown, Unavailable):
            await asyncio.sleep(0.2)


async def _barrier_at_last(records: RunningMetadata) -> None:
    """No barrier passes before a leader has confirmed the epoch that the restart ended."""
    while True:
        try:
            return await records.manager.barrier(KEY, 5_000)
        except Unavailable:
            await asyncio.sleep(0.2)


async def _publish_at_last(records: RunningMetadata) -> None:
    """As a task does: unknown stays unknown until a barrier was passed, then look."""
    segment_id = segment(1).segment_id.id
    while records.manager.ledger(KEY).entries[segment_id].state is not FINISHED:
        try:
            await records.manager.barrier(KEY, 5_000)
            if records.manager.ledger(KEY).entries[segment_id].state is STARTED:
                await records.manager.publish(segment(1, FINISHED), 5, STARTED)
        except (OutcomeUnknown, Unavailable):
            await asyncio.sleep(0.2)


async def test_h42_a_broker_answers_for_an_epoch_unless_it_has_not_heard_of_the_newest(
    sandbox_factory: SandboxFactory,
) -> None:
    """A newer leader than the asker knows of refuses the first question, and has an answer."""
    sandbox = sandbox_factory(services=False)
    partition = TopicPartition(LEDGER_TOPIC, ledger_partition(KEY))
    async with running(sandbox.direct_bootstrap) as mine:
        await mine.manager.publish(segment(1, STARTED), 5, -1)
        read = mine.log.reads.read_positions[partition]
    for _ in range(2):
        await asyncio.to_thread(sandbox.kill, "broker:1")
        await asyncio.to_thread(sandbox.start, "broker:1")
    async with running(sandbox.direct_bootstrap) as mine:
        await mine.manager.barrier(KEY, 60_000)
    epoch = read.leader_epoch
    connection = ConnectionSettings(
        bootstrap_servers=(sandbox.direct_bootstrap,), client_id="asker"
    )
    asker = EndOffsetClient(connection, SystemClock().sleep_ms)
    try:
        for newest in (epoch, epoch + 1):
            found = await _epoch_end_at_last(asker, partition, EpochQuestion(epoch, newest))
            assert found == EpochEnd(epoch, read.position)
        assert await asker.epoch_ends({partition: EpochQuestion(epoch, epoch + 1_000)}) == {}
    finally:
        await asker.close()


async def _epoch_end_at_last(
    asker: EndOffsetClient, partition: TopicPartition, question: EpochQuestion
) -> EpochEnd:
    """A broker that gives no answer in this moment is asked again."""
    async with asyncio.timeout(180):
        while not (found := await asker.epoch_ends({partition: question})):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert found.keys() == {partition}
    return found[partition]

"""Kafka's own formatter prints every non-null value of the ledger (H29)."""

import asyncio

import pytest

from kip405.segments import RemotePartitionDeleteMetadata, RemotePartitionDeleteState
from rlmm.topic import LEDGER_TOPIC
from tests.rlmm.builders import DELETED, DELETING, FINISHED, PARTITION, STARTED, segment
from tests.rlmm.running import running
from tests.sandbox_fixtures import SandboxFactory

pytestmark = pytest.mark.integration

FORMATTER = (
    "org.apache.kafka.server.log.remote.metadata.storage.serialization."
    "RemoteLogMetadataSerde$RemoteLogMetadataFormatter"
)


async def test_h29_kafkas_formatter_prints_every_non_null_value(
    sandbox_factory: SandboxFactory,
) -> None:
    sandbox = sandbox_factory(services=False)
    printed_states = 0
    async with running(sandbox.direct_bootstrap) as records:
        for number in range(3):
            await records.manager.publish(segment(number, STARTED), 5, -1)
            await records.manager.publish(segment(number, FINISHED), 5, STARTED)
            printed_states += 2
        await records.manager.publish(segment(0, DELETING), 5, FINISHED)
        await records.manager.publish(segment(0, DELETED), 5, DELETING)
        printed_states += 2
        await records.manager.tombstone(segment(0).segment_id, 5)
        for deletion in RemotePartitionDeleteState:
            await records.manager.put_remote_partition_delete_metadata(
                RemotePartitionDeleteMetadata(
                    topic_id_partition=PARTITION, event_timestamp_ms=77, broker_id=2, state=deletion
                ),
                5,
            )
    printed = await asyncio.to_thread(
        sandbox.dist.run_tool,
        "console-consumer",
        "--bootstrap-server",
        sandbox.direct_bootstrap,
        "--topic",
        LEDGER_TOPIC,
        "--from-beginning",
        "--formatter",
        FORMATTER,
        "--skip-message-on-error",
        "--max-messages",
        str(printed_states + 1 + len(RemotePartitionDeleteState)),  # and the tombstone
        "--timeout-ms",
        "60000",
    )
    lines = [line for line in printed.stdout.splitlines() if "RemoteLogSegmentMetadata{" in line]
    assert len(lines) == printed_states
    for state in (STARTED, FINISHED, DELETING, DELETED):
        assert any(f"state={state.name}" in line for line in lines)
    assert all("orders" in line and "startOffset=" in line for line in lines)
    deletions = [line for line in printed.stdout.splitlines() if "PartitionDeleteMetadata{" in line]
    assert len(deletions) == len(RemotePartitionDeleteState)
    for deletion, line in zip(RemotePartitionDeleteState, deletions, strict=True):
        assert "orders" in line and f"state={deletion.name}" in line

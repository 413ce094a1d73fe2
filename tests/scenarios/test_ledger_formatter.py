"""Kafka's own formatter prints every non-null value of a ledger that has been lived in (H29)."""

import pytest

from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.faults import plugin_that_obeys_modes, read_only_store
from tests.scenarios.ledger_reader import LedgerReader

pytestmark = pytest.mark.integration

_FORMATTER = (
    "org.apache.kafka.server.log.remote.metadata.storage.serialization."
    "RemoteLogMetadataSerde$RemoteLogMetadataFormatter"
)
_TRIES = 16  # the cleaner may take old records away between two looks, and topics may end


def test_h29_kafkas_formatter_prints_every_non_null_value(one: Cluster) -> None:
    topic = fresh("formatted")
    one.create_topic(topic)
    one.enable(topic)
    with plugin_that_obeys_modes(one):
        with read_only_store(one):
            one.fill(topic, mib=3)
            one.wait_for(lambda: _counted(one)[1] > 0, "an attempt that failed is buried")
        one.wait_trimmed(topic)
    counted, printed = (0, 0), ""
    for _ in range(_TRIES):
        counted = _counted(one)
        printed = _printed(one, sum(counted))
        if _counted(one) == counted:
            break
    lines = [line for line in printed.splitlines() if "RemoteLogSegmentMetadata{" in line]
    values, tombstones = counted
    assert len(lines) == values > 0
    assert tombstones > 0
    assert any(topic in line and "state=COPY_SEGMENT_FINISHED" in line for line in lines)


def _counted(cluster: Cluster) -> tuple[int, int]:
    """Values and tombstones that lie in the ledger now."""
    reader = LedgerReader(cluster)
    try:
        reader.read()
        return reader.values, reader.tombstones
    finally:
        reader.close()


def _printed(cluster: Cluster, records: int) -> str:
    return cluster.sandbox.dist.run_tool(
        "console-consumer",
        *("--bootstrap-server", cluster.direct, "--topic", "__rlm_remote_log_metadata"),
        *("--from-beginning", "--max-messages", str(records), "--timeout-ms", "60000"),
        "--skip-message-on-error",
        *("--formatter", _FORMATTER),
    ).stdout

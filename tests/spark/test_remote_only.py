"""`remote_only` while every broker is stopped: the services run on and answer from the store."""

from pathlib import Path

import pytest

from tests.spark.conftest import Twins
from tests.spark.lab import Lab, assert_equal, seen

pytestmark = pytest.mark.integration


def test_remote_only_with_every_broker_stopped(lab: Lab, twins: Twins, folder: Path) -> None:
    """Subscribed by name, by pattern and by timestamp; as batch and as stream."""
    sandbox = lab.cluster.sandbox
    remote = [row for row in twins.expected() if row.offset < twins.remote_ends[row.partition]]
    common = {
        "rlm.endpoints": lab.endpoint,
        "readMode": "remote_only",
        "includeHeaders": "true",
    }
    by_name = {**common, "subscribe": twins.tiered}
    by_pattern = {**common, "subscribePattern": twins.tiered[:-1] + "."}
    for number in lab.cluster.sandbox.state.spec.broker_ids:
        sandbox.stop(f"broker:{number}")
    assert [row.state for row in sandbox.status() if row.name.startswith("broker:")] == ["stopped"]
    assert_equal(seen(lab.bare(by_name)), remote)
    assert_equal(seen(lab.bare(by_pattern)), remote)
    # Kafka may be named: it is not asked.
    frame = lab.stream(twins.tiered, {"includeHeaders": "true", "readMode": "remote_only"})
    lab.run_available(frame, folder)
    assert_equal(seen(lab.written(folder)), remote)

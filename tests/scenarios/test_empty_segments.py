"""A topic that was compacted before it became `delete`: the cleaner has left empty segments."""

import contextlib
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tests.scenarios.cluster import Cluster, assert_same, fresh, text_value
from tests.scenarios.objects import finished_segments

pytestmark = pytest.mark.integration

_COMPACTED = {
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
_CLEANED_WITHIN_S = 120  # log.cleaner.backoff.ms is 15 s


def _emptied(cluster: Cluster, topic: str) -> list[Path]:
    dirs = [Path(one) for one in cluster.sandbox.json["brokers"][0]["log_dirs"]]
    files = sorted(file for one in dirs for file in (one / f"{topic}-0").glob("*.log"))
    emptied = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # the cleaner replaces it just now
            if file.stat().st_size == 0:
                emptied.append(file)
    return emptied


def _is_cleaned(cluster: Cluster, topic: str) -> bool:
    """Whether the cleaner has finished a pass, which it records at the end of it."""
    dirs = [Path(one) for one in cluster.sandbox.json["brokers"][0]["log_dirs"]]
    noted = (one / "cleaner-offset-checkpoint" for one in dirs)
    return any(f"{topic} 0 " in file.read_text() for file in noted if file.exists())


def _set_policy(cluster: Cluster, topic: str, policy_name: str) -> None:
    policy = ConfigEntry("cleanup.policy", policy_name, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[policy])
    cluster.admin.incremental_alter_configs([resource])[resource].result(120)


def test_h15_closed_segments_that_the_cleaner_left_empty_stop_nobody(one: Cluster) -> None:
    topic = fresh("was-compacted")
    one.create_topic(topic, configs=_COMPACTED)
    one.produce(
        topic,
        ((0, b"same", text_value()) for _ in range(4 * 1024)),
        **{"enable.idempotence": False},
    )
    _set_policy(one, topic, "compact")  # only now: a second pass makes one segment of empty ones
    one.wait_for(
        lambda: _is_cleaned(one, topic) and len(_emptied(one, topic)) >= 2,
        "empty segments",
        _CLEANED_WITHIN_S,
    )
    _set_policy(one, topic, "delete")  # ends a pass that runs: from now on nothing is compacted
    emptied = _emptied(one, topic)
    direct = one.read_all(topic, bootstrap=one.direct)
    one.enable(topic)
    rows = one.fill(topic, mib=4)
    log_start = one.wait_trimmed(topic, beyond=rows[0].offset)
    assert log_start > int(emptied[-1].stem)
    assert_same(one.read_all(topic), sorted({*direct, *rows}, key=lambda row: row.offset))
    assert one.status(topic)["alarms"] == []
    assert finished_segments(one, topic)[0].start_offset > int(emptied[0].stem)

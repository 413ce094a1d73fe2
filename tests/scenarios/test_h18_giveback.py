"""H18 on a real broker: a log directory fills while the store is away, and the broker lives on.

The directory has a quota of the service instead of a small file system, which would need rights.
"""

import contextlib
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rlm.log_dir.space import space_of
from rlm.plans.disk import relief_bytes
from rlm_sandbox.spec import SandboxError
from tests.scenarios.cluster import SMALL_SEGMENTS, Cluster, Row, assert_same, fresh
from tests.scenarios.objects import finished_segments
from tests.service_log import events_of

pytestmark = pytest.mark.integration

_MIB = 1 << 20
_FLOOR = 8 * _MIB
_MORE_THAN_USED = 1 << 30


@contextlib.contextmanager
def room_for(cluster: Cluster, size_bytes: int) -> Iterator[None]:
    """The log directory of broker 1 may grow by so much, by the settings of its service."""
    path = cluster.sandbox.layout.rlm_config(1)
    before = path.read_text()
    [log_dir] = cluster.sandbox.log_dirs()
    cluster.wait_for(lambda: not _is_freeing(log_dir), "what the broker has deleted is gone")
    used = _MORE_THAN_USED - space_of(log_dir, _MORE_THAN_USED).free_bytes
    pressed = {
        "disk.quota.bytes": used + size_bytes,
        "disk.min.free.bytes": _FLOOR,
        "disk.check.interval.ms": 500,
        "on.disk.pressure": "giveback",
    }
    try:
        path.write_text(yaml.safe_dump(yaml.safe_load(before) | pressed))
        restart(cluster)
        yield
    finally:
        path.write_text(before)
        with contextlib.suppress(SandboxError):  # it runs, unless the test has failed
            cluster.sandbox.start("plugin:1")
        restart(cluster)


def _is_freeing(log_dir: Path) -> bool:
    """Whether files are left that the broker has marked as deleted: they are freed a moment later,
    and on a busy machine many moments.
    """
    for folder, _, files in os.walk(log_dir):
        if folder.endswith("-delete") or any(name.endswith(".deleted") for name in files):
            return True
    return False


def restart(cluster: Cluster) -> None:
    cluster.sandbox.kill("rlm:1")
    cluster.sandbox.start("rlm:1")


def asked(cluster: Cluster, path: str) -> str:
    """What the service answers over HTTP, which takes less time than a command."""
    port = cluster.sandbox.state.ports[1].http
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
        return str(answer.read().decode())


def kinds(cluster: Cluster) -> set[str]:
    return {row["kind"] for row in json.loads(asked(cluster, "healthz"))["problems"]}


def alarms(cluster: Cluster, position: int) -> set[str]:
    """Kinds of the problems that the service has logged since, also of those that have ended."""
    found = events_of(cluster.sandbox.layout.log("rlm:1"), position)
    return {str(one["kind"]) for one in found if one["event"] == "problem"}


def is_low_soon(cluster: Cluster, position: int) -> bool:
    """Whether an alarm at the floor comes within 20 s."""
    try:
        cluster.wait_for(lambda: "log-dir-low" in alarms(cluster, position), "an alarm", 20)
    except AssertionError:
        return False
    return True


def metric(cluster: Cluster, start: str) -> float:
    [line] = [line for line in asked(cluster, "metrics").splitlines() if line.startswith(start)]
    return float(line.rpartition(" ")[2])


def kept_bytes(cluster: Cluster, topic: str) -> str:
    return str(cluster.topic_config(topic)["retention.bytes"][0])


def lost(cluster: Cluster, topic: str) -> list[range]:
    """The recorded holes. They grow until the store is listed again, which says what else nobody
    has, and shrink where a segment is copied that the broker deleted while the service had it open.
    """
    rows = cluster.status(topic)["hole_ranges"]
    return [range(row["start_offset"], row["end_offset"]) for row in rows]


def is_within(row: Row, holes: list[range]) -> bool:
    return any(row.offset in hole for hole in holes)


def offsets_of(rows: list[Row]) -> list[int]:
    return [row.offset for row in rows]


def kept(cluster: Cluster, topic: str, rows: list[Row]) -> list[int]:
    """Offsets of the records that are in no hole."""
    holes = lost(cluster, topic)
    return [row.offset for row in rows if not is_within(row, holes)]


def test_h18_a_full_disk_is_given_back_and_what_is_lost_is_passed_without_a_reset(
    one: Cluster,
) -> None:
    topic = fresh("full")
    one.create_topic(topic, configs=SMALL_SEGMENTS)
    one.enable(topic)
    rows = one.fill(topic, mib=4)
    copied = one.wait_settled(topic)
    remote_end = finished_segments(one, topic)[-1].end_offset + 1
    with room_for(one, 20 * _MIB):
        assert "log-dir-low" not in kinds(one)
        position = one.sandbox.layout.log("rlm:1").stat().st_size
        one.sandbox.kill("plugin:1")
        one.wait_for(lambda: "store-unavailable" in kinds(one), "the store is away")
        rows += one.fill(topic, mib=15, first=len(rows))
        while not is_low_soon(one, position):  # topics of other tests were trimmed meanwhile
            assert len(rows) < 60 * 1024, "no alarm at the floor"
            rows += one.fill(topic, mib=2, first=len(rows))
        one.wait_trimmed(topic, beyond=copied)
        lost_offsets = f'rlm_partition_lost_offsets{{partition="0",topic="{topic}"}}'
        one.wait_for(lambda: metric(one, lost_offsets) > 0, "a hole on record")
        one.wait_for(lambda: kinds(one).isdisjoint(_PRESSURE), "space again")
        one.wait_for(lambda: kept_bytes(one, topic) == "-1", "retention taken over")
        free_bytes = metric(one, "rlm_log_dir_free_bytes{")
        assert _FLOOR <= free_bytes <= relief_bytes(_FLOOR) + 2 * _MIB, "what had to be deleted was"
        one.sandbox.start("plugin:1")
        one.wait_copied(topic)
        start = one.log_start(topic)
        one.wait_for(
            lambda: metric(one, lost_offsets) == sum(map(len, lost(one, topic))), "a metric of all"
        )
    one.wait_for(lambda: offsets_of(one.read_all(topic)) == kept(one, topic, rows), "what is left")
    holes = lost(one, topic)
    assert holes
    assert remote_end <= holes[0].start
    assert holes[-1].stop <= start
    assert_same(one.read_all(topic), [row for row in rows if not is_within(row, holes)])
    assert "foreign-log-start" not in kinds(one)
    verified = one.rlm("verify", topic)
    assert "recorded hole: the broker deleted them before they were copied" in verified.stdout


_PRESSURE = {"log-dir-low", "retention-given-back"}

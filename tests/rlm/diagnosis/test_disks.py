"""Faults of log.dirs that `rlm doctor` finds."""

from pathlib import Path

import pytest

from kip405.ids import Uuid
from rlm.plans.problems import Severity
from tests.builders.log_dir import TOPIC, LogDir
from tests.builders.service import NODE_ID
from tests.rlm.diagnosis.world import CLUSTER_ID, World


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "said"),
    [
        ("theirs", NODE_ID, "log.dirs belong to cluster theirs, the configuration says ours"),
        (CLUSTER_ID, 9, "log.dirs belong to node 9, the configuration says 3"),
    ],
)
async def test_h13_log_dirs_of_another_broker(
    world: World, cluster_id: str, node_id: int, said: str
) -> None:
    LogDir(world.path, cluster_id=cluster_id, node_id=node_id)
    finding = await world.only("log-dirs")
    assert (finding.severity, finding.text) == (Severity.ALARM, said)
    assert "broker.direct.address" in finding.remedy


async def test_h13_a_log_dir_without_meta_properties(world: World) -> None:
    (world.path / "meta.properties").unlink()
    assert "meta.properties cannot be read" in (await world.only("log-dirs")).text


async def test_h13_a_log_dir_that_cannot_be_listed(tmp_path: Path) -> None:
    second = tmp_path / "second"
    world = World(tmp_path, **{"log.dirs": [str(tmp_path / "logs"), str(second)]})
    LogDir(second, cluster_id=CLUSTER_ID, node_id=NODE_ID)
    assert await world.findings() == {}
    for entry in second.iterdir():
        entry.unlink()
    second.rmdir()
    found = await world.findings()
    assert set(found) == {"log-dirs", "log-dirs-readable", "disk-space"}
    [finding] = found["log-dirs-readable"]
    assert finding.subject == f"log dir {second}" and "g+rX" in finding.remedy


async def test_h13_one_segment_of_one_partition_that_cannot_be_read(world: World) -> None:
    """A link in a loop, as the superuser that runs the tests may read all else."""
    segment = world.partition.path / f"{0:020}.log"
    segment.unlink()
    segment.symlink_to(segment.name)
    finding = await world.only("log-dirs-readable")
    assert finding.subject == f"directory {world.partition.path}"
    assert "nothing of this partition can be copied" in finding.text
    assert str(segment) in finding.text


async def test_h13_a_damaged_partition_metadata(world: World) -> None:
    (world.partition.path / "partition.metadata").write_text("rubbish\n")
    assert "partition.metadata" in (await world.only("log-dirs-readable")).text


async def test_h13_a_partition_of_the_broker_that_is_in_none_of_log_dirs(world: World) -> None:
    world.partition.path.rename(world.path / f"{TOPIC}-7")
    finding = await world.only("partition-directories")
    assert finding.subject == f"{TOPIC}-0"
    assert "none of log.dirs" in finding.text and "mount" in finding.remedy


async def test_h13_a_partition_that_is_in_two_log_dirs(tmp_path: Path) -> None:
    second = tmp_path / "second"
    world = World(tmp_path, **{"log.dirs": [str(tmp_path / "logs"), str(second)]})
    LogDir(second, cluster_id=CLUSTER_ID, node_id=NODE_ID).partition().active(0, 10)
    finding = await world.only("partition-directories")
    assert str(second) in finding.text and "while the broker is stopped" in finding.remedy


async def test_h13_a_directory_of_another_topic_with_this_name(world: World) -> None:
    other = Uuid(b"\x55" * 16)
    (world.partition.path / "partition.metadata").write_text(f"version: 0\ntopic_id: {other}\n")
    assert str(other) in (await world.only("partition-directories")).text


async def test_h18_a_disk_below_its_floor(tmp_path: Path) -> None:
    world = World(tmp_path, **{"disk.min.free.bytes": 1 << 60})
    found = await world.findings()
    [finding] = found["disk-space"]
    assert finding.severity is Severity.ALARM
    assert "disk.min.free.bytes" in finding.text and "local retention" in finding.remedy

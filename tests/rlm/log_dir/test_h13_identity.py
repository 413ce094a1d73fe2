"""H13: the right disks, and one service only."""

import subprocess
import sys
from pathlib import Path

import pytest

from kip405.errors import Invalid
from kip405.ids import Uuid
from rlm.log_dir.identity import (
    BrokerIdentity,
    ServiceLock,
    check_identity,
    check_topic_id,
    read_identity,
)
from tests.builders.log_dir import CLUSTER_ID, LogDir

IDENTITY = BrokerIdentity(cluster_id=CLUSTER_ID, node_id=1)


def test_h13_log_dirs_name_their_broker(tmp_path: Path) -> None:
    one, two = LogDir(tmp_path / "one"), LogDir(tmp_path / "two")
    assert read_identity([str(one.path), str(two.path)]) == IDENTITY


def test_h13_log_dirs_of_two_brokers_are_refused(tmp_path: Path) -> None:
    one, two = LogDir(tmp_path / "one"), LogDir(tmp_path / "two", node_id=2)
    with pytest.raises(Invalid, match="different brokers"):
        read_identity([str(one.path), str(two.path)])


@pytest.mark.parametrize("text", ["", "version=1\ncluster.id=x\n", "version=9\n"])
def test_h13_a_directory_that_names_no_node_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(Invalid, match=r"meta\.properties"):
        read_identity([str(tmp_path)])


def test_h13_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        read_identity([str(tmp_path / "nowhere")])


@pytest.mark.parametrize(("cluster_id", "node_id"), [("other", 1), (CLUSTER_ID, 2)])
def test_h13_disks_of_another_broker_are_refused(cluster_id: str, node_id: int) -> None:
    with pytest.raises(Invalid, match="the direct listener says"):
        check_identity(
            IDENTITY, cluster_id=cluster_id, node_id=node_id, source="the direct listener"
        )
    check_identity(IDENTITY, cluster_id=CLUSTER_ID, node_id=1, source="the direct listener")


def test_h13_a_recreated_topic_is_refused() -> None:
    old, new = Uuid(bytes(16)), Uuid(b"\x01" * 16)
    check_topic_id("t", 0, old, old)
    for on_disk in (None, old):
        with pytest.raises(Invalid, match="t-0 on disk has topic id"):
            check_topic_id("t", 0, on_disk, new)


def test_h13_a_second_process_does_not_get_the_lock(tmp_path: Path) -> None:
    code = (
        "from rlm.log_dir.identity import *\n"
        f"with ServiceLock({str(tmp_path)!r}, BrokerIdentity(cluster_id={CLUSTER_ID!r}, "
        "node_id=1)):\n    print('taken', flush=True)\n    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"taken\n"
        with (
            pytest.raises(Invalid, match=f"pid {holder.pid}"),
            ServiceLock(str(tmp_path), IDENTITY),
        ):
            pass
        other = BrokerIdentity(cluster_id=CLUSTER_ID, node_id=2)
        with ServiceLock(str(tmp_path), other):
            pass
        holder.kill()
    with ServiceLock(str(tmp_path), IDENTITY):
        pass

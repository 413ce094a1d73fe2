"""Downloads by way of services: any is asked, the leader's answers, and wrong calls are refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kip405.errors import Busy, Fenced, Invalid, NotFound
from kip405.ids import Uuid
from kip405.segments import ByteRange
from rlm.download.run import Download
from rlm.download.sources import ServiceSource
from rlm.remote_log.objects import RANGE_MAX_BYTES
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID, TOPIC
from tests.builders.rig import Rig
from tests.builders.threads import THREADS
from tests.rlm.api.harness import Node, api_node
from tests.rlm.api.test_fetch_service import WHO
from tests.rlm.cli.invoking import asked, assert_one_line, rlm
from tests.rlm.download.stored import Work, copied, remote_logs
from tests.rlm.topics.cluster import Cluster


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    return await copied(tmp_path, 0, 100, 250, end=300)


@pytest.fixture
async def node(rig: Rig) -> AsyncIterator[Node]:
    async with api_node(Cluster(), remote_logs=remote_logs(rig)) as running:
        await asked(running, "topics", "enable", TOPIC)
        yield running


def logs(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


async def test_the_command_writes_a_partition_and_says_so(
    node: Node, rig: Rig, tmp_path: Path
) -> None:
    where = str(tmp_path / "out")
    result = await asked(node, "download", TOPIC, "-p", "0", "--dir", where)
    assert result.exit_code == 0, result.output
    assert f"{TOPIC}-0: 2 of 2 segments" in result.stderr
    assert rig.broker.log.startswith(logs(tmp_path / "out" / f"{TOPIC}-0"))
    again = await asked(node, "download", TOPIC, "-p", "0", "--dir", where, "--json")
    (row,) = json.loads(again.stdout)["partitions"]
    assert (row["segments"], row["next_offset"]) == (2, 250)


async def test_the_service_gives_what_the_store_alone_gives(
    node: Node, rig: Rig, tmp_path: Path
) -> None:
    await asked(node, "download", TOPIC, "-p", "0", "--dir", str(tmp_path / "out"))
    by_store = Work(rig, tmp_path / "by-store")
    await by_store.run()
    found = {path.name: path.read_bytes() for path in (tmp_path / "out" / f"{TOPIC}-0").iterdir()}
    assert found == by_store.files()


async def test_a_follower_leads_the_way(rig: Rig, tmp_path: Path) -> None:
    cluster = Cluster()
    async with api_node(cluster, remote_logs=remote_logs(rig)) as leader:
        await asked(leader, "topics", "enable", TOPIC)
        async with api_node(cluster, node_id=2) as other:
            source = ServiceSource(other.address, WHO, timeout_s=30)
            try:
                work = Download(
                    source,
                    tmp_path / "out",
                    clock=ManualClock(),
                    threads=THREADS,
                    report=lambda _: None,
                )
                (plan,) = await work.run(TOPIC, 0)
            finally:
                await source.close()
    assert plan.cluster_id == CLUSTER_ID
    assert rig.broker.log.startswith(logs(tmp_path / "out" / f"{TOPIC}-0"))


async def test_a_store_command_that_names_no_store_is_wrong_use(tmp_path: Path) -> None:
    where = ("--dir", str(tmp_path))
    result = await rlm("download", TOPIC, *where, "--cluster-id", "c")
    assert_one_line(result, "--plugin", status=2)
    result = await rlm("download", TOPIC, *where, "--plugin", "127.0.0.1:1", "--topic-id", "short")
    assert_one_line(result, "--topic-id", status=2)
    result = await rlm("download", TOPIC, *where)
    assert_one_line(result, "--address", status=2)


async def test_a_foreign_directory_is_one_line(node: Node, tmp_path: Path) -> None:
    (tmp_path / "out" / f"{TOPIC}-0").mkdir(parents=True)
    (tmp_path / "out" / f"{TOPIC}-0" / "mine").touch()
    result = await asked(node, "download", TOPIC, "-p", "0", "--dir", str(tmp_path / "out"))
    assert_one_line(result, "not empty", status=2)


async def test_a_directory_that_cannot_be_made_is_one_line(node: Node, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    where = str(tmp_path / "file" / "out")
    result = await asked(node, "download", TOPIC, "-p", "0", "--dir", where)
    assert_one_line(result, where, "Not a directory", status=1)


async def test_ranges_are_bounded_and_segments_known(rig: Rig) -> None:
    remote = remote_logs(rig)
    (segment, _) = rig.ledger.view.entries
    with pytest.raises(Invalid, match="at most"):
        await anext(
            remote.read_log(PARTITION.key, segment, ByteRange(start=0, end=RANGE_MAX_BYTES + 1))
        )
    with pytest.raises(NotFound, match="no finished segment"):
        await anext(remote.read_indexes(PARTITION.key, Uuid(b"\x77" * 16)))


async def test_reads_beyond_the_bound_are_busy_and_slots_come_back(rig: Rig) -> None:
    remote = remote_logs(rig)
    (segment, _) = rig.ledger.view.entries
    wanted = ByteRange(start=0, end=100)
    reads = [remote.read_log(PARTITION.key, segment, wanted) for _ in range(32)]
    for one in reads[:4]:
        assert await anext(one)
    waiting = [asyncio.ensure_future(anext(one)) for one in reads[4:]]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await anext(remote.read_log(PARTITION.key, segment, wanted))
    for one in reads[:4]:
        await one.aclose()
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    for one in reads[4:]:
        await one.aclose()
    assert [piece async for piece in remote.read_log(PARTITION.key, segment, wanted)]


async def test_a_partition_led_elsewhere_is_fenced(rig: Rig) -> None:
    remote = remote_logs(rig)
    rig.broker.partition = rig.broker.partition.__class__(
        partition=0, leader=2, leader_epoch=1, replicas=(1, 2), isr=(2,)
    )
    with pytest.raises(Fenced):
        await remote.describe(PARTITION.key)

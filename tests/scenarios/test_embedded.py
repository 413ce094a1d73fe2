"""A program embeds the service: what it adds is tiered, what it leaves out is not, and the service
that comes after it goes on.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient

from kip405.errors import Invalid, OffsetOutOfRange, Unavailable
from kip405.ids import TopicPartition
from rlm.config import load
from rlm.service.remote_log_manager import RemoteLogManager
from tests.project.tree import ROOT
from tests.scenarios.cluster import Cluster, assert_same, fresh

pytestmark = pytest.mark.integration

PROGRAM = ROOT / "docs" / "embedded.py"
TRIM = ("--trim", "--local-retention-bytes", "1")
LIMIT_S = 120


def settings_of_one_process(cluster: Cluster, folder: Path) -> Path:
    """The settings of the sandbox's service, as a program can embed it."""
    given = yaml.safe_load(cluster.sandbox.layout.rlm_config(1).read_text(encoding="utf-8"))
    path = folder / "rlm.yaml"
    path.write_text(yaml.safe_dump({**given, "proxy.workers": 0}), encoding="utf-8")
    return path


def closed_segments(cluster: Cluster, topic: str) -> bytes:
    """The bytes of all segments but the active one, which nothing has trimmed yet."""
    files = segments(cluster, topic)
    assert len(files) > 2
    return b"".join(one.read_bytes() for one in files[:-1])


def segments(cluster: Cluster, topic: str) -> list[Path]:
    """The logs that the broker has; the last one is active."""
    [log_dir] = cluster.sandbox.log_dirs()
    return sorted((log_dir / f"{topic}-0").glob("*.log"))


async def read_whole(manager: RemoteLogManager, partition: TopicPartition) -> bytes:
    found, offset = bytearray(), 0
    while True:
        piece = await manager.read(partition, offset, 300_000)
        if not piece.records:
            assert offset == piece.next_offset == piece.remote_next_offset
            return bytes(found)
        found += piece.records
        offset = piece.next_offset


async def refused(settings: Path) -> bool:
    """Whether another service works for the broker."""
    with pytest.raises(Invalid, match="another service"):
        await RemoteLogManager(load(settings)).__aenter__()
    return True


def problems(cluster: Cluster, kind: str) -> set[str]:
    found = json.loads(cluster.rlm("status", "--json").stdout)["problems"]
    return {one["subject"] for one in found if one["kind"] == kind}


async def added(manager: RemoteLogManager, partition: TopicPartition) -> None:
    """Once the broker leads it; one that seems dead for a moment leads nothing."""
    async with asyncio.timeout(LIMIT_S):
        while not await manager.add_partitions([partition]):  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.2)


async def check_deletion(
    one: Cluster, manager: RemoteLogManager, partition: TopicPartition
) -> None:
    """A client deletes records through the proxy of the program."""
    with AdminClient({"bootstrap.servers": one.bootstrap}) as admin:
        asked = admin.delete_records([At(partition.topic, partition.partition, 10)])
        for answer in asked.values():
            await asyncio.to_thread(answer.result, LIMIT_S)
    with pytest.raises(OffsetOutOfRange) as error:
        await manager.read(partition, 9)
    assert error.value.log_start_offset == 10
    assert (await manager.read(partition, 10)).log_start_offset == 10


def run_page(one: Cluster, settings: Path, topics: Sequence[str]) -> None:
    """The program of the page, as it stands there."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(settings), *topics],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("is led and enabled: True", "at its end: b'' True", "shut down"):
        assert line in done.stdout
    assert f" {topics[1]}-0" in done.stdout
    assert one.log_start(topics[0]) > 0
    assert one.log_start(topics[1]) == 0


async def test_h05_a_program_tiers_what_it_has_added_and_nothing_else(
    one: Cluster, tmp_path: Path
) -> None:
    settings, topic, other = settings_of_one_process(one, tmp_path), fresh("added"), fresh("other")
    first, second = TopicPartition(topic, 0), TopicPartition(other, 0)
    acked, page = {}, (fresh("page"), fresh("page-other"))
    for name in (topic, other, *page):
        one.create_topic(name)
        acked[name] = one.fill(name, mib=3)
    assert await refused(settings), "the sandbox's works for the broker"
    await asyncio.to_thread(one.sandbox.stop, "rlm:1")
    stored, active = closed_segments(one, topic), int(segments(one, topic)[-1].stem)
    async with RemoteLogManager(settings) as manager:
        assert await refused(settings), "this one does"
        for name in (topic, other):
            await asyncio.to_thread(one.enable, name, *TRIM)
        await added(manager, first)
        assert not await manager.add_partitions([TopicPartition(topic, 7)])
        assert second in manager.left_out()
        await asyncio.to_thread(one.wait_trimmed, topic, beyond=active - 1)
        assert await read_whole(manager, first) == stored
        await asyncio.to_thread(
            one.wait_for,
            lambda: problems(one, "partition-left-out") >= {str(second)},
            "the problem of what is left out",
        )
        assert not (await manager.read(second, 0)).remote_next_offset
        await check_deletion(one, manager, first)

        assert await manager.remove_partitions([first])
        end = (await manager.read(first, 1_000_000)).remote_next_offset
        acked[topic] += await asyncio.to_thread(one.fill, topic, mib=3)
        await added(manager, second)
        await asyncio.to_thread(one.wait_trimmed, other)
        assert (await manager.read(first, end)).remote_next_offset == end
        await manager.shutdown()
        with pytest.raises(Unavailable):
            await manager.read(first, end)
    await asyncio.to_thread(run_page, one, settings, page)
    await asyncio.to_thread(one.sandbox.start, "rlm:1")
    assert await asyncio.to_thread(one.wait_trimmed, topic, beyond=end) > end
    for name, deleted in ((topic, 10), (other, 0)):
        read = await asyncio.to_thread(one.read_all, name, start={0: deleted})
        assert_same(read, acked[name][deleted:])

"""A topic whose segments have several layouts, on a real broker and the store of the sandbox."""

import asyncio
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from rlm_client import TieredStorageConsumer
from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.layout_changes import changed_through, with_all_layouts
from tests.scenarios.objects import finished_segments, names_of, objects_of

pytestmark = pytest.mark.integration

_KEPT = ("--local-retention-bytes", "1048576")
_LIMIT_S = 120


def test_a_topic_whose_layout_changes_is_read_through(one: Cluster) -> None:
    topic = fresh("layouts")
    one.create_topic(topic)
    one.enable(topic, "--trim", *_KEPT, "--layout", "blocks")
    rows = one.fill(topic, mib=3)
    blocks = one.wait_trimmed(topic)
    one.enable(topic, "--trim", *_KEPT, "--layout", "kafka")
    rows += one.fill(topic, mib=3, first=len(rows))
    one.wait_copied(topic)
    one.wait_trimmed(topic, beyond=len(rows) // 2 + 1024)
    found = [(at.start_offset, str(at.custom().layout)) for at in finished_segments(one, topic)]
    assert {layout for start, layout in found if start < blocks} == {"blocks"}
    assert {layout for _, layout in found} == {"blocks", "kafka"}
    suffixes = {name.rpartition(".")[2] for name in names_of(objects_of(one), topic)}
    assert suffixes == {"blocks", "blocks-index", "log", "indexes", "rsm-manifest"}
    assert_same(one.read_all(topic), rows)
    assert "clean" in one.rlm("verify", topic, "--deep").stdout


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["local", "s3"])
def test_so_it_is_through_all_layouts_and_restarts(
    sandbox_factory: SandboxFactory, kind: str
) -> None:
    """By a client of the proxy and by the API after each change; then the topic is deleted."""
    with Cluster(with_all_layouts(sandbox_factory, kind)) as cluster:
        topic = fresh("layouts")

        def reads_through(rows: list[Row]) -> None:
            assert_same(cluster.read_all(topic), rows)
            assert_same(asyncio.run(_by_the_api(cluster, topic)), rows)

        rows = changed_through(cluster, topic, reads_through)
        assert "clean" in cluster.rlm("verify", topic, "--deep").stdout
        cluster.sandbox.kill("plugin:1")
        cluster.sandbox.start("plugin:1")
        reads_through(rows)
        views = _views(cluster, topic)
        starts = [
            at.start_offset
            for at in finished_segments(cluster, topic)
            if str(at.custom().layout) == "pinterest"
        ]
        suffixes = ("index", "log", "timeindex")
        assert views == {"offset.wm", *(f"{at:020d}.{end}" for at in starts for end in suffixes)}
        start = cluster.log_start(topic)
        cluster.rlm("topics", "disable", topic, "--delete", "--yes")
        cluster.wait_for(
            lambda: not any(topic in name for name in objects_of(cluster).sizes()),
            f"all objects of {topic} are deleted",
        )
        assert_same(cluster.read_all(topic, start={0: start}), rows[start:])


def _views(cluster: Cluster, topic: str) -> set[str]:
    """The files of Pinterest's form."""
    paths = (name.rsplit("/", 2) for name in objects_of(cluster).sizes() if "their-prefix/" in name)
    return {file for _, folder, file in paths if folder == f"{topic}-0"}


async def _by_the_api(cluster: Cluster, topic: str) -> list[Row]:
    """Everything, from the remote tier as long as it has it."""
    options: dict[str, Any] = {"tiered_storage_mode": "remote_preferred"}
    consumer = TieredStorageConsumer(
        bootstrap_servers=cluster.direct,
        rlm_endpoints=str(cluster.sandbox.json["brokers"][0]["grpc"]),
        auto_offset_reset="earliest",
        **options,
    )
    partition, rows = TopicPartition(topic, 0), list[Row]()
    consumer.assign([partition])
    async with consumer, asyncio.timeout(_LIMIT_S):
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                rows += [
                    Row(
                        partition=one.partition,
                        offset=one.offset,
                        timestamp_ms=one.timestamp,
                        key=one.key,
                        value=one.value,
                        headers=tuple(one.headers),
                    )
                    for one in records
                ]
        assert consumer.counters().remote.records > 0
    return rows

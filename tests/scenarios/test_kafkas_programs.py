"""Kafka's own programs read both tiers through the proxies: MirrorMaker 2 from the earliest offset,
and the tool that resets a group to it.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rlm_sandbox.files import encode_properties
from rlm_sandbox.kafka_dist import cache_dir, java_environment
from rlm_sandbox.maven import cached_jars
from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.java import java_read, printable
from tests.scenarios.replicas import lead, trimmed_topic

pytestmark = [pytest.mark.integration, pytest.mark.long]

_GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
_MIRROR_MIB = 60
_MIRROR_LIMIT_S = 180


def test_the_tool_for_groups_resets_one_to_the_remote_start(three: Cluster) -> None:
    topic, group = fresh("reset"), fresh("group")
    rows = trimmed_topic(three, topic, [1, 2, 3])
    done = three.sandbox.dist.run_tool(
        _GROUPS_TOOL,
        *("--bootstrap-server", three.bootstrap, "--group", group, "--topic", topic),
        *("--reset-offsets", "--to-earliest", "--execute"),
    )
    assert done.returncode == 0, done.stderr
    (reset,) = [line.split() for line in done.stdout.splitlines() if line.startswith(group)]
    assert reset[1:4] == [topic, "0", "0"]
    member = {"group.id": group, "group.protocol": "classic"}
    read, said = java_read(three, topic, len(rows), partition=None, config=member)
    assert read == printable(rows), said


def test_mirrormaker_copies_both_tiers(three: Cluster, tmp_path: Path) -> None:
    """From the proxies to another topic, while the leader changes and a service restarts."""
    topic = fresh("mirrored")
    mirrored = f"source.{topic}"
    rows = trimmed_topic(three, topic, [1, 2, 3])
    with _mirror_maker(three, topic, tmp_path) as process:

        def copied() -> int:
            assert process.poll() is None, (tmp_path / "said").read_text("utf-8")[-3_000:]
            return three.log_end(mirrored) if mirrored in three.admin.list_topics().topics else 0

        three.wait_for(lambda: copied() > 0, "the first records are copied", _MIRROR_LIMIT_S)
        lead(three, topic, 2)
        three.sandbox.kill("rlm:2")
        three.sandbox.start("rlm:2")
        three.wait_for(lambda: copied() >= len(rows), "all records are copied", _MIRROR_LIMIT_S)
    found = three.read_all(mirrored, bootstrap=three.direct)
    assert_same([replace(row, headers=()) for row in found], rows)


@contextmanager
def _mirror_maker(
    cluster: Cluster, topic: str, folder: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """The cluster is source and target: only the names of topics differ."""
    one = "replication.factor"
    internal = ("offset-syncs.topic", "checkpoints.topic", "heartbeats.topic")
    connect = ("config.storage", "offset.storage", "status.storage")
    properties = {
        "clusters": "source, target",
        "source.bootstrap.servers": cluster.bootstrap,
        "target.bootstrap.servers": cluster.direct,
        "source->target.enabled": "true",
        "source->target.topics": topic,
        "source->target.emit.heartbeats.enabled": "false",
        "source->target.emit.checkpoints.enabled": "false",
        "source->target.sync.topic.configs.enabled": "false",
        "source->target.sync.topic.acls.enabled": "false",
        "source.consumer.max.partition.fetch.bytes": "65536",
        "target->source.enabled": "false",
        one: "1",
        **{f"{name}.{one}": "1" for name in (*internal, *connect)},
    }
    path = folder / "mirror-maker.properties"
    path.write_text(encode_properties(properties), "utf-8")
    version = cluster.sandbox.dist.version
    names = ("connect-mirror", "connect-runtime")
    jars = cached_jars(
        f"connect-mirror-{version}",
        [f"org.apache.kafka:{name}:{version}" for name in names],
        cache_dir(),
        repository=os.environ.get("RLM_MAVEN_REPO"),
        size_mib=_MIRROR_MIB,
        progress=lambda _: None,
    )
    command = cluster.sandbox.dist.tool_command(_MIRROR_MAKER, str(path))
    command[command.index("-cp") + 1] = os.pathsep.join(map(str, jars))
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=java_environment())
        try:
            yield process
        finally:
            process.kill()
            process.wait()

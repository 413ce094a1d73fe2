"""The session's cluster is a real one: what is produced is on its disk and comes back."""

import subprocess

import aiokafka
import pytest

from rlm_sandbox.kafka_dist import java_environment
from tests.builders.opened import opened
from tests.sandbox_fixtures import KafkaCluster

pytestmark = pytest.mark.integration


async def test_records_go_in_and_come_back(kafka_cluster: KafkaCluster) -> None:
    topic = "cluster-fixture"
    created = kafka_cluster.sandbox.dist.run_tool(
        *("topics", "--bootstrap-server", kafka_cluster.bootstrap_servers),
        *("--create", "--topic", topic),
    )
    assert created.returncode == 0, created.stderr
    servers = kafka_cluster.bootstrap_servers
    async with opened(aiokafka.AIOKafkaProducer(bootstrap_servers=servers)) as producer:
        await producer.send_and_wait(topic, b"value", partition=0)
    reading = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    )
    async with opened(reading) as consumer:
        record = await consumer.getone()
    assert record.value == b"value"
    (log_dir,) = kafka_cluster.log_dirs
    assert b"value" in (log_dir / f"{topic}-0" / f"{0:020d}.log").read_bytes()


def test_java_starts_from_the_class_archive(kafka_cluster: KafkaCluster) -> None:
    dist = kafka_cluster.sandbox.dist
    command = dist.tool_command("storage", "random-uuid")
    assert f"-XX:SharedArchiveFile={dist.class_archive.path}" in command
    # Java ends with an error if it cannot use it.
    done = subprocess.run(
        [command[0], "-Xshare:on", *command[1:]],
        capture_output=True,
        text=True,
        env=java_environment(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.strip()) == 22

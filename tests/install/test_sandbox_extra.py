"""The main job with nothing but `pip install 'kafka-rlm[sandbox]'`: copy, trim, read back."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from rlm_sandbox.kafka_dist import resolve_kafka
from tests.install.environments import make_environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

RECORDS = 3_000
PRODUCE = f"""
import asyncio, json, os
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

async def main():
    with open(os.environ["RLM_SANDBOX"] + "/sandbox.json") as file:
        bootstrap = json.load(file)["bootstrap"]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    config = {{"segment.bytes": "1048576"}}
    await admin.create_topics([NewTopic("clicks", 1, 1, topic_configs=config)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=100_000) as producer:
        for number in range({RECORDS}):
            await producer.send("clicks", f"click {{number}} ".ljust(1024, ".").encode())
        await producer.flush()

asyncio.run(main())
"""


def test_copy_trim_and_read_back(built: Mapping[str, Path], tmp_path: Path) -> None:
    resolve_kafka()  # a download has the time of this test, and not that of one command
    one = make_environment(tmp_path / "v", built["kafka_rlm.whl"], ["sandbox"])
    where = {"RLM_SANDBOX": str(tmp_path / "s")}
    one.run("rlm", "sandbox", "up", "--jvm", "quick", check=True, variables=where)
    try:
        assert one.python(PRODUCE, where).returncode == 0
        enable = ("topics", "enable", "clicks", "--trim", "--local-retention-bytes", "1MiB")
        one.run("rlm", *enable, check=True, variables=where)
        copied = one.run("rlm", "copy", "clicks", "--keep-local", "1MiB", variables=where)
        assert copied.returncode == 0, copied.stdout + copied.stderr
        for offset, tier in (("earliest", "remote"), (str(RECORDS - 1), "local")):
            read = ("fetch", "clicks", "-p", "0", "-o", offset, "-n", "1")
            done = one.run("rlm", *read, check=True, variables=where)
            assert done.stdout.split("\t")[0] == tier
            number = 0 if offset == "earliest" else RECORDS - 1
            assert f"click {number} " in done.stdout
    finally:
        one.run("rlm", "sandbox", "down", "--delete", check=True, variables=where)

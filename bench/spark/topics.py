"""The topics that both sides read: whole in Kafka, and all but the end of it in the store too.

They are copied but not trimmed. So the peer reads from the broker what ours reads from the store
(`remote_preferred`), the same records, and nothing has to be written twice.
"""

import random
import time
from pathlib import Path

import grpc

from bench.processes import BenchError, run_measured
from bench.spark.options import SparkOptions, Topic
from bench.topics import Progress, enable, make_topic
from rlm.api.call_metadata import call_metadata
from rlm.v1 import admin_pb2, admin_pb2_grpc
from rlm_sandbox.sandbox import Sandbox

SEED = 405
_LINES = 20_000
_REMOTE_TIMEOUT_S = 600
_WORDS = ("order", "paid", "zuerich", "parcel", "returned", "express", "gift", "eur", "chf", "null")


def prepare(sandbox: Sandbox, options: SparkOptions, progress: Progress) -> dict[str, float]:
    """Make, fill and copy every topic; answers the remote share of each one's records."""
    for topic in options.topics:
        make_topic(sandbox, topic.name, options.partitions, options.segment_mib)
    for topic in options.topics:
        enable(sandbox, topic.name)
    for topic in options.topics:
        progress(f"producing {options.size_mib} MiB to {topic.name}")
        _produce(sandbox, options, topic)
    progress("waiting until all closed segments are remote")
    return {topic.name: _wait_copied(sandbox, options, topic) for topic in options.topics}


def _produce(sandbox: Sandbox, options: SparkOptions, topic: Topic) -> None:
    """Lines of the payload at random, in batches of 64 KiB before compression."""
    payload = sandbox.layout.root / f"payload-{topic.record_bytes}.txt"
    if not payload.exists():
        payload.write_bytes(b"\n".join(_lines(topic.record_bytes)))
    argv = sandbox.dist.java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic.name),
        *("--num-records", str(options.records(topic))),
        *("--payload-file", str(payload)),
        *("--throughput", "-1"),
        "--producer-props",
        f"bootstrap.servers={sandbox.direct_bootstrap}",
        f"compression.type={topic.codec}",
        "batch.size=65536",
        "linger.ms=20",
        jvm=("-Xmx512m",),
    )
    run_measured(argv)


def _lines(record_bytes: int) -> list[bytes]:
    """JSON-like records of exactly that size: words, numbers and ids, as events have them."""
    chance = random.Random(SEED)
    return [_line(chance, record_bytes) for _ in range(_LINES)]


def _line(chance: random.Random, record_bytes: int) -> bytes:
    text = f'{{"id":"{chance.randrange(1 << 64):016x}"'
    number = 0
    while len(text) < 2 * record_bytes:
        number += 1
        word, amount = chance.choice(_WORDS), chance.randrange(100_000)
        text += f',"{chance.choice(_WORDS)}{number}":"{word}","n{number}":{amount}'
    return text.encode("ascii")[:record_bytes]


def _wait_copied(sandbox: Sandbox, options: SparkOptions, topic: Topic) -> float:
    deadline_s = time.monotonic() + _REMOTE_TIMEOUT_S
    with grpc.insecure_channel(sandbox.json["brokers"][0]["grpc"]) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        while True:
            request = admin_pb2.StatusRequest(topic=topic.name)
            answer = stub.Status(request, timeout=30, metadata=call_metadata("bench", None))
            rows = answer.partitions
            is_copied = all(row.HasField("lag_segments") and not row.lag_segments for row in rows)
            if len(rows) == options.partitions and is_copied:
                remote = sum(max(0, row.remote_next_offset) for row in rows)
                if remote:
                    return float(remote / options.records(topic))
            if time.monotonic() > deadline_s:
                raise BenchError(f"{topic.name} was not copied within {_REMOTE_TIMEOUT_S} s")
            time.sleep(0.5)


def disk_bytes(sandbox: Sandbox, topic: Topic) -> int:
    """Bytes of the broker's log of a topic, after compression."""
    folders = [found for base in sandbox.log_dirs() for found in base.glob(f"{topic.name}-*")]
    logs: list[Path] = [path for folder in folders for path in folder.glob("*.log")]
    return sum(path.stat().st_size for path in logs)

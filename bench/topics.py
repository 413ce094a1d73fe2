"""The topics of a benchmark: made, filled, and brought to where their data is to be read from."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bench.plan import DIRECT, MIB, NATIVE, PROXY, RECORD_BYTES, Options, topic_name
from bench.processes import BenchError, run_measured
from rlm.broker.connection import Address
from rlm.broker.own_broker import OwnBroker
from rlm.clock import SystemClock, new_uuid
from rlm.sandbox.sandbox import Sandbox
from rlmm.fact_codec import encode_fact
from rlmm.facts import Stamp, TopicFact

_REMOTE_TIMEOUT_S = 300
Progress = Callable[[str], None]


def prepare(sandbox: Sandbox, options: Options, progress: Progress) -> dict[str, float]:
    """Make and fill every topic and wait for tiering; answers the remote share of each topic."""
    asyncio.run(_create(sandbox, options))
    for variant, partitions in options.topics():
        name = topic_name(variant, partitions)
        progress(f"producing {options.records(partitions) * RECORD_BYTES // MIB} MiB to {name}")
        _produce(sandbox, name, options.records(partitions))
    shares = {}
    for variant, partitions in options.topics():
        name = topic_name(variant, partitions)
        if variant != DIRECT:
            progress(f"waiting until {name} is remote and trimmed")
            _wait_remote(sandbox, name, partitions)
        shares[name] = remote_share(sandbox, name, partitions, options.records(partitions))
    return shares


async def _create(sandbox: Sandbox, options: Options) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=sandbox.direct_bootstrap)
    await admin.start()
    try:
        made = [
            NewTopic(
                topic_name(variant, partitions),
                partitions,
                1,
                topic_configs=_topic_configs(variant, options.segment_mib),
            )
            for variant, partitions in options.topics()
        ]
        await admin.create_topics(made)
    finally:
        await admin.close()
    for variant, partitions in options.topics():
        if variant == PROXY:
            await _enable(sandbox, topic_name(variant, partitions))


def _topic_configs(variant: str, segment_mib: int) -> dict[str, str]:
    configs = {
        "segment.bytes": str(segment_mib * MIB),
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }
    if variant == NATIVE:
        configs |= {"remote.storage.enable": "true", "local.retention.ms": "1000"}
    return configs


async def _enable(sandbox: Sandbox, topic: str) -> None:
    """Mode `tier`, everything closed is trimmed."""
    broker = OwnBroker(Address.parse(sandbox.direct_bootstrap), client_id="bench")
    try:
        described = await broker.topic(topic)
    finally:
        await broker.close()
    fact = TopicFact(
        topic_id=described.topic_id,
        name=topic,
        mode="tier",
        state="enabled",
        trim=True,
        retention_ms=-1,
        retention_bytes=-1,
        local_retention_ms=-2,
        local_retention_bytes=1,
        originals={"retention.ms": "-1", "retention.bytes": "-1"},
    )
    stamp = Stamp(node_id=1, leader_epoch=0, writer=new_uuid(), time_ms=SystemClock().now_ms())
    key, value = encode_fact(fact, stamp)
    producer = AIOKafkaProducer(bootstrap_servers=sandbox.direct_bootstrap)
    await producer.start()
    try:
        await producer.send_and_wait("__rlm_settings", value, key=key)
    finally:
        await producer.stop()


def _produce(sandbox: Sandbox, topic: str, records: int) -> None:
    argv = sandbox.dist.java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", sandbox.direct_bootstrap),
        *("--topic", topic),
        *("--num-records", str(records)),
        *("--record-size", str(RECORD_BYTES)),
        *("--throughput", "-1"),
        jvm=("-Xmx512m",),
    )
    run_measured(argv)


def _wait_remote(sandbox: Sandbox, topic: str, partitions: int) -> None:
    """Until each partition's directory holds nothing but its active segment."""
    deadline_s = time.monotonic() + _REMOTE_TIMEOUT_S
    while any(len(local_starts(sandbox, topic, p)) > 1 for p in range(partitions)):
        if time.monotonic() > deadline_s:
            raise BenchError(f"{topic} was not trimmed within {_REMOTE_TIMEOUT_S} s")
        time.sleep(0.5)


def local_starts(sandbox: Sandbox, topic: str, partition: int) -> list[int]:
    """Base offsets of the segments in the broker's directory, in order."""
    folders = [folder / f"{topic}-{partition}" for folder in sandbox.log_dirs()]
    return sorted(base for folder in folders for base in _bases(folder))


def _bases(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.log")]


def remote_share(sandbox: Sandbox, topic: str, partitions: int, records: int) -> float:
    """Part of the records that the broker has no more; 0 for an untrimmed topic."""
    gone = sum(min(local_starts(sandbox, topic, p), default=0) for p in range(partitions))
    return gone / records

"""The topics of a benchmark: made, filled, and brought to where their data is to be read from."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    PartitionMetadata,
)

from bench.plan import DIRECT, MIB, NATIVE, PROXY, RECORD_BYTES, Options, topic_name
from bench.processes import BenchError, run_measured
from rlm_sandbox.sandbox import Sandbox

_REMOTE_TIMEOUT_S = 300
_ENABLE_ATTEMPTS = 10
_LOG_POLL_S = 0.1
_LEAST_CLOSED = 2
LEAST_REMOTE_SHARE = 0.5
"""Of the records of a topic that is read remotely."""
_ADMIN_TIMEOUT_S = 30
Progress = Callable[[str], None]


def prepare(sandbox: Sandbox, options: Options, progress: Progress) -> dict[str, float]:
    """Make and fill every topic and wait for tiering; answers the remote share of each topic."""
    asyncio.run(_create(sandbox, options))
    for variant, partitions in options.topics():
        if variant == PROXY:
            # Mode `tier`: everything closed is trimmed.
            name = topic_name(variant, partitions)
            enable(sandbox, name, "--trim", "--local-retention-bytes", "1")
    for variant, partitions in options.topics():
        name = topic_name(variant, partitions)
        progress(f"producing {options.records(partitions) * RECORD_BYTES // MIB} MiB to {name}")
        properties = ("batch.size=1",) if options.batches_of_one else ()
        produce(sandbox, name, options.records(partitions), properties=properties)
    shares = {}
    for variant, partitions in options.topics():
        name = topic_name(variant, partitions)
        if variant != DIRECT:
            progress(f"waiting until {name} is remote and trimmed")
            wait_remote(sandbox, name, partitions)
        shares[name] = remote_share(sandbox, name, partitions, options.records(partitions))
        if variant != DIRECT:
            require_remote(name, shares[name])
    return shares


def require_remote(topic: str, share: float) -> None:
    """BenchError where a read of this topic would be one of local data."""
    if share < LEAST_REMOTE_SHARE:
        raise BenchError(
            f"{topic}: {share:.2f} of its records are remote, at least {LEAST_REMOTE_SHARE} are "
            "wanted: make it larger, or its segments smaller"
        )


def make_topic(
    sandbox: Sandbox, topic: str, partitions: int, segment_mib: int, *, replicas: int = 1
) -> None:
    """A topic with unlimited retention that is not tiered."""
    new = NewTopic(topic, partitions, replicas, topic_configs=_topic_configs(DIRECT, segment_mib))
    asyncio.run(_create_all(sandbox, [new]))


def make_filled(
    sandbox: Sandbox, topic: str, partitions: int, segment_mib: int, size_mib: int
) -> int:
    """As `make_topic`, with so many MiB of records in it; answers how many segments are closed."""
    make_topic(sandbox, topic, partitions, segment_mib)
    produce(sandbox, topic, size_mib * MIB // RECORD_BYTES)
    closed = sum(len(local_starts(sandbox, topic, one)) - 1 for one in range(partitions))
    if closed < _LEAST_CLOSED:
        raise BenchError(f"{topic} has {closed} closed segments: make it larger")
    return closed


@contextmanager
def admin_client(sandbox: Sandbox) -> Iterator[AdminClient]:
    """Asks the brokers themselves, past the proxies."""
    with AdminClient({"bootstrap.servers": sandbox.direct_bootstrap}) as admin:
        yield admin


def alter_topic(sandbox: Sandbox, topic: str, configs: Mapping[str, str]) -> None:
    """Sets some of the topic's configurations; the others stay."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    with admin_client(sandbox) as admin:
        admin.incremental_alter_configs([resource])[resource].result(_ADMIN_TIMEOUT_S)


async def _create(sandbox: Sandbox, options: Options) -> None:
    made = [
        NewTopic(
            topic_name(variant, partitions),
            partitions,
            1,
            topic_configs=_topic_configs(variant, options.segment_mib),
        )
        for variant, partitions in options.topics()
    ]
    await _create_all(sandbox, made)


async def _create_all(sandbox: Sandbox, topics: Sequence[NewTopic]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=sandbox.direct_bootstrap)
    await admin.start()
    try:
        await admin.create_topics(list(topics))
    finally:
        await admin.close()


def _topic_configs(variant: str, segment_mib: int) -> dict[str, str]:
    configs = {
        "segment.bytes": str(segment_mib * MIB),
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }
    if variant == NATIVE:
        configs |= {"remote.storage.enable": "true", "local.retention.ms": "1000"}
    return configs


def run_rlm(sandbox: Sandbox, *arguments: str) -> None:
    """A command as a user gives it, to the service of the first broker."""
    address = sandbox.json["brokers"][0]["grpc"]
    run_measured([sys.executable, "-P", "-m", "rlm.cli.main", *arguments, "--address", address])


def enable(sandbox: Sandbox, topic: str, *options: str) -> None:
    """`rlm topics enable`; again while the partitions that were just made have no leader yet."""
    failure = BenchError(f"{topic} was not enabled")
    for _ in range(_ENABLE_ATTEMPTS):
        try:
            run_rlm(sandbox, "topics", "enable", topic, *options)
        except BenchError as error:
            failure = error
            time.sleep(1)
        else:
            return
    raise failure


def produce(
    sandbox: Sandbox,
    topic: str,
    records: int,
    *,
    records_s: int = -1,
    properties: tuple[str, ...] = (),
) -> None:
    """Records of RECORD_BYTES by ProducerPerformance, so many a second, or as fast as they go.
    `properties` are of the producer, such as `batch.size=1`.
    """
    argv = sandbox.dist.java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", sandbox.direct_bootstrap),
        *("--topic", topic),
        *("--num-records", str(records)),
        *("--record-size", str(RECORD_BYTES)),
        *("--throughput", str(records_s)),
        *(("--command-property", *properties) if properties else ()),
        jvm=("-Xmx512m",),
    )
    run_measured(argv)


def wait_remote(sandbox: Sandbox, topic: str, partitions: int) -> None:
    """Until each partition's directory holds nothing but its active segment."""
    deadline_s = time.monotonic() + _REMOTE_TIMEOUT_S
    while any(len(local_starts(sandbox, topic, p)) > 1 for p in range(partitions)):
        if time.monotonic() > deadline_s:
            raise BenchError(f"{topic} was not trimmed within {_REMOTE_TIMEOUT_S} s")
        time.sleep(0.5)


def leaders(sandbox: Sandbox, topic: str) -> list[int]:
    """The leader of each partition, once all have one."""
    rows = _described(sandbox, topic, "a leader", lambda row: row.leader >= 0)
    return [int(row.leader) for row in rows]


def wait_in_sync(sandbox: Sandbox, topic: str) -> None:
    """Until all replicas of the topic are in sync."""
    _described(sandbox, topic, "all in sync", lambda row: set(row.isrs) == set(row.replicas))


def _described(
    sandbox: Sandbox, topic: str, what: str, is_so: Callable[[PartitionMetadata], bool]
) -> list[PartitionMetadata]:
    """The topic's partitions in order, once this is so for each of them."""
    deadline_s = time.monotonic() + _REMOTE_TIMEOUT_S
    with admin_client(sandbox) as admin:
        while time.monotonic() < deadline_s:
            found = admin.list_topics(topic, timeout=_ADMIN_TIMEOUT_S).topics[topic].partitions
            rows = [found[number] for number in sorted(found)]
            if rows and all(map(is_so, rows)):
                return rows
            time.sleep(_LOG_POLL_S)
    raise BenchError(f"{topic}: not {what} within {_REMOTE_TIMEOUT_S} s")


def local_starts(sandbox: Sandbox, topic: str, partition: int, node: int = 1) -> list[int]:
    """Base offsets of the segments in a broker's directory, in order."""
    folders = [folder / f"{topic}-{partition}" for folder in sandbox.log_dirs(node)]
    return sorted(base for folder in folders for base in _bases(folder))


def _bases(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.log")]


def remote_share(sandbox: Sandbox, topic: str, partitions: int, records: int) -> float:
    """Share of the records that the broker does not have any more; 0 for an untrimmed topic."""
    gone = sum(min(local_starts(sandbox, topic, p), default=0) for p in range(partitions))
    return gone / records


def wait_logged(
    log: Path,
    position: int,
    event: str,
    topic: str,
    is_all: Callable[[Sequence[dict[str, Any]]], bool],
    *,
    timeout_s: float,
) -> list[dict[str, Any]]:
    """The events of a topic that a service has logged behind the position, once they are all."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        with open(log, "rb") as file:
            file.seek(position)
            lines = [line for line in file.read().splitlines() if f'"{event}"'.encode() in line]
        events = [found for line in lines if (found := json.loads(line))["topic"] == topic]
        if is_all(events):
            return events
        time.sleep(_LOG_POLL_S)
    raise BenchError(f"{topic}: not every {event} was logged within {timeout_s} s")


def logged_at_s(event: dict[str, Any]) -> float:
    """When an event was logged, in seconds since the epoch."""
    return datetime.fromisoformat(event["timestamp"]).timestamp()

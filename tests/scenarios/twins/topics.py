"""Two topics with the same batches on one broker: one is tiered and trimmed, its twin is plain."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TopicPartition

from kafka_protocol.apis import PRODUCE
from tests.kip405.batch_builder import batch
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.raw import connection, topic_id
from tests.scenarios.twins.written_log import (
    FIRST_MS,
    STEP_MS,
    WrittenLog,
    written_log,
)

PARTITIONS = 3
_SEED = 405
_TAIL_BATCHES = 15
_CODECS = 5
_LATER_MS = 10_000 * STEP_MS
_RESTARTS = 2
_SETTINGS = {"retention.ms": "-1", "compression.type": "producer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsets:
    """Where a partition of both begins, ends, and where the tiered one's own log begins."""

    log_start: int
    local_start: int
    remote_end: int
    last_stable: int
    log_end: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinTopics:
    """`plain` has everything at the broker; of `tiered` the oldest only the remote store has."""

    cluster: Cluster
    tiered: str
    plain: str
    other: str
    """A topic that is not tiered, asked of both."""
    logs: tuple[WrittenLog, ...]
    offsets: tuple[LogOffsets, ...]
    ids: Mapping[str, bytes]


def made_twins(cluster: Cluster) -> TwinTopics:
    """Create, write while the broker is down, append, delete records inside segments, tier, trim.

    Each restart gives partitions two leader epochs more, as the leader goes and comes again.
    """
    tiered, plain, other = fresh("tiered"), fresh("plain"), fresh("other")
    for topic in (tiered, plain, other):
        cluster.create_topic(topic, partitions=PARTITIONS, configs=_SETTINGS)
    logs = tuple(written_log(_SEED + partition) for partition in range(PARTITIONS))
    for number in range(_RESTARTS):
        cluster.sandbox.stop("broker:1")
        if number + 1 == _RESTARTS:
            _install(cluster, (tiered, plain), logs)
        cluster.sandbox.start("broker:1")
        for topic in (tiered, plain, other):
            for partition in range(PARTITIONS):
                cluster.log_end(topic, partition)  # answered when there is a leader again
    ids = asyncio.run(_append(cluster, (tiered, plain, other)))
    starts = tuple(_start(log, partition) for partition, log in enumerate(logs))
    for topic in (tiered, plain):
        _delete_records(cluster, topic, starts)
    kept_bytes = max(_last_two_bytes(log) for log in logs)
    cluster.enable(tiered, "--trim", "--local-retention-bytes", str(kept_bytes))
    offsets = _settled_offsets(cluster, tiered, plain)
    return TwinTopics(
        cluster=cluster,
        tiered=tiered,
        plain=plain,
        other=other,
        logs=logs,
        offsets=offsets,
        ids=ids,
    )


def _install(cluster: Cluster, topics: tuple[str, ...], logs: tuple[WrittenLog, ...]) -> None:
    [root] = cluster.sandbox.log_dirs()
    assert (root / ".kafka_cleanshutdown").exists(), "else it recovers logs from their beginning"
    for topic in topics:
        for partition, log in enumerate(logs):
            log.install(root / f"{topic}-{partition}")


def _start(log: WrittenLog, partition: int) -> int:
    """Inside a batch of the first segment, inside one of the second, and the very beginning."""
    if partition == PARTITIONS - 1:
        return 0
    bases = sorted(log.segments)
    inside = [one for one in log.batches if bases[partition] <= one.base_offset]
    return next(one.base_offset + 1 for one in inside[5:] if one.last_offset > one.base_offset)


def _last_two_bytes(log: WrittenLog) -> int:
    return sum(len(log.segments[base]) for base in sorted(log.segments)[-2:])


def _delete_records(cluster: Cluster, topic: str, starts: tuple[int, ...]) -> None:
    starts_by_partition = [
        TopicPartition(topic, p, start) for p, start in enumerate(starts) if start
    ]
    for asked in cluster.admin.delete_records(starts_by_partition).values():
        asked.result(120)


async def _append(cluster: Cluster, topics: tuple[str, ...]) -> dict[str, bytes]:
    """The same batches behind each log, under the present epoch; the ids of the topics."""
    async with connection(cluster.direct) as client:
        for number in range(_TAIL_BATCHES):
            first_ms = FIRST_MS + _LATER_MS + number * STEP_MS
            data = batch(
                0,
                1 + number % 4,
                first_ms=first_ms,
                compression=number % _CODECS,
                value=b"value %d " % number * 60,
            )
            for topic in topics:
                partitions = [{"index": p, "records": data} for p in range(PARTITIONS)]
                body: dict[str, Any] = {
                    "acks": -1,
                    "timeout_ms": 60_000,
                    "topic_data": [{"name": topic, "partition_data": partitions}],
                }
                answer = await client.call(PRODUCE, 8, body)
                answered = answer["responses"][0]["partition_responses"]
                assert {one["error_code"] for one in answered} == {0}, answered
        return {topic: await topic_id(client, topic) for topic in topics}


def _settled_offsets(cluster: Cluster, tiered: str, plain: str) -> tuple[LogOffsets, ...]:
    """When all that is closed is remote, and what local retention does not keep is trimmed."""
    seen: dict[int, dict[str, Any]] = {}

    def settled() -> bool:
        printed = cluster.rlm("status", tiered, "--json", check=False).stdout
        if not printed:
            return False  # the service still waits for the broker's return
        rows = json.loads(printed)["partitions"]
        if len(rows) < PARTITIONS:
            return False  # the broker has not said yet which there are
        seen.update({row.get("partition", 0): row for row in rows})
        return all(
            row["copy_reason"] == "all closed segments are remote"
            and row["trim_reason"] == "all is within local retention"
            and row["local_log_start_offset"] == cluster.log_start(tiered, row.get("partition", 0))
            for row in rows
        )

    cluster.wait_for(settled, f"{tiered} copied and trimmed")
    return tuple(
        _log_offsets(cluster, plain, partition, seen[partition]) for partition in sorted(seen)
    )


def _log_offsets(
    cluster: Cluster, plain: str, partition: int, status: dict[str, Any]
) -> LogOffsets:
    offsets = LogOffsets(
        log_start=cluster.log_start(plain, partition),
        local_start=status["local_log_start_offset"],
        remote_end=status["remote_next_offset"],
        last_stable=status["last_stable_offset"],
        log_end=cluster.log_end(plain, partition),
        leader_epoch=status["leader_epoch"],
    )
    both = status.get("remote_log_start_offset", 0), status["log_end_offset"]
    assert both == (offsets.log_start, offsets.log_end)
    assert (
        offsets.log_start
        < offsets.local_start
        < offsets.remote_end
        < offsets.last_stable
        < offsets.log_end
    ), offsets
    return offsets

"""The topic that records are restored into: created as its source was, or found fit for it.

Whether a partition of it may be written to is decided from what is committed and what is there:
`unfit` says why not. Records behind the progress that were not aborted are somebody else's, or show
that the progress is not the newest one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_protocol.apis import CREATE_TOPICS, FETCH, LIST_OFFSETS
from kafka_protocol.error_codes import NOT_CONTROLLER
from kafka_protocol.fetch import CONSUMER_REPLICA_ID
from kip405.aborted import AbortedProducers
from kip405.acls import topic_acl
from kip405.addresses import Address
from kip405.batches import BatchHeader, read_header, size_at
from kip405.errors import Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.topic_names import checked_name
from rlm.broker.answers import LocalRecords, TopicDescription
from rlm.broker.partition_requests import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    OffsetQuestion,
    fetch_body,
    list_offsets_body,
    local_records,
)
from rlm.clock import Clock
from rlm.restore.brokers import Brokers, raise_refusal
from rlm.restore.transactions import Progress, TargetPartition

CREATED_WITH = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Old timestamps stay as they are, and delete nothing at once; batches stay compressed as they
were.
"""
_EARLIEST, _LATEST = -2, -1
_FETCH_BYTES = 1 << 20
_POLL_MS, _POLLS = 100.0, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """How a topic is created that is missing; `replicas` -1: as the cluster has it."""

    partitions: int
    replicas: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The topic as it is now."""

    name: str
    topic_id: Uuid
    is_new: bool
    remarks: tuple[str, ...]


async def prepared(
    brokers: Brokers, name: str, new: NewTopic, clock: Clock, *, allows_retention: bool
) -> Target:
    """The topic of this name, created if there is none. Invalid: it is no place for the records,
    as one whose retention deletes old ones at once unless `allows_retention`.
    """
    if checked_name(name).startswith("__"):
        raise Invalid(f"{name!r} is a topic of Kafka or of this software: choose another name")
    try:
        found, is_new = await brokers.topic(name), False
    except NotFound:
        await _create(brokers, name, new)
        found, is_new = await _appeared(brokers, name, new.partitions, clock), True
    if len(found.partitions) != new.partitions:
        raise Invalid(
            f"topic {name!r} has {len(found.partitions)} partitions, and {new.partitions} are to "
            "be restored: choose another topic, or give --partitions"
        )
    configs = await _configs(brokers, name)
    remarks = () if is_new else _remarks(name, configs)
    if remarks and not allows_retention:
        raise Invalid(f"{remarks[0]}: set them to -1 first, or give --allow-retention")
    return Target(
        name=name,
        topic_id=found.topic_id,
        is_new=is_new,
        remarks=remarks,
    )


async def _create(brokers: Brokers, name: str, new: NewTopic) -> None:
    configs = {**CREATED_WITH, **new.configs}
    body = {
        "topics": [
            {
                "name": name,
                "num_partitions": new.partitions,
                "replication_factor": new.replicas,
                "assignments": [],
                "configs": [{"name": key, "value": text} for key, text in configs.items()],
            }
        ],
        "timeout_ms": 30_000,
    }
    what, needs = f"create topic {name}", topic_acl("Create", name)
    for address in brokers.bootstrap():
        try:
            answer = await brokers.ask(address, CREATE_TOPICS, 5, body)
        except Unavailable:
            continue
        [row] = answer["topics"]
        if row["error_code"] != NOT_CONTROLLER:
            raise_refusal(row["error_code"], what, row["error_message"], needs=needs)
            return
    raise Unavailable(f"{what}: no broker did it")


async def _appeared(brokers: Brokers, name: str, partitions: int, clock: Clock) -> TopicDescription:
    for _ in range(_POLLS):
        try:
            found = await brokers.topic(name)
        except NotFound:
            pass
        else:
            leaders = [row for row in found.partitions.values() if row.leader >= 0]
            if len(leaders) == partitions:
                return found
        await clock.sleep_ms(_POLL_MS)
    raise Unavailable(f"topic {name!r} was created, and has no leaders yet")


async def _configs(brokers: Brokers, name: str) -> Mapping[str, str]:
    found = (await brokers.many(brokers.bootstrap()[0]).topic_configs([name], ()))[name]
    if isinstance(found, RemoteStorageError):
        raise found
    configs = {key: row.value or "" for key, row in found.items()}
    if configs.get("message.timestamp.type", "CreateTime") != "CreateTime":
        raise Invalid(
            f"topic {name!r} has message.timestamp.type={configs['message.timestamp.type']}: "
            "records would not keep their timestamps; set CreateTime"
        )
    if "compact" in configs.get("cleanup.policy", ""):
        raise Invalid(f"topic {name!r} is compacted, which would remove records")
    return configs


def _remarks(name: str, configs: Mapping[str, str]) -> tuple[str, ...]:
    bounded = [
        f"{key}={configs[key]}"
        for key in ("retention.ms", "retention.bytes")
        if configs.get(key, "-1") != "-1"
    ]
    if not bounded:
        return ()
    return (
        f"topic {name!r} has {', '.join(bounded)}: Kafka deletes restored records that are older "
        "or more than that",
    )


async def log_bounds(brokers: Brokers, leader: Address, target: TargetPartition) -> tuple[int, int]:
    """Log start and log end of the partition, by its leader."""
    start = await _offset(brokers, leader, target, _EARLIEST)
    return start, await _offset(brokers, leader, target, _LATEST)


async def _offset(
    brokers: Brokers, leader: Address, target: TargetPartition, timestamp: int
) -> int:
    question = OffsetQuestion(target.topic, target.partition, timestamp)
    body = list_offsets_body([question], read_committed=False, replica_id=CONSUMER_REPLICA_ID)
    answer = await brokers.ask(leader, LIST_OFFSETS, LIST_OFFSETS_VERSION, body)
    [topic] = answer["topics"]
    [found] = topic["partitions"]
    needs = topic_acl("Describe", target.topic)
    raise_refusal(found["error_code"], f"list offsets of {target}", needs=needs)
    return int(found["offset"])


def unfit(
    target: TargetPartition, progress: Progress | None, log_start: int, log_end: int
) -> RemoteStorageError | None:
    """Why nothing may be written here, by what is committed and by what is there. A log that is
    empty by now may be one whose restored records were deleted, and whose progress expired.
    """
    if target.topic_id == target.source_topic_id:
        return Invalid(f"{target} is of the source itself: choose another topic")
    if progress is None and log_end > 0:
        had = "has" if log_start < log_end else "had"
        start = log_start if log_start < log_end else 0
        return Invalid(
            f"{target} {had} offsets {start} to {log_end - 1}, and no progress of a restore from "
            f"this source (group {target.group}): choose another topic, or delete this one"
        )
    if progress is not None and log_end < progress.target_offset:
        return Invalid(
            f"{target} ends at {log_end}, and records up to {progress.target_offset - 1} were "
            "restored: the target lost records; delete the topic and begin again"
        )
    return None


async def committed_behind(
    brokers: Brokers, leader: Address, target: TargetPartition, span: tuple[int, int]
) -> tuple[int, int] | None:
    """Offset and producer of the first batch in a half-open span that was not aborted, by whomever.
    Unavailable: a transaction is open there.
    """
    position, end = span
    while position < end:
        found = await _fetched(brokers, leader, target, position)
        if not found.records and position >= found.last_stable_offset:
            raise Unavailable(f"{target}: a transaction of somebody else is open at {position}")
        before = position
        for header, is_aborted in _decided(found.records, found.aborted):
            if header.next_offset > position and not header.is_control and not is_aborted:
                return max(header.base_offset, position), header.producer_id
            position = max(position, header.next_offset)
        if position == before:
            raise Unavailable(f"{target}: no whole batch comes at offset {position}")
    return None


def _decided(data: bytes, aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[BatchHeader, bool]]:
    """The whole batches of a Fetch answer, and whether each was aborted."""
    producers = AbortedProducers(aborted)
    at = 0
    while (size := size_at(data, at)) is not None and at + size <= len(data):
        header = read_header(data, at)
        yield header, producers.has_aborted(data, at, header)
        at += size


async def _fetched(
    brokers: Brokers, leader: Address, target: TargetPartition, offset: int
) -> LocalRecords:
    """What is committed, and what was aborted, from an offset on."""
    body = fetch_body(
        target.topic, target.partition, offset, max_bytes=_FETCH_BYTES, read_committed=True
    )
    what, needs = f"fetch {target} at {offset}", topic_acl("Read", target.topic)
    answer = await brokers.ask(leader, FETCH, FETCH_VERSION, body)
    raise_refusal(answer["error_code"], what, needs=needs)
    [topic] = answer["responses"]
    [found] = topic["partitions"]
    raise_refusal(found["error_code"], what, needs=needs)
    return local_records(found)

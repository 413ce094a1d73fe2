"""ListOffsets 7 and Fetch 12 of a broker's own log, as the service and a restore send them.

Bodies and rows only: who is asked, and what becomes of an error, the caller decides.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafka_protocol.fetch import CONSUMER_REPLICA_ID
from rlm.broker.answers import LocalRecords

LIST_OFFSETS_VERSION, FETCH_VERSION = 7, 12


class OffsetQuestion(NamedTuple):
    """One row of ListOffsets; leader epoch -1 = do not check."""

    topic: str
    partition: int
    timestamp: int
    leader_epoch: int = -1


def list_offsets_body(
    questions: Iterable[OffsetQuestion], *, read_committed: bool, replica_id: int
) -> dict[str, Any]:
    """ListOffsets of these partitions, each of which is asked for once."""
    by_topic: dict[str, list[dict[str, int]]] = {}
    for question in questions:
        row = {
            "partition_index": question.partition,
            "current_leader_epoch": question.leader_epoch,
            "timestamp": question.timestamp,
        }
        by_topic.setdefault(question.topic, []).append(row)
    return {
        "replica_id": replica_id,
        "isolation_level": int(read_committed),
        "topics": [{"name": name, "partitions": rows} for name, rows in by_topic.items()],
    }


def fetch_body(
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int,
    leader_epoch: int = -1,
    read_committed: bool,
    max_wait_ms: int = 0,
) -> dict[str, Any]:
    """A consumer's Fetch of one partition, without a session."""
    row = {
        "partition": partition,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "partition_max_bytes": max_bytes,
    }
    return {
        "replica_id": CONSUMER_REPLICA_ID,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": int(read_committed),
        "topics": [{"topic": topic, "partitions": [row]}],
    }


def local_records(fetched: Mapping[str, Any]) -> LocalRecords:
    """What Fetch answered for a partition, without an error."""
    aborted = fetched["aborted_transactions"] or ()
    return LocalRecords(
        high_watermark=fetched["high_watermark"],
        last_stable_offset=fetched["last_stable_offset"],
        log_start_offset=fetched["log_start_offset"],
        records=bytes(fetched["records"] or b""),
        aborted=tuple((row["producer_id"], row["first_offset"]) for row in aborted),
    )

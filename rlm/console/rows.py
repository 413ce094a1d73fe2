"""What the console shows, as JSON values made of the messages of the API. Pure.

Each function answers a bounded part: lists have a most, and say how many there are. What is not
known is None, never 0: the messages have -1 or leave the field out. Nothing is decided here; the
verdict is that of rlm.api.safety_of_status.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from kip405.ids import Uuid
from kip405.segments import CustomMetadata
from rlm.api.safety_of_status import on_record, verdict_of
from rlm.console.paging import Order, Page, Row, paged
from rlm.plans.problems import KINDS
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2

LISTED_MAX = 200
"""Of problems, deletions, reasons and whatever else a list has."""
TEXTS_MAX = 20
TEXT_MAX = 2_000


def cluster(status: pb.StatusResponse, page: Page) -> Row:
    """All services, and one page of the topics."""
    topics = _topics(status)
    verdict = verdict_of(status)
    return {
        "verdict": {
            "words": verdict.words,
            "risk": verdict.risk.value,
            "reason_count": len(verdict.reasons),
            "on_record": [text[:TEXT_MAX] for text in islice(on_record(status), LISTED_MAX)],
        },
        "totals": _totals(topics.values()),
        "topics": paged(list(topics.values()), page, _TOPIC_ORDERS, lambda row: str(row["topic"])),
        "services": [_service(row) for row in status.services],
        "readers": [
            {
                "address": row.grpc_address,
                "version": row.version,
                "heartbeat_age_ms": _known(row.heartbeat_age_ms),
                "alive": row.alive,
            }
            for row in status.readers[:LISTED_MAX]
        ],
        **_what_happens(status),
    }


def topic(status: pb.StatusResponse, page: Page, name: str) -> Row:
    """One topic with a page of its partitions; `status` is the one about this topic."""
    rows = sorted(status.partitions, key=lambda row: row.partition)
    topics = _topics(status)
    return {
        "topic": name,
        "totals": topics.get(name),
        "partitions": paged(
            rows, page, _PARTITION_ORDERS, lambda row: str(row.partition), partition
        ),
        **_what_happens(status),
    }


def partition(row: fetch_pb2.PartitionDescription) -> Row:
    """One partition as its leader's service knows it."""
    remote = _is_remote_known(row)
    return {
        "topic": row.topic,
        "partition": row.partition,
        "leader": _known(row.leader),
        "leader_epoch": _known(row.leader_epoch),
        "remote_start": _known(row.remote_log_start_offset),
        "remote_end": _known(row.remote_next_offset),
        "local_start": _known(row.local_log_start_offset),
        "last_stable": _known(row.last_stable_offset),
        "high_watermark": _known(row.high_watermark),
        "log_end": _known(row.log_end_offset),
        "remote_bytes": row.remote_size_bytes if remote else None,
        "remote_segments": row.remote_segments if remote else None,
        "local_bytes": _set(row, "local_size_bytes"),
        "lag_bytes": _set(row, "lag_bytes"),
        "lag_segments": _set(row, "lag_segments"),
        "copying": _ranges(row.unfinished_copies),
        "copying_bytes": row.unfinished_copy_bytes if remote else None,
        "holes": _ranges(row.hole_ranges),
        "hole_count": row.holes if remote else None,
        "hole_offsets": row.hole_offsets if remote else None,
        "loss_in_ms": _set(row, "loss_in_ms"),
        "frozen": _text(row.frozen),
        "last_error": _text(row.last_error),
        "copy_reason": _text(row.copy_reason),
        "trim_reason": _text(row.trim_reason),
        "expiry_reason": _text(row.expiry_reason),
        "alarms": _texts(row.alarms),
    }


def description(found: pb.TopicDescription) -> Row:
    """How a topic is set up; retentions of -1 are unlimited, as Kafka has them."""
    return {
        "mode": found.mode,
        "state": found.state,
        "trim": found.trim,
        "retention_ms": found.retention_ms,
        "retention_bytes": found.retention_bytes,
        "local_retention_ms": found.local_retention_ms,
        "local_retention_bytes": found.local_retention_bytes,
        "min_insync_replicas": _set(found, "min_insync_replicas"),
        "copy_lag_ms": found.offload.copy_lag_ms,
        "copy_lag_bytes": found.offload.copy_lag_bytes,
        "deletion_lag_ms": found.offload.deletion_lag_ms,
        "layout": _text(found.layout),
        "gone": found.gone,
        "notes": _texts(found.notes),
        "warnings": _texts(found.warnings),
    }


def segment(row: fetch_pb2.Segment) -> Row:
    """One remote segment."""
    return {
        "id": str(Uuid(row.segment_id)),
        "start": row.start_offset,
        "end": row.next_offset,
        "bytes": row.size_bytes,
        "newest_ms": _known(row.max_timestamp_ms),
        "state": row.state,
        "disputed": row.disputed,
        "store_id": str(Uuid(row.store_id)) if row.store_id else None,
        "broker": _known(row.broker_id),
        "objects": row.objects_stem or None,
        "layout": _layout(row.custom_metadata),
        "recorded_ms": _set(row, "event_timestamp_ms"),
    }


def segment_history(
    row: fetch_pb2.Segment,
    others: Sequence[fetch_pb2.Segment],
    events: Sequence[pb.TaskEvent],
    pending: Sequence[pb.PendingDeletion],
) -> Row:
    """What is known of one segment: its newest record of the ledger, which keeps no older ones,
    other copies of its offsets, and what the tasks of its partition have decided.
    """
    id_ = str(Uuid(row.segment_id))
    epochs = row.leader_epochs
    return {
        "row": segment(row),
        "epochs": [[one.epoch, one.start_offset] for one in epochs[:LISTED_MAX]],
        "epoch_count": len(epochs),
        "others": [segment(one) for one in others[:LISTED_MAX]],
        "other_count": len(others),
        "events": [
            {
                "node_id": one.node_id,
                "number": one.number,
                "at_ms": one.at_ms,
                "task": one.task,
                "failed": one.failed,
                "text": _text(one.text),
                "names_it": id_ in one.text,
            }
            for one in events[-LISTED_MAX:]
        ],
        "event_count": len(events),
        "deletions": deletions([one for one in pending if _concerns(one, row.partition)]),
    }


def silent(sources: Sequence[pb.EventSource]) -> list[Row] | None:
    """Services whose events are not known; None = the caller may not see which answered."""
    if not sources:
        return None
    found = [one for one in sources if one.problem]
    return [{"node_id": one.node_id, "text": _text(one.problem)} for one in found[:LISTED_MAX]]


def _layout(custom_metadata: bytes) -> str | None:
    try:
        return str(CustomMetadata.decode(custom_metadata).layout)
    except ValueError:
        return None


def _concerns(deletion: pb.PendingDeletion, partition: int) -> bool:
    return not deletion.HasField("partition") or deletion.partition == partition


def explanation(found: pb.Explanation) -> Row:
    """What the leader's service says of a partition or an offset."""
    return {
        "offset": _set(found, "offset"),
        "location": found.location or None,
        "readable": _set(found, "readable"),
        "sentences": _texts(found.sentences),
    }


def problems(found: Sequence[pb.Problem]) -> list[Row]:
    """The gravest come first, as in the answer."""
    return [_problem(row) for row in found[:LISTED_MAX]]


def deletions(found: Sequence[pb.PendingDeletion]) -> list[Row]:
    """Deletions that can still be undone."""
    return [_deletion(row) for row in found[:LISTED_MAX]]


def kinds() -> Row:
    """What each kind of problem means, as docs/reference/problems.md has it."""
    return {
        kind.value: {
            "severity": row.severity.value,
            "risk": row.risk.value,
            "meaning": row.meaning,
        }
        for kind, row in KINDS.items()
    }


def _what_happens(status: pb.StatusResponse) -> Row:
    copying = [row for row in status.partitions if row.unfinished_copies]
    return {
        "problems": problems(status.problems),
        "problem_count": len(status.problems),
        "severities": dict(Counter(row.severity for row in status.problems)),
        "freezes": [
            {
                "topic": row.topic or None,
                "stopped": row.stopped,
                "by": row.by,
                "why": _text(row.why),
                "since_ms": row.since_ms,
            }
            for row in status.freezes[:LISTED_MAX]
        ],
        "copies": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "leader": _known(row.leader),
                "ranges": _ranges(row.unfinished_copies[:TEXTS_MAX]),
                "bytes": row.unfinished_copy_bytes,
            }
            for row in copying[:LISTED_MAX]
        ],
        "copy_count": len(copying),
        "verifications": [
            {
                "node_id": service.node_id,
                "topic": row.topic or None,
                "deep": row.deep,
                "segments": row.progress.segments,
                "segments_total": row.progress.segments_total,
                "bytes": row.progress.size_bytes,
                "bytes_total": row.progress.size_total_bytes,
            }
            for service in status.services
            for row in service.verifications
        ],
    }


def _problem(row: pb.Problem) -> Row:
    return {
        "kind": row.kind,
        "severity": row.severity,
        "risk": row.risk or None,
        "subject": _text(row.subject),
        "text": _text(row.text),
        "topic": row.topic or None,
        "since_ms": _known(row.since_ms),
        "nodes": sorted(row.node_ids),
    }


def _deletion(row: pb.PendingDeletion) -> Row:
    return {
        "kind": row.kind,
        "topic": row.topic,
        "partition": _set(row, "partition"),
        "by": row.by or None,
        "decided_ms": _known(row.decided_ms),
        "due_in_ms": _set(row, "due_in_ms"),
        "segments": _set(row, "segments"),
        "records": _set(row, "records"),
        "bytes": _set(row, "size_bytes"),
        "retention_ms": row.retention_ms,
        "retention_bytes": row.retention_bytes,
        "waits": _text(row.waits),
    }


def _service(row: pb.ServiceStatus) -> Row:
    return {
        "node_id": row.node_id,
        "version": row.version,
        "api": row.grpc_address,
        "proxy": row.proxy_address,
        "heartbeat_age_ms": _known(row.heartbeat_age_ms),
        "reachable": row.reachable,
        "health": row.health or None,
        "problems": _texts(row.problems),
        "stores": [
            {
                "name": store.name or None,
                "id": str(Uuid(store.store_id)) if store.store_id else None,
                "plugin": store.plugin,
                "location": store.uri,
                "problem": _text(store.problem),
                "segments": store.segments,
                "bytes": store.size_bytes,
                "alarms": _texts(store.alarms),
            }
            for store in row.stores
        ],
        "log_dirs": [
            {
                "path": one.path,
                "bytes": _set(one, "size_bytes"),
                "free_bytes": _set(one, "free_bytes"),
                "growth": _set(one, "growth_bytes_per_second"),
                "full_in_ms": _set(one, "full_in_ms"),
                "untrimmable_bytes": one.untrimmable_bytes,
                "unmeasured": one.unmeasured_partitions,
                "under_pressure": one.under_pressure,
            }
            for one in row.log_dirs
        ],
        "copying": _copying(row.copying) if row.HasField("copying") else None,
    }


def _copying(row: pb.CopyingStatus) -> Row:
    return {
        "segments_left": row.segments_left,
        "bytes_left": row.bytes_left,
        "rate": _set(row, "bytes_per_second"),
        "limit": _set(row, "limit_bytes_per_second"),
        "left_ms": _set(row, "left_ms"),
        "unmeasured": row.unmeasured_partitions,
    }


def _topics(status: pb.StatusResponse) -> dict[str, Row]:
    """One row for each topic, by name."""
    found: dict[str, Row] = {}
    for row in status.partitions:
        known = found.get(row.topic)
        if known is None:
            known = found[row.topic] = {"topic": row.topic, "problems": {}, **_NOTHING}
        _count(known, row)
    for problem in status.problems:
        if problem.topic in found:
            counts = found[problem.topic]["problems"]
            counts[problem.severity] = counts.get(problem.severity, 0) + 1
    return dict(sorted(found.items()))


_NOTHING: Mapping[str, int] = {
    "partitions": 0,
    "remote_bytes": 0,
    "remote_segments": 0,
    "remote_unknown": 0,
    "local_bytes": 0,
    "local_unknown": 0,
    "lag_bytes": 0,
    "lag_unknown": 0,
    "copying_bytes": 0,
    "hole_offsets": 0,
    "frozen": 0,
    "failing": 0,
    "offsets": 0,
    "unexamined": 0,
}
"""What is added up for a topic. `*_unknown` count partitions that are not in the sum, `unexamined`
those whose offsets are not known, `failing` others whose last task failed; `offsets` is the sum of
log ends."""


def _is_remote_known(row: fetch_pb2.PartitionDescription) -> bool:
    """Of a partition that no service reports the message has 0 for what is remote and lost."""
    return row.log_end_offset >= 0 or row.remote_segments > 0 or row.holes > 0


def _count(known: Row, row: fetch_pb2.PartitionDescription) -> None:
    known["partitions"] += 1
    known["remote_bytes"] += row.remote_size_bytes
    known["remote_segments"] += row.remote_segments
    known["copying_bytes"] += row.unfinished_copy_bytes
    known["hole_offsets"] += row.hole_offsets
    known["remote_unknown"] += not _is_remote_known(row)
    known["frozen"] += bool(row.frozen)
    known["failing"] += bool(row.last_error) and row.log_end_offset >= 0
    if row.HasField("local_size_bytes"):
        known["local_bytes"] += row.local_size_bytes
    else:
        known["local_unknown"] += 1
    if row.HasField("lag_bytes"):
        known["lag_bytes"] += row.lag_bytes
    else:
        known["lag_unknown"] += 1
    if row.log_end_offset >= 0:
        known["offsets"] += row.log_end_offset
    else:
        known["unexamined"] += 1


def _totals(topics: Collection[Row]) -> Row:
    return {"topics": len(topics), **{name: sum(row[name] for row in topics) for name in _NOTHING}}


def _gravest(row: Row) -> tuple[int, int, int]:
    problems = row["problems"]
    return -problems.get("alarm", 0), -row["failing"], -problems.get("warning", 0)


_TOPIC_ORDERS: Mapping[str, Order | None] = {
    "": None,
    "lag": lambda row: -row["lag_bytes"],
    "size": lambda row: -row["remote_bytes"],
    "problems": _gravest,
}
_PARTITION_ORDERS: Mapping[str, Order | None] = {
    "": None,
    "lag": lambda row: (row.HasField("lag_bytes"), -row.lag_bytes),
    "size": lambda row: -row.remote_size_bytes,
    "problems": lambda row: (not row.frozen, -len(row.alarms), not row.last_error),
}


def _known(value: int) -> int | None:
    """-1 = unknown."""
    return None if value < 0 else value


def _set(message: Any, field: str) -> Any:
    """None where the field is not set."""
    return getattr(message, field) if message.HasField(field) else None


def _ranges(found: Iterable[fetch_pb2.OffsetRange]) -> list[list[int]]:
    return [[one.start_offset, one.end_offset] for one in found]


def _text(text: str) -> str:
    return text[:TEXT_MAX]


def _texts(found: Iterable[str]) -> list[str]:
    return [_text(one) for one in islice(found, TEXTS_MAX)]

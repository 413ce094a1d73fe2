"""Shows one topic: settings, state, what is pending. Used by several commands."""

from rlm.cli.output import (
    due_in,
    human_ms,
    human_retention,
    human_size,
    plain,
    show_json,
    show_pairs,
    warn,
)
from rlm.cli.target import Connect
from rlm.v1 import admin_pb2 as pb


def show_topic(topic: pb.TopicDescription, connect: Connect) -> None:
    if connect.as_json:
        show_json(plain(topic))
        return
    originals = ", ".join(f"{name}={value}" for name, value in sorted(topic.originals.items()))
    values = plain(topic)
    show_pairs(
        [
            ("topic", topic.topic),
            ("topic id", values["topic_id"]),
            ("mode", topic.mode),
            ("state", state(topic)),
            ("trim", "on" if topic.trim else "off"),
            ("retention", human_retention(topic.retention_ms, topic.retention_bytes)),
            (
                "local retention",
                human_retention(topic.local_retention_ms, topic.local_retention_bytes),
            ),
            ("copied", _copied(topic.offload)),
            ("kept locally", _kept_locally(topic.offload)),
            ("layout", topic.layout or "by the services' rules"),
            ("originals", originals or "none set on the topic"),
            ("partitions", topic.partitions),
            ("min.insync.replicas", _min_insync_replicas(topic)),
            ("unclean leader election", _unclean_leader_election(topic)),
            ("remote segments", topic.remote_segments),
            ("remote size", human_size(topic.remote_size_bytes)),
            *_pending(topic),
            *(("note", text) for text in topic.notes),
        ]
    )
    warn(topic.warnings)


def _copied(offload: pb.Offload) -> str:
    """When closed segments are copied."""
    if 0 in (offload.copy_lag_ms, offload.copy_lag_bytes):
        return "as soon as a segment is closed"
    age, size = human_ms(offload.copy_lag_ms), human_size(offload.copy_lag_bytes)
    limits = (
        "at local retention" if offload.copy_lag_ms < 0 else f"{age} old",
        "at local retention by size" if offload.copy_lag_bytes < 0 else f"{size} behind",
    )
    return f"{' or '.join(limits)} (by {offload.copy_lag_of})"


def _kept_locally(offload: pb.Offload) -> str:
    lag_ms = offload.deletion_lag_ms
    if not lag_ms:
        return "by local retention alone"
    return f"{human_ms(lag_ms)} after the copy at least (by {offload.deletion_lag_of})"


def _pending(topic: pb.TopicDescription) -> list[tuple[str, str]]:
    if not topic.HasField("pending_deletion"):
        return []
    pending = topic.pending_deletion
    limits = human_retention(pending.retention_in_force_ms, pending.retention_in_force_bytes)
    undo = f"`rlm deletions undo {topic.topic}` keeps it"
    return [
        ("in force now", f"{limits}; the shorter retention is due in {due_in(pending)}; {undo}")
    ]


def state(topic: pb.TopicDescription) -> str:
    return f"gone, was {topic.state}" if topic.gone else topic.state


def _min_insync_replicas(topic: pb.TopicDescription) -> str:
    known = topic.HasField("min_insync_replicas")
    return str(topic.min_insync_replicas) if known else "unknown"


def _unclean_leader_election(topic: pb.TopicDescription) -> str:
    if not topic.HasField("unclean_leader_election"):
        return "unknown"
    return "on" if topic.unclean_leader_election else "off"

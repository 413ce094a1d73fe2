"""What an operator should know of a topic's settings, and of a change of them. Pure."""

from rlm.plans.retention import effective_local_retention
from rlm.topics.retention_configs import RETENTION_BYTES, RETENTION_MS
from rlm.topics.rules import (
    Config,
    RetentionOptions,
    retention_of,
    value_of,
)
from rlm.topics.takeover import is_taken_over
from rlmm.settings_records import TopicRecord


def notes_of(record: TopicRecord) -> tuple[str, ...]:
    """Permanent remarks, for list and describe."""
    if record.state == "deleting":
        return ("its remote data will be deleted: `rlm purge` shows when",)
    if record.state == "kept":
        return ("disabled: nothing is copied, trimmed or expired; remote data is kept",)
    notes = []
    if record.mode == "copy":
        notes.append("mode copy: the broker's own retention acts, local retention does not")
    elif record.given_back is not None and record.given_back.ended_ms is None:
        limits = ", ".join(f"{name}={value}" for name, value in record.given_back.limits.items())
        notes.append(f"given back while a broker's disk is nearly full: {limits} acts at brokers")
    elif not record.trim:
        notes.append("trim is off: the local log grows")
    elif effective_local_retention(retention_of(record)).is_unlimited:
        notes.append("local retention has no limit: nothing is trimmed")
    return tuple(notes)


def change_warnings(
    before: TopicRecord | None, after: TopicRecord, asked: RetentionOptions, config: Config
) -> tuple[str, ...]:
    """Remarks on one change: a stored retention that differs from the topic's at take-over."""
    if before is None or not is_taken_over(after) or is_taken_over(before):
        return ()
    return tuple(
        f"total {name} stays {stored} as stored at enabling, while the topic now has {present}"
        for name, stored, given in (
            (RETENTION_MS, after.retention_ms, asked.retention_ms),
            (RETENTION_BYTES, after.retention_bytes, asked.retention_bytes),
        )
        if given is None and (present := value_of(config, name)) != str(stored)
    )


def giveback_warnings(before: TopicRecord) -> tuple[str, ...]:
    """Remarks on what gives the retention back to the broker."""
    if not is_taken_over(before):
        return ()
    return (
        "the broker's own retention acts again: what it removes before it is copied is lost "
        "from both tiers",
    )

"""What a broker's files say of local retention, beside what a service reports of it."""

from collections.abc import Sequence

from confluent_kafka import TopicPartition

from kip405.errors import RemoteStorageError
from rlm.log_dir.scanner import LogDirs
from rlm.plans.retention import LocalRetention
from rlm.plans.trim import segments_beyond


def is_beyond_retention(
    log_dirs: Sequence[str], log_start: TopicPartition, max_bytes: int | None
) -> bool:
    """Whether the log that starts at that offset has closed segments which local retention by size
    does not keep, or is being changed.
    """
    try:
        log = LogDirs(log_dirs).scan(log_start.topic, log_start.partition)
    except RemoteStorageError:
        return True
    kept = LocalRetention(max_age_ms=None, max_bytes=max_bytes)
    return bool(segments_beyond(log.segments, kept, start=log_start.offset, now_ms=0))

"""Retention values as Kafka defines them: LogConfig's rules, effective local retention.

-1 is "no limit"; -2, for local retention only, is "as total". The total retention in force is the
laxer of what was decided and what is enforced already. Source: TopicConfig,
LogConfig.validateRemoteStorageRetentionSize/Time, LogConfig.localRetentionMs/Bytes.
"""

from dataclasses import dataclass

from kip405.errors import Invalid
from rlmm.settings_records import TopicRecord, TotalRetention

UNLIMITED = -1
AS_TOTAL = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A topic's retention in ms and bytes; Invalid names the setting where LogConfig refuses."""

    total_ms: int
    total_bytes: int
    local_ms: int = AS_TOTAL
    local_bytes: int = AS_TOTAL

    def __post_init__(self) -> None:
        _check_at_least("retention.ms", self.total_ms, UNLIMITED)
        _check_at_least("retention.bytes", self.total_bytes, UNLIMITED)
        _check_at_least("local.retention.ms", self.local_ms, AS_TOTAL)
        _check_at_least("local.retention.bytes", self.local_bytes, AS_TOTAL)
        _check_local("retention.ms", self.total_ms, self.local_ms)
        _check_local("retention.bytes", self.total_bytes, self.local_bytes)

    @property
    def total(self) -> TotalRetention:
        """The total retention alone."""
        return TotalRetention(retention_ms=self.total_ms, retention_bytes=self.total_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRetention:
    """How much the brokers keep; None = no limit."""

    max_age_ms: int | None
    max_bytes: int | None

    @property
    def is_unlimited(self) -> bool:
        return self.max_age_ms is None and self.max_bytes is None


def effective_local_retention(retention: Retention) -> LocalRetention:
    """Local retention after -2 was replaced by total and -1 by None."""
    return LocalRetention(
        max_age_ms=_effective(retention.total_ms, retention.local_ms),
        max_bytes=_effective(retention.total_bytes, retention.local_bytes),
    )


def local_retention(record: TopicRecord) -> LocalRetention:
    """The effective local retention of a topic."""
    return effective_local_retention(
        Retention(
            total_ms=record.retention_ms,
            total_bytes=record.retention_bytes,
            local_ms=record.local_retention_ms,
            local_bytes=record.local_retention_bytes,
        )
    )


def retention_in_force(record: TopicRecord) -> TotalRetention:
    """Only data beyond this may be deleted now: by time if `retention_ms` is not -1, by size if
    `retention_bytes` is not -1.

    A longer retention is in force at once, a shorter one when `enforced` says so (see
    rlm.topics.deletions). Nothing is deletable of a topic that is not enabled, or whose record was
    written by a version that announces no deletions.
    """
    if record.state != "enabled" or record.enforced is None:
        return TotalRetention()
    return record.enforced.laxer(record.total)


def _effective(total: int, local: int) -> int | None:
    chosen = total if local == AS_TOTAL else local
    return None if chosen == UNLIMITED else chosen


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise Invalid(f"{name}={value} is below {least}")


def _check_local(name: str, total: int, local: int) -> None:
    if total == UNLIMITED or local == AS_TOTAL:
        return
    if local == UNLIMITED:
        raise Invalid(f"local.{name} must not be -1 (no limit) while {name} is {total}")
    if local > total:
        raise Invalid(f"local.{name}={local} must not be more than {name}={total}")

"""Plans when closed segments are copied, and how long the brokers keep them after the copy. Pure.

A segment waits for its copy until it is old enough, or until enough newer data follows it
(remote.copy.lag.ms, remote.copy.lag.bytes of KIP-1241). These are the thresholds of PIP-17 under
Kafka's names: offload.time.ms and offload.size.bytes. After the copy its local part stays for
offload.deletion.lag.ms. The thresholds of a topic come from its settings record, else from the
first rule of offload.rules that matches its name, else from the defaults of the service.

Kafka deletes no local segment that is not copied; brokers without tiering do, by their own
retention. So a threshold that is not below such a retention counts as half of it, and where
retention was taken over and is bounded again, nothing waits. Source: KIP-1241, LogConfig,
RLMCopyTask.candidateLogSegments; PIP-17.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kip405.errors import Invalid
from kip405.ids import Uuid
from rlm.config.offload import OffloadRule
from rlm.log_dir.scanner import LocalSegment
from rlm.plans.retention import UNLIMITED, local_retention
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import OffloadThresholds, TopicRecord, TotalRetention

AS_LOCAL = -1
"""remote.copy.lag.ms|bytes: as local retention; off where that has no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """The thresholds of one topic. `copy_lag_*` -1 = as local retention. `of_*`: who set them."""

    copy_lag_ms: int
    copy_lag_bytes: int
    deletion_lag_ms: int
    of_copy_lag: str
    of_deletion_lag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDelay:
    """A segment may be copied once it is so old, or so much follows it; None = never by that."""

    max_age_ms: int | None
    max_newer_bytes: int | None

    def holds(self, segment: LocalSegment, newer_bytes: int, now_ms: int) -> bool:
        """Whether the segment must wait. One whose newest record is in the future does not."""
        age_ms = now_ms - segment.max_timestamp_ms
        if self.max_age_ms is not None and not 0 <= age_ms < self.max_age_ms:
            return False
        return self.max_newer_bytes is None or newer_bytes < self.max_newer_bytes

    @property
    def words(self) -> str:
        """What a segment waits for."""
        limits = [] if self.max_age_ms is None else [f"it is {self.max_age_ms} ms old"]
        if self.max_newer_bytes is not None:
            limits.append(f"{self.max_newer_bytes} bytes follow it")
        return " or ".join((*limits, "`rlm copy`"))


class OffloadPolicy:
    """The rules and defaults of a service. In `defaults`, every threshold is set."""

    def __init__(self, defaults: OffloadThresholds, rules: Sequence[OffloadRule] = ()) -> None:
        self._defaults = defaults
        self._rules = rules

    def of(self, record: TopicRecord) -> Offload:
        """A topic's thresholds. Where only one copy lag is set, the other is as local retention."""
        levels = (
            ("the topic", record.offload),
            ("offload.rules", self._rule(record.name)),
            ("the service's defaults", self._defaults),
        )
        lag_of, lag = next(
            (name, one)
            for name, one in levels
            if one.copy_lag_ms is not None or one.copy_lag_bytes is not None
        )
        kept_of, kept = next((name, one) for name, one in levels if one.deletion_lag_ms is not None)
        return Offload(
            copy_lag_ms=AS_LOCAL if lag.copy_lag_ms is None else lag.copy_lag_ms,
            copy_lag_bytes=AS_LOCAL if lag.copy_lag_bytes is None else lag.copy_lag_bytes,
            deletion_lag_ms=kept.deletion_lag_ms or 0,
            of_copy_lag=lag_of,
            of_deletion_lag=kept_of,
        )

    def copy_delay(self, record: TopicRecord, brokers: TotalRetention) -> CopyDelay | None:
        """For which segments a copy waits; None = for none. `brokers`: their own retention."""
        is_bounded = brokers != TotalRetention()
        if record.mode == "tier" and is_bounded:
            return None
        offload, local = self.of(record), local_retention(record)
        max_age_ms = _below(_least(offload.copy_lag_ms, local.max_age_ms), brokers.retention_ms)
        newer = _below(_least(offload.copy_lag_bytes, local.max_bytes), brokers.retention_bytes)
        if 0 in (max_age_ms, newer):
            return None
        return CopyDelay(max_age_ms=max_age_ms, max_newer_bytes=newer)

    def kept_back(
        self, record: TopicRecord, ledger: PartitionLedger, now_ms: int
    ) -> frozenset[Uuid]:
        """Segments whose local part stays, since they were finished less than the deletion lag ago.
        The brokers' time of the append counts, not that of the writer.
        """
        lag_ms = self.of(record).deletion_lag_ms
        entries = ledger.entries.items() if lag_ms else ()
        return frozenset(key for key, entry in entries if entry.timestamp_ms > now_ms - lag_ms)

    def check(self, record: TopicRecord, brokers: TotalRetention) -> None:
        """Invalid where a threshold is not below the retention that would end its data first.

        `brokers`: the retention that acts at the brokers in mode copy.
        """
        offload, local = self.of(record), local_retention(record)
        acts = brokers if record.mode == "copy" else TotalRetention()
        for name, lag, limits in (
            ("ms", offload.copy_lag_ms, (local.max_age_ms, record.retention_ms, acts.retention_ms)),
            (
                "bytes",
                offload.copy_lag_bytes,
                (local.max_bytes, record.retention_bytes, acts.retention_bytes),
            ),
        ):
            setting = f"remote.copy.lag.{name}={lag} (of {offload.of_copy_lag})"
            _check_copy_lag(record.name, setting, lag, limits, name)
        _check_deletion_lag(record, offload)

    def _rule(self, topic: str) -> OffloadThresholds:
        found = (rule.thresholds for rule in self._rules if rule.topics.fullmatch(topic))
        return next(found, OffloadThresholds())


def _least(lag: int, local: int | None) -> int | None:
    """The lag, at most local retention; None = no limit."""
    if lag == AS_LOCAL:
        return local
    return lag if local is None else min(lag, local)


def _below(lag: int | None, retention: int) -> int | None:
    """A lag that leaves time for the copy before the brokers' own retention deletes."""
    if retention == UNLIMITED:
        return lag
    return lag if lag is not None and lag < retention else retention // 2


def _check_copy_lag(
    topic: str, setting: str, lag: int, limits: tuple[int | None, int, int], unit: str
) -> None:
    """`limits`: local retention, total retention, and that of the brokers."""
    local, total, brokers = limits
    if lag <= 0:
        return
    action = (
        f"set a smaller one for the topic (`rlm topics enable {topic} --copy-lag-{unit}`), or a "
        "longer retention"
    )
    if local is not None and lag > local:
        raise Invalid(f"{setting} must not be more than local.retention.{unit}={local}; {action}")
    for name, limit in (("", total), ("the brokers' own ", brokers)):
        if UNLIMITED != limit <= lag:
            raise Invalid(f"{setting} must be below {name}retention.{unit}={limit}; {action}")


def _check_deletion_lag(record: TopicRecord, offload: Offload) -> None:
    copied_ms = max(offload.copy_lag_ms, 0)
    lag_ms, total_ms = offload.deletion_lag_ms, record.retention_ms
    if lag_ms and UNLIMITED != total_ms <= copied_ms + lag_ms:
        raise Invalid(
            f"offload.deletion.lag.ms={lag_ms} (of {offload.of_deletion_lag}), which begins "
            f"{copied_ms} ms after the newest record of a segment, must end before "
            f"retention.ms={total_ms}; set a smaller one for the topic (`rlm topics enable "
            f"{record.name} --deletion-lag`), or a longer retention"
        )

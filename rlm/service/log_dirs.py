"""What status, metrics and problems show of the broker's log directories (H18).

Joins the free space that DiskWatch measured with the bytes that no trim may delete, as of the last
snapshots. Never waits.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from kip405.ids import PartitionKey
from rlm.api.per_partition import FOREVER_MS, PerPartition, columns
from rlm.broker.leadership import Leadership, LedPartition
from rlm.plans.copy import CopyLag
from rlm.plans.disk import LogDirReport, disk_findings, untrimmable_bytes
from rlm.plans.problems import Finding
from rlm.plans.trim import NoTrim
from rlm.remote_log.ports import Settings
from rlm.remote_log.snapshot_cache import SnapshotCache
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.service.metrics import Labelled
from rlm.tasks.disk_watch import DiskWatch
from rlm.tasks.trim import TrimStatus
from rlm.topics.takeover import is_taken_over

_HELD = {reason.value: reason for reason in NoTrim}


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalBytes:
    """Of one partition; `log_dir` and `untrimmable_bytes` None = not known."""

    log_dir: str | None
    untrimmable_bytes: int | None


class LogDirReports:
    """`lags`: what is left to copy of all partitions that we lead, None = that is not known.
    `warn_ms` is problem.disk.full.ms.
    """

    def __init__(
        self,
        *,
        watch: DiskWatch,
        node_id: int,
        leadership: Leadership,
        snapshots: SnapshotCache,
        settings: Settings,
        lags: Callable[[], Mapping[PartitionKey, CopyLag | None]],
        trims: Mapping[PartitionKey, TrimStatus],
        warn_ms: int,
    ) -> None:
        self._watch = watch
        self._node_id = node_id
        self._leadership = leadership
        self._snapshots = snapshots
        self._settings = settings
        self._lags = lags
        self._trims = trims
        self._warn_ms = warn_ms
        self._known = PerPartition(self._of)

    def reports(self) -> tuple[LogDirReport, ...]:
        """Nothing before the first measurement."""
        ours = {one.topic_id for one in self._settings.view.topics() if is_taken_over(one)}
        rows = self._leadership.led_of(self._node_id, ours)
        keys = [row.key for row in rows]
        inputs = (self._snapshots.snapshots, self._lags(), self._trims)
        partitions = self._known.read(keys, rows, *columns(keys, *inputs))
        return _joined(self._watch.reports(), partitions)

    def findings(self) -> Iterator[Finding]:
        """What is wrong with them. The partitions are read only where there is a finding."""
        found = self._findings(self._watch.reports())
        return self._findings(self.reports()) if any(found) else iter(())

    def _findings(self, reports: Sequence[LogDirReport]) -> Iterator[Finding]:
        return disk_findings(reports, floor_bytes=self._watch.floor_bytes, warn_ms=self._warn_ms)

    def _of(
        self, row: LedPartition, _last: object, lag: CopyLag | None, trim: TrimStatus | None
    ) -> tuple[_LocalBytes, int]:
        snapshot = self._snapshots.of(row)
        return _NOT_SEEN if snapshot is None else _local_bytes(snapshot, lag, trim), FOREVER_MS


_NOT_SEEN = _LocalBytes(log_dir=None, untrimmable_bytes=None)


def _local_bytes(
    snapshot: PartitionSnapshot, lag: CopyLag | None, trim: TrimStatus | None
) -> _LocalBytes:
    log = snapshot.log
    log_dir = str(PurePath(log.directory).parent)
    if lag is None:
        return _LocalBytes(log_dir=log_dir, untrimmable_bytes=None)
    return _LocalBytes(
        log_dir=log_dir,
        untrimmable_bytes=untrimmable_bytes(
            _HELD.get(trim.reason) if trim is not None else None,
            size_bytes=log.size_bytes,
            active_bytes=log.segments[-1].size_bytes if log.segments else 0,
            lag_bytes=lag.size_bytes,
        ),
    )


def _joined(
    reports: Iterable[LogDirReport], partitions: Iterable[_LocalBytes]
) -> tuple[LogDirReport, ...]:
    """A partition without a snapshot may lie in any of them."""
    size_bytes: Counter[str | None] = Counter()
    unmeasured: Counter[str | None] = Counter()
    for one in partitions:
        if one.untrimmable_bytes is None:
            unmeasured[one.log_dir] += 1
        else:
            size_bytes[one.log_dir] += one.untrimmable_bytes
    return tuple(
        replace(
            report,
            untrimmable_bytes=size_bytes[report.path],
            unmeasured_partitions=unmeasured[report.path] + unmeasured[None],
        )
        for report in reports
    )


def log_dir_gauges(reports: Iterable[LogDirReport]) -> dict[str, Labelled]:
    """Gauges of the log directories; a value that is not known has no sample."""
    rows: dict[str, dict[tuple[str, ...], float]] = {}
    for report in reports:
        full_in_ms = report.full_in_ms
        for name, value in (
            ("rlm_log_dir_size_bytes", report.size_bytes),
            ("rlm_log_dir_free_bytes", report.free_bytes),
            ("rlm_log_dir_growth_bytes_per_second", report.growth_bytes_per_second),
            ("rlm_log_dir_full_seconds", None if full_in_ms is None else full_in_ms / 1000),
            ("rlm_log_dir_untrimmable_bytes", report.untrimmable_bytes),
            ("rlm_log_dir_unmeasured_partitions", report.unmeasured_partitions),
        ):
            if value is not None:
                rows.setdefault(name, {})[(report.path,)] = value
    return dict(rows)

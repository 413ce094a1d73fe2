"""Gauges by which an operator notices that data is not safe any more, of both roles.

Each function is called at every scrape: it reads what components know, no file and no broker. A
value that is not known has no sample.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kip405.ids import PartitionKey
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.config import CommonConfig
from rlm.plans.problem_rules import CertificateFile
from rlm.plans.services import DEAD_AFTER_BEATS, heartbeats
from rlm.service.loop_watch import LoopWatch
from rlm.service.metrics import GaugeSource, Labelled
from rlm.stores.opened import OpenStores
from rlm.tasks.good_runs import GoodRun, GoodRuns
from rlmm.manager import Metadata
from rlmm.settings_view import SettingsView
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

_VERIFY = "verify"


class LedPartitions(Protocol):
    """The partitions of enabled topics that we lead (rlm.service.partition_problems)."""

    def led(self) -> Sequence[LedPartition]: ...

    def led_since_ms(self, row: LedPartition) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAges:
    """How long ago each task ended well, by topic. `verified_ms`: None = nothing is verified."""

    partitions: LedPartitions
    good_runs: GoodRuns
    verified_ms: Callable[[], Mapping[PartitionKey, int]] | None
    clock: Clock

    def gauges(self) -> dict[str, Labelled]:
        rows = self.partitions.led()
        known = {task.value: self.good_runs.ended_ms(task) for task in GoodRun}
        if self.verified_ms is not None:
            known[_VERIFY] = self.verified_ms()
        now_ms = self.clock.monotonic_ms()
        found: dict[tuple[str, ...], float] = {}
        for task, ended_ms in known.items():
            for topic, at_ms in self._first(rows, ended_ms).items():
                found[task, topic] = (now_ms - at_ms) / 1000
        return {"rlm_partitions_led": {(): len(rows)}, "rlm_task_good_run_age_seconds": found}

    def _first(
        self, rows: Iterable[LedPartition], ended_ms: Mapping[PartitionKey, int]
    ) -> dict[str, int]:
        """The earliest end of each topic's partitions."""
        first: dict[str, int] = {}
        for row in rows:
            at_ms = ended_ms.get(row.key)
            if at_ms is None:
                at_ms = self.partitions.led_since_ms(row)
            topic = row.topic_id_partition.topic
            if at_ms < first.get(topic, at_ms + 1):
                first[topic] = at_ms
        return first


class MetadataReads(Protocol):
    """Both topics as they are read (rlmm.metadata_log.MetadataLog)."""

    def unread_records(self, topic: str) -> int | None: ...

    @property
    def answered_at_ms(self) -> int | None: ...


def metadata_gauges(log: MetadataReads, monotonic_ms: int) -> dict[str, Labelled]:
    """How far behind ledger and settings are read."""
    unread = {(topic,): log.unread_records(topic) for topic in (LEDGER_TOPIC, SETTINGS_TOPIC)}
    rows: dict[str, Labelled] = {
        "rlm_metadata_unread_records": {
            labels: count for labels, count in unread.items() if count is not None
        }
    }
    if log.answered_at_ms is not None:
        age_ms = monotonic_ms - log.answered_at_ms
        rows["rlm_metadata_answer_age_seconds"] = {(): age_ms / 1000}
    return rows


def service_gauges(
    view: SettingsView, monotonic_ms: int, heartbeat_interval_ms: int
) -> dict[str, Labelled]:
    """Heartbeats and clocks of the services beside brokers."""
    skews = view.clock_skews_now(monotonic_ms, max_age_ms=DEAD_AFTER_BEATS * heartbeat_interval_ms)
    return {
        "rlm_heartbeat_age_seconds": {
            (str(beat.node_id),): beat.heard_ms_ago / 1000
            for beat in heartbeats(view, monotonic_ms)
            if beat.heard_ms_ago is not None
        },
        "rlm_clock_skew_seconds": {(str(one.node_id),): one.skew_ms / 1000 for one in skews},
    }


def certificate_gauges(files: Iterable[CertificateFile], now_ms: int) -> dict[str, Labelled]:
    """Of a file with several uses, the one that ends first."""
    left: dict[tuple[str, ...], float] = {}
    for file in files:
        if file.ends_at_ms is not None:
            seconds = (file.ends_at_ms - now_ms) / 1000
            left[(file.path,)] = min(seconds, left.get((file.path,), seconds))
    return {"rlm_certificate_left_seconds": left}


def loop_gauges(worst_ms: int | None) -> dict[str, Labelled]:
    """By how much the event loop was late."""
    return {"rlm_event_loop_lag_seconds": {} if worst_ms is None else {(): worst_ms / 1000}}


def plugin_gauges(restarts: Mapping[str, int]) -> dict[str, Labelled]:
    """Restarts of plugins by store."""
    return {"rlm_plugin_restarts_total": {(name,): count for name, count in restarts.items()}}


class Certificates(Protocol):
    """Files of certificates as they were last read (rlm.service.certificates)."""

    @property
    def files(self) -> Sequence[CertificateFile]: ...


def safety_gauges(
    config: CommonConfig,
    metadata: Metadata,
    stores: OpenStores,
    certificates: Certificates,
    loop_watch: LoopWatch,
    clock: Clock,
) -> GaugeSource:
    """What every role has."""

    def read() -> dict[str, Labelled]:
        now_ms = clock.monotonic_ms()
        return {
            **metadata_gauges(metadata.log, now_ms),
            **service_gauges(metadata.settings.view, now_ms, config.heartbeat_interval_ms),
            **certificate_gauges(certificates.files, clock.now_ms()),
            **plugin_gauges(stores.plugin_restarts()),
            **loop_gauges(loop_watch.worst_ms()),
        }

    return read

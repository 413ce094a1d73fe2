"""The alerts: each is a threshold for one metric of `rlm serve`, and has a page in docs/runbooks/.

The rules for Prometheus, the PrometheusRule for Kubernetes and docs/reference/alerts.md are made
of this table. Tests cause the fault of each alert and compare the metric with its threshold.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_GAP = "10m"
"""Of samples, while a service restarts."""
CRITICAL, WARNING = "critical", "warning"
"""Data is at risk, or readers do not get it: wake somebody. It can wait until the morning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number for each combination of the labels `by`, made of samples of one metric.

    `where` picks samples by the values of labels, several separated by |. At most one of these:
    `increase_of`: the increase of a counter in that time; `since`: how much more it is than that
    time ago, or shortly before, since a service that restarts has no samples for a while;
    `part_of`: divided by another metric; `is_absolute`: without its sign.
    """

    metric: str
    aggregate: str
    by: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    increase_of: str = ""
    since: str = ""
    part_of: str = ""
    is_absolute: bool = False

    @property
    def promql(self) -> str:
        """As Prometheus reads it."""
        if self.aggregate == "absent":
            return f"absent({self.metric})"
        selector = self.metric + self._selector()
        if self.since:
            before = f"max_over_time({selector}[{_GAP}] offset {self.since})"
            return f"{self._of(selector)} - {self._of(before)}"
        if self.increase_of:
            selector = f"increase({selector}[{self.increase_of}])"
        if self.part_of:
            selector = f"{selector} / {self.part_of}"
        return self._of(f"abs({selector})" if self.is_absolute else selector)

    def _of(self, inner: str) -> str:
        return f"{self.aggregate} by ({', '.join(self.by)}) ({inner})"

    def _selector(self) -> str:
        pairs = (
            f'{name}=~"{value}"' if "|" in value else f'{name}="{value}"'
            for name, value in self.where.items()
        )
        text = ",".join(pairs)
        return f"{{{text}}}" if text else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """`measure` beyond the threshold for the time `lasts`. `is_below`: the threshold is the least
    that is well, else the most. `summary` may name labels as {topic}.
    """

    name: str
    measure: Measure
    threshold: float
    lasts: str
    severity: str
    summary: str
    is_below: bool = False

    @property
    def expression(self) -> str:
        """As Prometheus reads it."""
        return f"{self.measure.promql} {'<' if self.is_below else '>'} {self.threshold:.15g}"

    @property
    def page(self) -> str:
        """The name of its page in docs/runbooks/."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.name.removeprefix("Rlm")).lower()

    def is_beyond(self, value: float) -> bool:
        """Whether the alert is pending or fires at this value."""
        return value < self.threshold if self.is_below else value > self.threshold


def _problem(kinds: str, by: str = "instance") -> Measure:
    return Measure(metric="rlm_problems", aggregate="max", by=(by,), where={"kind": kinds})


def _run_age(task: str) -> Measure:
    return Measure(
        metric="rlm_task_good_run_age_seconds",
        aggregate="max",
        by=("topic",),
        where={"task": task},
    )


ALERTS: tuple[Alert, ...] = (
    Alert(
        name="RlmNothingScraped",
        measure=Measure(metric="rlm_partitions_led", aggregate="absent"),
        threshold=0,
        lasts="5m",
        severity=CRITICAL,
        summary="Prometheus gets metrics of no service beside a broker: other alerts are silent.",
    ),
    Alert(
        name="RlmServiceAbsent",
        measure=Measure(metric="rlm_heartbeat_age_seconds", aggregate="min", by=("node",)),
        threshold=60,
        lasts="5m",
        severity=CRITICAL,
        summary="No other service hears the service of node {node}: what it leads is not copied.",
    ),
    Alert(
        name="RlmRecordsLost",
        measure=_problem("segment-lost|offsets-missing", by="kind"),
        threshold=0,
        lasts="1m",
        severity=CRITICAL,
        summary="Readers do not get records that they should get ({kind}).",
    ),
    Alert(
        name="RlmNewHole",
        measure=Measure(
            metric="rlm_partition_lost_offsets", aggregate="sum", by=("topic",), since="1h"
        ),
        threshold=0,
        lasts=_GAP,
        severity=CRITICAL,
        summary="Offsets of {topic} were recorded as lost in the last hour.",
    ),
    Alert(
        name="RlmLossNear",
        measure=_problem("loss-near"),
        threshold=0,
        lasts="1m",
        severity=CRITICAL,
        summary="The broker of {instance} soon deletes records that are not remote.",
    ),
    Alert(
        name="RlmPartitionFrozen",
        measure=Measure(metric="rlm_partition_frozen", aggregate="sum", by=("topic",)),
        threshold=0,
        lasts="1m",
        severity=CRITICAL,
        summary="Partitions of {topic} are frozen: nothing of them is copied, trimmed or deleted.",
    ),
    Alert(
        name="RlmMetadataUntrusted",
        measure=_problem("metadata|metadata-lost"),
        threshold=0,
        lasts="5m",
        severity=CRITICAL,
        summary="Ledger or settings cannot be trusted at {instance}: it trims and deletes nothing.",
    ),
    Alert(
        name="RlmStoreUnavailable",
        measure=Measure(metric="rlm_store_available", aggregate="min", by=("instance", "store")),
        threshold=1,
        is_below=True,
        lasts="5m",
        severity=CRITICAL,
        summary="Store {store} does not answer {instance}, or is another one.",
    ),
    Alert(
        name="RlmStoreRefusesWrites",
        measure=_problem("store-refuses-writes"),
        threshold=0,
        lasts="5m",
        severity=CRITICAL,
        summary="A store accepts no segments of {instance}.",
    ),
    Alert(
        name="RlmStoreSetup",
        measure=Measure(metric="rlm_store_alarms", aggregate="max", by=("store",)),
        threshold=0,
        lasts="15m",
        severity=CRITICAL,
        summary="Store {store} is set up so that it endangers its data.",
    ),
    Alert(
        name="RlmLogDirLow",
        measure=Measure(
            metric="rlm_log_dir_free_bytes",
            part_of="rlm_log_dir_size_bytes",
            aggregate="min",
            by=("instance", "log_dir"),
        ),
        threshold=0.05,
        is_below=True,
        lasts="5m",
        severity=CRITICAL,
        summary="Less than a twentieth of {log_dir} is free at {instance}.",
    ),
    Alert(
        name="RlmLogDirFills",
        measure=Measure(
            metric="rlm_log_dir_full_seconds", aggregate="min", by=("instance", "log_dir")
        ),
        threshold=86_400,
        is_below=True,
        lasts="15m",
        severity=WARNING,
        summary="{log_dir} of {instance} is full within a day, at the growth of the last hour.",
    ),
    Alert(
        name="RlmCopyFailing",
        measure=_run_age("copy"),
        threshold=2_700,
        lasts="5m",
        severity=CRITICAL,
        summary="No copy task of a partition of {topic} has ended well, or copied a segment, for "
        "45 minutes.",
    ),
    Alert(
        name="RlmCopyBehind",
        measure=Measure(metric="rlm_remote_copy_behind_seconds", aggregate="max", by=("topic",)),
        threshold=1_800,
        lasts="5m",
        severity=WARNING,
        summary="Closed segments of {topic} wait, and none was copied for half an hour.",
    ),
    Alert(
        name="RlmCopyBacklog",
        measure=Measure(metric="rlm_copy_left_seconds", aggregate="max", by=("instance",)),
        threshold=86_400,
        lasts="1h",
        severity=WARNING,
        summary="{instance} needs more than a day for what it has to copy, at its present rate.",
    ),
    Alert(
        name="RlmLagUnknown",
        measure=Measure(metric="rlm_copy_unmeasured_partitions", aggregate="max", by=("instance",)),
        threshold=0,
        lasts="15m",
        severity=WARNING,
        summary="{instance} does not know what is left to copy of some partitions.",
    ),
    Alert(
        name="RlmOpenTransaction",
        measure=Measure(
            metric="rlm_last_stable_offset_pinned_seconds", aggregate="max", by=("topic",)
        ),
        threshold=3_600,
        lasts="5m",
        severity=WARNING,
        summary="Closed segments of {topic} have waited for a transaction for an hour.",
    ),
    Alert(
        name="RlmTrimFailing",
        measure=_run_age("trim"),
        threshold=7_200,
        lasts="5m",
        severity=WARNING,
        summary="No trim task of a partition of {topic} has ended well for two hours.",
    ),
    Alert(
        name="RlmExpiryFailing",
        measure=_run_age("expiry"),
        threshold=86_400,
        lasts="5m",
        severity=WARNING,
        summary="Total retention of a partition of {topic} was not applied for a day.",
    ),
    Alert(
        name="RlmNotVerified",
        measure=_run_age("verify"),
        threshold=259_200,
        lasts="5m",
        severity=WARNING,
        summary="The remote data of a partition of {topic} was not verified for three days.",
    ),
    Alert(
        name="RlmMetadataBehind",
        measure=Measure(
            metric="rlm_metadata_unread_records", aggregate="max", by=("instance", "topic")
        ),
        threshold=1_000,
        lasts="5m",
        severity=WARNING,
        summary="{instance} is behind in reading {topic}.",
    ),
    Alert(
        name="RlmMetadataSilent",
        measure=Measure(
            metric="rlm_metadata_answer_age_seconds", aggregate="max", by=("instance",)
        ),
        threshold=120,
        lasts="1m",
        severity=CRITICAL,
        summary="No broker answers {instance} about ledger and settings: it trims nothing.",
    ),
    Alert(
        name="RlmClockSkew",
        measure=Measure(
            metric="rlm_clock_skew_seconds", aggregate="max", by=("node",), is_absolute=True
        ),
        threshold=60,
        lasts="1m",
        severity=WARNING,
        summary="The clock of node {node}'s service and those of the brokers disagree.",
    ),
    Alert(
        name="RlmPluginRestarts",
        measure=Measure(
            metric="rlm_plugin_restarts_total",
            aggregate="sum",
            by=("instance", "store"),
            increase_of="15m",
        ),
        threshold=2,
        lasts="0m",
        severity=WARNING,
        summary="The plugin of store {store} keeps ending at {instance}.",
    ),
    Alert(
        name="RlmProcessEnds",
        measure=_problem("process-missing|process-ends"),
        threshold=0,
        lasts="1m",
        severity=WARNING,
        summary="A process of {instance} keeps ending, or is away.",
    ),
    Alert(
        name="RlmEventLoopLag",
        measure=Measure(metric="rlm_event_loop_lag_seconds", aggregate="max", by=("instance",)),
        threshold=1,
        lasts="5m",
        severity=WARNING,
        summary="Work of {instance} is late by more than a second.",
    ),
    Alert(
        name="RlmThreadsHung",
        measure=Measure(metric="rlm_threads_hung", aggregate="max", by=("instance", "pool")),
        threshold=0,
        lasts="5m",
        severity=WARNING,
        summary="Work on a disk or in a library does not return at {instance} ({pool}).",
    ),
    Alert(
        name="RlmCertificateEnds",
        measure=Measure(
            metric="rlm_certificate_left_seconds", aggregate="min", by=("instance", "path")
        ),
        threshold=1_209_600,
        is_below=True,
        lasts="5m",
        severity=WARNING,
        summary="The certificate {path} of {instance} ends within two weeks, or has ended.",
    ),
    Alert(
        name="RlmRemoteReadsFail",
        measure=Measure(
            metric="rlm_remote_fetch_wait_seconds_count",
            aggregate="sum",
            by=("instance",),
            where={"outcome": "failed"},
            increase_of="10m",
        ),
        threshold=0,
        lasts="0m",
        severity=WARNING,
        summary="Remote reads of Kafka clients of {instance} end with lasting errors.",
    ),
    Alert(
        name="RlmOtherAlarm",
        measure=Measure(
            metric="rlm_problems",
            aggregate="max",
            by=("kind",),
            where={"severity": "alarm"},
        ),
        threshold=0,
        lasts="15m",
        severity=WARNING,
        summary="A problem of the kind {kind} has lasted for a quarter of an hour.",
    ),
)

"""A row of the table of metrics, and the rows about Kafka clients, processes, copies, the broker's
disk, and what a service is to be watched by.

Those of partitions are in `partition_rows`, the whole table is in `metrics`.
"""

import enum
from dataclasses import dataclass


class MetricKind(enum.Enum):
    """The Prometheus metric types that are in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric; `buckets` in the metric's own unit, for histograms.

    A counter with `is_read` is a total that another component keeps; it is read at each scrape.
    `of_topic`: what the gauge of a topic is made of where partitions have none of their own
    (metrics.per.partition): `sum`, `max` or `min` of those that are known; empty = it has none.
    """

    name: str
    kind: MetricKind
    doc: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    is_read: bool = False
    of_topic: str = ""

    @property
    def is_counted(self) -> bool:
        """Whether events update the metric, rather than a source that is read at each scrape."""
        return self.kind is not MetricKind.GAUGE and not self.is_read


_LOG_DIR = ("log_dir",)

SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)

PROXY_ROWS: tuple[MetricRow, ...] = (
    MetricRow(
        name="rlm_proxy_connections_opened_total",
        kind=MetricKind.COUNTER,
        doc="Kafka clients that the proxy accepted.",
    ),
    MetricRow(
        name="rlm_proxy_connections_closed_total",
        kind=MetricKind.COUNTER,
        doc="Client connections that ended, by cause.",
        labels=("cause",),
    ),
    MetricRow(
        name="rlm_proxy_answers_total",
        kind=MetricKind.COUNTER,
        doc="Answers of the APIs that the proxy decodes; by partition, where an answer has "
        "partitions.",
        labels=("api", "outcome"),
    ),
    MetricRow(
        name="rlm_proxy_spliced_bytes_total",
        kind=MetricKind.COUNTER,
        doc="Record bytes of the remote tier sent to Kafka clients.",
    ),
    MetricRow(
        name="rlm_proxy_remote_readers_total",
        kind=MetricKind.COUNTER,
        doc="Consumer groups that got remote data through this proxy for the first time since the "
        "start, and clients that are in no group that this service knows; by kind: group, client.",
        labels=("kind",),
    ),
    MetricRow(
        name="rlm_proxy_barrier_seconds",
        kind=MetricKind.HISTOGRAM,
        doc="Waits for the settings and ledger view before an answer about position (H17).",
        labels=("passed",),
        buckets=SECONDS,
    ),
)

PROCESS_ROWS: tuple[MetricRow, ...] = (
    MetricRow(
        name="rlm_workers_connected",
        kind=MetricKind.GAUGE,
        doc="Proxy workers that the core has heard in the last 15 seconds; no sample where "
        "proxy.workers is 0.",
    ),
    MetricRow(
        name="rlm_process_recent_ends",
        kind=MetricKind.GAUGE,
        doc="How often the core, or a worker, had ended by itself in the ten minutes before its "
        "last start; no sample of a worker that has never connected.",
        labels=("process",),
    ),
)

COPY_ROWS: tuple[MetricRow, ...] = (
    MetricRow(
        name="rlm_remote_copy_requests_total",
        kind=MetricKind.COUNTER,
        doc="Attempts to copy a segment (Kafka: RemoteCopyRequestsPerSec).",
        labels=("topic",),
    ),
    MetricRow(
        name="rlm_remote_copy_errors_total",
        kind=MetricKind.COUNTER,
        doc="Attempts to copy a segment that failed; the segment is tried again (Kafka: "
        "RemoteCopyErrorsPerSec).",
        labels=("topic",),
    ),
    MetricRow(
        name="rlm_remote_delete_errors_total",
        kind=MetricKind.COUNTER,
        doc="Runs of total retention in which a segment could not be deleted (Kafka: "
        "RemoteDeleteErrorsPerSec).",
        labels=("topic",),
    ),
    MetricRow(
        name="rlm_copy_left_bytes",
        kind=MetricKind.GAUGE,
        doc="Bytes that may be copied now and are not, of all partitions that this node leads.",
    ),
    MetricRow(
        name="rlm_copy_unmeasured_partitions",
        kind=MetricKind.GAUGE,
        doc="Partitions whose bytes are not in that sum, as they are not known.",
    ),
    MetricRow(
        name="rlm_copy_bytes_per_second",
        kind=MetricKind.GAUGE,
        doc="Rate of copies over the last minute; no sample before two segments were copied.",
    ),
    MetricRow(
        name="rlm_copy_left_seconds",
        kind=MetricKind.GAUGE,
        doc="Time for what is left at that rate; no sample where that is unknown.",
    ),
    MetricRow(
        name="rlm_copy_limit_bytes_per_second",
        kind=MetricKind.GAUGE,
        doc="The limit of copies in effect: remote.log.manager.copy.max.bytes.per.second, or what "
        "`rlm copy-limit` says instead.",
    ),
)

DISK_ROWS: tuple[MetricRow, ...] = (
    MetricRow(
        name="rlm_log_dir_size_bytes",
        kind=MetricKind.GAUGE,
        doc="Size of a log directory's file system, or its quota (disk.quota.bytes).",
        labels=_LOG_DIR,
    ),
    MetricRow(
        name="rlm_log_dir_free_bytes",
        kind=MetricKind.GAUGE,
        doc="What is free of it; no sample where that is unknown.",
        labels=_LOG_DIR,
    ),
    MetricRow(
        name="rlm_log_dir_growth_bytes_per_second",
        kind=MetricKind.GAUGE,
        doc="Growth over the last hour, trims included; no sample in the first ten minutes.",
        labels=_LOG_DIR,
    ),
    MetricRow(
        name="rlm_log_dir_full_seconds",
        kind=MetricKind.GAUGE,
        doc="Time until it is full at that growth; no sample where it does not grow.",
        labels=_LOG_DIR,
    ),
    MetricRow(
        name="rlm_log_dir_untrimmable_bytes",
        kind=MetricKind.GAUGE,
        doc="Local bytes of tiered topics that this broker leads and no trim may delete now.",
        labels=_LOG_DIR,
    ),
    MetricRow(
        name="rlm_log_dir_unmeasured_partitions",
        kind=MetricKind.GAUGE,
        doc="Partitions whose bytes are not in that sum, as they are not known.",
        labels=_LOG_DIR,
    ),
)

SAFETY_ROWS: tuple[MetricRow, ...] = (
    MetricRow(
        name="rlm_partitions_led",
        kind=MetricKind.GAUGE,
        doc="Partitions of enabled topics that this node leads.",
    ),
    MetricRow(
        name="rlm_task_good_run_age_seconds",
        kind=MetricKind.GAUGE,
        doc="Time since the last run that ended well, by task (copy, trim, expiry, verify): of the "
        "partition of the topic, among those that this node leads, for which it is the longest. "
        "Without such a run, the time since this node leads the partition. A run is good although "
        "there was nothing to do; one that copies counts at each segment that it has copied. No "
        "samples of verify where verify.interval.ms is 0.",
        labels=("task", "topic"),
    ),
    MetricRow(
        name="rlm_metadata_unread_records",
        kind=MetricKind.GAUGE,
        doc="Offsets of the ledger or settings topic below the newest end that a leader has named, "
        "and not read yet; no sample before the first answer.",
        labels=("topic",),
    ),
    MetricRow(
        name="rlm_metadata_answer_age_seconds",
        kind=MetricKind.GAUGE,
        doc="Time since a leader of ledger or settings has last answered how far it goes. It is "
        "asked every five seconds; what the metric before shows is as old.",
    ),
    MetricRow(
        name="rlm_heartbeat_age_seconds",
        kind=MetricKind.GAUGE,
        doc="Age of the last heartbeat of the service of each node, as this process received it; "
        "no sample of a node that was not heard since the start of this process.",
        labels=("node",),
    ),
    MetricRow(
        name="rlm_clock_skew_seconds",
        kind=MetricKind.GAUGE,
        doc="How far the clock of each node's service is ahead of the brokers' by its last "
        "heartbeat; below 0 = behind. No sample of a node that was not heard for three heartbeats.",
        labels=("node",),
    ),
    MetricRow(
        name="rlm_certificate_left_seconds",
        kind=MetricKind.GAUGE,
        doc="Time until the certificate in a file of this service ends, below 0 = it has ended; "
        "read every minute. No sample of a file that cannot be read: see rlm_problems.",
        labels=("path",),
    ),
    MetricRow(
        name="rlm_plugin_restarts_total",
        kind=MetricKind.COUNTER,
        doc="Plugin processes of this service that ended by themselves, or could not be started, "
        "and were started again. No sample of a plugin that others run.",
        labels=("store",),
        is_read=True,
    ),
    MetricRow(
        name="rlm_event_loop_lag_seconds",
        kind=MetricKind.GAUGE,
        doc="By how much work on the event loop was late, at most, in the last minute.",
    ),
)

"""A row of the table of metrics, and the rows about Kafka clients, processes, copies, and the
broker's disk and what it loses.

The whole table is in `metrics`.
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
    """

    name: str
    kind: MetricKind
    doc: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    is_read: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether events update the metric, rather than a source that is read at each scrape."""
        return self.kind is not MetricKind.GAUGE and not self.is_read


PARTITION = ("topic", "partition")
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
        name="rlm_partition_holes",
        kind=MetricKind.GAUGE,
        doc="Ranges on record whose records no tier has, above the remote log start (H15).",
        labels=PARTITION,
    ),
    MetricRow(
        name="rlm_partition_lost_offsets",
        kind=MetricKind.GAUGE,
        doc="Offsets in those ranges.",
        labels=PARTITION,
    ),
    MetricRow(
        name="rlm_partition_loss_seconds",
        kind=MetricKind.GAUGE,
        doc="Time until the broker's own retention deletes records that are not remote; no sample "
        "where that is not to come, or not known.",
        labels=PARTITION,
    ),
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

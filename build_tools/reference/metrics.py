"""docs/reference/metrics.md: the table of metrics, and what became of Kafka's names of KIP-405."""

from build_tools.reference.markdown import cell, table
from rlm.service.metrics import TABLE
from rlm.service.partition_rows import MOST_PARTITIONS, PARTITION_ROWS

KAFKA_NAMES: dict[str, tuple[str, str]] = {
    "RemoteCopyBytesPerSec": ("rlm_remote_copy_bytes_total", "by topic"),
    "RemoteCopyRequestsPerSec": ("rlm_remote_copy_requests_total", "by topic"),
    "RemoteCopyErrorsPerSec": (
        "rlm_remote_copy_errors_total",
        "by topic; also errors that end by themselves, which Kafka leaves out",
    ),
    "RemoteCopyLagBytes": ("rlm_remote_copy_lag_bytes", ""),
    "RemoteCopyLagSegments": ("rlm_remote_copy_lag_segments", ""),
    "RemoteFetchBytesPerSec": (
        "rlm_read_given_bytes_total",
        'with `tier="remote"`; of the whole service, not by topic',
    ),
    "RemoteFetchRequestsPerSec": (
        "rlm_remote_fetch_wait_seconds_count",
        "of the whole service, not by topic",
    ),
    "RemoteFetchErrorsPerSec": ("rlm_remote_fetch_wait_seconds_count", 'with `outcome="failed"`'),
    "RemoteDeleteRequestsPerSec": ("rlm_remote_delete_segments_total", "segments, by topic"),
    "RemoteDeleteErrorsPerSec": ("rlm_remote_delete_errors_total", "runs that failed, by topic"),
    "RemoteDeleteLagSegments": ("rlm_remote_delete_lag_segments", ""),
    "RemoteDeleteLagBytes": ("", "the ledger sums bytes of finished segments only"),
    "BuildRemoteLogAuxStateRequestsPerSec": ("", "no follower is built from the remote tier"),
    "BuildRemoteLogAuxStateErrorsPerSec": ("", "no follower is built from the remote tier"),
    "RemoteLogMetadataCount": ("rlm_remote_log_metadata_count", ""),
    "RemoteLogSizeBytes": ("rlm_remote_log_size_bytes", ""),
    "RemoteLogSizeComputationTime": ("", "the size is kept with the ledger, nothing computes it"),
    "RemoteLogManagerTasksAvgIdlePercent": (
        "rlm_tasks_running",
        "divided by `rlm_tasks_slots` it is the busy part of each task's slots",
    ),
    "RemoteLogReaderTaskQueueSize": ("rlm_read_waiting", ""),
    "RemoteLogReaderAvgIdlePercent": (
        "rlm_read_running",
        "against fetch.ranges.max.in.flight: requests, not threads, are what is limited",
    ),
    "RemoteLogReaderFetchRateAndTimeMs": ("rlm_remote_fetch_wait_seconds", ""),
    "RetentionSizeInPercent": ("", "rlm_remote_log_size_bytes and the topic's retention.bytes"),
    "LocalRetentionSizeInPercent": ("", "rlm_log_dir_untrimmable_bytes says what stays, and why"),
    "remote-fetch-throttle-time": ("rlm_read_throttled_seconds_total", ""),
    "remote-copy-throttle-time": ("rlm_remote_copy_throttled_seconds_total", ""),
    "RLMCopy byte-rate": ("rlm_copy_bytes_per_second", ""),
    "RLMFetch byte-rate": ("rlm_read_given_bytes_total", "a total; Prometheus makes the rate"),
    "DelayedRemoteFetchMetrics ExpiresPerSec": (
        "rlm_remote_fetch_wait_seconds_count",
        'with `outcome="expired"`',
    ),
    "DelayedRemoteListOffsetsMetrics ExpiresPerSec": ("", "no ListOffsets waits in a purgatory"),
}
"""Kafka's name -> ours, empty where there is none, and what differs or why there is none."""


def generate_docs() -> str:
    """The whole text of the page."""
    return "\n".join((_HEAD, _rows(), _PARTITIONS, _of_topics(), _KAFKA, _kafka_names()))


_HEAD = (
    "# Metrics of `rlm serve`\n\n"
    "The service serves them as `/metrics` at `http.listen`. Made from `rlm/service/metrics.py`; "
    "edit there. A\nscrape reads what components know: no file, no broker and no store. What is "
    "not known has no sample.\n[Alerts](alerts.md) are made of them.\n"
)

_PARTITIONS = (
    "## Partitions or topics\n\n"
    "Metrics with the labels topic and partition have a sample for each partition that the node "
    f"leads. With\n`metrics.per.partition` `auto`, the default, this is so up to "
    f"{MOST_PARTITIONS:,} led partitions. Above that, and with `off`,\nthere is one sample for "
    "each topic, without the label partition, made of the partitions whose value is known:\n"
)

_KAFKA = (
    "## Kafka's names\n\n"
    "What the metrics of Kafka's tiered storage (RemoteStorageMetrics and its neighbours) are "
    "called here:\n"
)


def _rows() -> str:
    rows = (
        (f"`{row.name}`", row.kind.value, ", ".join(row.labels) or "-", row.doc) for row in TABLE
    )
    return table(("name", "kind", "labels", "meaning"), rows)


def _of_topics() -> str:
    rows = ((f"`{row.name}`", row.of_topic or "no sample") for row in PARTITION_ROWS)
    return table(("name", "of a topic"), rows)


def _kafka_names() -> str:
    rows = (
        (name, f"`{ours}`" if ours else "-", cell(note) or "-")
        for name, (ours, note) in KAFKA_NAMES.items()
    )
    return table(("Kafka", "here", "difference"), rows)

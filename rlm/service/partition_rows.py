"""The rows of the table of metrics that each partition has, and what they are of a whole topic.

Many partitions make many samples, so above MOST_PARTITIONS a topic has one instead
(metrics.per.partition); `partition_gauges` has the values.
"""

from rlm.service.metric_rows import MetricKind, MetricRow

PARTITION = ("topic", "partition")
MOST_PARTITIONS = 1_000
"""Led partitions up to which `auto` shows each."""

PARTITION_ROWS: tuple[MetricRow, ...] = (
    MetricRow(
        name="rlm_remote_copy_lag_bytes",
        kind=MetricKind.GAUGE,
        doc="Bytes of closed segments that are not remote (Kafka: RemoteCopyLagBytes); no sample "
        "for a partition whose lag is unknown.",
        labels=PARTITION,
        of_topic="sum",
    ),
    MetricRow(
        name="rlm_remote_copy_lag_segments",
        kind=MetricKind.GAUGE,
        doc="Closed segments that are not remote (Kafka: RemoteCopyLagSegments); no sample for a "
        "partition whose lag is unknown.",
        labels=PARTITION,
        of_topic="sum",
    ),
    MetricRow(
        name="rlm_remote_copy_lag_seconds",
        kind=MetricKind.GAUGE,
        doc="Age of the first closed segment that is not remote, by its newest record, also where "
        "it waits as its topic says; no sample where all are, or the lag is unknown.",
        labels=PARTITION,
        of_topic="max",
    ),
    MetricRow(
        name="rlm_remote_copy_behind_seconds",
        kind=MetricKind.GAUGE,
        doc="How long closed segments have waited while none was copied, apart from those that "
        "wait as their topic says; no sample where none waits, or the lag is unknown.",
        labels=PARTITION,
        of_topic="max",
    ),
    MetricRow(
        name="rlm_remote_log_size_bytes",
        kind=MetricKind.GAUGE,
        doc="Bytes of finished remote segments (Kafka: RemoteLogSizeBytes).",
        labels=PARTITION,
        of_topic="sum",
    ),
    MetricRow(
        name="rlm_remote_log_metadata_count",
        kind=MetricKind.GAUGE,
        doc="Segments in the ledger, in whatever state (Kafka: RemoteLogMetadataCount).",
        labels=PARTITION,
        of_topic="sum",
    ),
    MetricRow(
        name="rlm_remote_delete_lag_segments",
        kind=MetricKind.GAUGE,
        doc="Segments whose deletion has begun and is not finished (Kafka: "
        "RemoteDeleteLagSegments).",
        labels=PARTITION,
        of_topic="sum",
    ),
    MetricRow(
        name="rlm_remote_log_start_offset",
        kind=MetricKind.GAUGE,
        doc="Remote log start offset, -1 = not known.",
        labels=PARTITION,
    ),
    MetricRow(
        name="rlm_remote_next_offset",
        kind=MetricKind.GAUGE,
        doc="First offset after the in-lineage remote data, -1 = none.",
        labels=PARTITION,
    ),
    MetricRow(
        name="rlm_local_log_start_offset",
        kind=MetricKind.GAUGE,
        doc="The broker's log start offset, -1 = not known.",
        labels=PARTITION,
    ),
    MetricRow(
        name="rlm_last_stable_offset_pinned_seconds",
        kind=MetricKind.GAUGE,
        doc="How long closed segments have waited for the same last stable offset: a transaction "
        "is open. No sample where nothing waits.",
        labels=PARTITION,
        of_topic="max",
    ),
    MetricRow(
        name="rlm_partition_frozen",
        kind=MetricKind.GAUGE,
        doc="1 while the partition is frozen (H4) and an operator must decide; no sample before "
        "the first snapshot of a leadership.",
        labels=PARTITION,
        of_topic="sum",
    ),
    MetricRow(
        name="rlm_partition_alarms",
        kind=MetricKind.GAUGE,
        doc="Alarms of the partition; `rlm status` has the details.",
        labels=PARTITION,
        of_topic="sum",
    ),
    MetricRow(
        name="rlm_partition_holes",
        kind=MetricKind.GAUGE,
        doc="Ranges on record whose records no tier has, above the remote log start (H15).",
        labels=PARTITION,
        of_topic="sum",
    ),
    MetricRow(
        name="rlm_partition_lost_offsets",
        kind=MetricKind.GAUGE,
        doc="Offsets in those ranges.",
        labels=PARTITION,
        of_topic="sum",
    ),
    MetricRow(
        name="rlm_partition_loss_seconds",
        kind=MetricKind.GAUGE,
        doc="Time until the broker's own retention deletes records that are not remote; no sample "
        "where that is not to come, or not known.",
        labels=PARTITION,
        of_topic="min",
    ),
)

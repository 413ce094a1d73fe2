"""Every metric of the service in one typed table; prometheus_client and the docs are built from it.

Counters and histograms follow events; gauges are read at each scrape (`gauges`). Must not know
which component counts: `ServiceMetrics` implements the proxy's `ProxyMetrics` and a few more
methods. It is built before the components that count, and they add their gauges to it.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


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


_PARTITION = ("topic", "partition")
_STORE = ("store", "store_id")
_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)

TABLE: tuple[MetricRow, ...] = (
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
        name="rlm_proxy_barrier_seconds",
        kind=MetricKind.HISTOGRAM,
        doc="Waits for the settings and ledger view before an answer about position (H17).",
        labels=("passed",),
        buckets=_SECONDS,
    ),
    MetricRow(
        name="rlm_remote_fetch_purgatory_size",
        kind=MetricKind.GAUGE,
        doc="Remote reads of fetches of Kafka clients that are not complete.",
    ),
    MetricRow(
        name="rlm_remote_fetch_wait_seconds",
        kind=MetricKind.HISTOGRAM,
        doc="Time until a remote read of a Fetch was complete: by records, because its data was "
        "deleted in order (ended), by a lasting error (failed), at the fetch's deadline (expired), "
        "or because the fetch was answered without it (abandoned).",
        labels=("outcome",),
        buckets=_SECONDS,
    ),
    MetricRow(
        name="rlm_remote_copy_bytes_total",
        kind=MetricKind.COUNTER,
        doc="Segment bytes copied to the remote store (Kafka: RemoteCopyBytesPerSec).",
        labels=("topic",),
    ),
    MetricRow(
        name="rlm_remote_copy_segments_total",
        kind=MetricKind.COUNTER,
        doc="Segments copied to the remote store.",
        labels=("topic",),
    ),
    MetricRow(
        name="rlm_remote_copy_throttled_seconds_total",
        kind=MetricKind.COUNTER,
        doc="Time for which copies waited for remote.log.manager.copy.max.bytes.per.second "
        "(Kafka: remote-copy-throttle-time).",
    ),
    MetricRow(
        name="rlm_remote_delete_bytes_total",
        kind=MetricKind.COUNTER,
        doc="Bytes of the segments that total retention has deleted from the remote store.",
        labels=("topic",),
    ),
    MetricRow(
        name="rlm_remote_delete_segments_total",
        kind=MetricKind.COUNTER,
        doc="Segments that total retention has deleted from the remote store (Kafka: "
        "RemoteDeleteRequestsPerSec).",
        labels=("topic",),
    ),
    MetricRow(
        name="rlm_task_errors_total",
        kind=MetricKind.COUNTER,
        doc="Jobs of a task that failed.",
        labels=("task",),
    ),
    MetricRow(
        name="rlm_tasks_waiting",
        kind=MetricKind.GAUGE,
        doc="Partitions, or reads, that wait for a task.",
        labels=("task",),
    ),
    MetricRow(
        name="rlm_threads_hung",
        kind=MetricKind.GAUGE,
        doc="Threads whose work on a disk or a library has not ended for threads.hang.ms.",
        labels=("pool",),
    ),
    MetricRow(
        name="rlm_tasks_running",
        kind=MetricKind.GAUGE,
        doc="Jobs of a task that run now.",
        labels=("task",),
    ),
    MetricRow(
        name="rlm_remote_copy_lag_bytes",
        kind=MetricKind.GAUGE,
        doc="Bytes of closed segments that are not remote (Kafka: RemoteCopyLagBytes); no sample "
        "for a partition whose lag is unknown.",
        labels=_PARTITION,
    ),
    MetricRow(
        name="rlm_remote_copy_lag_segments",
        kind=MetricKind.GAUGE,
        doc="Closed segments that are not remote (Kafka: RemoteCopyLagSegments); no sample for a "
        "partition whose lag is unknown.",
        labels=_PARTITION,
    ),
    MetricRow(
        name="rlm_remote_log_size_bytes",
        kind=MetricKind.GAUGE,
        doc="Bytes of finished remote segments (Kafka: RemoteLogSizeBytes).",
        labels=_PARTITION,
    ),
    MetricRow(
        name="rlm_remote_log_start_offset",
        kind=MetricKind.GAUGE,
        doc="Remote log start offset, -1 = not known.",
        labels=_PARTITION,
    ),
    MetricRow(
        name="rlm_remote_next_offset",
        kind=MetricKind.GAUGE,
        doc="First offset after the in-lineage remote data, -1 = none.",
        labels=_PARTITION,
    ),
    MetricRow(
        name="rlm_local_log_start_offset",
        kind=MetricKind.GAUGE,
        doc="The broker's log start offset, -1 = not known.",
        labels=_PARTITION,
    ),
    MetricRow(
        name="rlm_partition_frozen",
        kind=MetricKind.GAUGE,
        doc="1 while the partition is frozen (H4) and an operator must decide.",
        labels=_PARTITION,
    ),
    MetricRow(
        name="rlm_partition_alarms",
        kind=MetricKind.GAUGE,
        doc="Alarms of the partition; `rlm status` has the details.",
        labels=_PARTITION,
    ),
    MetricRow(
        name="rlm_stores_configured",
        kind=MetricKind.GAUGE,
        doc="Stores in the service's configuration; 0 = nothing is tiered.",
    ),
    MetricRow(
        name="rlm_store_available",
        kind=MetricKind.GAUGE,
        doc="1 while the store answers and is the one that its name stands for; checked every few "
        "seconds.",
        labels=_STORE,
    ),
    MetricRow(
        name="rlm_store_segments",
        kind=MetricKind.GAUGE,
        doc="Finished segments of the whole cluster in the store.",
        labels=_STORE,
    ),
    MetricRow(
        name="rlm_store_size_bytes",
        kind=MetricKind.GAUGE,
        doc="Bytes of those segments.",
        labels=_STORE,
    ),
    MetricRow(
        name="rlm_store_alarms",
        kind=MetricKind.GAUGE,
        doc="Findings about the store's set-up that endanger data; `rlm doctor --store` has the "
        "details.",
        labels=_STORE,
    ),
    MetricRow(
        name="rlm_read_chunks_total",
        kind=MetricKind.COUNTER,
        doc="Chunks that reads needed, by where they were: memory, coming (being read ahead), "
        "disk, store.",
        labels=("found",),
        is_read=True,
    ),
    MetricRow(
        name="rlm_read_store_requests_total",
        kind=MetricKind.COUNTER,
        doc="Requests of the read path to the store, by kind.",
        labels=("kind",),
        is_read=True,
    ),
    MetricRow(
        name="rlm_read_store_bytes_total",
        kind=MetricKind.COUNTER,
        doc="Log bytes that the read path requested from the store.",
        is_read=True,
    ),
    MetricRow(
        name="rlm_read_refetches_total",
        kind=MetricKind.COUNTER,
        doc="Answers of the store that were missing or damaged and were requested again (H25).",
        is_read=True,
    ),
    MetricRow(
        name="rlm_read_ahead_bytes_total",
        kind=MetricKind.COUNTER,
        doc="Bytes requested before a reader needed them.",
        is_read=True,
    ),
    MetricRow(
        name="rlm_read_ahead_wasted_bytes_total",
        kind=MetricKind.COUNTER,
        doc="Bytes read ahead that no reader used.",
        is_read=True,
    ),
    MetricRow(
        name="rlm_read_evicted_bytes_total",
        kind=MetricKind.COUNTER,
        doc="Bytes that left the chunk cache in memory.",
        is_read=True,
    ),
    MetricRow(
        name="rlm_read_memory_bytes",
        kind=MetricKind.GAUGE,
        doc="Memory of the read path, by use; their sum is bounded by fetch.chunk.cache.bytes.",
        labels=("use",),
    ),
    MetricRow(
        name="rlm_read_waiting",
        kind=MetricKind.GAUGE,
        doc="Ranges that reads need and that wait to be requested from the store.",
    ),
    MetricRow(
        name="rlm_read_running",
        kind=MetricKind.GAUGE,
        doc="Ranges that are being requested from the store.",
    ),
    MetricRow(
        name="rlm_read_readers",
        kind=MetricKind.GAUGE,
        doc="Readers of remote data that are distinguished now.",
    ),
    MetricRow(
        name="rlm_read_given_bytes_total",
        kind=MetricKind.COUNTER,
        doc="Record bytes sent to readers, by way (proxy, api) and tier (remote, local).",
        labels=("way", "tier"),
        is_read=True,
    ),
    MetricRow(
        name="rlm_read_throttled_seconds_total",
        kind=MetricKind.COUNTER,
        doc="Time that historical reads were delayed, by quota: service, client (bytes), "
        "processor.",
        labels=("quota",),
        is_read=True,
    ),
    MetricRow(
        name="rlm_read_disk_cache_bytes",
        kind=MetricKind.GAUGE,
        doc="Bytes of the disk cache.",
    ),
    MetricRow(
        name="rlm_read_disk_cache_on",
        kind=MetricKind.GAUGE,
        doc="1 while the disk cache works; 0 where it is configured and switched off.",
    ),
    MetricRow(
        name="rlm_read_disk_cache_damaged_total",
        kind=MetricKind.COUNTER,
        doc="Chunks on disk that were damaged or missing, and were read from the store instead.",
        is_read=True,
    ),
    MetricRow(
        name="rlm_read_disk_cache_dropped_writes_total",
        kind=MetricKind.COUNTER,
        doc="Chunks not written to disk because the disk was too slow.",
        is_read=True,
    ),
    MetricRow(
        name="rlm_problems",
        kind=MetricKind.GAUGE,
        doc="Present problems by kind (docs/reference/problems.md), 0 for kinds without any; "
        'alert on `severity="alarm"`. /healthz and `rlm status` have the details.',
        labels=("kind", "severity"),
    ),
)

Labelled = Mapping[tuple[str, ...], float]
GaugeSource = Callable[[], Mapping[str, Labelled]]
"""Gauges by metric name: label values -> value; called at each scrape."""


class ServiceMetrics:
    """Counts for the whole service and renders the scrape. The counting methods never raise."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for row in TABLE:
            if row.kind is MetricKind.COUNTER and row.is_counted:
                self._counters[row.name] = Counter(
                    row.name, row.doc, row.labels, registry=self._registry
                )
            elif row.kind is MetricKind.HISTOGRAM:
                self._histograms[row.name] = Histogram(
                    row.name, row.doc, row.labels, buckets=row.buckets, registry=self._registry
                )
        self._gauges = _Gauges()
        self._registry.register(self._gauges)

    def add_gauges(self, *sources: GaugeSource) -> None:
        """Reads these sources too, from the next scrape on."""
        self._gauges.sources += sources

    def render(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def connection_opened(self) -> None:
        """See `ProxyMetrics`."""
        self._counters["rlm_proxy_connections_opened_total"].inc()

    def connection_closed(self, cause: str) -> None:
        """See `ProxyMetrics`."""
        self._counters["rlm_proxy_connections_closed_total"].labels(cause).inc()

    def answered(self, api: str, outcome: str) -> None:
        """See `ProxyMetrics`."""
        self._counters["rlm_proxy_answers_total"].labels(api, outcome).inc()

    def spliced(self, size_bytes: int) -> None:
        """See `ProxyMetrics`."""
        self._counters["rlm_proxy_spliced_bytes_total"].inc(size_bytes)

    def barrier_waited(self, duration_ms: int, *, passed: bool) -> None:
        """See `ProxyMetrics`."""
        waited = self._histograms["rlm_proxy_barrier_seconds"]
        waited.labels(str(passed).lower()).observe(duration_ms / 1000)

    def remote_fetch_completed(self, outcome: str, duration_ms: int) -> None:
        """See `ProxyMetrics`."""
        waited = self._histograms["rlm_remote_fetch_wait_seconds"]
        waited.labels(outcome).observe(duration_ms / 1000)

    def segment_copied(self, topic: str, size_bytes: int) -> None:
        """One segment is remote and FINISHED."""
        self._counters["rlm_remote_copy_segments_total"].labels(topic).inc()
        self._counters["rlm_remote_copy_bytes_total"].labels(topic).inc(size_bytes)

    def copy_throttled(self, wait_ms: int) -> None:
        """A copy waits so long for the quota."""
        self._counters["rlm_remote_copy_throttled_seconds_total"].inc(wait_ms / 1000)

    def segments_deleted(self, topic: str, *, segments: int, size_bytes: int) -> None:
        """Retention has deleted segments."""
        self._counters["rlm_remote_delete_segments_total"].labels(topic).inc(segments)
        self._counters["rlm_remote_delete_bytes_total"].labels(topic).inc(size_bytes)

    def task_failed(self, pool_name: str) -> None:
        """One job of a task failed."""
        self._counters["rlm_task_errors_total"].labels(pool_name).inc()


class _Gauges:
    """A collector that reads its sources at each scrape."""

    def __init__(self) -> None:
        self.sources: tuple[GaugeSource, ...] = ()

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Labelled] = {}
        for source in self.sources:
            found |= source()
        for row in TABLE:
            if row.is_counted:
                continue
            family = _family(row)
            for labels, value in found.get(row.name, {}).items():
                family.add_metric(labels, value)
            yield family

    def describe(self) -> Iterable[Metric]:
        """The names, without reading the sources, which are added later."""
        return [_family(row) for row in TABLE if not row.is_counted]


def _family(row: MetricRow) -> GaugeMetricFamily | CounterMetricFamily:
    if row.kind is MetricKind.GAUGE:
        return GaugeMetricFamily(row.name, row.doc, labels=row.labels)
    return CounterMetricFamily(row.name, row.doc, labels=row.labels)


def generate_docs() -> str:
    """The whole text of docs/reference/metrics.md."""
    head = (
        "# Metrics of `rlm serve`\n\nThe service serves them as `/metrics` at `http.listen`. "
        "Made from `rlm/service/metrics.py`; edit there.\n\n"
        "| name | kind | labels | meaning |\n|---|---|---|---|\n"
    )
    rows = (
        f"| `{row.name}` | {row.kind.value} | {', '.join(row.labels) or '-'} | {row.doc} |\n"
        for row in TABLE
    )
    return head + "".join(rows)

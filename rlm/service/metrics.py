"""Every metric of the service in one typed table; prometheus_client and the docs are built from it.

Counters and histograms follow events; gauges are read at each scrape (`gauges`). Must not know
which component counts: `ServiceMetrics` implements the proxy's `ProxyMetrics` and a few more
methods. It is built before the components that count, and they add their gauges to it.
"""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from rlm.service.metric_rows import (
    COPY_ROWS,
    DISK_ROWS,
    PROCESS_ROWS,
    PROXY_ROWS,
    SAFETY_ROWS,
    SECONDS,
    MetricKind,
    MetricRow,
)
from rlm.service.partition_rows import PARTITION_ROWS

_STORE = ("store", "store_id")

TABLE: tuple[MetricRow, ...] = (
    *PROXY_ROWS,
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
        buckets=SECONDS,
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
    *PROCESS_ROWS,
    *COPY_ROWS,
    MetricRow(
        name="rlm_threads_hung",
        kind=MetricKind.GAUGE,
        doc="Threads whose work on a disk or a library has not ended for threads.hang.ms.",
        labels=("pool",),
    ),
    MetricRow(
        name="rlm_tasks_slots",
        kind=MetricKind.GAUGE,
        doc="Jobs of a task that may run at a time.",
        labels=("task",),
    ),
    MetricRow(
        name="rlm_tasks_running",
        kind=MetricKind.GAUGE,
        doc="Jobs of a task that run now.",
        labels=("task",),
    ),
    MetricRow(
        name="rlm_segments_held_open",
        kind=MetricKind.GAUGE,
        doc="Uncopied segments whose files are open, because somebody bounded the retention of "
        "their topic (H14). The disk space of those that the broker has deleted stays used.",
    ),
    MetricRow(
        name="rlm_segments_not_held_open",
        kind=MetricKind.GAUGE,
        doc="Uncopied segments of such topics that are not open, because too many are: a sixteenth "
        "of the limit of open files, at most 2000.",
    ),
    *PARTITION_ROWS,
    *DISK_ROWS,
    *SAFETY_ROWS,
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
        name="rlm_read_hedges_total",
        kind=MetricKind.COUNTER,
        doc="Reads that a store was asked for twice because the first request was late, by whose "
        "answer came first: first (or neither's), second.",
        labels=("won",),
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
        doc="Time that historical reads were delayed, by quota: service, client, principal "
        "(bytes), processor.",
        labels=("quota",),
        is_read=True,
    ),
    MetricRow(
        name="rlm_remote_index_reads_total",
        kind=MetricKind.COUNTER,
        doc="Segments whose indexes were searched for in the remote index files: found or absent, "
        "and then read from the store.",
        labels=("result",),
        is_read=True,
    ),
    MetricRow(
        name="rlm_remote_index_segments",
        kind=MetricKind.GAUGE,
        doc="Segments in the remote index files.",
    ),
    MetricRow(
        name="rlm_remote_index_bytes",
        kind=MetricKind.GAUGE,
        doc="Bytes of the remote index files.",
    ),
    MetricRow(
        name="rlm_remote_index_damaged_total",
        kind=MetricKind.COUNTER,
        doc="Times that a part of the remote index files was damaged or wrong, and was dropped.",
        is_read=True,
    ),
    MetricRow(
        name="rlm_remote_index_not_kept_total",
        kind=MetricKind.COUNTER,
        doc="Changes that the remote index files did not take: no room, or the disk failed.",
        labels=("reason",),
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
GaugeSource = Callable[[], Mapping[str, Labelled | str]]
"""Gauges by metric name: label values -> value, or the lines of all samples as `sample_line` writes
them; called at each scrape.
"""


class ServiceMetrics:
    """Counts for the whole service and renders the scrape. The counting methods never raise."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        # Of what is counted for each fetch: the library looks labels up under a lock.
        self._answers: dict[tuple[str, str], Counter] = {}
        self._fetch_waits: dict[str, Histogram] = {}
        for row in TABLE:
            if row.kind is MetricKind.COUNTER and row.is_counted:
                self._counters[row.name] = Counter(
                    row.name, row.doc, row.labels, registry=self._registry
                )
            elif row.kind is MetricKind.HISTOGRAM:
                self._histograms[row.name] = Histogram(
                    row.name, row.doc, row.labels, buckets=row.buckets, registry=self._registry
                )
        # Prometheus sees no increase of a series that begins with its first event.
        failed = self._histograms["rlm_remote_fetch_wait_seconds"].labels("failed")
        self._fetch_waits["failed"] = failed
        self._sources: tuple[GaugeSource, ...] = ()

    def add_gauges(self, *sources: GaugeSource) -> None:
        """Reads these sources too, from the next scrape on."""
        self._sources += sources

    def render(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry) + _read_now(self._sources).encode()

    def connection_opened(self) -> None:
        """See `ProxyMetrics`."""
        self.connections_opened(1)

    def connections_opened(self, count: int) -> None:
        """So many clients connected to a worker."""
        self._counters["rlm_proxy_connections_opened_total"].inc(count)

    def connection_closed(self, cause: str) -> None:
        """See `ProxyMetrics`."""
        self.connections_closed(cause, 1)

    def connections_closed(self, cause: str, count: int) -> None:
        """So many connections of a worker ended for this cause."""
        self._counters["rlm_proxy_connections_closed_total"].labels(cause).inc(count)

    def answered(self, api: str, outcome: str) -> None:
        """See `ProxyMetrics`."""
        self.answers(api, outcome, 1)

    def answers(self, api: str, outcome: str, count: int) -> None:
        """So many answers of a worker."""
        counter = self._answers.get((api, outcome))
        if counter is None:
            counter = self._counters["rlm_proxy_answers_total"].labels(api, outcome)
            self._answers[api, outcome] = counter
        counter.inc(count)

    def spliced(self, size_bytes: int) -> None:
        """See `ProxyMetrics`."""
        self._counters["rlm_proxy_spliced_bytes_total"].inc(size_bytes)

    def remote_reader_entered(self, kind: str) -> None:
        """A group, or a client without one, got remote data for the first time."""
        self._counters["rlm_proxy_remote_readers_total"].labels(kind).inc()

    def barrier_waited(self, duration_ms: int, *, passed: bool) -> None:
        """See `ProxyMetrics`."""
        waited = self._histograms["rlm_proxy_barrier_seconds"]
        waited.labels(str(passed).lower()).observe(duration_ms / 1000)

    def remote_fetch_completed(self, outcome: str, duration_ms: int) -> None:
        """See `ProxyMetrics`."""
        waited = self._fetch_waits.get(outcome)
        if waited is None:
            waited = self._histograms["rlm_remote_fetch_wait_seconds"].labels(outcome)
            self._fetch_waits[outcome] = waited
        waited.observe(duration_ms / 1000)

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

    def copy_attempt_ended(self, topic: str, *, failed: bool) -> None:
        """One attempt to copy a segment has ended."""
        self._counters["rlm_remote_copy_requests_total"].labels(topic).inc()
        self._counters["rlm_remote_copy_errors_total"].labels(topic).inc(failed)

    def deletion_failed(self, topic: str) -> None:
        """A run of total retention could not delete a segment."""
        self._counters["rlm_remote_delete_errors_total"].labels(topic).inc()

    def task_failed(self, pool_name: str) -> None:
        """One job of a task failed."""
        self._counters["rlm_task_errors_total"].labels(pool_name).inc()


def _read_now(sources: Iterable[GaugeSource]) -> str:
    """What is read at a scrape, in Prometheus' text format: for tens of thousands of samples its
    library would take most of a second.
    """
    found: dict[str, Labelled | str] = {}
    for source in sources:
        found |= source()
    lines = []
    for row in TABLE:
        if row.is_counted:
            continue
        lines.append(f"# HELP {row.name} {_escaped(row.doc)}\n# TYPE {row.name} {row.kind.value}\n")
        samples = found.get(row.name, "")
        if isinstance(samples, str):
            lines.append(samples)
            continue
        lines += (
            sample_line(row.name, labels_text(row.labels, values), number)
            for values, number in samples.items()
        )
    return "".join(lines)


def sample_line(name: str, labels: str, number: float) -> str:
    """One sample in Prometheus' text format; `labels` as of `labels_text`."""
    return f"{name}{labels} {float(number)!r}\n"


def labels_text(names: Iterable[str], values: Iterable[str]) -> str:
    """Labels of a sample in Prometheus' text format."""
    pairs = sorted(zip(names, values, strict=True))
    quoted = ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in pairs)
    return f"{{{quoted}}}" if quoted else ""


def _escaped(text: str, *, quotes: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped

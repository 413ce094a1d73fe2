"""`audit`: reads and checks every byte of every remote segment on a Spark cluster.

Segments and objects come through the fetch API, so that readers and quotas apply and no worker
needs the credentials of a store. This module must not know what is checked: see `segment_audit` and
`findings`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from kip405.errors import ErrorKind
from kip405.ids import Uuid
from kip405.segment_check import FlawKind
from rlm.v1 import fetch_pb2 as pb
from rlm_spark.pipelines.findings import (
    AuditedSegment,
    Finding,
    audit_history,
    segment_of,
)
from rlm_spark.pipelines.segment_audit import BadObject, SegmentAudit
from rlm_spark.pipelines.segments_client import RANGE_BYTES, SegmentsClient, leased_client
from rlm_spark.pipelines.spark_jobs import Done, run_job
from rlm_spark.plan.connection_options import connector_options
from rlm_spark.plan.option_map import OptionMap
from rlm_spark.source.driver import read_text, user
from tiered_reads import clock
from tiered_reads.errors import ConnectorError, ServiceError
from tiered_reads.stopping import Stop
from tiered_reads.values import ServiceConnection, TopicPartition

_PATIENCE_MS = 120_000
_FINDINGS = {
    ErrorKind.NOT_FOUND.name: FlawKind.MISSING,
    ErrorKind.CORRUPT.name: FlawKind.CHECKSUM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAudit:
    """The result of one topic; `overlapping_offsets`, `outside`, `below_start` as in History."""

    topic: str
    topic_id: str
    partitions: int
    segments: int
    size_bytes: int
    records: int
    overlapping_offsets: int
    outside: int
    below_start: int
    findings: tuple[Finding, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {**values, "findings": [finding.as_json() for finding in self.findings]}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The result of all topics."""

    topics: tuple[TopicAudit, ...]
    duration_ms: int

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for topic in self.topics for finding in topic.findings)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "topics": [topic.as_json() for topic in self.topics],
            "findings": len(self.findings),
            "duration_ms": self.duration_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOutcome:
    """The outcome of one segment."""

    rows: int
    size_bytes: int
    weight: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditWork:
    """One segment (a serialized row of ListSegments) in a worker."""

    connection: ServiceConnection

    def __call__(self, row: bytes) -> SegmentOutcome:
        segment = pb.Segment.FromString(row)
        with leased_client(self.connection, _PATIENCE_MS) as client:
            done = SegmentAudit(segment=segment_of(segment)).run(_Objects(client, segment))
        return SegmentOutcome(
            rows=done.records,
            size_bytes=done.size_bytes,
            weight=max(segment.size_bytes, 1),
            findings=tuple(done.findings),
        )


class _Objects:
    """One segment's objects through the fetch API (segment_audit.Objects)."""

    def __init__(self, client: SegmentsClient, segment: pb.Segment) -> None:
        self._client = client
        self._segment = segment
        self._stop = Stop()

    def indexes(self) -> bytes:
        try:
            return self._client.indexes(self._segment, self._stop)
        except ServiceError as error:
            raise _bad(error) from error

    def log(self) -> Iterator[bytes]:
        position, size = 0, self._segment.size_bytes
        while position < size:
            end = position + RANGE_BYTES
            wanted = (position, end if end < size else size + 1)  # one more, if there is one
            try:
                data = self._client.log(self._segment, wanted, self._stop)
            except ServiceError as error:
                raise _bad(error) from error
            yield data
            position += len(data)
            if len(data) < wanted[1] - wanted[0]:
                return


def _bad(error: ServiceError) -> BadObject:
    """The damage that the error reports; an error of the service itself is raised again."""
    kind = _FINDINGS.get(error.kind)
    if kind is None:
        raise error
    return BadObject(kind, error.reason)


def audit(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    topics: Sequence[str] | None = None,
    show: Callable[[Sequence[pb.Segment], Done], None] | None = None,
    stop: threading.Event | None = None,
) -> AuditReport:
    """Read and check all FINISHED remote segments of the topics (None: of every enabled one).

    `options`: rlm.endpoints and the other options of the connection. Segments that retention
    deletes meanwhile are not findings. ConnectorError: the audit itself failed; JobStopped.
    """
    given = OptionMap({"readMode": "remote_only", **options})
    connection = connector_options(given, user=user(), read_text=read_text).service
    if connection is None:
        raise ConnectorError("an audit needs rlm.endpoints: the fetch API")
    begun_ms = clock.monotonic_ms()
    with leased_client(connection, _PATIENCE_MS) as client:
        found = _topics(client, topics)
        listed = {topic.topic: client.finished_segments(topic.topic, Stop()) for topic in found}
        rows = [row for topic in found for row in listed[topic.topic]]
        outcomes = run_job(
            spark,
            AuditWork(connection=connection),
            [row.SerializeToString() for row in rows],
            name="kafka-rlm audit",
            show=lambda now: None if show is None else show(rows, now),
            stop=stop or threading.Event(),
        )
        by_id = {row.segment_id: outcome for row, outcome in zip(rows, outcomes, strict=True)}
        if any(outcome.findings for outcome in outcomes):
            for topic in found:
                still = {row.segment_id for row in client.finished_segments(topic.topic, Stop())}
                listed[topic.topic] = tuple(
                    row for row in listed[topic.topic] if row.segment_id in still
                )
        audits = tuple(_topic(topic, listed[topic.topic], by_id) for topic in found)
    return AuditReport(topics=audits, duration_ms=clock.monotonic_ms() - begun_ms)


def _topics(client: SegmentsClient, names: Sequence[str] | None) -> Sequence[pb.TieredTopic]:
    found = client.describe_topics(tuple(names or ()), TopicPartition("", 0), Stop())
    missing = sorted(set(names or ()) - {topic.topic for topic in found})
    if missing:
        raise ConnectorError(f"not enabled for tiering: {', '.join(missing)}")
    return sorted(found, key=lambda topic: topic.topic)


def _topic(
    topic: pb.TieredTopic, rows: Sequence[pb.Segment], by_id: Mapping[bytes, SegmentOutcome]
) -> TopicAudit:
    outcomes = [by_id[row.segment_id] for row in rows]
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    histories = []
    for partition in topic.partitions:
        segments: list[AuditedSegment] = [
            segment_of(row) for row in rows if row.partition == partition.partition
        ]
        topic_partition = TopicPartition(topic.topic, partition.partition)
        history = audit_history(topic_partition, segments, partition.remote_log_start_offset)
        histories.append(history)
        findings += history.findings
    return TopicAudit(
        topic=topic.topic,
        topic_id=str(Uuid(topic.topic_id)),
        partitions=len(topic.partitions),
        segments=len(rows),
        size_bytes=sum(outcome.size_bytes for outcome in outcomes),
        records=sum(outcome.rows for outcome in outcomes),
        overlapping_offsets=sum(history.overlapping_offsets for history in histories),
        outside=sum(history.outside for history in histories),
        below_start=sum(history.below_start for history in histories),
        findings=tuple(findings),
    )

"""`export` and `audit` as commands, shared by `rlm` and `python -m rlm_spark.pipelines`.

They find or start a Spark session, print progress on standard error and the result on standard
output, and return an exit status.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from rlm_spark.pipelines import arguments
from rlm_spark.pipelines.auditing import AuditReport, audit
from rlm_spark.pipelines.exporting import ExportReport, export
from rlm_spark.pipelines.spark_jobs import (
    Done,
    JobStopped,
    Shown,
    human_bytes,
    human_seconds,
    interrupts,
)

EXIT_FAILED = 1
_ATTEMPTS = 4  # of a task, on this machine's cores as on a cluster
_SHOWN_PROBLEMS = 20


def run_export(
    topics: Sequence[str], values: Mapping[str, Any], connection: Mapping[str, str], as_json: bool
) -> int:
    """The exit status: 0 all done, 1 chunks are left, 128 + signal stopped. ConnectorError."""
    options = arguments.export_options(topics, values, connection)
    size = arguments.chunk_size(values)
    with _spark("kafka-rlm export", values) as spark, interrupts() as signals:
        shown = _Progress("export", "chunks")
        report = export(
            spark,
            options,
            to=values["dir"],
            partition_by=values["by"],
            compression=values["compression"],
            size=size,
            show=lambda chunks, now: shown.show(len(chunks), sum(c.size for c in chunks), now),
            stop=signals.stop,
        )
        shown.end()
    if as_json:
        _say(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        _say(_export_text(report))
    if report.is_stopped:
        return signals.status
    return EXIT_FAILED if report.left else 0


def run_audit(
    topics: Sequence[str], values: Mapping[str, Any], connection: Mapping[str, str], as_json: bool
) -> int:
    """The exit status: 0 nothing is wrong, 1 findings, 128 + signal stopped. ConnectorError."""
    with _spark("kafka-rlm audit", values) as spark, interrupts() as signals:
        shown = _Progress("audit", "segments")
        try:
            report = audit(
                spark,
                connection,
                topics=topics or None,
                show=lambda rows, now: shown.show(len(rows), sum(r.size_bytes for r in rows), now),
                stop=signals.stop,
            )
        except JobStopped:
            return signals.status
        finally:
            shown.end()
    if as_json:
        _say(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        _say(_audit_text(report))
    return EXIT_FAILED if report.findings else 0


@contextmanager
def _spark(app: str, values: Mapping[str, Any]) -> Iterator[SparkSession]:
    """The running session, the one of spark-submit or --master, or a local one of this process."""
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    master = values["master"]
    if master or "PYSPARK_GATEWAY_PORT" in os.environ:
        builder = SparkSession.builder.appName(app).config("spark.ui.showConsoleProgress", "false")
        spark = (builder.master(master) if master else builder).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
        return
    from rlm_spark import local_spark

    cores = values["cores"]
    conf = {"spark.master": f"local[{cores},{_ATTEMPTS}]"}
    spark = local_spark.session(app, cores=cores, conf=conf)
    try:
        yield spark
    finally:
        local_spark.stop(spark)


class _Progress:
    """Shows progress from the moment at which the total is known."""

    def __init__(self, name: str, unit: str) -> None:
        self._name = name
        self._unit = unit
        self._shown: Shown | None = None
        self._last = Done()

    def show(self, items: int, weight: int, now: Done) -> None:
        if self._shown is None:
            self._shown = Shown(
                sys.stderr,
                name=self._name,
                unit=self._unit,
                total_items=items,
                total_weight=weight,
            )
        self._last = now
        self._shown.show(now)

    def end(self) -> None:
        if self._shown is not None:
            self._shown.end(self._last)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _export_text(report: ExportReport) -> str:
    if not report.chunks:
        return f"{report.directory}: nothing new"
    lines = [
        f"{report.directory}: {report.rows} rows in {report.files} files, "
        f"{human_bytes(report.size_bytes)}, {len(report.commits)} of {len(report.chunks)} chunks "
        f"in {human_seconds(report.duration_ms / 1000)}"
    ]
    lines += [f"lost: {text}" for text in report.lost]
    lines += _some([f"problem: {text}" for text in report.problems])
    if report.left:
        lines.append(f"{report.left} chunks are left: run the same command again")
    return "\n".join(lines)


def _audit_text(report: AuditReport) -> str:
    rows: list[tuple[str, ...]] = [
        ("topic", "partitions", "segments", "size", "records", "findings")
    ]
    rows += [
        (
            topic.topic,
            str(topic.partitions),
            str(topic.segments),
            human_bytes(topic.size_bytes),
            str(topic.records),
            str(len(topic.findings)),
        )
        for topic in report.topics
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += [
        f"{one.topic}-{one.partition} {one.kind.value}: "
        f"{f'{one.object_name}: ' if one.object_name else ''}{one.detail}"
        for one in report.findings
    ]
    return "\n".join(lines)


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN_PROBLEMS
    return lines if more <= 0 else [*lines[:_SHOWN_PROBLEMS], f"... and {more} more"]

"""The steps of `make demo-spark` on the prepared topic: the same records, read by Spark.

As a DataFrame, as a stream and as Parquet files that an export writes. Contents are digested by
workers and compared with what was acknowledged. Each step shows its progress and its result in one
line; DemoError where a promise is not kept.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from rlm_sandbox.demo.comparison import Comparison, Yardstick
from rlm_sandbox.demo.content import content_digest
from rlm_sandbox.demo.report import DemoError, Step, mib
from rlm_sandbox.demo.run import TOPIC, DemoRun
from rlm_spark import local_spark
from rlm_spark.pipelines import export
from tiered_reads import fetch_client, kafka_client
from tiered_reads.errors import ConnectorError

_WANTED = ("partition", "offset", "unix_millis(timestamp) AS ms", "key", "value", "headers")
_Digested = tuple[int, int, int, bytes]
"""Partition, offset, timestamp in ms, digest of key, value and headers."""


def compare(frame: DataFrame, yardstick: Yardstick) -> Comparison:
    """Every record of the frame; a DataFrame promises no order, so that none is asked of it."""
    comparison = Comparison(yardstick.expected)
    digested: list[_Digested] = frame.selectExpr(*_WANTED).rdd.mapPartitions(_digest).collect()
    for partition, offset, timestamp_ms, digest in sorted(digested):
        index = comparison.match(partition, offset, timestamp_ms)
        if index is not None and digest != yardstick.expected[partition].digests[index]:
            comparison.altered(partition, offset, "key, value or headers")
    comparison.finish()
    return comparison


def _digest(rows: Iterable[Row]) -> Iterator[_Digested]:
    for partition, offset, timestamp_ms, key, value, headers in rows:
        given = tuple((name, _bytes(content)) for name, content in headers or ())
        yield partition, offset, timestamp_ms, content_digest(_bytes(key), _bytes(value), given)


def _bytes(field: bytearray | None) -> bytes | None:
    return None if field is None else bytes(field)


_FORMAT = "kafka_tiered"
_BATCHES = 4
_STREAM_LIMIT_S = 600
_POLL_S = 1
_COMMITTED = {"kafka.isolation.level": "read_committed"}


@dataclass(slots=True, kw_only=True)
class SparkSteps:
    """All steps against a running sandbox."""

    demo: DemoRun
    verdict: str = "all records came out of Spark as they went into Kafka, none missing, none twice"

    def run(self) -> None:
        """All steps; DemoError at the first that fails, reads excepted: all are done first."""
        manifest, content = self.demo.prepare()
        committed = Yardstick(expected=manifest.expected(committed_only=True), content=content)
        everything = Yardstick(expected=manifest.expected(committed_only=False), content=content)
        with self.demo.report.step("start Spark in this process") as step:
            spark = local_spark.session("demo")
            java = (
                "the Java of JAVA_HOME" if "JAVA_HOME" in os.environ else "the package's own Java"
            )
            step.result = f"Spark {spark.version} on {java}"
        try:
            self._read_kafka_alone(spark, committed)
            self._read(spark, committed)
            self._read_uncommitted(spark, everything)
            self._stream(spark, committed)
            self._export(spark, committed)
        except (PySparkException, ConnectorError) as error:
            raise DemoError(f"Spark: {str(error)[:2000]}") from error
        finally:
            local_spark.stop(spark)
            for shared in (fetch_client.SHARED, kafka_client.SHARED):
                shared.close_idle()  # or they would miss what is now taken down
        self.demo.finish()

    def _read_kafka_alone(self, spark: SparkSession, yardstick: Yardstick) -> None:
        with self.demo.report.step("count what Kafka alone still has") as step:
            count = self._frame(spark, {"readMode": "kafka_only"}).count()
            if not 0 < count < yardstick.records:
                raise DemoError(f"Kafka alone gave {count} of {yardstick.records} records")
            step.result = f"{count} of {yardstick.records} records"

    def _read(self, spark: SparkSession, yardstick: Yardstick) -> None:
        with self.demo.report.step("read history as a DataFrame") as step:
            options = {**self._options(), **_COMMITTED}
            code = [f'spark.read.format("{_FORMAT}")']
            code += [f'    .option("{name}", "{value}")' for name, value in options.items()]
            self.demo.report.listing("in Python:", [*code, "    .load()"])
            self._compare(step, self._frame(spark, _COMMITTED), yardstick)

    def _read_uncommitted(self, spark: SparkSession, yardstick: Yardstick) -> None:
        with self.demo.report.step("read it all, read_uncommitted") as step:
            self._compare(step, self._frame(spark, {}), yardstick)
            step.result += ", aborted ones too"

    def _stream(self, spark: SparkSession, yardstick: Yardstick) -> None:
        with self.demo.report.step("stream it into files, Trigger.AvailableNow") as step:
            folder = self._folder("stream")
            limit = str(max(1, yardstick.records // _BATCHES))
            options = {
                **self._options(),
                **_COMMITTED,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": limit,
            }
            query = (
                spark.readStream.format(_FORMAT)
                .options(**options)
                .load()
                .writeStream.format("parquet")
                .option("path", str(folder / "files"))
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            for _ in range(_STREAM_LIMIT_S):
                if query.awaitTermination(_POLL_S):
                    break
                step.show(f"{len(query.recentProgress)} batches of at most {limit} offsets")
            else:
                query.stop()
                raise DemoError(f"the stream did not end within {_STREAM_LIMIT_S} s")
            batches = sum(1 for one in query.recentProgress if one.numInputRows)
            self._compare(step, spark.read.parquet(str(folder / "files")), yardstick)
            step.result += f", {batches} batches"

    def _export(self, spark: SparkSession, yardstick: Yardstick) -> None:
        with self.demo.report.step("export to Parquet, twice") as step:
            folder = self._folder("export")
            options = {**self._options(), **_COMMITTED}
            first = export(spark, options, to=str(folder))
            again = export(spark, options, to=str(folder))
            if again.rows:
                raise DemoError(f"the second export wrote {again.rows} rows again")
            self._compare(step, spark.read.parquet(str(folder)), yardstick)
            step.result += f", {first.files} files, {mib(first.size_bytes)}; the second time none"

    def _frame(self, spark: SparkSession, more: Mapping[str, str]) -> DataFrame:
        return spark.read.format(_FORMAT).options(**self._options(), **more).load()

    def _options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.demo.address("direct"),
            "rlm.endpoints": self.demo.address("grpc"),
            "subscribe": TOPIC,
            "includeHeaders": "true",
        }

    def _compare(self, step: Step, frame: DataFrame, yardstick: Yardstick) -> None:
        step.show(f"comparing with {yardstick.records} records")
        self.demo.record(step, compare(frame, yardstick))

    def _folder(self, name: str) -> Path:
        return self.demo.sandbox.layout.root / "spark" / name

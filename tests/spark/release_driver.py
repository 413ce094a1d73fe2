"""Every way to the rows that a release of Spark has, tried by it: see releases.py.

`python -m tests.spark.release_driver FOLDER`: reads the question there, leaves the answers there.
"""

import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import rlm_spark
from rlm_spark import local_spark
from rlm_spark.pipelines import audit, export
from tests.spark.lab import COMMITTED, TIERED, Seen, seen, start_available
from tests.spark.releases import Answers, Question
from tiered_reads.errors import ConnectorError

_STREAM_LIMIT_S = 300
_AWAY_FROM_UTC = "Asia/Tokyo"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def answers(spark: SparkSession, question: Question, folder: Path) -> Answers:
    """All of them, one after the other."""
    rows = _Rows(spark, question)
    values = rows.planned("value binary")
    between = {
        "startingTimestamp": f"{question.from_ms}",
        "endingTimestamp": f"{question.until_ms}",
    }
    options = {**rows.options, "kafka.isolation.level": "read_uncommitted"}
    audited = audit(spark, question.connection, topics=[question.topic])
    return Answers(
        spark_version=pyspark.__version__,
        java_version=_java_version(spark),
        all_of_it={mode: seen(rows.whole(readMode=mode)) for mode in question.modes},
        committed={mode: seen(rows.whole(readMode=mode, **COMMITTED)) for mode in question.modes},
        value_columns=values.columns,
        value_digests=[row.digest for row in values.selectExpr("md5(value) digest").collect()],
        microseconds=_microseconds(spark, rows),
        between=seen(rows.whole(**between)),
        exported_rows=[export(spark, options, to=str(folder / "exported")).rows for _ in range(2)],
        audited=(sum(topic.records for topic in audited.topics), len(audited.findings)),
        registered=_error_of(lambda: rlm_spark.register(spark)) or "",
        by_format=_seen_or_error(lambda: rows.by_format(COMMITTED)),
        streamed=_seen_or_error(lambda: _streamed(spark, rows, folder)),
        pushed=_seen_or_error(lambda: _pushed(spark, rows, question.below_offset)),
    )


class _Rows:
    """The topic as one session gives it."""

    def __init__(self, spark: SparkSession, question: Question) -> None:
        self._spark = spark
        self._topic = {**question.connection, "subscribe": question.topic}
        self.options = {**self._topic, "includeHeaders": "true"}

    def planned(self, schema: str | None = None) -> DataFrame:
        return rlm_spark.read(self._spark, schema=schema, minPartitions=5, **self._topic)

    def whole(self, **options: str) -> DataFrame:
        return rlm_spark.read(self._spark, **{**self.options, **options})

    def by_format(self, options: dict[str, str]) -> DataFrame:
        return self._spark.read.format(TIERED).options(**self.options, **options).load()

    def stream(self) -> DataFrame:
        reader = self._spark.readStream.format(TIERED).options(**self.options, **COMMITTED)
        return reader.option("startingOffsets", "earliest").load()


def _java_version(spark: SparkSession) -> str:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return str(jvm.java.lang.System.getProperty("java.version"))


def _microseconds(spark: SparkSession, rows: _Rows) -> list[tuple[int, int, int]]:
    """In a session far from UTC."""
    spark.conf.set("spark.sql.session.timeZone", _AWAY_FROM_UTC)
    try:
        frame = rows.planned().selectExpr("partition", "offset", "unix_micros(timestamp) micros")
        return sorted((row.partition, row.offset, row.micros) for row in frame.collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def _streamed(spark: SparkSession, rows: _Rows, folder: Path) -> DataFrame:
    query = start_available(rows.stream(), folder)
    try:
        assert query.awaitTermination(_STREAM_LIMIT_S), "the stream did not end"
    finally:
        query.stop()
    return spark.read.parquet(str(folder / "out"))


def _pushed(spark: SparkSession, rows: _Rows, below_offset: int) -> DataFrame:
    spark.conf.set(_PUSHDOWN, "true")
    return rows.by_format({"pushdown": "true"}).filter(f"offset < {below_offset}")


def _seen_or_error(frame: Callable[[], DataFrame]) -> list[Seen] | str:
    found: list[Seen] = []
    return _error_of(lambda: found.extend(seen(frame()))) or found


def _error_of(action: Callable[[], None]) -> str | None:
    """How it fails; None where it does not."""
    try:
        action()
    except (PySparkException, Py4JJavaError, ConnectorError) as error:
        return str(error)
    return None


def main(folder: Path) -> None:
    spark = local_spark.session("release", jvm=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))
    try:
        question = pickle.loads((folder / "question").read_bytes())
        found = answers(spark, question, folder)
        (folder / "answers").write_bytes(pickle.dumps(found))
    finally:
        local_spark.stop(spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What tests of the connector say of a Spark, a cluster and their topics."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from tests.scenarios.cluster import Cluster, Row

TIERED = "kafka_tiered"
SPARKS_OWN = "kafka"
COMMITTED = {"kafka.isolation.level": "read_committed"}
_STREAM_LIMIT_S = 200
_DIGESTED = (
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "md5(value) as digest",
    "headers",
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One record as a DataFrame shows it; the value as its MD5."""

    partition: int
    offset: int
    timestamp: datetime
    timestamp_type: int
    key: bytes | None
    digest: str | None
    headers: tuple[tuple[str, bytes | None], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A Spark beside a cluster. `source`: the format that is under test. `security`: the options by
    which queries are somebody.
    """

    spark: SparkSession
    cluster: Cluster
    source: str = TIERED
    security: Mapping[str, str] = field(default_factory=dict)

    def connection(self) -> dict[str, str]:
        """Options that lead to the cluster: Kafka itself, not its proxy, and the fetch API."""
        if self.source != TIERED:
            return {"kafka.bootstrap.servers": self.cluster.direct}
        return {**connection(self.cluster), **self.security}

    @property
    def endpoint(self) -> str:
        return _endpoint(self.cluster)

    def bare(self, options: Mapping[str, str]) -> DataFrame:
        """A batch with these options alone."""
        return _loaded(self.spark.read.format(self.source), options)

    def read(self, topic: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """A batch that subscribes to one topic."""
        return self.bare({**self.connection(), "subscribe": topic, **(options or {})})

    def values(self, topic: str, options: Mapping[str, str] | None = None) -> DataFrame:
        return self.read(topic, options).selectExpr("CAST(value AS STRING)")

    def stream(self, topic: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """A stream from the earliest offset on unless the options say otherwise."""
        given = {**self.connection(), "subscribe": topic, "startingOffsets": "earliest"}
        return _loaded(self.spark.readStream.format(self.source), {**given, **(options or {})})

    def run_available(self, frame: DataFrame, folder: Path) -> StreamingQuery:
        """Append what is there now to Parquet in the folder, whose checkpoint says from where."""
        query = start_available(frame, folder)
        try:
            assert query.awaitTermination(_STREAM_LIMIT_S), "the stream did not end"
        finally:
            query.stop()
        return query

    def written(self, folder: Path) -> DataFrame:
        return self.spark.read.parquet(str(folder / "out"))


def connection(cluster: Cluster) -> dict[str, str]:
    """Options that lead to Kafka itself, not its proxy, and to the fetch API."""
    return {"kafka.bootstrap.servers": cluster.direct, "rlm.endpoints": _endpoint(cluster)}


def _endpoint(cluster: Cluster) -> str:
    return str(cluster.sandbox.json["brokers"][0]["grpc"])


def start_available(frame: DataFrame, folder: Path) -> StreamingQuery:
    return (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def _loaded(reader: DataFrameReader | DataStreamReader, options: Mapping[str, str]) -> DataFrame:
    for name, value in options.items():
        reader = reader.option(name, value)
    loaded: DataFrame = reader.load()
    return loaded


def digested(frame: DataFrame) -> DataFrame:
    """All columns, the value as its MD5, so that little is brought to the driver."""
    wanted = _DIGESTED if "headers" in frame.columns else (*_DIGESTED[:-1], "null as headers")
    return frame.selectExpr(*wanted)


def seen(frame: DataFrame) -> list[Seen]:
    """The rows of a frame, in the order of the log."""
    rows = [
        Seen(
            row.partition,
            row.offset,
            row.timestamp.replace(tzinfo=UTC),
            row.timestampType,
            None if row.key is None else bytes(row.key),
            row.digest,
            _headers(row.headers),
        )
        for row in digested(frame).collect()
    ]
    return in_order(rows)


def _headers(given: list[Any] | None) -> tuple[tuple[str, bytes | None], ...] | None:
    if given is None:
        return None
    return tuple((one.key, None if one.value is None else bytes(one.value)) for one in given)


def expected(rows: Iterable[Row], *, headers: bool = True) -> list[Seen]:
    """What a DataFrame must show of what a plain consumer read."""
    found = [
        Seen(
            row.partition,
            row.offset,
            datetime.fromtimestamp(row.timestamp_ms // 1000, UTC).replace(
                microsecond=row.timestamp_ms % 1000 * 1000
            ),
            0,
            row.key,
            None if row.value is None else hashlib.md5(row.value).hexdigest(),
            (row.headers or None) if headers else None,
        )
        for row in rows
    ]
    return in_order(found)


def in_order(rows: list[Seen]) -> list[Seen]:
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def assert_equal(found: list[Seen], wanted: list[Seen]) -> None:
    """Every record once, none more, with all that it has."""
    offsets = [(row.partition, row.offset) for row in found]
    twice = [offset for offset, count in sorted(Counter(offsets).items()) if count > 1]
    assert not twice, f"{len(twice)} offsets twice, the first {twice[:3]}"
    missing = sorted({(row.partition, row.offset) for row in wanted} - set(offsets))
    assert not missing, f"{len(missing)} of {len(wanted)} records missing, the first {missing[:3]}"
    foreign = sorted(set(offsets) - {(row.partition, row.offset) for row in wanted})
    assert not foreign, f"{len(foreign)} records too many, the first {foreign[:3]}"
    differing = [pair for pair in zip(found, wanted, strict=True) if pair[0] != pair[1]]
    assert not differing, f"{len(differing)} records differ, the first: {differing[0]}"


def texts(frame: DataFrame) -> list[int]:
    """The values of a frame of numbers as text, sorted."""
    return sorted(int(row.value) for row in frame.collect())


def failure(query: Callable[[], DataFrame]) -> str:
    """The words with which a query fails, lower case, be it when it is made or when it is run."""
    try:
        query().collect()
    except (PySparkException, Py4JJavaError) as error:
        return str(error).lower()
    raise AssertionError("the query did not fail")

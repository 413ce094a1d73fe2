"""The queries that are timed, each by every variant; what they answer is checked by the caller."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.processes import BenchError
from bench.spark.options import EXPORT, OURS, TUNED, TUNED_OPTIONS, VALUE, Cell
from rlm_sandbox.sandbox import Sandbox
from rlm_spark.pipelines import export

_SUMS = ("count(*) as records", "sum(length(value)) as size")
_VALUE_SCHEMA = "value binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What all variants must agree on."""

    records: int
    value_bytes: int


class Queries:
    """One Spark against one sandbox; exports go into `folder`, which is emptied each time."""

    def __init__(self, spark: SparkSession, sandbox: Sandbox, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = sandbox.direct_bootstrap
        self._endpoint = str(sandbox.json["brokers"][0]["grpc"])
        self._folder = folder

    def run(self, cell: Cell, variant: str) -> None:
        """Runs to the end, which is what is timed; `answer` has the result."""
        self._answer: Answer | None = None
        if cell.task != EXPORT:
            frame = self._narrow(cell, variant) if cell.task == VALUE else self._wide(cell, variant)
            self._answer = _answer(frame)
        elif variant == OURS:
            level = {"kafka.isolation.level": "read_uncommitted"}  # the source's default
            export(self._spark, {**self._our_options(cell), **level}, to=str(self._folder))
        else:
            writer = self._wide(cell, variant).write.option("compression", "zstd")
            writer.parquet(str(self._folder))

    def answer(self, cell: Cell) -> Answer:
        """Answer of the last run; an export's comes from its files, which are then removed."""
        if self._answer is not None:
            return self._answer
        if cell.task != EXPORT:
            raise BenchError("nothing was run")
        frame = self._spark.read.parquet(str(self._folder))
        try:
            return _answer(frame)
        finally:
            self.clear()

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _narrow(self, cell: Cell, variant: str) -> DataFrame:
        if variant == OURS:
            reader = self._spark.read.format("kafka_tiered").schema(_VALUE_SCHEMA)
            return reader.options(**self._our_options(cell)).load()
        return self._wide(cell, variant).select("value")

    def _wide(self, cell: Cell, variant: str) -> DataFrame:
        if variant == OURS:
            reader = self._spark.read.format("kafka_tiered")
            return reader.options(**self._our_options(cell)).load()
        options = TUNED_OPTIONS if variant == TUNED else {}
        common = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": cell.topic.name}
        return self._spark.read.format("kafka").options(**common, **options).load()

    def _our_options(self, cell: Cell) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._bootstrap,
            "rlm.endpoints": self._endpoint,
            "readMode": "remote_preferred",
            "subscribe": cell.topic.name,
        }


def _answer(frame: DataFrame) -> Answer:
    [row] = frame.selectExpr(*_SUMS).collect()
    return Answer(records=int(row.records), value_bytes=int(row["size"] or 0))

"""The two decoders, for tests that hold for each: a compiler here means that both are there."""

import shutil
import sysconfig
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from rlm_spark.decode import COLUMNS, arrow_schema, record_batches
from rlm_spark.decode.engine import ENVIRONMENT
from tiered_reads.values import Fetched, OffsetRange, TopicPartition

TOPIC_PARTITION = TopicPartition("orders", 3)
ALL = arrow_schema(list(COLUMNS))


def names() -> Iterator[str]:
    """`compiled` too wherever there is a compiler: then it has to be there."""
    yield "python"
    if shutil.which(str(sysconfig.get_config_var("CC") or "cc").split()[0]):
        yield "compiled"


class Decoder:
    """`record_batches` by one of the two."""

    def __init__(self, name: str, environment: pytest.MonkeyPatch) -> None:
        self.name = name
        self._environment = environment

    def batches(
        self,
        pieces: Sequence[Fetched] | bytes,
        start: int = 0,
        end: int = 1 << 40,
        *,
        schema: pa.Schema = ALL,
        read_committed: bool = True,
        target_bytes: int = 2 << 20,
    ) -> list[pa.RecordBatch]:
        """All batches of the range, each checked by Arrow itself."""
        if isinstance(pieces, bytes):
            pieces = [Fetched(batches=pieces, next_offset=end)]
        wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=start, end_offset=end)
        self._environment.setenv(ENVIRONMENT, self.name)
        given = record_batches(
            pieces, wanted, schema, read_committed=read_committed, target_bytes=target_bytes
        )
        batches = list(given)
        for batch in batches:
            batch.validate(full=True)
            assert batch.schema == schema
            assert batch.num_rows > 0
        return batches

    def rows(
        self, pieces: Sequence[Fetched] | bytes, start: int = 0, end: int = 1 << 40, **options: bool
    ) -> list[dict[str, object]]:
        """The rows as dictionaries; timestamps in ms."""
        rows = []
        for batch in self.batches(pieces, start, end, **options):
            times = batch.column("timestamp").cast(pa.int64()).to_pylist()
            plain = batch.drop_columns(["timestamp"]).to_pylist()
            rows += [
                row | {"timestamp": time // 1000} for row, time in zip(plain, times, strict=True)
            ]
        return rows

    def offsets(
        self, pieces: Sequence[Fetched] | bytes, start: int = 0, end: int = 1 << 40, **options: bool
    ) -> list[object]:
        return [row["offset"] for row in self.rows(pieces, start, end, **options)]

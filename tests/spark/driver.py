"""A driver of its own: a stream from a topic to Parquet, for tests that kill it.

`python -m tests.spark.driver FOLDER OPTIONS_JSON`: one line `batch N` for every finished batch.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from rlm_spark import local_spark
from tests.spark.lab import TIERED, start_available

_POLL_S = 0.2
_LIMIT_S = 240


def with_options(
    reader: DataStreamReader | DataFrameReader, options: dict[str, str]
) -> DataStreamReader | DataFrameReader:
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader


def main(folder: Path, options: dict[str, str]) -> None:
    spark = local_spark.session("driver", jvm=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))
    try:
        reader = with_options(spark.readStream.format(TIERED), options)
        query = start_available(reader.load(), folder)
        printed = 0
        deadline = time.monotonic() + _LIMIT_S
        while (active := query.isActive) or printed < len(query.recentProgress):
            while printed < len(query.recentProgress):
                printed += 1
                print(f"batch {printed}", flush=True)
            if active:
                query.awaitTermination(_POLL_S)  # type: ignore[arg-type]  # it takes fractions too
            if time.monotonic() > deadline:
                raise SystemExit("the stream did not end")
        query.awaitTermination(1)  # raises what ended it
    finally:
        local_spark.stop(spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))

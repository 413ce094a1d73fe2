"""A driver of its own: a Spark stream that writes what it sees of a topic, until it is to end.

`python -m tests.scenarios.soak_stream FOLDER OPTIONS_JSON`: of each batch a file in FOLDER/batches
with lines `partition offset crc32`. It ends once FOLDER/end exists.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from rlm_sandbox.files import write_atomically
from rlm_spark import local_spark
from tests.spark.driver import with_options
from tests.spark.lab import TIERED

TRIGGER = "10 seconds"
_POLL_S = 1
_QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_CONF = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "10",
}


def main(folder: Path, options: dict[str, str]) -> None:
    def note(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("partition", "offset", "crc32(value) as crc").collect()
        lines = "".join(f"{row.partition} {row.offset} {row.crc}\n" for row in rows)
        write_atomically(folder / "batches" / f"{number:06d}", lines)

    spark = local_spark.session("soak", cores=2, conf=_CONF, jvm=_QUICK_JVM)
    try:
        frame = with_options(spark.readStream.format(TIERED), options).load()
        query = (
            frame.writeStream.foreachBatch(note)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(processingTime=TRIGGER)
            .start()
        )
        while not (folder / "end").exists():
            if query.awaitTermination(_POLL_S):
                raise SystemExit("the stream ended by itself")
        query.stop()
    finally:
        local_spark.stop(spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))

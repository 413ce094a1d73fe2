"""A stream that an older version began goes on with this one, and each record comes once.

checkpoint_of_54d4ce8/README.md says how the checkpoint was made.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from pyspark.sql import DataFrame, SparkSession

from rlm.v1 import fetch_pb2 as pb
from tests.spark.lab import TIERED
from tests.tiered_reads.fake_service import FakeService

pytestmark = pytest.mark.integration

_KEPT = Path(__file__).parent / "checkpoint_of_54d4ce8"
_COMMITTED, _PLANNED = 12, 18
"""Where its committed micro-batches end in each partition, and where the planned one ends."""
_LIMIT_S = 120
Rows = list[tuple[int, int]]


class TwoPartitions(FakeService):
    """The same records in partitions 0 and 1."""

    def DescribeTopics(
        self, request: pb.DescribeTopicsRequest, context: grpc.ServicerContext
    ) -> pb.DescribeTopicsResponse:
        answer = super().DescribeTopics(request, context)
        for topic in answer.topics:
            topic.partitions.append(
                pb.TieredPartition(
                    partition=1,
                    remote_log_start_offset=self.start,
                    remote_next_offset=self.remote_end,
                )
            )
        return answer


@pytest.fixture
def service() -> Iterator[FakeService]:
    with TwoPartitions(end=40, remote_end=40).running() as running:
        yield running


def run(spark: SparkSession, service: FakeService, checkpoint: Path) -> dict[int, Rows]:
    """Runs the stream to its present end; partition and offset of each row by micro-batch."""
    found: dict[int, Rows] = {}

    def take(frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("partition", "offset").collect()
        found[batch_id] = sorted((row.partition, row.offset) for row in rows)

    options = {
        "subscribe": "t",
        "rlm.endpoints": service.address,
        "readMode": "remote_only",
        "startingOffsets": "latest",  # only a stream without a checkpoint obeys this
        "maxOffsetsPerTrigger": "12",
    }
    reader = spark.readStream.format(TIERED)
    for name, value in options.items():
        reader = reader.option(name, value)
    query = (
        reader.load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(_LIMIT_S), "the stream did not end"
    finally:
        query.stop()
    return found


def both(start: int, end: int) -> Rows:
    return [(partition, offset) for partition in (0, 1) for offset in range(start, end)]


def test_a_checkpoint_of_an_older_version_goes_on(
    spark: SparkSession, service: FakeService, folder: Path
) -> None:
    progress = json.loads((_KEPT / "progress.json").read_text())
    ends = json.loads(progress[-1]["sources"][0]["endOffset"])
    assert ends == {"t": {"0": _COMMITTED, "1": _COMMITTED}}
    checkpoint = folder / "checkpoint"
    shutil.copytree(_KEPT / "checkpoint", checkpoint)
    batches = run(spark, service, checkpoint)
    assert batches[2] == both(_COMMITTED, _PLANNED), "the planned micro-batch has changed"
    assert sorted(row for rows in batches.values() for row in rows) == both(_COMMITTED, 40)
    assert min(batches) == 2, "a committed micro-batch came again"
    assert run(spark, service, checkpoint) == {}, "an ended stream begins again"


def test_offsets_are_logged_as_the_older_version_did(
    spark: SparkSession, service: FakeService, folder: Path
) -> None:
    """The other way round: an older version can resume what this one has written."""
    checkpoint = folder / "checkpoint"
    shutil.copytree(_KEPT / "checkpoint", checkpoint)
    run(spark, service, checkpoint)
    kept = (_KEPT / "checkpoint" / "offsets" / "2").read_text().splitlines()
    new = (checkpoint / "offsets" / "3").read_text().splitlines()
    assert (kept[0], kept[-1]) == ("v1", '{"t": {"0": 18, "1": 18}}')
    assert (new[0], new[-1]) == ("v1", '{"t": {"0": 24, "1": 24}}')

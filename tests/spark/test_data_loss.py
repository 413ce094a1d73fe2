"""The remote log start moves up while a job runs: an error, or skipped, as Spark's source does.

Moved by a helper, which leaves the objects; and by retention, which an operator has made shorter.
"""

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tests.builders.log_starts import raise_log_start
from tests.scenarios.cluster import fresh
from tests.scenarios.objects import finished_segments
from tests.scenarios.steps import EARLIEST
from tests.scenarios.test_reader_role import Endpoint
from tests.scenarios.test_retention import wait_expired
from tests.spark.lab import Lab, failure, texts
from tests.spark.test_relation import offsets

pytestmark = pytest.mark.integration

ROWS, NEW_START, A_BATCH = 480, 300, 100
LOST = "some data may have been lost because they are not available in kafka any more"
TIERED = ("--trim", "--local-retention-bytes", "1")
LENIENT = {"failOnDataLoss": "false"}


@pytest.fixture
def topic(lab: Lab) -> str:
    """Numbers that are their offsets, each with 16 KiB; the first four fifths only remote."""
    cluster, name = lab.cluster, fresh("loss")
    cluster.create_topic(name)
    cluster.enable(name, *TIERED)
    cluster.produce(name, ((0, b"%d" % n, bytes(16_384)) for n in range(ROWS)))
    cluster.wait_trimmed(name, beyond=int(ROWS * 0.8) - 1)
    return name


def _raise(lab: Lab, topic: str) -> None:
    assert raise_log_start(lab.cluster.direct, topic, 0, NEW_START) == NEW_START
    service = Endpoint(lab.endpoint, topic)
    lab.cluster.wait_for(lambda: service.position(EARLIEST) == NEW_START, "the service knows it")


def _keys(frame: DataFrame) -> list[int]:
    return texts(frame.selectExpr("CAST(key AS STRING) AS value"))


def test_a_batch_that_begins_below_the_start(lab: Lab, topic: str) -> None:
    explicit = {"startingOffsets": offsets(topic, {0: 0})}
    earliest = lab.read(topic)
    assert _keys(earliest) == [*range(ROWS)]
    _raise(lab, topic)
    assert _keys(earliest) == [*range(NEW_START, ROWS)]
    assert _keys(lab.read(topic, {**explicit, **LENIENT})) == [*range(NEW_START, ROWS)]
    assert LOST in failure(lambda: lab.read(topic, explicit))


def _run(lab: Lab, topic: str, folder: Path, options: dict[str, str]) -> StreamingQuery:
    """The start moves up between the first batch and the second; ended when this returns."""

    def note(batch: DataFrame, number: int) -> None:
        batch.write.mode("append").parquet(str(folder / "out"))
        if number == 0:
            _raise(lab, topic)

    frame = lab.stream(topic, {"maxOffsetsPerTrigger": str(A_BATCH), **options})
    return (
        frame.writeStream.foreachBatch(note)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_reports_the_loss(lab: Lab, topic: str, folder: Path) -> None:
    query = _run(lab, topic, folder, {})
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(200)
    assert LOST in str(raised.value).lower()
    assert _keys(lab.written(folder)) == [*range(A_BATCH)]


def test_a_stream_skips_what_is_lost(lab: Lab, topic: str, folder: Path) -> None:
    query = _run(lab, topic, folder, LENIENT)
    assert query.awaitTermination(200)
    assert _keys(lab.written(folder)) == [*range(A_BATCH), *range(NEW_START, ROWS)]


def test_h02_what_retention_has_deleted_is_lost_or_skipped(
    lab: Lab, topic: str, folder: Path
) -> None:
    """Nothing of it is left in the store before Spark asks for any of it."""
    assert finished_segments(lab.cluster, topic)
    lab.cluster.enable(topic, *TIERED, "--retention", "3s", "--yes")
    start = wait_expired(lab.cluster, topic)
    assert int(ROWS * 0.8) <= start < ROWS
    from_zero = {"startingOffsets": offsets(topic, {0: 0})}
    left = [*range(start, ROWS)]
    assert LOST in failure(lambda: lab.read(topic, from_zero))
    assert _keys(lab.read(topic, {**from_zero, **LENIENT})) == _keys(lab.read(topic)) == left
    strict, lenient = folder / "strict", folder / "lenient"
    with pytest.raises(StreamingQueryException) as raised:
        lab.run_available(lab.stream(topic, from_zero), strict)
    assert LOST in str(raised.value).lower()
    lab.run_available(lab.stream(topic, {**from_zero, **LENIENT}), lenient)
    assert _keys(lab.written(lenient)) == left

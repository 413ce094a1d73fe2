"""The same history from both tiers and from a topic that was never trimmed: equal DataFrames."""

from pathlib import Path

import pytest

from tests.spark.conftest import Twins
from tests.spark.lab import COMMITTED, SPARKS_OWN, Lab, Seen, assert_equal, seen

pytestmark = pytest.mark.integration

MODES = ("kafka_preferred", "remote_preferred", "remote_only")
HEADERS = {"includeHeaders": "true"}


def _wanted(twins: Twins, mode: str, *, committed: bool) -> list[Seen]:
    """What the mode gives of the history: `remote_only` ends with what is remote."""
    return [
        row
        for row in twins.expected(committed=committed)
        if mode != "remote_only" or row.offset < twins.remote_ends[row.partition]
    ]


@pytest.mark.parametrize("mode", MODES)
def test_batch_equals_the_twin(lab: Lab, twins: Twins, mode: str) -> None:
    for isolation in ({}, COMMITTED):
        frame = lab.read(twins.tiered, {**HEADERS, **isolation, "readMode": mode})
        assert_equal(seen(frame), _wanted(twins, mode, committed=bool(isolation)))


@pytest.mark.parametrize("mode", MODES)
def test_stream_equals_the_twin(lab: Lab, twins: Twins, mode: str, folder: Path) -> None:
    options = {**HEADERS, **COMMITTED, "readMode": mode, "maxOffsetsPerTrigger": "400"}
    query = lab.run_available(lab.stream(twins.tiered, options), folder)
    assert len(query.recentProgress) >= 3, "all came at once"
    assert_equal(seen(lab.written(folder)), _wanted(twins, mode, committed=True))


def test_without_kafka_the_fetch_api_gives_all(lab: Lab, twins: Twins) -> None:
    options = {"rlm.endpoints": lab.endpoint, "subscribe": twins.tiered, **HEADERS}
    assert_equal(seen(lab.bare(options)), twins.expected())


def test_kafka_only_begins_where_the_broker_begins(lab: Lab, twins: Twins) -> None:
    frame = lab.read(twins.tiered, {**HEADERS, "readMode": "kafka_only"})
    wanted = [row for row in twins.expected() if row.offset >= twins.local_starts[row.partition]]
    assert_equal(seen(frame), wanted)


def test_sparks_own_source_reads_the_twin_alike(
    lab: Lab, twins: Twins, kafka_source: str | None
) -> None:
    if kafka_source is None:
        pytest.skip("the jars of Spark's Kafka source cannot be had")
    own = Lab(spark=lab.spark, cluster=lab.cluster, source=SPARKS_OWN)
    for options in (HEADERS, {**HEADERS, **COMMITTED}):
        theirs = own.read(twins.plain, options)
        assert_equal(seen(theirs), twins.expected(committed=len(options) > 1))
        ours = lab.read(twins.tiered, options)
        assert ours.schema == theirs.schema
        assert_equal(seen(ours), seen(theirs))


@pytest.mark.long
def test_sparks_own_source_reads_both_tiers_through_the_proxy(
    lab: Lab, twins: Twins, kafka_source: str | None
) -> None:
    """Which has old records for everybody, also for who knows nothing of us."""
    if kafka_source is None:
        pytest.skip("the jars of Spark's Kafka source cannot be had")
    own = Lab(spark=lab.spark, cluster=lab.cluster, source=SPARKS_OWN)
    proxy = {"kafka.bootstrap.servers": lab.cluster.bootstrap}
    for options in (HEADERS, {**HEADERS, **COMMITTED}):
        read = own.read(twins.tiered, {**options, **proxy, "startingOffsets": "earliest"})
        assert_equal(seen(read), twins.expected(committed=len(options) > 1))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_a_large_history_equals_its_twin(
    lab: Lab, large_twins: Twins, mode: str, folder: Path
) -> None:
    options = {**HEADERS, **COMMITTED, "readMode": mode, "minPartitions": "7"}
    wanted = _wanted(large_twins, mode, committed=True)
    assert_equal(seen(lab.read(large_twins.tiered, options)), wanted)
    bounded = {**options, "maxOffsetsPerTrigger": "1500"}
    lab.run_available(lab.stream(large_twins.tiered, bounded), folder)
    assert_equal(seen(lab.written(folder)), wanted)

"""The data source as PySpark calls it, and what importing the package costs."""

import pickle
import subprocess
import sys

import pytest
from pyspark.sql.datasource import InputPartition

import rlm_spark
from rlm_spark.errors import SparkTooOldError
from rlm_spark.plan.offset_specs import OptionError
from rlm_spark.source.pushdown import FilteringReader
from rlm_spark.source.pyspark_readers import TieredReader, TieredStreamReader
from rlm_spark.source.schema import full_schema
from rlm_spark.source.source import TieredDataSource
from tests.tiered_reads.fake_tiers import FakeLog, FakePositions, FakeTiers, topic

OPTIONS = {"subscribe": "t", "kafka.bootstrap.servers": "k", "readmode": "kafka_only"}
SCHEMA = full_schema(include_headers=False)


def test_the_schema_has_headers_only_where_asked_for() -> None:
    assert TieredDataSource(OPTIONS).schema() == SCHEMA
    with_headers = TieredDataSource({**OPTIONS, "includeheaders": "true"}).schema()
    assert with_headers.fieldNames()[-1] == "headers"


def test_filters_are_taken_only_where_asked_for() -> None:
    plain = TieredDataSource(OPTIONS).reader(schema=SCHEMA)
    filtering = TieredDataSource({**OPTIONS, "pushdown": "true"}).reader(schema=SCHEMA)

    assert type(plain) is TieredReader
    assert type(filtering) is FilteringReader


def test_a_source_and_its_readers_go_to_other_processes() -> None:
    source = pickle.loads(pickle.dumps(TieredDataSource(OPTIONS)))

    assert source.name() == "kafka_tiered"
    assert isinstance(pickle.loads(pickle.dumps(source.reader(schema=SCHEMA))), TieredReader)
    assert isinstance(source.streamReader(schema=SCHEMA), TieredStreamReader)


def test_errors_of_options_come_when_a_reader_is_made() -> None:
    with pytest.raises(OptionError, match="starting offset can't be latest for batch queries"):
        TieredDataSource({"startingoffsets": "latest"}).reader(schema=SCHEMA)
    with pytest.raises(OptionError, match="ending offset not valid in streaming queries"):
        TieredDataSource({**OPTIONS, "endingoffsets": "latest"}).streamReader(schema=SCHEMA)


def test_an_empty_plan_reads_nothing() -> None:
    """PySpark makes one InputPartition(None) of an empty list."""
    query = TieredDataSource({**OPTIONS, "endingoffsets": '{"t":{"0":0}}'})
    reader = query.reader(schema=SCHEMA)
    assert isinstance(reader, TieredReader)
    tiers = FakeTiers(FakePositions(topic("t", FakeLog([0] * 3)))).tiers()
    empty = TieredReader(reader._query, SCHEMA, tiers)

    assert empty.partitions() == []
    assert list(empty.read(InputPartition(None))) == []


def test_a_spark_without_data_sources_names_what_works() -> None:
    """As 3.5 is; the whole of it is tests/spark/test_releases.py."""

    class OldSpark:
        version = "3.5.9"

    with pytest.raises(
        SparkTooOldError, match=r"4\.0 or newer, and this is 3\.5\.9: rlm_spark\.re"
    ):
        rlm_spark.register(OldSpark())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "modules",
    [
        "rlm_spark",
        "rlm_spark.plan.options, rlm_spark.source.reading",
        "rlm_spark.plan.planning",
    ],
)
def test_executors_import_no_pyspark_for_what_does_not_need_it(modules: str) -> None:
    code = f"import sys, {modules}; sys.exit('pyspark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_spark_3_5_imports_no_python_data_source() -> None:
    """`read` and the pipelines work there, and PySpark 3.5 has no module `datasource`."""
    code = """
import sys
sys.modules["pyspark.sql.datasource"] = None
import rlm_spark.source.legacy, rlm_spark.pipelines.commands, rlm_spark.local_spark
import rlm_spark.pipelines.auditing, rlm_spark.pipelines.exporting
"""
    subprocess.run([sys.executable, "-c", code], check=True)

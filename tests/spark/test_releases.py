"""Spark 3.5, which has no Python data sources, and the lines before the one that is installed."""

import hashlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlm_sandbox.sandbox import Sandbox
from tests.project.tree import ROOT
from tests.scenarios.cluster import Cluster
from tests.spark.conftest import Twins
from tests.spark.exports import exported
from tests.spark.history import FIRST_TIMESTAMP_MS, STEP_MS
from tests.spark.lab import Seen, assert_equal, connection
from tests.spark.releases import Answers, Question, Release, asked, installed

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3600)]

SPARK_35 = Release(line="3.5", java=17)
RELEASES = (
    SPARK_35,
    Release(line="4.0", java=17),
    Release(line="4.1", java=21),
    Release(line="4.2", java=21),
)
MODES = ("kafka_preferred", "remote_preferred", "remote_only")
_FROM_MS, _UNTIL_MS = (FIRST_TIMESTAMP_MS + number * STEP_MS for number in (300, 700))
_BELOW_OFFSET = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A release that was asked, and the folder with its export."""

    release: Release
    answers: Answers
    folder: Path


@pytest.fixture(scope="module", params=RELEASES, ids=str)
def ran(
    request: pytest.FixtureRequest,
    one_sandbox: Sandbox,
    twins: Twins,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ran]:
    """Fetched, run once for all tests of the release, and removed."""
    release: Release = request.param
    folder = tmp_path_factory.mktemp(f"spark-{release}")
    with Cluster(one_sandbox) as cluster:
        chosen = connection(cluster)
    question = Question(
        connection=chosen,
        topic=twins.tiered,
        modes=MODES,
        from_ms=_FROM_MS,
        until_ms=_UNTIL_MS,
        below_offset=_BELOW_OFFSET,
    )
    try:
        packages = installed(release, folder / "packages")
        answers = asked(packages, folder / "run", question)
        yield Ran(release=release, answers=answers, folder=folder / "run")
    finally:
        shutil.rmtree(folder)


def _remote(twins: Twins, rows: list[Seen], mode: str) -> list[Seen]:
    """What the mode gives of the rows: `remote_only` ends with what is remote."""
    ends = twins.remote_ends
    return [row for row in rows if mode != "remote_only" or row.offset < ends[row.partition]]


def test_it_is_the_release_that_was_asked_for(ran: Ran) -> None:
    line, java = ran.release.line, ran.release.java
    assert ran.answers.spark_version.startswith(f"{line}.")
    assert ran.answers.java_version.startswith(f"{java}.")
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    row = rf"^\| Spark {re.escape(line)} \|.*\| {re.escape(line)}\.\d+, Java {java} \|$"
    assert re.search(row, page, re.MULTILINE), "the table of docs/spark.md says something else"


@pytest.mark.parametrize("mode", MODES)
def test_read_equals_the_twin(ran: Ran, twins: Twins, mode: str) -> None:
    """80 % of it remote, all codecs, transactions, headers, nulls."""
    assert_equal(ran.answers.all_of_it[mode], _remote(twins, twins.expected(), mode))
    wanted = _remote(twins, twins.expected(committed=True), mode)
    assert_equal(ran.answers.committed[mode], wanted)


def test_read_with_a_schema_gives_these_columns(ran: Ran, twins: Twins) -> None:
    assert ran.answers.value_columns == ["value"]
    values = [row.value for row in twins.rows]
    wanted = [None if value is None else hashlib.md5(value).hexdigest() for value in values]
    assert sorted(map(str, ran.answers.value_digests)) == sorted(map(str, wanted))


def test_timestamps_are_the_same_in_another_time_zone(ran: Ran, twins: Twins) -> None:
    wanted = sorted((row.partition, row.offset, row.timestamp_ms * 1000) for row in twins.rows)
    assert ran.answers.microseconds == wanted


def test_read_between_timestamps(ran: Ran, twins: Twins) -> None:
    chosen = {
        (row.partition, row.offset)
        for row in twins.rows
        if _FROM_MS <= row.timestamp_ms < _UNTIL_MS
    }
    assert len(chosen) == 400
    wanted = [row for row in twins.expected() if (row.partition, row.offset) in chosen]
    assert_equal(ran.answers.between, wanted)


def test_export_twice_writes_every_row_once(ran: Ran, twins: Twins) -> None:
    assert ran.answers.exported_rows == [len(twins.rows), 0]
    assert_equal(exported(ran.folder / "exported", twins.tiered), twins.expected())


def test_audit_reads_all_and_finds_nothing(ran: Ran, twins: Twins) -> None:
    records, findings = ran.answers.audited
    remote = _remote(twins, twins.expected(), "remote_only")
    assert records >= len(remote)  # with markers
    assert findings == 0


def test_the_format_equals_the_twin_where_it_can_be(ran: Ran, twins: Twins) -> None:
    if ran.release.has_data_sources:
        assert ran.answers.registered == ""
        for found in (ran.answers.by_format, ran.answers.streamed):
            assert not isinstance(found, str), found
            assert_equal(found, twins.expected(committed=True))
        return
    assert "rlm_spark.read(spark, ...)" in ran.answers.registered
    assert ran.answers.spark_version in ran.answers.registered
    for found in (ran.answers.by_format, ran.answers.streamed):
        assert isinstance(found, str)
        assert "failed to find the data source: kafka_tiered" in found.lower()


def test_filters_are_taken_from_4_1_on(ran: Ran, twins: Twins) -> None:
    if ran.release.line >= "4.1":
        wanted = [row for row in twins.expected() if row.offset < _BELOW_OFFSET]
        assert not isinstance(ran.answers.pushed, str), ran.answers.pushed
        assert_equal(ran.answers.pushed, wanted)
        return
    assert isinstance(ran.answers.pushed, str)
    if ran.release.has_data_sources:
        assert "pushdown=true needs PySpark 4.1 or newer" in ran.answers.pushed

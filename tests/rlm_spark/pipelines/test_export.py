"""What an export does over its runs: goes on, appends late days, refuses what would double or lose
rows, and writes what it says.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kip405.ids import Uuid
from rlm_spark.errors import PlannedLossError
from rlm_spark.pipelines.chunk_task import Layout, export_chunk
from rlm_spark.pipelines.chunks import Chunk, ExportError, Shape
from rlm_spark.pipelines.durable import LocalFiles
from rlm_spark.pipelines.exporting import COLUMNS, ChunkOutcome, ExportWork, local_path
from rlm_spark.pipelines.spans import bound_options
from rlm_spark.pipelines.target import Book
from tests.rlm_spark.pipelines.world import DAY_MS, SCHEMA, Exporter, Topics, exported
from tests.tiered_reads.fake_service import FakeService
from tiered_reads import fetch_client
from tiered_reads.values import ConnectorOptions, ReadMode, TopicPartition

T0 = TopicPartition("t", 0)


def one_partition(*days: int) -> Topics:
    return Topics(records={T0: [DAY_MS * day for day in days]}, ids={"t": "A" * 22})


def test_a_later_run_goes_on_and_appends_to_old_days(tmp_path: Path) -> None:
    topics = one_partition(1, 1, 2)
    exporter = Exporter(topics=topics, root=tmp_path)
    exporter.run()
    assert exporter.run() == ()
    topics.records[T0] += [DAY_MS, 5 * DAY_MS]
    (chunk,) = exporter.run()
    assert (chunk.start_offset, chunk.end_offset) == (3, 5)
    assert exported(tmp_path) == topics.rows()
    days = sorted(path.name for path in (tmp_path / "topic=t").iterdir())
    assert days == ["date=1970-01-02", "date=1970-01-03", "date=1970-01-06"]
    assert len(list((tmp_path / "topic=t" / "date=1970-01-02").iterdir())) == 2


def test_the_files_have_the_columns_and_values_that_are_documented(tmp_path: Path) -> None:
    topics = one_partition(1, 1)
    Exporter(topics=topics, root=tmp_path).run()
    (path,) = (tmp_path / "topic=t" / "date=1970-01-02").iterdir()
    assert path.name == "part-00000-00000000000000000000-00000000000000000002.parquet"
    table = pq.ParquetFile(path).read()
    assert table.schema.equals(SCHEMA)
    assert tuple(table.column_names) == COLUMNS
    assert table.column("key").to_pylist() == [b"k0", b"k1"]
    assert table.column("value").to_pylist() == [None, b"v1"]


def test_parts_asked_for_in_any_order_come_once(tmp_path: Path) -> None:
    topics = one_partition(*range(10))
    exporter = Exporter(topics=topics, root=tmp_path)
    for start, end in ((4, 6), (2, 8), (0, 9)):
        options = bound_options(f'{{"t":{{"0":{start}}}}}', "starting")
        options |= bound_options(f'{{"t":{{"0":{end}}}}}', "ending")
        exporter.changed(options=options, goes_on=False).run()
    assert exported(tmp_path) == topics.rows()[:9]
    exporter.run()
    assert exported(tmp_path) == topics.rows()


def test_times_are_the_first_records_at_or_after_them(tmp_path: Path) -> None:
    topics = one_partition(1, 2, 3, 4)
    options = bound_options("1970-01-03", "starting") | bound_options("1970-01-05T00:00Z", "ending")
    Exporter(topics=topics, root=tmp_path, options=options, goes_on=False).run()
    assert [offset for _, _, offset in exported(tmp_path)] == [1, 2]
    beyond = bound_options("@999999999999", "starting")
    assert Exporter(topics=topics, root=tmp_path, options=beyond, goes_on=False).run() == ()


@pytest.mark.parametrize("text", ["yesterday", "17", "@x", ""])
def test_texts_that_are_not_positions(text: str) -> None:
    with pytest.raises(ExportError, match="is not a position in a topic"):
        bound_options(text, "starting")


def test_h06_a_recreated_topic_is_refused_and_others_go_on(tmp_path: Path) -> None:
    topics = one_partition(1, 1)
    exporter = Exporter(topics=topics, root=tmp_path)
    exporter.run()
    topics.ids["t"] = "B" * 22
    with pytest.raises(ExportError, match=r"recreated: A{22} was exported, it is B{22} now"):
        exporter.run()
    topics.records[TopicPartition("u", 0)] = [1]
    exporter.changed(options={"subscribePattern": "u"}).run()
    assert ("u", 0, 0) in exported(tmp_path)


def test_h06_without_ids_a_shorter_topic_is_refused(tmp_path: Path) -> None:
    topics = Topics(records={T0: [1, 2, 3]})
    exporter = Exporter(topics=topics, root=tmp_path)
    exporter.run()
    topics.records[T0] = [1]
    with pytest.raises(ExportError, match="up to 3 were exported, and it ends at 1"):
        exporter.run()


def test_offsets_that_are_gone_stop_the_plan_or_are_reported(tmp_path: Path) -> None:
    topics = one_partition(*range(8))
    exporter = Exporter(topics=topics, root=tmp_path)
    exporter.changed(options=bound_options('{"t":{"0":2}}', "ending")).run()
    topics.earliest_offsets[T0] = 5
    with pytest.raises(PlannedLossError, match=r"Offsets \[2, 5\) of t-0 are wanted and gone"):
        exporter.run()
    assert Book(tmp_path, LocalFiles()).left() == ()
    exporter.changed(options={"failOnDataLoss": "false"}).run()
    assert [offset for _, _, offset in exported(tmp_path)] == [0, 1, 5, 6, 7]


def test_an_offset_beyond_the_end_is_refused(tmp_path: Path) -> None:
    topics = one_partition(1)
    options = bound_options('{"t":{"0":9}}', "ending")
    with pytest.raises(ExportError, match="9 is beyond its end 1"):
        Exporter(topics=topics, root=tmp_path, options=options).run()


def test_directories_that_are_not_ours_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "foreign.txt").write_text("mine")
    with pytest.raises(ExportError, match="is not empty and not an export's"):
        Exporter(topics=one_partition(1), root=tmp_path).run()
    assert [path.name for path in tmp_path.iterdir()] == ["foreign.txt"]
    with pytest.raises(ExportError, match="is not a directory"):
        Exporter(topics=one_partition(1), root=tmp_path / "foreign.txt").run()


@pytest.mark.parametrize(
    "shape",
    [Shape(partition_by="hour"), Shape(headers=True), Shape(read_committed=False)],
    ids=lambda shape: repr(shape),
)
def test_a_target_keeps_its_shape(tmp_path: Path, shape: Shape) -> None:
    topics = one_partition(1)
    Exporter(topics=topics, root=tmp_path).run()
    with pytest.raises(ExportError, match="was begun with"):
        Exporter(topics=topics, root=tmp_path, shape=shape).run()
    assert exported(tmp_path) == topics.rows()


def test_hours_are_folders_of_their_own(tmp_path: Path) -> None:
    topics = Topics(records={T0: [0, 3_600_000, 3_599_999]})
    Exporter(topics=topics, root=tmp_path, shape=Shape(partition_by="hour")).run()
    folders = sorted(str(p.parent.relative_to(tmp_path)) for p in tmp_path.rglob("*.parquet"))
    assert folders == ["topic=t/date=1970-01-01/hour=00", "topic=t/date=1970-01-01/hour=01"]
    assert exported(tmp_path) == topics.rows()


def test_few_files_are_open_and_few_rows_wait_whatever_the_timestamps(tmp_path: Path) -> None:
    """Two files at a time and tiny row groups: more files, every row once."""
    topics = one_partition(*(day % 7 for day in range(40)))
    book = Book(tmp_path, LocalFiles())
    lock = book.open(Shape())
    chunk = Chunk(
        plan=1, number=0, topic="t", topic_id=None, partition=0, start_offset=0, end_offset=40
    )
    book.write_plan([chunk])
    layout = Layout(row_group_bytes=300, waiting_bytes=200, open_files=2)
    files = LocalFiles()
    commit = export_chunk(chunk, book, topics.read, schema=SCHEMA, layout=layout, files=files)
    lock.release()
    assert commit.rows == 40
    assert len(commit.files) > 7
    assert len({file.target_name for file in commit.files}) == len(commit.files)
    assert exported(tmp_path) == topics.rows()


@pytest.mark.parametrize(
    ("text", "path"),
    [("/a/b", "/a/b"), ("file:/a/b", "/a/b"), ("file:///a/b", "/a/b")],
)
def test_local_directories(text: str, path: str) -> None:
    assert str(local_path(text)) == path


@pytest.mark.parametrize("text", ["s3://bucket/x", "hdfs://n/x", "gs://b"])
def test_stores_without_exclusive_links_are_not_there_yet(text: str) -> None:
    with pytest.raises(ExportError, match="not there yet"):
        local_path(text)


@pytest.fixture
def service() -> Iterator[FakeService]:
    """Offsets [0, 30) of t-0 in the remote tier."""
    with FakeService().running() as running:
        yield running
    fetch_client.SHARED.close_idle()


def worked(root: Path, service: FakeService, topic_id: bytes) -> ChunkOutcome:
    """The rows of a worker for all of t-0, planned from the earliest offset on."""
    chunk = Chunk(
        plan=1,
        number=0,
        topic="t",
        topic_id=str(Uuid(topic_id)),
        partition=0,
        start_offset=0,
        end_offset=30,
        from_earliest=True,
    )
    book = Book(root, LocalFiles())
    lock = book.open(Shape())
    book.write_plan([chunk])
    connector = ConnectorOptions(
        read_mode=ReadMode.REMOTE_ONLY, kafka={}, service=service.connection()
    )
    work = ExportWork(root=str(root), connector=connector, columns=COLUMNS, layout=Layout())
    outcome = work(chunk)
    assert (book.commit_of(chunk) is None) == bool(outcome.problem)
    lock.release()
    return outcome


def test_h06_a_recreated_topic_meanwhile_is_not_exported(
    tmp_path: Path, service: FakeService
) -> None:
    assert "the plan knows it by id" in worked(tmp_path / "a", service, bytes(15) + b"\7").problem
    assert worked(tmp_path / "b", service, service.topic_id).rows == 30


def test_a_topic_that_is_gone_is_a_loss_and_no_moved_start(
    tmp_path: Path, service: FakeService
) -> None:
    service.topics = ()
    assert "Some data may have been lost" in worked(tmp_path, service, service.topic_id).problem


def test_a_start_that_moved_up_meanwhile_is_no_loss(tmp_path: Path, service: FakeService) -> None:
    service.start = 12
    assert worked(tmp_path, service, service.topic_id).rows == 18

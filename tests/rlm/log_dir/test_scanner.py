"""The scanner on real files laid out as Kafka lays them out."""

import os
from pathlib import Path

import pytest

from kip405.errors import Invalid, NotFound, Unavailable
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.log_dir.scanner import Closed, LogDirs, partitions_in, sample
from tests.builders.log_dir import TOPIC, TOPIC_ID, LogDir


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDir:
    return LogDir(tmp_path / "data")


def dirs(*log_dirs: LogDir) -> LogDirs:
    return LogDirs([str(one.path) for one in log_dirs])


def test_segments_with_their_ends_sizes_and_timestamps(log_dir: LogDir) -> None:
    partition = log_dir.partition()
    first = partition.segment(0, 100, first_ms=5_000)
    partition.segment(100, 150)
    partition.active(150, 170)
    found = dirs(log_dir).scan(TOPIC, 0)
    assert [(one.base_offset, one.next_offset, one.closed) for one in found.segments] == [
        (0, 100, Closed.CLOSED),
        (100, 150, Closed.CLOSED),
        (150, None, Closed.ACTIVE),
    ]
    assert found.topic_id == TOPIC_ID
    assert found.segments[0].size_bytes == len(first)
    assert found.segments[0].max_timestamp_ms == 5_099
    assert found.segments[0].snapshot_path == str(partition.file(100, ".snapshot"))
    assert sample(found.segments[0]) == (found.segments[0].inode, len(first))


def test_h39_another_file_with_name_size_and_inode_of_a_former_one_is_read(
    log_dir: LogDir,
) -> None:
    """As of a topic that was deleted and created again."""
    partition = log_dir.partition()
    scanned = dirs(log_dir)
    for first_ms in (5_000, 9_000):
        partition.segment(0, 100, first_ms=first_ms)
        partition.active(100, 120)
        os.utime(partition.file(0, ".log"), (first_ms, first_ms))
        assert scanned.scan(TOPIC, 0).segments[0].max_timestamp_ms == first_ms + 99


def test_checkpoints_that_the_broker_has_made_and_not_written_yet_say_nothing(
    log_dir: LogDir,
) -> None:
    """The cleaner's stays empty for as long as nothing was ever compacted."""
    log_dir.partition().active(0, 10)
    for name in ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
        assert (log_dir.path / name).read_bytes() == b""
    found = dirs(log_dir).scan(TOPIC, 0)
    assert (found.recovery_point, found.cleaned_up_to) == (None, None)


def test_segment_without_its_snapshot_is_not_closed_yet(log_dir: LogDir) -> None:
    partition = log_dir.partition()
    partition.segment(0, 100, snapshot=False)
    partition.active(100, 110)
    assert dirs(log_dir).scan(TOPIC, 0).segments[0].closed is Closed.SNAPSHOT_MISSING
    partition.file(100, ".snapshot").write_bytes(b"late")
    assert dirs(log_dir).scan(TOPIC, 0).segments[0].is_closed


def test_deleted_and_foreign_files_are_no_segments(log_dir: LogDir) -> None:
    partition = log_dir.partition()
    partition.segment(0, 100)
    partition.active(100, 110)
    os.rename(partition.file(0, ".log"), partition.file(0, ".log.deleted"))
    partition.file(0, ".log.swap").write_bytes(b"x")
    assert [one.base_offset for one in dirs(log_dir).scan(TOPIC, 0).segments] == [100]


def test_lineage_and_recovery_point(log_dir: LogDir) -> None:
    partition = log_dir.partition()
    partition.epochs({3: 0, 7: 40})
    partition.active(0, 60)
    assert dirs(log_dir).scan(TOPIC, 0).recovery_point is None
    log_dir.recovery_point(TOPIC, 0, 44)
    found = dirs(log_dir).scan(TOPIC, 0)
    entries = (EpochEntry(epoch=3, start_offset=0), EpochEntry(epoch=7, start_offset=40))
    assert found.lineage == Lineage(entries)
    assert found.recovery_point == 44


def test_a_checkpoint_is_read_at_each_scan(log_dir: LogDir) -> None:
    for number in (0, 1):
        log_dir.partition(partition=number).active(0, 60)
    scanned = dirs(log_dir)
    for offsets in ((10, None), (44, None)):
        log_dir.recovery_point(TOPIC, 0, offsets[0])
        found = [scanned.scan(TOPIC, number).recovery_point for number in (0, 1)]
        assert found == list(offsets)


def test_a_small_file_is_parsed_again_only_where_it_has_changed(log_dir: LogDir) -> None:
    partition = log_dir.partition()
    partition.active(0, 60)
    scanned = dirs(log_dir)
    one, two = scanned.scan(TOPIC, 0), scanned.scan(TOPIC, 0)
    assert two.lineage is one.lineage
    assert two.topic_id is one.topic_id
    assert two.whole_lineage is one.lineage
    partition.epochs({0: 0, 4: 30})
    assert scanned.scan(TOPIC, 0).lineage.latest_epoch == 4
    partition.epochs({0: 0})
    assert scanned.scan(TOPIC, 0).lineage == one.lineage


def test_a_small_file_whose_bytes_are_torn_is_not_what_it_was_before(log_dir: LogDir) -> None:
    partition = log_dir.partition()
    partition.active(0, 60)
    scanned = dirs(log_dir)
    assert scanned.scan(TOPIC, 0).lineage.latest_epoch == 0
    (partition.path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    with pytest.raises(Unavailable, match="orders-0 cannot be read"):
        scanned.scan(TOPIC, 0)


def test_a_checkpoint_of_any_size_is_read_whole(log_dir: LogDir) -> None:
    log_dir.partition(partition=9_999).active(0, 60)
    rows = "".join(f"{TOPIC} {number} {number}\n" for number in range(10_000))
    path = log_dir.path / "recovery-point-offset-checkpoint"
    path.write_text(f"0\n10000\n{rows}")
    assert path.stat().st_size > 128 * 1024
    assert dirs(log_dir).scan(TOPIC, 9_999).recovery_point == 9_999


def test_partition_metadata_may_be_missing_for_a_moment(log_dir: LogDir) -> None:
    log_dir.partition(topic_id=None).active(0, 10)
    assert dirs(log_dir).scan(TOPIC, 0).topic_id is None


def test_partitions_over_several_log_dirs(tmp_path: Path) -> None:
    one, two = LogDir(tmp_path / "one"), LogDir(tmp_path / "two")
    one.partition("a-b.c", 12)
    two.partition("a-b.c", 3)
    for passed in ("orders-0.0a-delete", "orders-1.0b-future", "orders-2.0c-stray", "lost+found"):
        (one.path / passed).mkdir()
    assert partitions_in(str(one.path)) == {("a-b.c", 12): str(one.path / "a-b.c-12")}
    assert partitions_in(str(two.path)) == {("a-b.c", 3): str(two.path / "a-b.c-3")}


def test_a_log_dir_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"log dir .*/gone cannot be read"):
        partitions_in(str(tmp_path / "gone"))


def test_h13_a_partition_in_two_log_dirs_is_refused(tmp_path: Path) -> None:
    one, two = LogDir(tmp_path / "one"), LogDir(tmp_path / "two")
    one.partition()
    two.partition()
    with pytest.raises(Invalid, match="orders-0 is in"):
        dirs(one, two).scan(TOPIC, 0)


def test_an_empty_checkpoint_of_a_replica_without_records_names_no_epoch(log_dir: LogDir) -> None:
    partition = log_dir.partition()
    partition.active(0, 0)
    (partition.path / "leader-epoch-checkpoint").write_bytes(b"")
    assert dirs(log_dir).scan(TOPIC, 0).lineage == Lineage()


def test_what_is_not_there_is_not_found(log_dir: LogDir) -> None:
    with pytest.raises(NotFound, match="orders-0"):
        dirs(log_dir).scan(TOPIC, 0)


def test_a_torn_checkpoint_is_tried_again_then_unavailable(log_dir: LogDir) -> None:
    partition = log_dir.partition()
    partition.active(0, 10)
    (partition.path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    with pytest.raises(Unavailable, match="orders-0 cannot be read"):
        dirs(log_dir).scan(TOPIC, 0)


def test_a_log_whose_first_segment_the_broker_has_not_made_yet_is_unavailable(
    log_dir: LogDir,
) -> None:
    log_dir.partition()
    with pytest.raises(Unavailable, match="orders-0 cannot be read"):
        dirs(log_dir).scan(TOPIC, 0)


def test_a_file_that_vanished_has_no_sample(log_dir: LogDir) -> None:
    partition = log_dir.partition()
    partition.segment(0, 100)
    partition.active(100, 110)
    segment = dirs(log_dir).scan(TOPIC, 0).segments[0]
    partition.file(0, ".log").unlink()
    assert sample(segment) is None

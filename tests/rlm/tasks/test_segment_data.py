"""What one copy uploads is proven before a byte goes up (H4, H8, H9, H13)."""

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.checkpoints import parse_leader_epochs
from kip405.contracts import IndexType
from kip405.errors import Corrupt, Fenced, Unavailable
from kip405.indexes import IndexesObject
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.log_dir.scanner import LogDirs, PartitionLog
from rlm.tasks.segment_data import PreparedSegment, RemoteIndexEntries, prepare
from tests.builders.log_dir import TOPIC, LogDir, PartitionDir

ENTRIES = RemoteIndexEntries(remote_object="store/key.log", interval_bytes=1_000)


class Disk:
    """Segments [0, 100), [100, 200) of epoch 0 and [200, 300) of epoch 3; 300 is active."""

    def __init__(self, path: Path) -> None:
        self._dir = LogDir(path / "data")
        self.files: PartitionDir = self._dir.partition()
        self.files.epochs({0: 0, 3: 200})
        self.files.segment(0, 100)
        self.files.segment(100, 200)
        self.files.segment(200, 300, epoch=3)
        self.files.active(300, 310, epoch=3)

    def scan(self) -> PartitionLog:
        return LogDirs([str(self._dir.path)]).scan(TOPIC, 0)

    def prepare(self, number: int, lineage: Lineage | None = None) -> PreparedSegment:
        log = self.scan()
        return prepare(log, log.segments[number], lineage or log.lineage, ENTRIES)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def lineage(epochs: dict[int, int]) -> Lineage:
    return Lineage(tuple(EpochEntry(epoch=epoch, start_offset=at) for epoch, at in epochs.items()))


def test_h04_a_segment_has_the_epochs_of_its_own_offsets(disk: Disk) -> None:
    assert disk.prepare(1).epochs == (EpochEntry(epoch=0, start_offset=100),)
    assert disk.prepare(2).epochs == (EpochEntry(epoch=3, start_offset=200),)


def test_h08_the_lineage_stored_ends_with_the_segment(disk: Disk) -> None:
    for number, epochs in ((1, {0: 0}), (2, {0: 0, 3: 200})):
        section = IndexesObject.parse(disk.prepare(number).data.indexes).section(
            IndexType.LEADER_EPOCH
        )
        assert section is not None
        assert parse_leader_epochs(bytes(section)) == lineage(epochs)


def test_h08_the_lineage_stored_is_the_merged_one(disk: Disk) -> None:
    """The epoch file was re-based by a trim; the remote lineage before it is kept."""
    disk.files.epochs({0: 150, 3: 200})
    merged = lineage({0: 40, 3: 200})
    section = IndexesObject.parse(disk.prepare(2, merged).data.indexes).section(
        IndexType.LEADER_EPOCH
    )
    assert section is not None
    assert parse_leader_epochs(bytes(section)) == merged


@pytest.mark.parametrize("epochs", [{0: 0}, {0: 0, 3: 201}, {0: 0, 3: 190}, {0: 0, 2: 200, 3: 250}])
def test_h13_batches_of_other_epochs_than_the_lineage_has_are_refused(
    disk: Disk, epochs: dict[int, int]
) -> None:
    number = 1 if epochs == {0: 0, 3: 190} else 2
    with pytest.raises(Corrupt, match="leader epochs disagree"):
        disk.prepare(number, lineage(epochs))


def test_h08_what_a_rebased_epoch_file_does_not_know_is_not_compared(disk: Disk) -> None:
    assert disk.prepare(0, lineage({0: 40, 3: 200})).next_offset == 100
    with pytest.raises(Corrupt, match="leader epochs disagree"):
        disk.prepare(0, lineage({1: 40, 3: 200}))


def test_h13_a_file_that_changed_since_it_was_planned_is_refused(disk: Disk) -> None:
    log = disk.scan()
    path = disk.files.file(0, ".log")
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(Fenced, match="changed since it was planned"):
        prepare(log, log.segments[0], log.lineage, ENTRIES)


def test_h13_another_file_of_the_same_size_is_refused(disk: Disk) -> None:
    log = disk.scan()
    path = disk.files.file(0, ".log")
    path.with_suffix(".copy").write_bytes(path.read_bytes())
    os.replace(path.with_suffix(".copy"), path)
    with pytest.raises(Fenced, match="changed since it was planned"):
        prepare(log, log.segments[0], log.lineage, ENTRIES)


def test_h13_a_segment_that_reaches_into_the_next_one_is_refused(disk: Disk) -> None:
    log = disk.scan()
    with pytest.raises(Corrupt, match="expected within"):
        prepare(log, replace(log.segments[0], next_offset=99), log.lineage, ENTRIES)


def test_g09_an_offset_index_that_points_beyond_the_segment_is_refused(disk: Disk) -> None:
    size = disk.files.file(0, ".log").stat().st_size
    disk.files.file(0, ".index").write_bytes(struct.pack(">ii", 10, size))
    with pytest.raises(Corrupt, match=r"00000000000000000000\.log"):
        disk.prepare(0)


def test_g09_a_time_index_that_goes_back_is_refused(disk: Disk) -> None:
    disk.files.file(0, ".timeindex").write_bytes(struct.pack(">qiqi", 2_000, 20, 1_000, 30))
    with pytest.raises(Corrupt, match=r"00000000000000000000\.log"):
        disk.prepare(0)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_gone_is_waited_for(disk: Disk, suffix: str) -> None:
    disk.files.file(100, suffix).unlink()
    with pytest.raises(Unavailable, match="is not there"):
        disk.prepare(1)

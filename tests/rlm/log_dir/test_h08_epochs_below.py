"""H8: after a DeleteRecords into the middle of a segment, its batches show the epochs below."""

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kip405.ids import Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.log_dir.scanner import LogDirs, PartitionLog
from tests.builders.log_dir import TOPIC, LogDir, PartitionDir
from tests.kip405.batch_builder import batch


class Disk:
    """One segment [40, 100), then the active one; batches of 10 records, by default of the epochs
    3 (from 40), 5 (from 60) and 8 (from 80).
    """

    def __init__(self, path: Path) -> None:
        self.log_dir = LogDir(path / "data")
        self.files: PartitionDir = self.log_dir.partition()
        self.files.segment(40, 100)
        self.files.active(100, 120, epoch=8)
        self.write({40: 3, 60: 5, 80: 8})
        self.log_dirs = LogDirs([str(self.log_dir.path)])

    def write(self, epochs: dict[int, int]) -> None:
        """The segment's batches; `epochs` by the offset that they begin at."""
        data = b""
        for base in range(40, 100, 10):
            epoch = epochs[max(at for at in epochs if at <= base)]
            data += batch(base, 10, epoch=epoch)
        self.path.write_bytes(data)

    @property
    def path(self) -> Path:
        return self.files.file(40, ".log")

    def scan(self, epoch_file: dict[int, int]) -> PartitionLog:
        self.files.epochs(epoch_file)
        return self.log_dirs.scan(TOPIC, 0)

    def lineage(self, epoch_file: dict[int, int]) -> Lineage:
        return self.scan(epoch_file).whole_lineage


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def lineage(epochs: dict[int, int]) -> Lineage:
    return Lineage(tuple(EpochEntry(epoch=epoch, start_offset=at) for epoch, at in epochs.items()))


class Opened:
    """How often files of segments were opened."""

    def __init__(self) -> None:
        self.count = 0
        self._open = builtins.open

    def __call__(self, path: Any, *rest: Any, **named: Any) -> Any:
        self.count += str(path).endswith(".log")
        return self._open(path, *rest, **named)


@pytest.fixture
def opened() -> Iterator[Opened]:
    found = Opened()
    with mock.patch.object(builtins, "open", found):
        yield found


@pytest.mark.parametrize(
    ("epoch_file", "whole"),
    [
        ({3: 45, 5: 60, 8: 80}, {3: 40, 5: 60, 8: 80}),
        ({5: 70, 8: 80}, {3: 40, 5: 60, 8: 80}),
        ({8: 80}, {3: 40, 5: 60, 8: 80}),
        ({8: 99}, {3: 40, 5: 60, 8: 80}),
        ({8: 99, 9: 120}, {3: 40, 5: 60, 8: 80, 9: 120}),
    ],
)
def test_h08_a_segment_that_was_cut_shows_the_epochs_below(
    disk: Disk, epoch_file: dict[int, int], whole: dict[int, int]
) -> None:
    found = disk.scan(epoch_file)
    assert found.whole_lineage == lineage(whole)
    assert found.lineage == lineage(epoch_file)


@pytest.mark.parametrize("epoch_file", [{3: 40, 5: 60, 8: 80}, {3: 20, 5: 60, 8: 80}])
def test_a_log_that_was_not_cut_inside_a_segment_is_not_read(
    disk: Disk, opened: Opened, epoch_file: dict[int, int]
) -> None:
    assert disk.lineage(epoch_file) == lineage(epoch_file)
    assert opened.count == 0


def test_whole_segments_below_the_cut_are_not_read(disk: Disk, opened: Opened) -> None:
    """The broker deletes them some minutes later, also after each trim of ours."""
    assert disk.lineage({8: 100}) == lineage({8: 100})
    assert opened.count == 0
    assert disk.lineage({8: 115}) == lineage({8: 100})
    assert opened.count == 1


def test_a_cut_in_the_active_segment(disk: Disk) -> None:
    disk.files.file(100, ".log").unlink()
    disk.files.active(40, 70, epoch=3)
    for start in (55, 70):
        assert disk.lineage({3: start}) == lineage({3: 40})


def test_headers_are_read_once_for_an_epoch(disk: Disk, opened: Opened) -> None:
    for epoch_file, count in (({5: 65, 8: 80}, 1), ({5: 70, 8: 80}, 1), ({8: 80}, 2), ({8: 90}, 2)):
        for _ in range(2):
            assert disk.lineage(epoch_file) == lineage({3: 40, 5: 60, 8: 80})
            assert opened.count == count


def test_no_batch_is_read_behind_the_first_one_of_the_epoch(disk: Disk) -> None:
    """Nearly all segments have batches of one epoch: one header says it."""
    disk.write({40: 8})
    data = disk.path.read_bytes()
    disk.path.write_bytes(data[: len(data) // 6] + b"unread" * 80)
    assert disk.lineage({8: 95}) == lineage({8: 40})


def test_h39_a_segment_of_another_topic_with_the_same_path_is_read_again(disk: Disk) -> None:
    assert disk.lineage({8: 95}) == lineage({3: 40, 5: 60, 8: 80})
    metadata = disk.files.path / "partition.metadata"
    metadata.write_text(f"version: 0\ntopic_id: {Uuid(bytes(range(1, 17)))}\n")
    disk.write({40: 6, 80: 8})
    assert disk.lineage({8: 95}) == lineage({6: 40, 8: 80})


@pytest.mark.parametrize(
    ("epochs", "epoch_file"),
    [
        ({40: 5, 60: 3, 80: 8}, {8: 95}),  # an epoch that goes back
        ({40: 3, 60: 9, 80: 9}, {8: 95}),  # a later epoch than that of the records above
        ({40: 3, 60: 5, 80: 7}, {8: 85}),  # an older epoch than the file says
        ({40: 3, 60: 9, 80: 9}, {8: 75}),
        ({40: 3, 60: 5}, {8: 80}),  # an older epoch right where the file's first begins
        ({40: 3, 60: 9, 80: 9}, {8: 90}),
    ],
)
def test_h13_batches_that_do_not_fit_the_epoch_file_prove_nothing(
    disk: Disk, opened: Opened, epochs: dict[int, int], epoch_file: dict[int, int]
) -> None:
    disk.write(epochs)
    opened.count = 0
    for _ in range(2):
        assert disk.lineage(epoch_file) == lineage(epoch_file)
    assert opened.count == 1


@pytest.mark.parametrize(
    "damage", ["short header", "short batch", "too large", "magic", "offset", "later offset"]
)
def test_h13_a_damaged_segment_proves_nothing(disk: Disk, damage: str) -> None:
    data = bytearray(disk.path.read_bytes())
    size = len(data) // 6
    if damage == "short header":
        del data[3 * size + 20 :]
    elif damage == "short batch":
        del data[3 * size + 70 :]
    elif damage == "too large":
        data[size + 8] = 0x7F
    elif damage == "magic":
        data[2 * size + 16] = 7
    else:
        data[2 * size + 7] = 5 if damage == "offset" else 99
    disk.path.write_bytes(data)
    assert disk.lineage({8: 99}) == lineage({8: 99})


def test_h13_a_segment_that_ends_below_the_cut_proves_nothing(disk: Disk) -> None:
    """Perhaps the log has begun another segment since its files were listed."""
    data = disk.path.read_bytes()
    disk.path.write_bytes(data[: len(data) // 2])
    assert disk.lineage({8: 99}) == lineage({8: 99})


@pytest.mark.parametrize("replaced", [False, True])
def test_h13_a_segment_that_vanishes_during_the_scan_proves_nothing(
    disk: Disk, replaced: bool
) -> None:
    real, other = builtins.open, disk.path.with_suffix(".other")
    other.write_bytes(disk.path.read_bytes())

    def vanishing(path: Any, *rest: Any, **named: Any) -> Any:
        if str(path) == str(disk.path):
            if replaced and other.exists():
                other.replace(disk.path)
            elif not replaced:
                disk.path.unlink(missing_ok=True)
        return real(path, *rest, **named)

    with mock.patch.object(builtins, "open", vanishing):
        assert disk.lineage({8: 99}) == lineage({8: 99})


def test_batches_of_an_old_format_say_nothing_of_epochs(disk: Disk) -> None:
    data = disk.path.read_bytes()
    size = len(data) // 6
    old = b"".join(batch(base, 10, epoch=-1) for base in (40, 50))
    disk.path.write_bytes(old + data[2 * size :])
    assert disk.lineage({8: 95}) == lineage({5: 60, 8: 80})

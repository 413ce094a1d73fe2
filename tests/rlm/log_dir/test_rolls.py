"""New segments are noticed by the times of directories."""

import os
from pathlib import Path

import pytest

from rlm.log_dir.rolls import Rolls

ORDERS = ("orders", 0)
PAID = ("paid", 3)


class Disk:
    """Two log dirs whose directories change their time only by `at`."""

    def __init__(self, path: Path) -> None:
        self.paths = [path / "a", path / "b"]
        for one in self.paths:
            one.mkdir()
        self.rolls = Rolls([str(one) for one in self.paths])
        self.segment(ORDERS, 0)
        self.segment(PAID, 0, log_dir=1)

    def directory(self, partition: tuple[str, int], log_dir: int = 0) -> Path:
        return self.paths[log_dir] / f"{partition[0]}-{partition[1]}"

    def segment(
        self, partition: tuple[str, int], base: int, *, at: int = 1, log_dir: int = 0
    ) -> None:
        self.file(partition, f"{base:020d}.log", at=at, log_dir=log_dir)

    def file(self, partition: tuple[str, int], name: str, *, at: int = 1, log_dir: int = 0) -> None:
        directory = self.directory(partition, log_dir)
        directory.mkdir(exist_ok=True)
        (directory / name).touch()
        os.utime(directory, ns=(at, at))

    def new(self, *partitions: tuple[str, int]) -> tuple[tuple[str, int], ...]:
        return self.rolls.new(partitions or (ORDERS, PAID))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    made = Disk(tmp_path)
    assert made.new() == ()
    return made


def test_a_new_segment_is_reported_once(disk: Disk) -> None:
    disk.segment(ORDERS, 100, at=2)
    assert disk.new() == (ORDERS,)
    assert disk.new() == ()
    disk.segment(PAID, 7, at=3, log_dir=1)
    disk.segment(ORDERS, 200, at=3)
    assert disk.new() == (ORDERS, PAID)


def test_a_second_roll_within_one_tick_of_the_clock_is_seen(disk: Disk) -> None:
    disk.segment(ORDERS, 100, at=2)
    assert disk.new() == (ORDERS,)
    disk.segment(ORDERS, 200, at=2)
    assert disk.new() == (ORDERS,)


def test_a_directory_whose_time_is_the_same_for_long_is_not_listed(disk: Disk) -> None:
    assert disk.new() == ()
    disk.segment(ORDERS, 100, at=1)
    assert disk.new() == ()
    disk.segment(ORDERS, 200, at=2)
    assert disk.new() == (ORDERS,)


def test_other_files_are_no_roll(disk: Disk) -> None:
    disk.file(ORDERS, f"{100:020d}.snapshot", at=2)
    disk.file(ORDERS, f"{0:020d}.log.deleted", at=3)
    assert disk.new() == ()


def test_a_partition_that_was_not_named_before_is_only_remembered(disk: Disk) -> None:
    assert disk.new(PAID) == ()
    disk.segment(ORDERS, 100, at=2)
    assert disk.new() == ()
    disk.segment(ORDERS, 200, at=3)
    assert disk.new() == (ORDERS,)


def test_what_is_gone_is_not_there_and_is_found_again_elsewhere(disk: Disk) -> None:
    for file in disk.directory(ORDERS).iterdir():
        file.unlink()
    disk.directory(ORDERS).rmdir()
    assert disk.new() == ()
    disk.segment(ORDERS, 0, at=2, log_dir=1)
    assert disk.new() == ()
    disk.segment(ORDERS, 100, at=3, log_dir=1)
    assert disk.new() == (ORDERS,)


def test_a_directory_whose_mode_changes_is_listed_again(disk: Disk) -> None:
    assert disk.new() == ()
    disk.segment(ORDERS, 100, at=1)
    disk.directory(ORDERS).chmod(0o700)
    assert disk.new() == (ORDERS,)
    assert disk.new() == ()


def test_a_directory_that_can_no_longer_be_read_is_reported_once(disk: Disk) -> None:
    """It is a link to itself then: that fails for root too."""
    directory = disk.directory(ORDERS)
    assert disk.new() == ()
    directory.rename(directory.with_name("kept"))
    directory.symlink_to(directory)
    assert disk.new() == (ORDERS,)
    assert disk.new() == ()
    directory.unlink()
    directory.with_name("kept").rename(directory)
    assert disk.new() == ()
    disk.segment(ORDERS, 100, at=2)
    assert disk.new() == (ORDERS,)

"""The free space of a log directory: of its file system, or of a quota."""

import shutil
from pathlib import Path

import pytest

from rlm.log_dir.space import space_of

MIB = 1 << 20


def test_without_a_quota_the_file_system_counts(tmp_path: Path) -> None:
    assert space_of(tmp_path, 0).size_bytes == shutil.disk_usage(tmp_path).total


def test_h18_a_quota_counts_what_the_files_take_and_not_what_they_declare(tmp_path: Path) -> None:
    before = space_of(tmp_path, 8 * MIB)
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "0.log").write_bytes(b"1" * MIB)
    with open(tmp_path / "orders-0" / "0.index", "wb") as sparse:
        sparse.truncate(10 * MIB)
    after = space_of(tmp_path, 8 * MIB)
    assert after.size_bytes == 8 * MIB
    assert MIB <= before.free_bytes - after.free_bytes < 2 * MIB


def test_a_quota_that_is_exceeded_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"1" * 2 * MIB)
    assert space_of(tmp_path, MIB).free_bytes == 0


def test_a_directory_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        space_of(tmp_path / "gone", MIB)

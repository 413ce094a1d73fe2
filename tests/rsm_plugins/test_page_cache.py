"""What is known of the page cache, and that nothing depends on its calls."""

import errno
import os
from pathlib import Path

import pytest

from rsm_plugins.files.page_cache import PageCache, drop_written


def answering(error: OSError | None, *, but_at: int = -1) -> PageCache:
    """Every read of a byte ends with the error, except at one position."""

    def read(_descriptor: int, position: int) -> None:
        if error is not None and position != but_at:
            raise error

    return PageCache(read)


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(bytes(1600))
    return str(file)


def test_a_file_is_cold_where_no_sample_is_cached(path: str) -> None:
    assert not answering(BlockingIOError()).holds(path)
    assert answering(BlockingIOError(), but_at=1500).holds(path)
    assert answering(None).holds(path)


def test_what_cannot_be_known_counts_as_cached(path: str) -> None:
    """Then nothing is dropped."""
    assert answering(OSError(errno.EOPNOTSUPP, "no")).holds(path)
    assert PageCache().holds(f"{path}.gone")


def test_a_file_that_was_just_written_is_cached(path: str) -> None:
    assert PageCache().holds(path)


def test_a_file_keeps_its_bytes(path: str) -> None:
    PageCache().drop(path)
    PageCache().drop(f"{path}.gone")
    assert Path(path).read_bytes() == bytes(1600)
    descriptor = os.open(path, os.O_RDONLY)
    os.close(descriptor)
    drop_written(descriptor)  # refused, and nobody minds

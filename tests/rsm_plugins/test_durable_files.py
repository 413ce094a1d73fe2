"""The platform seam: kernel-side copies and the fallback give the same bytes and errors."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip405.crc import crc32c
from rsm_plugins.files import durable as durable_files
from rsm_plugins.files.durable import (
    PIECE_BYTES,
    CopyPiece,
    SourceCut,
    copy_bytes,
    plain_copy,
    replace_file,
    sync_path,
)


def refuses(*_: int) -> tuple[int, bytes]:
    raise OSError(errno.EXDEV, "refused")


def answers_nothing(*_: int) -> tuple[int, bytes]:
    return 0, b""


PLATFORM = durable_files.platform_copy()
WAYS: dict[str, CopyPiece] = {
    "platform": PLATFORM,
    "plain": plain_copy,
    "refusing": refuses,
    "answering 0": answers_nothing,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> CopyPiece:
    return WAYS[request.param]


@pytest.fixture
def destination(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "destination", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    data = os.urandom(2 * PIECE_BYTES + 77)
    (tmp_path / "source").write_bytes(b"head" + data)
    descriptor = os.open(tmp_path / "source", os.O_RDONLY)
    yield descriptor, data
    os.close(descriptor)


def test_copies_a_range(source: tuple[int, bytes], destination: int, way: CopyPiece) -> None:
    descriptor, data = source
    crc = copy_bytes(descriptor, 4, len(data), destination, way=way)
    assert crc == crc32c(data)
    assert os.pread(destination, len(data) + 1, 0) == data


def test_an_empty_range_has_the_checksum_of_nothing(
    source: tuple[int, bytes], destination: int, way: CopyPiece
) -> None:
    assert copy_bytes(source[0], 4, 0, destination, way=way) == crc32c(b"") == 0


def test_a_source_that_ends_early_is_reported(
    source: tuple[int, bytes], destination: int, way: CopyPiece
) -> None:
    descriptor, data = source
    with pytest.raises(SourceCut) as caught:
        copy_bytes(descriptor, 4, len(data) + 1, destination, way=way)
    assert caught.value.copied_bytes == len(data)


def test_other_errors_are_not_hidden_by_the_fallback(source: tuple[int, bytes]) -> None:
    def full(*_: int) -> tuple[int, bytes]:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        copy_bytes(source[0], 4, 10, -1, way=full)


def test_it_stops_between_pieces(source: tuple[int, bytes], destination: int) -> None:
    steps: list[int] = []

    def go_on() -> None:
        steps.append(1)
        if len(steps) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        copy_bytes(source[0], 4, 2 * PIECE_BYTES, destination, go_on)
    assert len(os.pread(destination, 3 * PIECE_BYTES, 0)) == PIECE_BYTES


def test_a_file_is_replaced_whole_and_no_other_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for content in (b"first", b"a longer second"):
        replace_file(path, content)
        sync_path(tmp_path)
        assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_replacement_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_file(path, b"old")
    (tmp_path / "state.json.tmp").mkdir()
    with pytest.raises(OSError):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"

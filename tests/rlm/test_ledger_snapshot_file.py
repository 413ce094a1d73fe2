"""The file of the ledger snapshot: whole and of this ledger, or not read at all."""

import json
import struct
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kip405.crc import crc32c
from kip405.errors import Corrupt, Invalid, NotFound, RemoteStorageError
from rlm.service.ledger_snapshot_file import SnapshotFile, SnapshotOrigin

END = struct.Struct("<QI16s")
MARK = b"rlm ledger end 1"
ORIGIN = SnapshotOrigin(
    cluster_id="cluster",
    topic="ledger",
    topic_id="id",
    partition_count=50,
    software="1",
    layout="1 little",
)
SECTIONS = (b"first section", b"", b"third, in two pieces")


def write(file: SnapshotFile, sections: tuple[bytes, ...] = SECTIONS) -> int:
    writer = file.begin(ORIGIN)
    for section in sections:
        writer.add([section[:5], section[5:]])
    return writer.finish()


def read(file: SnapshotFile, origin: SnapshotOrigin = ORIGIN) -> tuple[bytes, ...]:
    return tuple(file.read(origin, bytes))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path)
    with pytest.raises(NotFound, match=r"ledger\.snapshot is not there"):
        read(file)
    size_bytes = write(file)
    assert read(SnapshotFile(tmp_path)) == SECTIONS
    assert size_bytes == file.path.stat().st_size
    write(file, (b"newer",))
    assert read(file) == (b"newer",)
    assert [one.name for one in tmp_path.iterdir()] == [file.path.name]


def test_g09_a_file_that_was_cut_at_any_length_or_is_longer_is_corrupt(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path)
    write(file)
    whole = file.path.read_bytes()
    for size in range(len(whole)):
        file.path.write_bytes(whole[:size])
        with pytest.raises(Corrupt):
            read(file)
    size = len(b"".join(SECTIONS))
    for longer in (whole + b"x", b"x" + whole, whole[:size] + b"x" + whole[size:]):
        file.path.write_bytes(longer)
        with pytest.raises(Corrupt):
            read(file)


def test_g09_a_file_with_any_byte_changed_is_corrupt(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path)
    write(file)
    whole = file.path.read_bytes()
    for at in range(len(whole)):
        for bit in (1, 0x80):
            changed = bytes([whole[at] ^ bit])
            file.path.write_bytes(whole[:at] + changed + whole[at + 1 :])
            with pytest.raises(Corrupt):
                read(file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cluster_id", "other"),
        ("topic", "other"),
        ("topic_id", "other"),
        ("partition_count", 51),
        ("software", "2"),
        ("layout", "1 big"),
    ],
)
def test_h06_a_file_of_another_cluster_ledger_or_version_is_refused(
    tmp_path: Path, name: str, value: Any
) -> None:
    file = SnapshotFile(tmp_path)
    write(file)
    with pytest.raises(Invalid, match=f"{name} is .*, not {value!r}"):
        read(file, replace(ORIGIN, **{name: value}))


@pytest.mark.parametrize(
    "directory",
    [
        [],
        "text",
        {},
        {"sections": None},
        {"sections": [{"size_bytes": 3}]},
        {"sections": [{"size_bytes": None, "crc32c": 1}]},
        {"sections": 5},
    ],
)
def test_g09_a_directory_of_another_shape_is_corrupt(tmp_path: Path, directory: Any) -> None:
    """Its checksum is right: other software has written it."""
    file = SnapshotFile(tmp_path)
    if isinstance(directory, dict) and directory:
        directory = {**asdict(ORIGIN), **directory}
    data = json.dumps(directory).encode()
    file.path.write_bytes(data + END.pack(len(data), crc32c(data), MARK))
    with pytest.raises((Corrupt, Invalid)):
        read(file)


def test_an_attempt_that_breaks_off_leaves_the_former_file(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path)
    write(file)
    broken = file.begin(ORIGIN)
    broken.add([b"half of"])
    assert read(file) == SECTIONS
    broken.abandon()
    assert [one.name for one in tmp_path.iterdir()] == [file.path.name]
    (tmp_path / "ledger.snapshot.0.tmp").write_bytes(b"of a process that was killed")
    write(SnapshotFile(tmp_path), (b"of the next one",))
    assert [one.name for one in tmp_path.iterdir()] == [file.path.name]


def test_a_file_that_cannot_be_read_is_an_error_of_the_disk(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path / "missing")
    with pytest.raises(NotFound):
        read(file)
    (tmp_path / "ledger.snapshot").mkdir()
    with pytest.raises(RemoteStorageError, match="cannot read"):
        read(SnapshotFile(tmp_path))

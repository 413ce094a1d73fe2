"""The file of the ledger snapshot in the state dir: sections, a directory of them, checksums.

The sections (`rlmm.snapshot`) are one after the other, then comes the directory (JSON: of which
ledger they are, what wrote them, size and CRC-32C of each section), then `_END`: size and CRC-32C
of the directory, and a mark. So every byte is under a checksum, and a file that was cut short has
no end. It is written under another name and renamed when it is durable. All of it is synchronous,
for threads. This module must not know what the sections say.
"""

import contextlib
import itertools
import json
import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from kip405.crc import crc32c
from kip405.errors import Corrupt, Invalid, NotFound
from rsm_plugins.files.durable import error_of_os, make_durable, sync_path

FILE_NAME: Final = "ledger.snapshot"
_END = struct.Struct("<QI16s")
_MARK: Final = b"rlm ledger end 1"
_BUFFER_BYTES: Final = 1 << 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOrigin:
    """Of which ledger a snapshot is, and what wrote it; all of it must be the same to read it."""

    cluster_id: str
    topic: str
    topic_id: str
    partition_count: int
    software: str
    layout: str

    def refuse_other(self, directory: dict[str, Any]) -> None:
        """Invalid where a directory is of another ledger, or was written by other software."""
        for name, value in asdict(self).items():
            if directory.get(name) != value:
                raise Invalid(f"{name} is {directory.get(name)!r}, not {value!r}")


class SnapshotFile:
    """One file, replaced as a whole."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / FILE_NAME
        self._attempts = itertools.count()

    def read(self, origin: SnapshotOrigin, decode: Callable[[bytes], T]) -> list[T]:
        """What `decode` makes of each section. NotFound: there is no file. Corrupt: it is not
        whole. Invalid: it is not of this origin. Unavailable: the disk does not give it.
        """
        try:
            with self.path.open("rb") as file:
                return _read(file, origin, decode)
        except FileNotFoundError as error:
            raise NotFound(f"{self.path} is not there") from error
        except OSError as error:
            raise error_of_os(error, "read", str(self.path)) from error

    def begin(self, origin: SnapshotOrigin) -> "SnapshotWriter":
        """A new file. What an earlier attempt has left is removed."""
        for left in self.path.parent.glob(f"{FILE_NAME}.*.tmp"):
            left.unlink(missing_ok=True)
        temporary = self.path.with_name(f"{FILE_NAME}.{next(self._attempts)}.tmp")
        return SnapshotWriter(temporary, self.path, origin)


class SnapshotWriter:
    """A file that is not there yet. Errors are OSErrors; then `abandon` it."""

    def __init__(self, temporary: Path, path: Path, origin: SnapshotOrigin) -> None:
        self._temporary = temporary
        self._path = path
        self._origin = origin
        self._file = temporary.open("wb", buffering=_BUFFER_BYTES)
        self._sections: list[dict[str, int]] = []

    def add(self, pieces: Iterable[bytes]) -> None:
        """Another section."""
        size_bytes, crc = 0, 0
        for piece in pieces:
            self._file.write(piece)
            size_bytes += len(piece)
            crc = crc32c(piece, crc)
        self._sections.append({"size_bytes": size_bytes, "crc32c": crc})

    def finish(self) -> int:
        """Durable, and in place of the file before, when this returns; its size in bytes."""
        directory = json.dumps({**asdict(self._origin), "sections": self._sections}).encode()
        with self._file as file:
            file.write(directory + _END.pack(len(directory), crc32c(directory), _MARK))
            file.flush()
            make_durable(file.fileno())
            size_bytes = file.tell()
        self._temporary.replace(self._path)
        sync_path(self._path.parent)
        return size_bytes

    def abandon(self) -> None:
        """Nothing stays of it."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


def _read(file: BinaryIO, origin: SnapshotOrigin, decode: Callable[[bytes], T]) -> list[T]:
    sections, size_bytes = _read_directory(file, origin)
    if sum(section["size_bytes"] for section in sections) != size_bytes:
        raise Corrupt("the sections do not fill the file")
    file.seek(0)
    found: list[T] = []
    for section in sections:
        data = file.read(section["size_bytes"])
        if len(data) != section["size_bytes"] or crc32c(data) != section["crc32c"]:
            raise Corrupt(f"section {len(found)} does not have its checksum")
        found.append(decode(data))
    return found


def _read_directory(file: BinaryIO, origin: SnapshotOrigin) -> tuple[list[dict[str, int]], int]:
    """Sizes and checksums of the sections, and how many bytes there are before the directory."""
    end_at = file.seek(0, os.SEEK_END) - _END.size
    if end_at < 0:
        raise Corrupt("the file has no end")
    file.seek(end_at)
    size_bytes, crc, mark = _END.unpack(file.read(_END.size))
    if mark != _MARK or size_bytes > end_at:
        raise Corrupt("the file has no end")
    file.seek(end_at - size_bytes)
    data = file.read(size_bytes)
    if crc32c(data) != crc:
        raise Corrupt("the directory does not have its checksum")
    try:
        directory = json.loads(data)
        origin.refuse_other(directory)
        sections = [
            {"size_bytes": int(one["size_bytes"]), "crc32c": int(one["crc32c"])}
            for one in directory["sections"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"the directory is not what this software writes: {error!r}") from error
    return sections, end_at - size_bytes

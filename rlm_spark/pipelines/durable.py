"""The durable file operations that an export's bookkeeping uses.

They need a local or mounted POSIX file system with atomic rename and exclusive link. A process can
crash between any two operations, and tests crash at each of them. This module must not know what
the files mean.
"""

import os
import shutil
from pathlib import Path
from typing import BinaryIO, Protocol


class Files(Protocol):
    """File operations. OSError as the system gives it; nothing is retried."""

    def make_dirs(self, path: Path) -> None:
        """Create the directory and its parents, durably."""
        ...

    def make_unique_dir(self, parent: Path, prefix: str) -> Path:
        """Create a directory in `parent` with a unique name."""
        ...

    def create(self, path: Path) -> BinaryIO:
        """A new file to write to; FileExistsError where there is one."""
        ...

    def sync(self, file: BinaryIO) -> None:
        """Flush the open file to the disk."""
        ...

    def write(self, path: Path, data: bytes) -> None:
        """A new file with this content, whole on the disk, though its name may not be yet."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError where the name is taken. This atomic step
        decides which of several attempts wins. `sync_dir` makes it durable.
        """
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename; `sync_dir` of both directories makes it durable."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Flush the names in a directory to the disk."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file's name, if it is there."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and its content, as far as possible."""
        ...

    def read(self, path: Path) -> bytes | None:
        """The content; None where there is no such file."""
        ...

    def exists(self, path: Path) -> bool: ...

    def names(self, path: Path) -> list[str]:
        """The names in a directory, ascending; none if it does not exist."""
        ...

    def size(self, path: Path) -> int:
        """Bytes of a file; 0 where there is none."""
        ...


class LocalFiles:
    """File operations of this machine's kernel."""

    def make_dirs(self, path: Path) -> None:
        if path.is_dir():
            return
        self.make_dirs(path.parent)
        path.mkdir(exist_ok=True)
        self.sync_dir(path.parent)

    def make_unique_dir(self, parent: Path, prefix: str) -> Path:
        path = parent / f"{prefix}{os.urandom(8).hex()}"
        path.mkdir()
        self.sync_dir(parent)
        return path

    def create(self, path: Path) -> BinaryIO:
        return path.open("xb")

    def sync(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())

    def write(self, path: Path, data: bytes) -> None:
        with self.create(path) as file:
            file.write(data)
            self.sync(file)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def sync_dir(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def exists(self, path: Path) -> bool:
        return path.exists()

    def names(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def size(self, path: Path) -> int:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0

"""A store in a directory, synchronously; every step is relative to one open descriptor of its base.

The base is opened and the identity object in it is read first; a file that is then missing is
missing in that very tree and not in an empty mount point (H11). A file is written under a temporary
name in its own directory, made durable and renamed, and the directory is made durable. Runs in
threads; this module must not know gRPC or asyncio.
"""

import errno
import itertools
import os
import stat as stat_modes
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kip405.contracts import StoredObject, StoreIdentity
from kip405.errors import Corrupt, NotFound, Unavailable
from rsm_plugins.files.durable import error_of_os, make_durable, read_at, read_if_there, write_at
from rsm_plugins.layout.keys import IDENTITY_NAME, check_prefix
from rsm_plugins.layout.manifest import IDENTITY_MAX_BYTES, decode_identity, encode_identity

TEMPORARY_SUFFIX = ".rlm-tmp"
_FOLDER_ATTEMPTS = 20
_FOLDERS_REMEMBERED = 10_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_STAT = _READ | os.O_NONBLOCK  # also for a pipe under an object's name
_NO_FILE = {errno.ELOOP, errno.ENXIO}
"""A symbolic link or a socket is there, not an object."""
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_tokens = itertools.count()


def temporary_name(file: str) -> str:
    """A fresh name for a file that will become `file`; lists and sweeps recognize it by its
    suffix.
    """
    return f"{file}.{os.getpid():x}-{os.urandom(6).hex()}-{next(_tokens):x}{TEMPORARY_SUFFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a folder."""

    name: str
    is_folder: bool
    size_bytes: int
    modified_ms: int


class StoreTree:
    """The directory `root/prefix` and the operations on it; errors are kip405's."""

    def __init__(self, root: Path, prefix: str = "") -> None:
        self.root = Path(os.path.abspath(root))
        self.base = self.root / check_prefix(prefix) if prefix else self.root
        self._prefix = prefix
        self._durable: dict[str, _DurableFolder] = {}

    def __str__(self) -> str:
        return f"store {self.base}"

    def path_of(self, name: str) -> str:
        return f"{self.base}/{name}"

    @contextmanager
    def opened(self, operation: str) -> Iterator[int]:
        """Descriptor of the base, its identity object just seen; OSError inside becomes ours."""
        with self._translated(operation), self._base() as base:
            try:
                os.stat(IDENTITY_NAME, dir_fd=base)
            except FileNotFoundError as error:
                raise Unavailable(
                    f"cannot {operation} {self}: it has no {IDENTITY_NAME}; "
                    "it is not mounted, not yet created, or not the store it was"
                ) from error
            yield base

    @contextmanager
    def _base(self) -> Iterator[int]:
        descriptor = os.open(self.base, _DIRECTORY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _translated(self, operation: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise error_of_os(error, operation, str(self)) from error

    # Identity.

    def read_identity(self) -> StoreIdentity | None:
        """The identity, None if the root is there without one; Unavailable if the root is away."""
        with self._translated("read the identity of"):
            os.stat(self.root)
            with suppress(FileNotFoundError), self._base() as base:
                return self._identity(base)
        return None

    def _identity(self, base: int) -> StoreIdentity | None:
        data = read_if_there(IDENTITY_NAME, base, IDENTITY_MAX_BYTES)
        return None if data is None else decode_identity(data, self.path_of(IDENTITY_NAME))

    def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        """Create it whole under its name if the name is free; returns the one that is there
        afterwards.
        """
        with self._translated("create the identity of"):
            root = os.open(self.root, _DIRECTORY)
            try:
                base, _ = self._ensure_folder(root, self._prefix)
            finally:
                os.close(root)
            try:
                self._link_identity(base, encode_identity(identity))
                present = self._identity(base)
            finally:
                os.close(base)
        if present is None:
            raise Unavailable(f"the identity of {self} was created and is gone again")
        return present

    def _link_identity(self, base: int, data: bytes) -> None:
        with TemporaryFiles(base) as temporary:
            name, descriptor = temporary.create(IDENTITY_NAME)
            write_at(descriptor, data, 0)
            make_durable(descriptor)
            with suppress(FileExistsError):
                os.link(name, IDENTITY_NAME, src_dir_fd=base, dst_dir_fd=base)
        make_durable(base)

    # Writing.

    @contextmanager
    def new_file(self, base: int, folder: str, file: str) -> Iterator["NewFile"]:
        """A temporary file that will become `folder/file`; folders are created again if other
        processes remove them meanwhile.
        """
        with ExitStack() as stack:
            for attempt in itertools.count(1):
                descriptor, levels = self._ensure_folder(base, folder)
                temporary = TemporaryFiles(descriptor)
                try:
                    # With this file in it the folder is not empty, so it cannot be removed.
                    name, file_descriptor = temporary.create(file)
                except OSError as error:
                    os.close(descriptor)
                    if not isinstance(error, FileNotFoundError) or attempt == _FOLDER_ATTEMPTS:
                        raise
                    continue
                stack.callback(os.close, descriptor)
                stack.enter_context(temporary)
                yield NewFile(temporary=temporary, name=name, descriptor=file_descriptor)
                self._remember_durable(folder, _DurableFolder(levels=levels, file=file))
                return

    def _ensure_folder(self, base: int, folder: str) -> "_Opened":
        """The folder below a descriptor, durable with all levels above it. Each missing level is
        created, and each made durable, because another process may have created it just now.
        """
        return self._durable_folder(base, folder) or _walk(base, folder, self._step)

    def _remember_durable(self, folder: str, found: "_DurableFolder") -> None:
        if len(self._durable) >= _FOLDERS_REMEMBERED:
            self._durable.clear()
        self._durable[folder] = found

    def _durable_folder(self, base: int, folder: str) -> "_Opened | None":
        """The folder if this process made it durable; None where that is not certain, whatever the
        reason: to create it says more.
        """
        known = self._durable.get(folder)
        if known is None:
            return None
        with ExitStack() as stack, suppress(OSError):
            found = _walk(base, folder, _open_folder)
            stack.callback(os.close, found.descriptor)
            is_same = found.levels == known.levels
            if is_same and self.size_of(found.descriptor, known.file) is not None:
                stack.pop_all()
                return found
        return None

    @staticmethod
    def _step(parent: int, part: str) -> int:
        for attempt in itertools.count(1):
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=parent)
            make_durable(parent)
            try:
                return _open_folder(parent, part)
            except FileNotFoundError:
                if attempt == _FOLDER_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def write(self, name: str, data: bytes, operation: str) -> None:
        """One small object, whole or not at all."""
        folder, _, file = name.rpartition("/")
        with self.opened(operation) as base, self.new_file(base, folder, file) as new:
            write_at(new.descriptor, data, 0)
            make_durable(new.descriptor)
            new.temporary.publish(new.name, file)
            new.temporary.make_durable()

    # Reading.

    def size_of(self, base: int, name: str) -> int | None:
        """Size of an object in bytes, None if it is missing in this tree.

        The file is opened for it. A network file system answers a stat from its cache of
        attributes, for a minute after another machine removed the file, but it asks its server at
        every open.
        """
        try:
            descriptor = os.open(name, _STAT, dir_fd=base)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return found.st_size if stat_modes.S_ISREG(found.st_mode) else None

    def required_size(self, name: str, operation: str) -> int:
        """Size of an object; NotFound names it, but only while the store is there."""
        with self.opened(operation) as base:
            size_bytes = self.size_of(base, name)
        if size_bytes is None:
            raise NotFound(f"cannot {operation}: {self.path_of(name)} is not there")
        return size_bytes

    def read(self, name: str, operation: str, start: int = 0, end: int | None = None) -> bytes:
        """A range of an object clipped to its size; NotFound as `required_size`."""
        with self.opened(operation) as base:
            try:
                descriptor = os.open(name, _READ, dir_fd=base)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise NotFound(f"cannot {operation}: {self.path_of(name)} is not there") from error
            try:
                size_bytes = os.fstat(descriptor).st_size
                wanted = max(0, min(size_bytes, size_bytes if end is None else end) - start)
                data = read_at(descriptor, start, wanted)
            finally:
                os.close(descriptor)
        if len(data) != wanted:
            raise Corrupt(f"{self.path_of(name)} became shorter while it was read")
        return data

    # Listing and removing.

    def entries(self, folder: str, operation: str) -> list[Entry]:
        """The entries of a folder without temporary files; empty if the folder is missing in a
        store that is there.
        """
        with self.opened(operation) as base:
            try:
                descriptor = os.open(folder or ".", _DIRECTORY, dir_fd=base)
            except (FileNotFoundError, NotADirectoryError):
                return []
            try:
                return [
                    entry
                    for entry in _scan(descriptor)
                    if not entry.name.endswith(TEMPORARY_SUFFIX)
                ]
            finally:
                os.close(descriptor)

    def remove_segment(
        self, folder: str, stem: str, suffixes: tuple[str, ...], operation: str
    ) -> None:
        """Remove what unfinished copies of the segment left, then its files in the order of the
        suffixes, then the folder if it is empty. A file that cannot be removed does not keep the
        others.

        Leftovers come first: a copy that is still running cannot rename a file that is gone, so it
        cannot finish afterwards.
        """
        with self.opened(operation) as base:
            try:
                descriptor = os.open(folder, _DIRECTORY, dir_fd=base)
            except (FileNotFoundError, NotADirectoryError):
                return
            try:
                leftovers = [
                    name
                    for name in os.listdir(descriptor)
                    if name.endswith(TEMPORARY_SUFFIX) and name.partition(".")[0] == stem
                ]
                files = [f"{stem}.{suffix}" for suffix in suffixes]
                _unlink_all((*leftovers, *files), descriptor)
                make_durable(descriptor)
            finally:
                os.close(descriptor)
            with suppress(OSError):  # not empty, or already gone
                os.rmdir(folder, dir_fd=base)

    def below_root(self, folder: str, *, make: bool) -> int:
        """Descriptor of a folder below the root; FileNotFoundError, unless it is made durably."""
        root = os.open(self.root, _DIRECTORY)
        try:
            return _walk(root, folder, self._step if make else _open_folder).descriptor
        finally:
            os.close(root)

    def space(self) -> tuple[int, int]:
        """Free bytes and all bytes on the volume of a store that is there."""
        with self.opened("look into") as base:
            found = os.fstatvfs(base)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def sweep(self, grace_ms: int) -> int:
        """Remove temporary files that were last written longer ago than the grace, by the store's
        own clock; returns how many.
        """
        removed = 0
        with self._translated("sweep"), self._base() as base:
            now_ms = self._clock_of_store(base)
            for _, _, names, descriptor in os.fwalk(".", dir_fd=base, follow_symlinks=False):
                for name in names:
                    if name.endswith(TEMPORARY_SUFFIX) and self._is_older(
                        descriptor, name, now_ms - grace_ms
                    ):
                        with suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=descriptor)
                            removed += 1
        return removed

    @staticmethod
    def _clock_of_store(base: int) -> int:
        with TemporaryFiles(base) as temporary:
            _, descriptor = temporary.create("clock")
            return os.fstat(descriptor).st_mtime_ns // 1_000_000

    @staticmethod
    def _is_older(descriptor: int, name: str, limit_ms: int) -> bool:
        try:
            return os.stat(name, dir_fd=descriptor).st_mtime_ns // 1_000_000 < limit_ms
        except FileNotFoundError:
            return False


class TemporaryFiles:
    """Files being written in one folder: published by rename, or removed at the end."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._open: dict[str, int] = {}

    def __enter__(self) -> "TemporaryFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for name, descriptor in self._open.items():
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(name, dir_fd=self._folder)
        self._open.clear()

    def create(self, file: str) -> tuple[str, int]:
        """A new empty file that will become `file`: its present name and its descriptor."""
        name = temporary_name(file)
        descriptor = os.open(name, _CREATE, 0o666, dir_fd=self._folder)
        self._open[name] = descriptor
        return name, descriptor

    def link(self, existing: str, file: str) -> str:
        """A further name of a file of the folder, which will become `file`."""
        name = temporary_name(file)
        folders = {"src_dir_fd": self._folder, "dst_dir_fd": self._folder}
        os.link(existing, name, follow_symlinks=False, **folders)
        self._open[name] = os.open(name, _READ, dir_fd=self._folder)
        return name

    def publish(self, name: str, file: str, into: int | None = None) -> None:
        """Rename it to its own name, over an existing file, in another folder if one is given;
        Unavailable if it was removed meanwhile.
        """
        folder = self._folder if into is None else into
        try:
            os.rename(name, file, src_dir_fd=self._folder, dst_dir_fd=folder)
        except FileNotFoundError as error:
            raise Unavailable(f"{file} was deleted while it was being copied") from error
        os.close(self._open.pop(name))

    def make_durable(self) -> None:
        make_durable(self._folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file being written, and the temporary files of its folder; more can be created."""

    temporary: TemporaryFiles
    name: str
    descriptor: int


class _Opened(NamedTuple):
    """A folder's descriptor, and (device, inode) of the base and of each level down to it."""

    descriptor: int
    levels: "_Levels"


_Levels = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _DurableFolder:
    """A folder that was durable when `file` was put into it. It stays so for as long as the file is
    in it and no level was replaced: a folder that is not empty can only be moved away.
    """

    levels: _Levels
    file: str


def _walk(base: int, folder: str, step: Callable[[int, str], int]) -> _Opened:
    """The folder below a descriptor, level by level; `step` opens one level in another."""
    current, levels = os.dup(base), []
    try:
        for part in folder.split("/") if folder else ():
            levels.append(_inode(current))
            above, current = current, step(current, part)
            os.close(above)
        levels.append(_inode(current))
    except OSError:
        os.close(current)
        raise
    return _Opened(current, tuple(levels))


def _open_folder(parent: int, part: str) -> int:
    return os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _inode(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _unlink_all(names: Iterable[str], descriptor: int) -> None:
    """Remove each; the first failure is raised once all were tried."""
    failures: list[OSError] = []
    for name in names:
        try:
            os.unlink(name, dir_fd=descriptor)
        except FileNotFoundError:
            continue
        except OSError as error:
            failures.append(error)
    for failure in failures:
        raise failure


def _scan(descriptor: int) -> list[Entry]:
    found: list[Entry] = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found.append(
                Entry(
                    name=entry.name,
                    is_folder=stat_modes.S_ISDIR(status.st_mode),
                    size_bytes=status.st_size,
                    modified_ms=status.st_mtime_ns // 1_000_000,
                )
            )
    return found


def stored(entry: Entry, folder: str) -> StoredObject:
    """A folder entry as the contract's value."""
    return StoredObject(
        name=f"{folder}/{entry.name}", size_bytes=entry.size_bytes, modified_ms=entry.modified_ms
    )

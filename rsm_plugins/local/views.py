"""Names of Pinterest's form in a directory: views of segments whose files have names of their own.

The log of an attempt is a file under a name with the attempt's id, as in the layout `kafka`. The
`.log` of Pinterest's form is a hard link to it: to lose or replace the link loses nothing, and two
attempts of one base offset never touch each other's files. The triple of a base offset is that of
the attempt whose file its `.log` is. Only its owner removes it, and who takes its place removes the
`.log` first: whoever dies in between leaves no index beside the log of another attempt.

Who publishes or removes holds a lock on the store's identity object, so that the triple and
`offset.wm` change one after the other, whichever process does it. `offset.wm` only rises; it goes
with the last log of its partition. Blocking; this module must not know gRPC or asyncio.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from kip405.errors import Corrupt, NotFound, Unavailable
from kip405.segments import SegmentLocator
from rsm_plugins.files.durable import make_durable, read_if_there, write_at
from rsm_plugins.files.store_tree import StoreTree
from rsm_plugins.layout.keys import (
    IDENTITY_NAME,
    ObjectKind,
    data_objects_of,
    is_segment_object,
    object_name,
    parse_name,
    segment_stem,
    with_prefix,
)
from rsm_plugins.layout.pinterest import (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    WATERMARK,
    PinterestLayout,
    encode_watermark,
    parse_watermark,
)
from rsm_plugins.pinterest.views import index_views

_OWN = ObjectKind.PINTEREST_LOG
LOCK_TRIES = 4000
_LOCK_AGAIN_SECONDS = 0.005
_NEVER = threading.Event()
_WATERMARK_MAX_BYTES = 64
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class LocalViews:
    """The views of one store, below `prefix` in its root."""

    def __init__(self, tree: StoreTree, layout: PinterestLayout, prefix: str) -> None:
        self._tree = tree
        self._layout = layout
        self._prefix = prefix

    def publish(self, locator: SegmentLocator) -> None:
        """Publish `.index`, `.timeindex` and `.log` of a copied segment, in place of those of
        another attempt. Nothing happens where the attempt has stored nothing, or is deleted.
        """
        with self._tree.opened("publish a segment of") as base, self._locked(base):
            self._publish(base, locator)

    def _publish(self, base: int, locator: SegmentLocator) -> None:
        indexes_name = object_name(locator, ObjectKind.PINTEREST_INDEXES)
        folder, _, stem = segment_stem(locator).rpartition("/")
        try:
            indexes = self._tree.read(indexes_name, "publish a segment of")
            files = index_views(indexes, self._tree.path_of(indexes_name))
            with (
                self._tree.new_file(base, folder, f"{stem}.{OFFSET_INDEX}") as new,
                self._made_folder(locator) as views,
            ):
                log = new.temporary.link(f"{stem}.{_OWN.value}", f"{stem}.{LOG}")
                times, times_descriptor = new.temporary.create(f"{stem}.{TIME_INDEX}")
                write_at(new.descriptor, files[OFFSET_INDEX], 0)
                write_at(times_descriptor, files[TIME_INDEX], 0)
                make_durable(new.descriptor)
                make_durable(times_descriptor)
                is_own = self._is_own(base, views, locator)
                if not is_own and _is_unlinked(_file(locator, LOG), views):
                    make_durable(views)
                new.temporary.publish(new.name, _file(locator, OFFSET_INDEX), views)
                new.temporary.publish(times, _file(locator, TIME_INDEX), views)
                if not is_own:  # else rename would do nothing
                    new.temporary.publish(log, _file(locator, LOG), views)
                make_durable(views)
        except (NotFound, FileNotFoundError):
            return  # nothing was copied, or it was deleted

    def raise_watermark(self, locator: SegmentLocator) -> None:
        """Raise `offset.wm` to the segment, unless it is there or beyond, or the segment is gone.

        Corrupt where the file has no offset: nothing says that another one would not be lower.
        """
        with self._tree.opened("publish a segment of") as base, self._locked(base):
            self._raise_watermark(base, locator)

    def _raise_watermark(self, base: int, locator: SegmentLocator) -> None:
        folder, _, stem = segment_stem(locator).rpartition("/")
        if self._tree.size_of(base, object_name(locator, _OWN)) is None:
            return
        with self._made_folder(locator) as views:
            found = self._watermark(views, locator)
            if found is not None and found >= locator.start_offset:
                return
            with self._tree.new_file(base, folder, f"{stem}.wm") as new:
                write_at(new.descriptor, encode_watermark(locator.start_offset), 0)
                make_durable(new.descriptor)
                new.temporary.publish(new.name, WATERMARK, views)
                make_durable(views)

    def withdraw(self, locator: SegmentLocator) -> None:
        """Remove the views of an attempt that is about to be copied again."""
        with self._tree.opened("copy to") as base, self._locked(base):
            if self._unlink(base, locator):
                self._end_folder(locator)

    def remove(self, locator: SegmentLocator) -> None:
        """Remove the views of an attempt, and then its own files, its manifest aside. Where another
        attempt of the same base offset is complete, its views take the place, unless it is damaged.
        """
        folder, _, stem = segment_stem(locator).rpartition("/")
        suffixes = tuple(kind.value for kind in data_objects_of(locator))
        with self._tree.opened("delete from") as base, self._locked(base):
            if self._unlink(base, locator):
                heir = self._heir(base, locator)
                if heir is not None:
                    with suppress(Corrupt):
                        self._publish(base, heir)
                        self._raise_watermark(base, heir)  # it may have gone with all files
                self._end_folder(locator)
            self._tree.remove_segment(folder, stem, suffixes, "delete from")

    def _heir(self, base: int, locator: SegmentLocator) -> SegmentLocator | None:
        """Another attempt of the same partition and base offset that has a manifest."""
        folder, _, stem = segment_stem(locator).rpartition("/")
        beginning, ending = f"{locator.start_offset:020d}-", f".{ObjectKind.MANIFEST.value}"
        for file in _files_in(folder, base):
            if not (file.startswith(beginning) and file.endswith(ending)) or file == stem + ending:
                continue
            if is_segment_object(f"{folder}/{file}"):
                found = parse_name(f"{folder}/{file}").segment_id
                return replace(locator, segment_id=replace(locator.segment_id, id=found))
        return None

    def _unlink(self, base: int, locator: SegmentLocator) -> bool:
        """Remove the triple if it is the attempt's own, or what is left of one that has no log, and
        say whether the place is free. The log goes last, as it says whose the triple is.
        """
        with suppress(FileNotFoundError), self._opened_folder(locator) as views:
            log = _inode(_file(locator, LOG), views)
            if log is not None and not self._is_own(base, views, locator):
                return False
            files = [_file(locator, suffix) for suffix in (OFFSET_INDEX, TIME_INDEX, LOG)]
            if any([_is_unlinked(file, views) for file in files]):
                make_durable(views)
        return True

    def _end_folder(self, locator: SegmentLocator) -> None:
        """Remove watermark and folder of a partition that has no other file."""
        with suppress(FileNotFoundError), self._opened_folder(locator) as views:
            if _has_files(views):
                return
            if _is_unlinked(WATERMARK, views):
                make_durable(views)
        with suppress(OSError):  # not empty, or not there
            os.rmdir(self._tree.root / self._folder(locator))

    def _is_own(self, base: int, views: int, locator: SegmentLocator) -> bool:
        """Whether the `.log` in the folder of views is the very file of this attempt."""
        own = _inode(object_name(locator, _OWN), base)
        return own is not None and own == _inode(_file(locator, LOG), views)

    def _watermark(self, views: int, locator: SegmentLocator) -> int | None:
        data = read_if_there(WATERMARK, views, _WATERMARK_MAX_BYTES)
        if data is None:
            return None
        return parse_watermark(data, f"{self._tree.root / self._folder(locator) / WATERMARK}")

    def _folder(self, locator: SegmentLocator) -> str:
        return with_prefix(self._prefix, self._layout.folder_of(locator))

    @contextmanager
    def _made_folder(self, locator: SegmentLocator) -> Iterator[int]:
        with self._opened_folder(locator, make=True) as views:
            yield views

    @contextmanager
    def _opened_folder(self, locator: SegmentLocator, *, make: bool = False) -> Iterator[int]:
        descriptor = self._tree.below_root(self._folder(locator), make=make)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked(self, base: int) -> Iterator[None]:
        """Wait until no other thread or process holds the lock; Unavailable where one holds it too
        long: who waits for a process that is stopped has a thread that readers need. On NFS it
        needs a descriptor that may write.
        """
        try:
            descriptor = os.open(IDENTITY_NAME, os.O_RDWR | os.O_CLOEXEC, dir_fd=base)
        except PermissionError:
            descriptor = os.open(IDENTITY_NAME, _READ, dir_fd=base)
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _NEVER.wait(_LOCK_AGAIN_SECONDS)
            else:
                return
        raise Unavailable(
            f"{self._tree.path_of(IDENTITY_NAME)} is locked: another process that writes views has "
            "it, and does not go on"
        )


def _file(locator: SegmentLocator, suffix: str) -> str:
    return f"{locator.start_offset:020d}.{suffix}"


def _is_unlinked(file: str, folder: int) -> bool:
    """Whether there was such a file, which is removed."""
    try:
        os.unlink(file, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def _inode(name: str, folder: int) -> tuple[int, int] | None:
    """Which file has this name; opened for it, as a network file system may remember another."""
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return found.st_dev, found.st_ino


def _files_in(folder: str, base: int) -> list[str]:
    try:
        descriptor = os.open(folder, os.O_DIRECTORY | _READ, dir_fd=base)
    except FileNotFoundError:
        return []
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def _has_files(views: int) -> bool:
    """Whether anything but the watermark is in the folder."""
    with os.scandir(views) as entries:
        return any(entry.name != WATERMARK for entry in entries)

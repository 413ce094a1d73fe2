"""A store in a folder of HDFS: names below `root/prefix`; files are whole or absent.

Files being written are below `~rlm-tmp/<segment id>/`; no object name can begin like that. So a
delete finds and ends a running copy of the segment with one call, and a sweep reads one folder
instead of the whole store. The identity object is read before anything is changed or believed to be
missing (H11). This module must not know segments.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from hdfs_native import FileStatus, WriteOptions

from kip405.contracts import StoreIdentity
from kip405.errors import Corrupt, Invalid, NotFound, RemoteStorageError, Unavailable
from rsm_plugins.hdfs.connection import Call, Connection, Repeat, Session, pause, together
from rsm_plugins.hdfs.errors import NOT_EMPTY, is_caused_by
from rsm_plugins.hdfs.rights import FILE_MODE, FOLDER_MODE
from rsm_plugins.layout.keys import IDENTITY_NAME, check_prefix
from rsm_plugins.layout.manifest import IDENTITY_MAX_BYTES, decode_identity, encode_identity

if TYPE_CHECKING:
    from hdfs_native._internal import RawFileWriter

TEMPORARY_FOLDER = "~rlm-tmp"
RANGE_BYTES = 8 << 20
PAGE_ENTRIES = 1000
DEFAULT_BLOCK_BYTES = 128 << 20
_PUBLISH_TRIES = 20
_BLOCK_REPORT_SECONDS = 0.05
_COMPLETE_SECONDS = (0.01, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.1, 0.1)
"""Pauses before the questions whether a block is complete; the library asks after 0.5 s itself."""
T = TypeVar("T")


class HdfsTree:
    """The folder `root/prefix` and the operations on it; errors are kip405's."""

    def __init__(self, connection: Connection, url: str, root: str, prefix: str = "") -> None:
        self._connection = connection
        self._url = url
        self.root = root.rstrip("/") or "/"
        joined = f"{self.root.rstrip('/')}/{check_prefix(prefix)}"
        self.base = joined.rstrip("/") or "/"

    def __str__(self) -> str:
        return f"store {self.uri}"

    @property
    def uri(self) -> str:
        return f"{self._url}{self.base}"

    def path_of(self, name: str) -> str:
        """Path in HDFS of a name below the base; of the base itself for the empty name."""
        return f"{self.base.rstrip('/')}/{name}" if name else self.base

    async def opened(self, operation: str) -> Session:
        """A session with the store, its identity object just seen."""
        session = self.session()
        await self.require_identity(session, operation)
        return session

    def session(self) -> Session:
        """A session without any check of the store."""
        return self._connection.session()

    async def require_identity(self, session: Session, operation: str) -> FileStatus:
        """Status of the identity object; Unavailable if it is missing."""
        found = await self.status(session, IDENTITY_NAME, operation)
        if found is None:
            raise Unavailable(
                f"cannot {operation} {self}: it has no {IDENTITY_NAME}; "
                "it is not yet created, or not the store it was"
            )
        return found

    async def status(self, session: Session, name: str, operation: str) -> FileStatus | None:
        """Status of a name by the NameNode, None if there is no such file."""
        path = self.path_of(name)
        return await self._status(session, path, operation)

    async def _status(self, session: Session, path: str, operation: str) -> FileStatus | None:
        try:
            return await session.call(
                operation, path, lambda: session.client.get_file_info(path), repeat=Repeat.ALWAYS
            )
        except FileNotFoundError:
            return None

    async def _size_of(self, session: Session, path: str, operation: str) -> int | None:
        """Bytes of a closed file, None if there is no such file."""
        found = await self._status(session, path, operation)
        return None if found is None else found.length

    async def missing(self, session: Session, name: str, operation: str) -> RemoteStorageError:
        """The error for a name that was not found: NotFound only in a store that is there."""
        try:
            await self.require_identity(session, operation)
        except Unavailable as error:
            return error
        return NotFound(f"cannot {operation}: {self.uri}/{name} is not there")

    # Identity.

    async def read_identity(self) -> StoreIdentity | None:
        """The identity, None where the root is there and has none; Unavailable where the root is
        away.
        """
        operation = "read the identity of"
        session = self.session()
        if await self._status(session, self.root, operation) is None:
            raise self._no_root(operation)
        try:
            data = await self._read(session, IDENTITY_NAME, operation, 0, IDENTITY_MAX_BYTES)
        except FileNotFoundError:
            return None
        return decode_identity(data, f"{self.uri}/{IDENTITY_NAME}")

    def _no_root(self, operation: str) -> Unavailable:
        return Unavailable(
            f"cannot {operation} {self}: the folder {self.root} does not exist, and is never made: "
            "hdfs dfs -mkdir"
        )

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        """Create it whole under its name if the name is free; answers the one that is there."""
        operation = "create the identity of"
        present = await self.read_identity()
        if present is not None:
            return present
        async with self.writing("identity") as writing:
            encoded = encode_identity(identity)
            source = await writing.write(encoded, operation)
            await self.require_whole(
                writing.session, source, IDENTITY_NAME, len(encoded), operation
            )
            target = self.path_of(IDENTITY_NAME)
            try:
                await writing.session.call(
                    operation,
                    target,
                    lambda: writing.session.client.rename(source, target, overwrite=False),
                )
            except FileExistsError:
                pass  # another writer was first
            except FileNotFoundError as error:
                raise Unavailable(f"cannot {operation} {self}: {error}") from error
        present = await self.read_identity()
        if present is None:
            raise Unavailable(f"the identity of {self} was created and is gone again")
        return present

    # Reading.

    async def read(
        self, name: str, operation: str, start: int = 0, end: int | None = None
    ) -> bytes:
        """A range of an object clipped to its size; NotFound if the object is missing.

        If its blocks cannot be read, the NameNode is asked whether the object was removed
        meanwhile.
        """
        session = self.session()
        try:
            return await self._read(session, name, operation, start, end)
        except FileNotFoundError as error:
            raise await self.missing(session, name, operation) from error
        except Unavailable:
            if await self.status(session, name, operation) is None:
                raise await self.missing(session, name, operation) from None
            raise

    async def _read(
        self, session: Session, name: str, operation: str, start: int, end: int | None
    ) -> bytes:
        path = self.path_of(name)
        reader = await session.call(
            operation, path, lambda: session.client.read(path), repeat=Repeat.ALWAYS
        )
        size_bytes = reader.file_length()
        end = size_bytes if end is None else min(end, size_bytes)
        if start >= end:
            return b""

        async def piece(at: int) -> bytes:
            wanted = min(RANGE_BYTES, end - at)
            data: bytes = await session.call(
                operation, path, lambda: reader.read_range(at, wanted), repeat=Repeat.ALWAYS
            )
            if len(data) != wanted:
                raise Corrupt(f"{self.uri}/{name}: {len(data)} bytes came instead of {wanted}")
            return data

        pieces = await together([piece(at) for at in range(start, end, RANGE_BYTES)])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    # Writing.

    @asynccontextmanager
    async def writing(self, group: str) -> AsyncIterator["Writing"]:
        """Files being written; what is not published at the end is removed, as far as HDFS answers
        within the call timeout (else by the sweep).
        """
        folder = self.path_of(f"{TEMPORARY_FOLDER}/{group}")
        session = self.session()
        writing = Writing(self, session, folder)
        try:
            yield writing
        finally:
            await self._clean(writing, folder)

    async def _clean(self, writing: "Writing", folder: str) -> None:
        # Another session: the client of the failed call may have been replaced.
        try:
            session = self.session()
            for path in writing.unpublished:
                await self.remove(session, path, "clean up")
            await self.remove(session, folder, "clean up")
        except RemoteStorageError:
            return  # the error of the write counts; the sweep removes the rest

    async def require_whole(
        self, session: Session, path: str, name: str, size_bytes: int, operation: str
    ) -> None:
        """Wait until readers are given every byte of a closed file; Corrupt unless it has as many
        as were given, Unavailable where it takes longer than a call may.

        A NameNode may close a file before a DataNode has reported its last block
        (dfs.namenode.file.close.num-committed-allowed). Until then the file's status has the length
        that the writer claims, and readers are given a file without that block: an empty one, if it
        is the only block. What a pipeline of DataNodes took twice or not at all shows in the length
        too. A file that is gone is left to the rename, which says so.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._connection.call_seconds
        while await self.readable(session, path, operation) not in (None, size_bytes):
            found = await self._size_of(session, path, operation)
            if found not in (None, size_bytes):
                raise Corrupt(
                    f"cannot {operation} {self}: {name} came to {found} bytes instead of "
                    f"{size_bytes}"
                )
            if loop.time() >= give_up_at:
                raise Unavailable(
                    f"cannot {operation} {self}: no DataNode has reported the last block of {name}"
                )
            await pause(_BLOCK_REPORT_SECONDS)

    async def readable(self, session: Session, path: str, operation: str) -> int | None:
        """The bytes of a file that readers get now, None if there is no such file."""
        try:
            reader = await session.call(
                operation, path, lambda: session.client.read(path), repeat=Repeat.ALWAYS
            )
        except FileNotFoundError:
            return None
        return reader.file_length()

    async def publish(self, session: Session, temporary: str, name: str, operation: str) -> None:
        """Rename a written file to its own name, over an existing file; Unavailable if it was
        removed meanwhile. Its folder is made only where the NameNode has none, because nearly every
        segment but the first of a partition finds it.
        """
        target = self.path_of(name)
        folder = target.rpartition("/")[0]
        for _ in range(_PUBLISH_TRIES):
            try:
                await session.call(
                    operation, target, lambda: session.client.rename(temporary, target, True)
                )
                return
            except FileNotFoundError as error:
                if await self._status(session, temporary, operation) is None:
                    raise Unavailable(f"{name} was deleted while it was being copied") from error
            await session.call(
                operation, folder, lambda: session.client.mkdirs(folder, FOLDER_MODE, True)
            )
        raise Unavailable(f"cannot {operation} {self}: {folder} is removed again and again")

    # Listing and removing.

    async def entries(self, session: Session, name: str, operation: str) -> list[FileStatus]:
        """What a folder holds, in no order; empty where it is missing.

        Page by page, each within a deadline of its own. A page is never asked for twice: a listing
        that skipped over a failure would make objects look deleted.
        """
        path = self.path_of(name)
        listing = session.client.list_status(path, recursive=False)
        found: list[FileStatus] = []
        try:
            while await session.call(
                operation, path, lambda: _page(listing, found), repeat=Repeat.NEVER
            ):
                pass
        except FileNotFoundError:
            return []
        return found

    async def remove(
        self, session: Session, path: str, operation: str, *, recursive: bool = False
    ) -> bool:
        """Whether a path was removed; a folder that is not empty stays unless `recursive`."""
        try:
            return await session.call(
                operation, path, lambda: session.client.delete(path, recursive)
            )
        except FileNotFoundError:
            return False
        except Unavailable as error:
            if is_caused_by(error, NOT_EMPTY):
                return False
            raise

    async def sweep(self, grace_ms: int) -> int:
        """Remove what broken copies left, if they began longer ago than the grace by the NameNode's
        own clock; returns how many files.

        HDFS does not record the last write of a file that is being written, so a copy that takes
        longer than the grace counts as dead.
        """
        operation, removed = "sweep", 0
        session = await self.opened(operation)
        now_ms = await self._clock(session)
        for folder in await self.entries(session, TEMPORARY_FOLDER, operation):
            name = f"{TEMPORARY_FOLDER}/{file_of(folder)}"
            for file in await self.entries(session, name, operation):
                if file.modification_time <= now_ms - grace_ms:
                    path = self.path_of(f"{name}/{file_of(file)}")
                    removed += await self.remove(session, path, operation)
            await self.remove(session, self.path_of(name), operation)
        return removed

    async def _clock(self, session: Session) -> int:
        """The NameNode's time, from a file created now."""
        async with self.writing(f"clock-{os.urandom(6).hex()}") as writing:
            temporary = await writing.write(b"", "sweep")
            found = await self._status(session, temporary, "sweep")
        if found is None:
            raise Unavailable(f"cannot sweep {self}: a file just made is gone again")
        return int(found.modification_time)


class Writing:
    """Temporary files of one folder; `unpublished` are those that still exist."""

    def __init__(self, tree: HdfsTree, session: Session, folder: str) -> None:
        self._tree = tree
        self._folder = folder
        self.session = session
        self.unpublished: list[str] = []

    async def create(self, operation: str, options: WriteOptions | None = None) -> "NewFile":
        """A new empty file."""
        path = f"{self._folder}/{os.urandom(8).hex()}"
        self.unpublished.append(path)
        chosen = options or WriteOptions(create_parent=True, overwrite=False, permission=FILE_MODE)
        try:
            writer = await self.session.call(
                operation, path, lambda: self.session.client.create(path, chosen)
            )
        except (FileNotFoundError, FileExistsError) as error:
            raise Unavailable(f"cannot {operation} {self._tree}: {error}") from error
        return NewFile(self._tree, path, writer, self.session, operation)

    async def write(self, data: bytes, operation: str, options: WriteOptions | None = None) -> str:
        """A whole small file, durable; its path."""
        file = await self.create(operation, options)
        if data:
            await file.append(data)
        return await file.close(durable=bool(data))

    async def publish(self, path: str, name: str, size_bytes: int, operation: str) -> None:
        """See HdfsTree.require_whole and HdfsTree.publish."""
        await self._tree.require_whole(self.session, path, name, size_bytes, operation)
        await self._tree.publish(self.session, path, name, operation)
        self.unpublished.remove(path)


class NewFile:
    """A file being written. Only bytes: the library takes thirteen times the CPU for a
    memoryview.
    """

    def __init__(
        self,
        tree: HdfsTree,
        path: str,
        writer: "RawFileWriter",
        session: Session,
        operation: str,
    ) -> None:
        self.path = path
        self._tree = tree
        self._writer = writer
        self._session = session
        self._operation = operation
        self._size_bytes = 0

    async def block_bytes(self) -> int:
        """Size of the blocks the file is made of."""
        client = self._session.client
        found = await self._session.call(
            self._operation, self.path, lambda: client.get_file_info(self.path)
        )
        return found.blocksize or DEFAULT_BLOCK_BYTES

    async def append(self, data: bytes) -> None:
        await self._call(lambda: self._writer.write(data))
        self._size_bytes += len(data)

    async def sync(self) -> None:
        """What was written of the present block is on the disks of its DataNodes; of an erasure
        coded file that cannot be asked for.
        """
        try:
            await self._call(self._writer.hsync)
        except Invalid:
            return

    async def close(self, *, durable: bool = True) -> str:
        """Finish the file; the NameNode knows its length afterwards. Its path.

        The library asks the NameNode to complete the file right after the last packet. Mostly the
        last block is not reported yet, and the library asks again after half a second. So the
        NameNode is asked besides, as soon as that block is there (see `_completed`).
        """
        if durable:
            await self.sync()
        with self._while_written():
            if self._size_bytes:
                await self._session.call_unless(
                    self._operation, self.path, self._writer.close, self._completed
                )
            else:
                await self._session.call(self._operation, self.path, self._writer.close)
        return self.path

    async def _completed(self) -> bool:
        """Whether the NameNode has ended the file at our word, once readers are given all of it.

        Then its last block is complete: the library has asked once, with the final length, and a
        DataNode has reported as much. Ending the lease of such a file completes it, and changes
        nothing else. Asked before that, it would begin a recovery of the block.
        """
        try:
            for seconds in _COMPLETE_SECONDS:
                await pause(seconds)
                size_bytes = await self._tree.readable(self._session, self.path, self._operation)
                if size_bytes is None:
                    return False
                if size_bytes == self._size_bytes:
                    return await self._session.call(self._operation, self.path, self._recovered)
        except (FileNotFoundError, RemoteStorageError):
            return False  # the library's own question counts
        return False

    def _recovered(self) -> bool:
        return self._session.client.recover_lease(self.path)

    async def _call(self, make: Call[object]) -> None:
        with self._while_written():
            await self._session.call(self._operation, self.path, make)

    @contextmanager
    def _while_written(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise Unavailable(f"{self.path} was removed while it was being written") from error


def file_of(status: FileStatus) -> str:
    """The last part of a path that the NameNode returned."""
    return status.path.rpartition("/")[2]


def _page(listing: Iterator[FileStatus], found: list[FileStatus]) -> bool:
    """Whether more entries may follow after as many as the NameNode returns at once; blocks."""
    for _ in range(PAGE_ENTRIES):
        one = next(listing, None)
        if one is None:
            return False
        found.append(one)
    return True

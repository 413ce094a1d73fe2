"""The directory of an export and its bookkeeping: every row once, whichever process dies when.

    TO/topic=T/date=D[/hour=H]/part-*.parquet     what readers see
    TO/_kafka_rlm_export/format.json              what this target is (Shape)
                         lock                     held by the one driver at work
                         plans/N.json             chunks, written before any work on them
                         plans/N.done             nothing of this plan is left to do
                         commits/N/C.json         outcome of a chunk: the moment it counts
                         attempts/C.X/            files of one attempt, which no reader reads
                         trash/C.X/               an attempt on its way out

An attempt syncs its files and its commit record to disk, then links the record under the chunk's
name. Only one link can succeed, so exactly one of any number of attempts counts (speculative or
repeated ones, or those of workers that outlive their driver). Then its files are renamed to the
names that readers see, and finally its folder is removed. A crash in between leaves the folder, and
the next attempt or run completes the renames from the record. Names are derived from offsets, so
that is idempotent. An attempt is discarded only after it was renamed out of the folder from which
it could commit. This module must not know Spark or Parquet.
"""

import fcntl
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from rlm_spark.pipelines.chunks import Chunk, Commit, ExportError, Shape, decode_plan, encode_plan
from rlm_spark.pipelines.durable import Files

BOOK = "_kafka_rlm_export"
_FORMAT = "format.json"
_RECORD = "commit.json"


class Book:
    """Paths of one target's bookkeeping, and the steps that workers and drivers take in it."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self._files = files
        self._book = root / BOOK
        self._attempts = self._book / "attempts"
        self._trash = self._book / "trash"
        self._plans = self._book / "plans"

    # -- workers

    def commit_of(self, chunk: Chunk) -> Commit | None:
        """The commit of the chunk; None if there is none yet."""
        return self._commit_at(self._path_for(chunk.name))

    def begin(self, chunk: Chunk) -> Path:
        """A folder for one attempt."""
        return self._files.make_unique_dir(self._attempts, f"{chunk.name}.")

    def commit(self, chunk: Chunk, commit: Commit) -> Commit:
        """Commit an attempt's synced files, unless another attempt did; returns the commit.

        Its files have the names that readers see when this returns.
        """
        folder = self._attempts / commit.attempt
        self._files.write(folder / _RECORD, commit.encode())
        self._files.sync_dir(folder)
        try:
            self._files.link(folder / _RECORD, self._path_for(chunk.name))
        except FileExistsError:
            pass
        except FileNotFoundError as error:
            raise ExportError(f"{chunk}: this attempt was given up by a later run") from error
        counted = self.commit_of(chunk)
        if counted is None:
            raise ExportError(f"{chunk}: its commit record is gone")
        if counted.attempt != commit.attempt:
            self._files.remove_tree(folder)
        self.publish(counted)
        return counted

    def publish(self, commit: Commit) -> None:
        """Rename a committed attempt's files for readers; idempotent, also if run concurrently."""
        folder = self._attempts / commit.attempt
        targets = {self.root / PurePosixPath(file.target_name).parent for file in commit.files}
        if not self._files.exists(folder):
            return
        self._files.sync_dir(self._path_for(commit.chunk).parent)
        for target in sorted(targets):
            self._files.make_dirs(target)
        for file in commit.files:
            target = self.root / file.target_name
            try:
                self._files.rename(folder / file.attempt_name, target)
            except FileNotFoundError:
                if not self._files.exists(target) and self._files.exists(folder):
                    raise ExportError(
                        f"{target} was committed and is gone: neither it nor "
                        f"{folder / file.attempt_name} is there"
                    ) from None
        for target in sorted(targets):
            self._files.sync_dir(target)
        self._files.remove_tree(folder)

    # -- the driver, under the lock

    def open(self, shape: Shape) -> "Lock":
        """Lock the target, and create it if needed. ExportError: not ours, another shape, in use.

        Only this may create or change plans, until the lock is released.
        """
        self._refuse_foreign()
        self._files.make_dirs(self._book)
        lock = Lock(self._book / "lock")
        try:
            self._settle(shape)
            for folder in (self._attempts, self._trash, self._plans, self._book / "commits"):
                self._files.make_dirs(folder)
        except BaseException:
            lock.release()
            raise
        return lock

    def _refuse_foreign(self) -> None:
        if self._files.exists(self.root) and not self.root.is_dir():
            raise ExportError(f"{self.root} is not a directory")
        names = self._files.names(self.root)
        if names and BOOK not in names:
            raise ExportError(
                f"{self.root} is not empty and not an export's: give another directory"
            )

    def _settle(self, shape: Shape) -> None:
        path = self._book / _FORMAT
        data = self._files.read(path)
        if data is None:
            if self._files.names(self.root) != [BOOK]:
                raise ExportError(f"{self.root} is not empty, and {path} is gone")
            self._write_atomically(path, shape.encode())
            return
        found = Shape.decode(data, str(path))
        for field in fields(Shape):
            had, asked = getattr(found, field.name), getattr(shape, field.name)
            if had != asked:
                raise ExportError(
                    f"{self.root} was begun with {field.name}={had}, not {asked}: "
                    "ask for the same, or give another directory"
                )

    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks of all plans, in their order."""
        return tuple(chunk for number in self._plan_numbers() for chunk in self._plan(number))

    def left(self) -> tuple[Chunk, ...]:
        """Chunks without a commit, in the order of plans."""
        names = set(self._files.names(self._plans))
        return tuple(
            chunk
            for number in self._plan_numbers()
            if f"{number:06d}.done" not in names
            for chunk in self._uncommitted(number)
        )

    def in_flight_bytes(self) -> int:
        """Bytes that unfinished attempts have written so far."""
        return sum(
            self._files.size(self._attempts / attempt / name)
            for attempt in self._files.names(self._attempts)
            for name in self._files.names(self._attempts / attempt)
        )

    def next_plan(self) -> int:
        return max(self._plan_numbers(), default=0) + 1

    def write_plan(self, chunks: Iterable[Chunk]) -> None:
        """From here on these chunks will be exported, by this run or a later one."""
        rows = tuple(chunks)
        if rows:
            self._files.make_dirs(self._book / "commits" / f"{rows[0].plan:06d}")
            self._write_atomically(self._plans / f"{rows[0].plan:06d}.json", encode_plan(rows))

    def recover(self) -> None:
        """Complete committed attempts and discard the others; afterwards only attempts of running
        workers are left.
        """
        for name in self._files.names(self._trash):
            self._settle_trash(name)
        for name in self._files.names(self._attempts):
            commit = self._commit_at(self._path_for(name.partition(".")[0]))
            if commit is not None and commit.attempt == name:
                self.publish(commit)
            elif self._moved_to_trash(name):
                self._settle_trash(name)

    def _moved_to_trash(self, name: str) -> bool:
        try:
            self._files.rename(self._attempts / name, self._trash / name)
        except FileNotFoundError:
            return False
        return True

    def _settle_trash(self, name: str) -> None:
        """Remove an attempt that can no longer commit; complete it if it committed just before."""
        commit = self._commit_at(self._path_for(name.partition(".")[0]))
        if commit is not None and commit.attempt == name:
            self._files.rename(self._trash / name, self._attempts / name)
            self.publish(commit)
        else:
            self._files.remove_tree(self._trash / name)

    def close_plans(self) -> None:
        """Flag plans of which every chunk is committed, so that later runs skip them."""
        names = set(self._files.names(self._plans))
        for number in self._plan_numbers():
            done = f"{number:06d}.done"
            if done not in names and not list(self._uncommitted(number)):
                self._write_atomically(self._plans / done, b"")

    def _uncommitted(self, number: int) -> Iterator[Chunk]:
        there = set(self._files.names(self._book / "commits" / f"{number:06d}"))
        return (one for one in self._plan(number) if f"{one.number:06d}.json" not in there)

    def _plan_numbers(self) -> list[int]:
        names = (PurePosixPath(name) for name in self._files.names(self._plans))
        return [int(name.stem) for name in names if name.suffix == ".json"]

    def _plan(self, number: int) -> tuple[Chunk, ...]:
        path = self._plans / f"{number:06d}.json"
        return decode_plan(self._files.read(path) or b"", number, str(path))

    def _path_for(self, chunk_name: str) -> Path:
        plan, _, number = chunk_name.partition("-")
        return self._book / "commits" / plan / f"{number}.json"

    def _commit_at(self, path: Path) -> Commit | None:
        data = self._files.read(path)
        return None if data is None else Commit.decode(data, str(path))

    def _write_atomically(self, path: Path, data: bytes) -> None:
        """Write a small document atomically."""
        fresh = path.with_name(f".{path.name}.new")
        self._files.remove(fresh)
        self._files.write(fresh, data)
        self._files.rename(fresh, path)
        self._files.sync_dir(path.parent)


class Lock:
    """The lock of the one driver of a target; the kernel releases it when its process ends."""

    def __init__(self, path: Path) -> None:
        """Take the lock. ExportError: another process has it."""
        self._file: BinaryIO = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            is_taken = isinstance(error, BlockingIOError)
            problem = f"another export ({_holder(path)}) is at work on it" if is_taken else error
            raise ExportError(f"{path.parent.parent}: {problem}") from error
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
        self._file.flush()

    def release(self) -> None:
        """Release the lock for another driver."""
        self._file.close()


def _holder(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") or "another process"

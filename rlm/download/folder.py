"""The log directory of one partition during a download: blocking file work that may be interrupted.

    D/T-P/                          what a broker would have, complete segments only
    D/T-P/BASE.log.part             the segment that is being fetched
    D/T-P.rlm-download              the journal of this download: one JSON line a segment, the
                                    first line names the partition; brokers skip such files

A segment's .log is renamed after its other files, and recorded after that. A file in T-P/ that is
neither recorded nor planned belongs to somebody else: then nothing is touched. This module must not
know where bytes come from.
"""

import fcntl
import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from kip405.checkpoints import encode_leader_epochs, parse_offset_checkpoint
from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.errors import Corrupt, Invalid
from kip405.indexes import ChunkChecksums, IndexesObject
from rlm.download.plan import (
    PartitionPlan,
    Piece,
    cut_segment,
    cut_transaction_index,
    encode_offset_checkpoint,
    encode_partition_metadata,
)
from rsm_plugins.files.durable import replace_file, sync_path

NOTES_SUFFIX = ".rlm-download"
_LOG_START = "log-start-offset-checkpoint"
_EPOCHS = "leader-epoch-checkpoint"
_METADATA = "partition.metadata"
_PART = ".part"
_COPY_BYTES = 1 << 20
_SECTIONS = {
    ".index": IndexType.OFFSET,
    ".timeindex": IndexType.TIMESTAMP,
    ".txnindex": IndexType.TRANSACTION,
    ".snapshot": IndexType.PRODUCER_SNAPSHOT,
}


class PartitionFolder:
    """T-P/ below a directory; used within `opened`."""

    def __init__(self, root: Path, plan: PartitionPlan, notes: IO[str]) -> None:
        self._root = root
        self._plan = plan
        self._notes = notes
        self.path = root / str(plan.topic_partition)
        self._noted: dict[str, dict[str, int]] = {}
        self._done: set[str] = set()

    @classmethod
    @contextmanager
    def opened(cls, root: Path, plan: PartitionPlan) -> Iterator["PartitionFolder"]:
        """Ready to go on where an earlier call ended; Invalid where something foreign is there."""
        if Path(str(plan.topic_partition)).name != str(plan.topic_partition):
            raise Invalid(f"{plan.topic_partition.topic!r} is not the name of a topic")
        root.mkdir(parents=True, exist_ok=True)
        notes_path = root / f"{plan.topic_partition}{NOTES_SUFFIX}"
        path = root / str(plan.topic_partition)
        if path.exists() and not notes_path.exists() and any(path.iterdir()):
            raise Invalid(f"{path} is not empty and not of a download: choose another directory")
        with open(notes_path, "a+", encoding="utf-8") as notes:
            _lock(notes, notes_path)
            folder = cls(root, plan, notes)
            folder._read_notes()
            folder._refuse_foreign()
            path.mkdir(exist_ok=True)
            folder._drop_unplanned()
            yield folder

    @property
    def pending(self) -> tuple[Piece, ...]:
        """The pieces that are not there yet, in order."""
        return tuple(piece for piece in self._plan.pieces if _name(piece) not in self._done)

    def part_size(self, piece: Piece, checksums: ChunkChecksums) -> int:
        """Verified bytes of a segment whose fetch was interrupted; the rest is cut off."""
        path = self._part(piece)
        size = checksums.chunk_size_bytes
        good = 0
        if not path.exists():
            return 0
        with open(path, "r+b") as part:
            for expected in checksums.crcs:
                chunk = part.read(min(size, piece.size_bytes - good))
                whole = len(chunk) == min(size, piece.size_bytes - good)
                if not whole or crc32c(chunk) != expected:
                    break
                good += len(chunk)
            part.truncate(good)
        return good

    def append(self, piece: Piece, position: int, data: bytes) -> None:
        """The next verified bytes of a segment's log object."""
        with open(self._part(piece), "r+b" if position else "wb") as part:
            part.seek(position)
            part.write(data)

    def finish(self, piece: Piece, indexes: IndexesObject) -> None:
        """All bytes are there: put the segment's files in place, durably, and note it."""
        part = self._part(piece)
        files = {
            suffix: bytes(section)
            for suffix, index_type in _SECTIONS.items()
            if (section := indexes.section(index_type))
        }
        if piece.is_whole:
            files = {".index": b"", ".timeindex": b"", **files}
        else:
            files = self._cut(piece, part, files)
        for suffix, content in files.items():
            replace_file(self.path / piece.file(suffix), content)
        sync_path(part)
        os.replace(part, self.path / piece.file(".log"))
        names = [piece.file(suffix) for suffix in (".log", *files)]
        sizes = {name: (self.path / name).stat().st_size for name in names}
        self._note({"piece": _name(piece), "files": sizes})
        self._done.add(_name(piece))

    def _cut(self, piece: Piece, part: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Leaves in `part` the piece alone; its new indexes."""
        with _mapped(part) as log:
            cut = cut_segment(log, piece.start_offset, piece.next_offset)
        _keep_range(part, cut.start_position, cut.end_position)
        kept = {".index": cut.offset_index, ".timeindex": cut.time_index}
        aborted = cut_transaction_index(
            files.get(".txnindex", b""), piece.start_offset, piece.next_offset
        )
        if aborted:
            kept[".txnindex"] = aborted
        if piece.next_offset == piece.metadata.next_offset and ".snapshot" in files:
            kept[".snapshot"] = files[".snapshot"]
        return kept

    def complete(self) -> None:
        """Write what belongs to the partition as a whole; call when nothing is pending."""
        plan, topic_partition = self._plan, self._plan.topic_partition
        replace_file(self.path / _METADATA, encode_partition_metadata(topic_partition.topic_id))
        replace_file(self.path / _EPOCHS, encode_leader_epochs(plan.leader_epochs.entries))
        self._write_log_start()
        sync_path(self.path)
        sync_path(self._root)

    def _write_log_start(self) -> None:
        """Readers begin at the remote log start although the first segment may begin below it."""
        path, topic_partition = self._root / _LOG_START, self._plan.topic_partition
        with _locked(self._root):
            rows = _checkpoint_rows(path)
            rows[(topic_partition.topic, topic_partition.partition)] = (
                self._plan.remote_log_start_offset
            )
            content = ((topic, number, at) for (topic, number), at in sorted(rows.items()))
            replace_file(path, encode_offset_checkpoint(content))

    def _part(self, piece: Piece) -> Path:
        return self.path / f"{piece.file('.log')}{_PART}"

    def _read_notes(self) -> None:
        self._notes.seek(0)
        text = self._notes.read()
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self._notes.truncate(len(whole))  # JSON in ASCII: one character is one byte
        lines = whole.splitlines()
        if not lines:
            self._note(self._header())
            return
        try:
            header, *rows = [json.loads(line) for line in lines]
            self._noted = {row["piece"]: dict(row["files"]) for row in _newest(rows)}
        except (ValueError, KeyError, TypeError) as error:
            raise Invalid(f"{self._notes.name} cannot be read: {error}") from error
        if header != self._header():
            raise Invalid(f"{self.path} is of another download: {json.dumps(header)}")
        self._done = {name for name, files in self._noted.items() if self._is_whole(files)}

    def _is_whole(self, files: Mapping[str, int]) -> bool:
        paths = {self.path / name: size for name, size in files.items()}
        for path, size in paths.items():
            if path.suffix == ".log" and path.exists() and path.stat().st_size > size:
                raise Invalid(f"{path} was appended to: choose another directory")
        return all(path.exists() and path.stat().st_size == size for path, size in paths.items())

    def _header(self) -> dict[str, Any]:
        topic_partition = self._plan.topic_partition
        return {
            "v": 1,
            "kind": "download",
            "cluster_id": self._plan.cluster_id,
            "topic_id": str(topic_partition.topic_id),
            "partition": topic_partition.partition,
        }

    def _refuse_foreign(self) -> None:
        noted = {name for files in self._noted.values() for name in files}
        planned = {
            piece.file(suffix)
            for piece in self._plan.pieces
            for suffix in (".log", f".log{_PART}", *_SECTIONS)
        }
        ours = noted | planned | {_METADATA, _EPOCHS}
        if not self.path.exists():
            return
        for found in self.path.iterdir():
            name = found.name.removesuffix(".tmp")
            if name not in ours and not name.endswith(_PART):
                raise Invalid(f"{found} is not of this download: choose another directory")

    def _drop_unplanned(self) -> None:
        """Remove what we wrote for segments that are not in the partition any more."""
        planned = {_name(piece) for piece in self._plan.pieces}
        kept = {file for name in planned for file in self._noted.get(name, ())}
        noted = {file for files in self._noted.values() for file in files}
        unfinished = {self._part(piece).name for piece in self.pending}
        found = {path.name for path in self.path.glob(f"*{_PART}")}
        for file in (noted - kept) | (found - unfinished):
            (self.path / file).unlink(missing_ok=True)

    def _note(self, row: Mapping[str, Any]) -> None:
        self._notes.write(json.dumps(row) + "\n")
        self._notes.flush()
        os.fsync(self._notes.fileno())


def _name(piece: Piece) -> str:
    return f"{piece.metadata.segment_id.id}:{piece.start_offset}-{piece.next_offset}"


def _newest(rows: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Without the notes of segments that another of the same base offset replaced later."""
    by_log = {name: row for row in rows for name in row["files"] if name.endswith(".log")}
    return by_log.values()


def _lock(notes: IO[str], path: Path) -> None:
    try:
        fcntl.flock(notes, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Invalid(f"{path}: another download is at work there") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _checkpoint_rows(path: Path) -> dict[tuple[str, int], int]:
    try:
        return parse_offset_checkpoint(path.read_bytes()) if path.exists() else {}
    except Corrupt as error:
        raise Invalid(f"{path} is not ours and cannot be read: {error}") from error


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()


def _keep_range(path: Path, start: int, end: int) -> None:
    """The file's bytes [start, end) only, by way of a second file."""
    temporary = path.with_name(f"{path.name}.tmp")
    with open(path, "rb") as source, open(temporary, "wb") as target:
        source.seek(start)
        left = end - start
        while left and (data := source.read(min(left, _COPY_BYTES))):
            target.write(data)
            left -= len(data)
    os.replace(temporary, path)

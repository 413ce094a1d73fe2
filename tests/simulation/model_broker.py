"""One broker's log of the partition: batches, leader epochs, segments with borders of its own.

`history` also has the batches that were trimmed: what the records below the log start were, for
whoever compares. The files of the log directory, as Kafka writes them, are made when somebody looks
(`write_files`), so that the real scanner and the real copy read them.
"""

import random
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kip405.checkpoints import encode_leader_epochs
from kip405.crc import crc32c
from kip405.ids import Uuid
from kip405.segments import EpochEntry
from tests.builders.log_dir import CLUSTER_ID, TOPIC
from tests.kip405.batch_builder import batch

RECORDS = 4
"""Records in each batch, so that a batch is found by division."""
_TEMPLATE = batch(0, RECORDS)
_CRC_FROM = 21


@dataclass(frozen=True, slots=True)
class Batch:
    """RECORDS records; `content` is unique in a run, and is the batch's producer id."""

    base_offset: int
    epoch: int
    content: int
    timestamp_ms: int
    data: bytes

    @classmethod
    def new(cls, base_offset: int, epoch: int, content: int, timestamp_ms: int) -> "Batch":
        data = bytearray(_TEMPLATE)
        struct.pack_into(">q", data, 0, base_offset)
        struct.pack_into(">i", data, 12, epoch)
        struct.pack_into(">qqq", data, 27, timestamp_ms, timestamp_ms, content)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[_CRC_FROM:])))
        return cls(base_offset, epoch, content, timestamp_ms, bytes(data))

    @property
    def next_offset(self) -> int:
        return self.base_offset + RECORDS


def content_of(data: bytes | memoryview) -> tuple[int, int, int]:
    """(base offset, leader epoch, content) of the batch at the beginning of the bytes."""
    base_offset, _, epoch = struct.unpack_from(">qii", data)
    (content,) = struct.unpack_from(">q", data, 43)
    return base_offset, epoch, content


BATCH_BYTES = len(_TEMPLATE)


class Replica:
    """The log of one topic on one broker. `bases` are those of its segments, the last one is
    active.
    """

    def __init__(
        self, directory: Path, node_id: int, topic_id: Uuid, chance: random.Random
    ) -> None:
        self.directory = directory
        self.topic_id = topic_id
        self.node_id = node_id
        self._chance = chance
        self.history: list[Batch] = []
        self.log_start = 0
        self.checkpointed_start = 0
        self.high_watermark = 0
        self.recovery_point = 0
        self.epochs: list[tuple[int, int]] = []
        self.bases = [0]
        self._roll_after = self._next_roll()
        self._written: dict[int, tuple[int, int]] = {}
        self._written_rest: tuple[object, ...] = ()
        self.files_version = 0
        """Grows with every change of a file."""

    @property
    def end(self) -> int:
        return len(self.history) * RECORDS

    def batches(self, start: int, end: int) -> Sequence[Batch]:
        """Of [start, end), both on borders of batches."""
        return self.history[start // RECORDS : end // RECORDS]

    def has_other_bases(self, other: "Replica") -> bool:
        """Whether its segments begin elsewhere, in the offsets that both logs have."""
        first, end = max(self.log_start, other.log_start), min(self.end, other.end)
        mine, theirs = ({one for one in log.bases if first < one < end} for log in (self, other))
        return mine != theirs

    def begin_epoch(self, epoch: int) -> None:
        """This broker leads from now on: its epoch begins at the end of its log."""
        self._assign(epoch, self.end)

    def append(self, one: Batch) -> None:
        """Append as leader or follower; rolls where this replica's segments end."""
        if self.end - self.bases[-1] >= self._roll_after * RECORDS:
            self.bases.append(self.end)
            self.recovery_point = self.end
            self._roll_after = self._next_roll()
        if not self.epochs or self.epochs[-1][0] < one.epoch:
            self._assign(one.epoch, one.base_offset)
        self.history.append(one)

    def truncate(self, end: int) -> None:
        """Cut the log's end off, down to `end`."""
        del self.history[end // RECORDS :]
        self.bases = [base for base in self.bases if base < end] or [min(end, self.bases[0])]
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < end]
        self.high_watermark = min(self.high_watermark, end)
        self.recovery_point = min(self.recovery_point, end)

    def forget_empty_epochs(self) -> None:
        """A former leader that wrote nothing in its epoch follows (UnifiedLog.truncateTo)."""
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < self.end]

    def trim(self, offset: int) -> None:
        """The log start moves up to `offset`; closed segments below it go."""
        if offset <= self.log_start:
            return
        self.log_start = offset
        following = [*self.bases[1:], self.end + 1]
        self.bases = [
            base for base, end in zip(self.bases, following, strict=True) if end > offset
        ] or [self.end]
        gone = [entry for entry in self.epochs if entry[1] <= offset]
        if gone:
            self.epochs = [(gone[-1][0], offset), *self.epochs[len(gone) :]]

    def start_over(self, offset: int, history: Sequence[Batch]) -> None:
        """Begin an empty log at `offset`; `history` is what its leader's log was below that."""
        self.history = list(history)
        self.log_start = self.checkpointed_start = offset
        self.high_watermark = self.recovery_point = offset
        self.epochs, self.bases = [], [self.end]

    def restart(self, *, has_lost_power: bool) -> None:
        """The broker starts again: the log start is as checkpointed, the end perhaps as flushed."""
        if has_lost_power:
            self.truncate(max(self.recovery_point, self.log_start))
        self.log_start = max(self.checkpointed_start, self.bases[0])
        self.high_watermark = max(min(self.high_watermark, self.end), self.log_start)

    def _assign(self, epoch: int, start: int) -> None:
        self.epochs = [entry for entry in self.epochs if entry[0] < epoch and entry[1] < start]
        self.epochs.append((epoch, start))

    def _next_roll(self) -> int:
        return self._chance.randint(2, 6)

    # What is on the disk.

    @property
    def log_dir(self) -> Path:
        return self.directory

    def write_files(self) -> None:
        """Bring the partition directory up to date."""
        folder = self._folder
        if not self._written_rest:
            folder.mkdir(parents=True)
            (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {self.topic_id}\n")
            (self.directory / "meta.properties").write_text(
                f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={self.node_id}\n"
            )
        ends = [*self.bases[1:], None]
        for base, end in zip(self.bases, ends, strict=True):
            self._write_segment(folder, base, end)
        for base in self._written.keys() - set(self.bases):
            self.files_version += 1
            for suffix in (".log", ".index", ".timeindex"):
                (folder / f"{base:020d}{suffix}").unlink(missing_ok=True)
            del self._written[base]
        rest = (tuple(self.epochs), self.recovery_point)
        if rest != self._written_rest:
            entries = [EpochEntry(epoch=epoch, start_offset=at) for epoch, at in self.epochs]
            (folder / "leader-epoch-checkpoint").write_bytes(encode_leader_epochs(entries))
            (self.directory / "recovery-point-offset-checkpoint").write_text(
                f"0\n1\n{TOPIC} 0 {self.recovery_point}\n"
            )
            self._written_rest = rest
            self.files_version += 1

    def remove_files(self) -> None:
        """The topic is deleted: so is the partition directory."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _folder(self) -> Path:
        return self.directory / f"{TOPIC}-0"

    def _write_segment(self, folder: Path, base: int, end: int | None) -> None:
        held = self.batches(base, self.end if end is None else end)
        mark = (len(held) if end is None else -len(held), held[-1].content if held else 0)
        if self._written.get(base) == mark:
            return
        stem = f"{folder}/{base:020d}"
        with open(stem + ".log", "wb") as file:  # the same inode as before
            file.write(b"".join(one.data for one in held))
        if end is not None:
            newest = held[-1]
            entry = struct.pack(">qi", newest.timestamp_ms, end - 1 - base)
            for path, data in (
                (stem + ".index", b""),
                (stem + ".timeindex", entry),
                (f"{folder}/{end:020d}.snapshot", b"\x00\x01producers"),
            ):
                with open(path, "wb") as file:
                    file.write(data)
        self._written[base] = mark
        self.files_version += 1

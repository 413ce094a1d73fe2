"""Reads which leader epochs a segment has below the first entry of the log's epoch file (H8).

A DeleteRecords into the middle of a segment moves that entry up to the new start of the log. The
segment still has the batches below it, and is copied whole; which epochs these are of, only they
themselves prove: what was published or copied of their offsets may be of a dead history. Thin IO:
few headers are read, and once. It blocks. The copy checks all bytes of the segment (H13).
"""

import os
from dataclasses import dataclass
from io import BufferedReader

from kip405.batches import HEADER_BYTES, NO_EPOCH, BatchHeader, read_header
from kip405.errors import Corrupt
from kip405.ids import Uuid
from kip405.segments import EpochEntry

_MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """Which file it is: one of another topic may have had its path and inode before (H39)."""

    path: str
    base_offset: int
    inode: int
    topic_id: Uuid | None


class EpochsBelow:
    """Remembers what each segment has shown: within one epoch, a cut further up shows no more."""

    def __init__(self) -> None:
        self._found: dict[tuple[SegmentFile, int], tuple[EpochEntry, ...]] = {}
        """By the file and the epoch of the first entry."""

    def of(self, segment: SegmentFile, first: EpochEntry) -> tuple[EpochEntry, ...]:
        """The epochs of the segment's batches up to that of `first`, with their first offsets.

        Empty where the file is gone, cannot be read, ends below `first`, or does not fit: the copy
        reports what is damaged.
        """
        key = (segment, first.epoch)
        found = self._found.get(key)
        if found is not None:
            return found
        try:
            found = _read(segment, first)
        except OSError:
            return ()
        except Corrupt:
            found = ()
        if len(self._found) >= _MAX_REMEMBERED:
            self._found.clear()
        self._found[key] = found
        return found


def _read(segment: SegmentFile, first: EpochEntry) -> tuple[EpochEntry, ...]:
    """Goes on until a batch is of the epoch of `first`: no batch that follows is of an older one.
    Mostly it is the segment's first.
    """
    position, next_offset, epochs = 0, segment.base_offset, list[EpochEntry]()
    with open(segment.path, "rb") as file:
        size_bytes = _size_of(file, segment)
        while next_offset <= first.start_offset and position < size_bytes:
            file.seek(position)
            header = read_header(file.read(HEADER_BYTES))
            offset, epoch = header.base_offset, header.leader_epoch
            newest = epochs[-1].epoch if epochs else NO_EPOCH
            _check(header, next_offset, newest, first)
            if offset >= first.start_offset:
                return (*epochs, first)
            if epoch > newest:
                epochs.append(EpochEntry(epoch=epoch, start_offset=offset))
            if epoch == first.epoch:
                return tuple(epochs)
            position, next_offset = position + header.size_bytes, header.next_offset
    if position > size_bytes or next_offset != first.start_offset:
        raise Corrupt(f"{segment.path} does not show where epoch {first.epoch} begins")
    return (*epochs, first)


def _size_of(file: BufferedReader, segment: SegmentFile) -> int:
    status = os.fstat(file.fileno())
    if status.st_ino != segment.inode:
        raise FileNotFoundError(f"{segment.path} is another file by now")
    return status.st_size


def _check(header: BatchHeader, least_offset: int, newest: int, first: EpochEntry) -> None:
    """Corrupt unless the batch follows the one before, whose epoch is `newest`, and is of no later
    epoch than `first` below it, of no earlier one from it on. One without an epoch, of an old
    format, says nothing.
    """
    offset, epoch = header.base_offset, header.leader_epoch
    if offset >= first.start_offset:
        fits = epoch >= first.epoch
    else:
        fits = epoch == NO_EPOCH or newest <= epoch <= first.epoch
    if offset < least_offset or not fits:
        raise Corrupt(
            f"offset {offset} of epoch {epoch} is after offset {least_offset - 1} of epoch "
            f"{newest}; epoch {first.epoch} begins at {first.start_offset}"
        )

"""A partition's log with all that a log can hold, made of a seed: files as a broker writes them.

Five codecs; transactions interleaved, committed, aborted, over several segments, one open at the
end; timestamps out of order and of both kinds; what a cleaner leaves of batches and between them;
batches larger than a client asks for; leader epochs that begin inside segments. Kafka refuses most
of this from producers, so it is written while the broker is down; indexes are Kafka's own work.
"""

import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kip405.checkpoints import encode_leader_epochs
from kip405.crc import crc32c
from kip405.segments import EpochEntry
from tests.kip405.batch_builder import control_batch, with_right_crc

FIRST_MS = 1_700_000_000_000
STEP_MS = 1_000
EPOCHS = 4
SEGMENTS = 6
BATCHES = 24
"""Of one segment."""
_CODECS = 5
_ABORT, _COMMIT = 0, 1
_APPEND_TIME = 0x08
_BUILDER_BYTES = 1 << 26
_LARGE_BYTES = 24_000
_LATE_MS = 30 * STEP_MS
_LONG, _OPEN = 900_003, 900_004
_SHORT = (900_001, 900_002)
_KEPT = "partition.metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Where a batch lies and what it says of time."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLog:
    """Segments by base offset, and what a broker keeps beside them."""

    segments: dict[int, bytes]
    snapshots: dict[int, bytes]
    epochs: dict[int, int]
    batches: tuple[Batch, ...]
    end_offset: int

    def epoch_of(self, offset: int) -> int:
        """The leader epoch under which the offset was written."""
        return max(epoch for epoch, start in self.epochs.items() if start <= offset)

    def install(self, folder: Path) -> None:
        """Replaces what a stopped broker has in a partition's directory."""
        for file in folder.iterdir():
            if file.name != _KEPT:
                file.unlink()
        for base, data in self.segments.items():
            (folder / f"{base:020d}.log").write_bytes(data)
        for base, data in self.snapshots.items():
            (folder / f"{base:020d}.snapshot").write_bytes(data)
        entries = [EpochEntry(epoch=epoch, start_offset=at) for epoch, at in self.epochs.items()]
        (folder / "leader-epoch-checkpoint").write_bytes(encode_leader_epochs(entries))


@dataclass(slots=True, kw_only=True)
class _Producer:
    id: int
    next_sequence: int = 0
    last_offset: int = -1
    offset_delta: int = 0
    last_ms: int = -1
    first_offset: int = -1
    """Of its open transaction; -1 without one."""

    def entry(self) -> bytes:
        """As in a producer snapshot."""
        return struct.pack(
            ">qhiqiqiq",
            self.id,
            0,
            self.next_sequence - 1,
            self.last_offset,
            self.offset_delta,
            self.last_ms,
            5,
            self.first_offset,
        )


@dataclass(slots=True)
class _Writer:
    chance: random.Random
    offset: int = 0
    number: int = 0
    data: bytearray = field(default_factory=bytearray)
    segments: dict[int, bytes] = field(default_factory=dict)
    snapshots: dict[int, bytes] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    producers: dict[int, _Producer] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        return min((self.number + 7) * EPOCHS // (SEGMENTS * BATCHES), EPOCHS - 1)

    def write_segment(self, index: int) -> None:
        base = self.offset
        if index:
            self.snapshots[base] = _snapshot(self.producers.values())
        self.data = bytearray()
        for at in range(BATCHES):
            self._long_ones(index, at)
            self._step()
            self.number += 1
        self.segments[base] = bytes(self.data)

    def _long_ones(self, index: int, at: int) -> None:
        """A transaction over three segments that is aborted, and one that stays open."""
        if (index, at) in ((1, 3), (2, 5), (3, 1)):
            self._records(_LONG)
        if (index, at) == (3, 6):
            self._end(_LONG, _ABORT)
        if (index, at) in ((SEGMENTS - 1, 4), (SEGMENTS - 1, 8)):
            self._records(_OPEN)

    def _step(self) -> None:
        """One batch, by its number: two short transactions overlap, one in three is aborted."""
        first, second = _SHORT
        step = self.number % 9
        if step in (1, 4):
            self._records(first)
        elif step in (2, 5):
            self._records(second)
        elif step in (6, 7) and (first, second)[step - 6] in self.producers:
            self._end((first, second)[step - 6], _ABORT if self.number % 3 else _COMMIT)
        elif step == 8:
            self._empty()
        else:
            self._records(-1)
        if self.number % 8 == 5:
            self.offset += self.chance.randint(1, 7)

    def _records(self, producer_id: int) -> None:
        """A batch with records, some gone as if cleaned away: the batch keeps its last offset."""
        count = self.chance.choice((1, 2, 5, 12))
        deltas = list(range(count + 4))
        if self.number % 4 == 1:
            deltas = sorted(self.chance.sample(deltas, count))
            last = count + 4 + self.chance.randint(0, 3)
        else:
            deltas, last = deltas[:count], count - 1
        base_ms = FIRST_MS + self.number * STEP_MS - self.chance.choice((0, 0, _LATE_MS))
        is_transactional = producer_id >= 0
        producer = self._producer(producer_id, last, base_ms) if is_transactional else None
        builder = DefaultRecordBatchBuilder(
            2,
            self.number % _CODECS,
            is_transactional,
            producer_id,
            0 if is_transactional else -1,
            producer.next_sequence - last - 1 if producer else -1,
            _BUILDER_BYTES,
        )
        for delta in deltas:
            at_ms = base_ms + self.chance.randint(-5, 9) * STEP_MS // 3
            builder.append(
                delta,
                at_ms,
                b"key-%d" % delta,
                self._value(delta == deltas[0]),
                [("n", b"%d" % delta)],
            )
        data = bytearray(builder.build())
        struct.pack_into(">i", data, 23, last)
        if self.number % 5 == 2:
            self._stamp(data, base_ms)
        self._add(with_right_crc(data), last)

    def _stamp(self, data: bytearray, base_ms: int) -> None:
        """As if the broker had given the time."""
        (attributes,) = struct.unpack_from(">h", data, 21)
        struct.pack_into(">h", data, 21, attributes | _APPEND_TIME)
        struct.pack_into(">q", data, 35, base_ms + 4 * STEP_MS)

    def _value(self, is_first: bool) -> bytes:
        if is_first and self.number % 13 == 3:
            return self.chance.randbytes(_LARGE_BYTES)
        word = self.chance.randbytes(6).hex().encode()
        return word * self.chance.randint(1, 120)

    def _producer(self, producer_id: int, last: int, at_ms: int) -> _Producer:
        """With the batch that is about to be written in it."""
        found = self.producers.setdefault(producer_id, _Producer(id=producer_id))
        found.next_sequence += last + 1
        found.last_offset, found.offset_delta, found.last_ms = self.offset + last, last, at_ms
        if found.first_offset < 0:
            found.first_offset = self.offset
        return found

    def _end(self, producer_id: int, kind: int) -> None:
        self._add(control_batch(self.offset, kind, producer_id=producer_id), 0)
        self.producers[producer_id].first_offset = -1

    def _empty(self) -> None:
        """What a cleaner keeps of a producer's last batch: its header.

        Its time is an early one: a broker asked for a time looks into the first segment that has
        one as late, and then answers "none" if that was an empty batch's.
        """
        last, at_ms = self.chance.randint(0, 4), FIRST_MS - STEP_MS
        head = struct.pack(
            ">qiibIhiqqqhii", 0, 49, 0, 2, 0, 0, last, at_ms, at_ms, 900_009, 0, self.number, 0
        )
        self._add(with_right_crc(bytearray(head)), last)

    def _add(self, batch: bytes, last: int) -> None:
        self.epochs.setdefault(self.epoch, self.offset)
        data = bytearray(batch)
        struct.pack_into(">q", data, 0, self.offset)
        struct.pack_into(">i", data, 12, self.epoch)
        (max_ms,) = struct.unpack_from(">q", data, 35)
        self.batches.append(
            Batch(
                base_offset=self.offset,
                last_offset=self.offset + last,
                size_bytes=len(data),
                max_ms=max_ms,
            )
        )
        self.data += data
        self.offset += last + 1


def _snapshot(producers: Iterable[_Producer]) -> bytes:
    """Version 1: checksum of what follows it, then the producers."""
    entries = [producer.entry() for producer in producers]
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    return struct.pack(">hI", 1, crc32c(body)) + body


def written_log(seed: int) -> WrittenLog:
    """The same for the same seed."""
    writer = _Writer(random.Random(seed))
    for index in range(SEGMENTS):
        writer.write_segment(index)
    return WrittenLog(
        segments=writer.segments,
        snapshots=writer.snapshots,
        epochs=writer.epochs,
        batches=tuple(writer.batches),
        end_offset=writer.offset,
    )

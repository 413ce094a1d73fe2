"""Remote index files after random histories: what they answer is the truth, or they answer nothing.

Segments are appended, in order, late and over others; files are rotated by size and time; segments
end; the process ends at any write, and in the middle of it; the disk is full for a while; files are
torn and deleted; any bit of any file flips. After each step every lookup is compared with the
ledger's segments, and at the end the files with those that a follower makes of the store. Every
fourth history is of a leader that only appends, and is killed: there all files must be equal.
`SEED=<number>` runs one history, `HISTORIES=<count>` has so many of them in the long test.
"""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Corrupt
from kip405.remote_index import (
    RemoteLogIndexEntry,
    SegmentRecord,
    decode_entries,
    decode_record,
    index_files,
)
from rlm.reading.remote_index import FOLDER, RemoteIndexFiles, RemoteIndexLimits
from rlm.reading.remote_index_file import IndexFile
from rlm.reading.remote_index_partition import Rotation
from tests.builders.ledger import PARTITION
from tests.formats.remote_log_index_reader import find_offset
from tests.kept_results import keep_result
from tests.rlm.reading.failing_disk import full_after, killed_after
from tests.rlm.reading.index_truth import Segment, new_segment

_STEPS = 14
_FOUND = (1334, 5066, 5890)
"""Seeds that have shown faults."""
_PLAIN_EVERY = 4
_LIMITS = RemoteIndexLimits(
    rotation=Rotation(segment_bytes=2_500, segment_ms=1_000), most_bytes=1 << 30
)
_NAME = f"{PARTITION.topic}-{PARTITION.partition}"
_SUFFIXES = {".remotelogindex", ".remoteoffsetindex", ".remotetimeindex", ".remotesegmentindex"}


class History:
    """One partition's files and the ledger: `living` segments by id."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.rng = path, random.Random(seed)
        self.is_plain = seed % _PLAIN_EVERY == 0
        self.now_ms = 0
        self.living: dict[bytes, Segment] = {}
        self.made = 0
        self.end = self.rng.randrange(50)
        self.has_failed = self.is_flipped = False
        self.steps: Counter[str] = Counter()
        self.start_process()

    def start_process(self) -> None:
        self.files = RemoteIndexFiles(self.path, _LIMITS, lambda: self.now_ms)
        self.files.load()
        self.is_flipped = False

    def kept(self) -> list[Segment]:
        found = [self.living[raw] for raw in self.files.partition_of if raw in self.living]
        return sorted(found, key=lambda one: one.metadata.start_offset)

    def run(self) -> None:
        steps = (
            (self.append, self.append, self.append, self.crash, self.killed)
            if self.is_plain
            else (
                self.append, self.append, self.append, self.late, self.over, self.trim, self.wait,
                self.crash, self.torn, self.flip, self.discard, self.killed, self.full,
            )
        )  # fmt: skip
        for _ in range(_STEPS):
            step = self.rng.choice(steps)
            self.steps[step.__name__] += 1
            step()
            self.check()
        self.check_files()
        self.check_follower()

    def append(self) -> None:
        self.end += self.rng.choice((0, 0, 0, 5))
        segment = self.next()
        if self.is_plain or self.rng.random() < 0.8:  # else another service copied it
            self.add(segment)

    def next(self) -> Segment:
        start = self.end
        self.end = start + self.rng.randrange(1, 40)
        return self.segment(start, self.end)

    def late(self) -> None:
        if self.living:
            self.add(self.rng.choice(sorted(self.living.values(), key=lambda one: one.raw_id)))

    def over(self) -> None:
        if self.end > 10:
            start = self.rng.randrange(self.end - 5)
            self.add(self.segment(start, start + self.rng.randrange(1, 30)))

    def segment(self, start: int, end: int) -> Segment:
        self.made += 1
        made = new_segment(self.rng, self.made, start, end)
        self.living[made.raw_id] = made
        return made

    def add(self, segment: Segment) -> None:
        was_kept = segment.raw_id in self.files.partition_of
        self.files.keep(segment.metadata, segment.indexes_object)
        self.files.keep(segment.metadata, segment.indexes_object)  # nothing is kept twice
        assert segment.raw_id in self.files.partition_of
        if not was_kept:
            self.check_appended(segment)

    def check_appended(self, segment: Segment) -> None:
        """Offset and time index are right in the file that got the segment."""
        logs = {int(path.stem): path for path in self.folder().glob("*.remotelogindex")}
        base = max(base for base in logs if base <= segment.metadata.start_offset)
        data = logs[base].read_bytes()
        with suppress(Corrupt):  # entries that are damaged are found when they are read
            assert index_files(list(decode_entries(data)), base) == derived(logs[base])

    def trim(self) -> None:
        start = self.rng.randrange(self.end + 1)
        ended = {
            raw for raw, one in self.living.items() if one.metadata.next_offset <= start
        }  # fmt: skip
        for raw in ended:
            del self.living[raw]
        self.files.drop(frozenset(ended))

    def wait(self) -> None:
        self.now_ms += self.rng.randrange(2_000)

    def crash(self) -> None:
        before, may_be_less = set(self.files.partition_of), self.has_failed or self.is_flipped
        self.start_process()
        assert set(self.files.partition_of) == before or may_be_less

    def killed(self) -> None:
        """At any change of any file while a segment is kept, or others are dropped."""
        segment = self.next()
        with killed_after(self.rng, self.rng.randrange(12)):
            if self.is_plain or self.rng.random() < 0.7:
                self.files.keep(segment.metadata, segment.indexes_object)
            else:
                self.trim()
        self.start_process()
        if self.is_plain:
            self.add(segment)

    def full(self) -> None:
        """The process goes on, and has room again later."""
        self.has_failed = True
        with full_after(self.rng, self.rng.randrange(12)):
            if self.rng.random() < 0.7:
                segment = self.next()
                self.files.keep(segment.metadata, segment.indexes_object)
            else:
                self.trim()
            for one in tuple(self.living.values()):
                found = self.files.indexes(one.metadata)
                assert found is None or one.agrees(found)

    def torn(self) -> None:
        files = self.on_disk()
        if files:
            path = self.rng.choice(files)
            if self.rng.random() < 0.2:
                path.unlink()
            else:
                os.truncate(path, self.rng.randrange(path.stat().st_size + 1))
        if files and self.rng.random() < 0.5:
            with open(self.rng.choice(files), "ab") as file:
                file.write(self.rng.randbytes(30))
        self.start_process()

    def flip(self) -> None:
        files = [path for path in self.on_disk() if path.stat().st_size]
        if files:
            path = self.rng.choice(files)
            data = bytearray(path.read_bytes())
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            path.write_bytes(data)
            self.is_flipped = True  # nobody may read it before the next start
        if self.rng.random() < 0.5:
            self.start_process()

    def discard(self) -> None:
        if self.living:
            one = self.rng.choice(sorted(self.living.values(), key=lambda one: one.raw_id))
            self.files.discard(one.metadata)
            assert one.raw_id not in self.files.partition_of

    def on_disk(self) -> list[Path]:
        return sorted(path for path in (self.path / FOLDER).rglob("*") if path.is_file())

    def check(self) -> None:
        """Each segment by its own offsets and timestamps."""
        for one in tuple(self.living.values()):
            was_kept = one.raw_id in self.files.partition_of
            found = self.files.indexes(one.metadata)
            assert found is None or one.agrees(found), (one.metadata, found)
            if was_kept and found is None:  # it was damaged: it is made anew
                assert one.raw_id not in self.files.partition_of
                self.add(one)
                again = self.files.indexes(one.metadata)
                assert again is not None and one.agrees(again)
        assert {path.suffix for path in self.on_disk()} <= _SUFFIXES

    def check_files(self) -> None:
        """What other programs find by the offset and time index, once all of each file was checked,
        as before an append.
        """
        self.start_process()
        for path in sorted(self.folder().glob("*.remotelogindex")):
            file = IndexFile(self.folder(), int(path.stem), 0)
            file.load()
            file.check()
        self.start_process()
        found: dict[int, RemoteLogIndexEntry] = {}
        for log_path in self.folder().glob("*.remotelogindex"):
            log, base = log_path.read_bytes(), int(log_path.stem)
            entries = list(decode_entries(log))
            offsets, times = index_files(entries, base)
            assert (offsets, times) == derived(log_path)
            for _, entry in entries:
                for offset in (entry.first_offset, entry.last_offset):
                    at = find_offset(log, base, offsets, offset)
                    assert at is not None and at.first_offset == entry.first_offset
                found[entry.first_offset] = entry
        for one in self.kept():
            for entry in one.entries:
                assert found[entry.first_offset] == entry

    def check_follower(self) -> None:
        """Rebuilt from the store equals built by the leader, segment for segment; where the leader
        only appended, file for file.
        """
        ours = self.path / "follower"
        follower = RemoteIndexFiles(ours, _LIMITS, lambda: 0)
        for one in self.kept():
            follower.keep(one.metadata, one.indexes_object)
        by_leader, rebuilt = stored(self.folder()), stored(ours / FOLDER / _NAME)
        assert rebuilt.keys() == {one.raw_id for one in self.kept()}
        assert {raw: by_leader[raw] for raw in rebuilt} == rebuilt
        if self.is_plain:
            assert content(ours / FOLDER) == content(self.path / FOLDER)

    def folder(self) -> Path:
        return self.path / FOLDER / _NAME


def derived(log_path: Path) -> tuple[bytes, bytes]:
    """Offset and time index beside a remotelogindex."""
    suffixes = ".remoteoffsetindex", ".remotetimeindex"
    offsets, times = (log_path.with_suffix(suffix).read_bytes() for suffix in suffixes)
    return offsets, times


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stored(folder: Path) -> dict[bytes, tuple[SegmentRecord, bytes]]:
    """Record and entries of each segment in the files of a partition, wherever they are there."""
    found = {}
    for path in folder.glob("*.remotesegmentindex"):
        data, log, position = path.read_bytes(), path.with_suffix(".remotelogindex").read_bytes(), 0
        while position < len(data):
            record, position = decode_record(data, position)
            entries = log[record.position : record.position + record.size_bytes]
            found[record.segment_id.raw] = replace(record, position=0), entries
    return found


def run(path: Path, seeds: Iterable[int]) -> Counter[str]:
    """The histories of these seeds, and how often they had each step."""
    steps: Counter[str] = Counter()
    for seed in seeds:
        history = History(path / str(seed), seed)
        try:
            history.run()
        except BaseException:
            print(f"SEED={seed}")
            raise
        steps += history.steps
        shutil.rmtree(path / str(seed))
    return steps


def test_random_histories(tmp_path: Path) -> None:
    only = os.environ.get("SEED")
    run(tmp_path, [int(only)] if only else [*range(150), *_FOUND])


@pytest.mark.long
def test_ten_thousand_random_histories(tmp_path: Path) -> None:
    count, began = int(os.environ.get("HISTORIES", "10000")), time.monotonic()
    steps = run(tmp_path, range(count))
    result = {
        "histories": count,
        "seeds": [0, count - 1],
        "seconds": round(time.monotonic() - began, 1),
        "steps": dict(sorted(steps.items())),
    }
    print(result)
    if count >= 10_000:
        keep_result("remote-index-histories", result)

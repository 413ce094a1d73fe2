"""Remote index files after random histories: what they answer is the truth, or they answer nothing.

Segments are appended, in order, late and over others; files are rotated by size and time; segments
end; the process ends between any two writes, also with a torn tail; any bit of any file flips.
`SEED=<number>` runs one history.
"""

import os
import random
from pathlib import Path

import hypothesis

from rlm.reading.remote_index import FOLDER, RemoteIndexFiles, RemoteIndexLimits
from rlm.reading.remote_index_partition import Rotation
from tests.builders.ledger import PARTITION
from tests.rlm.reading.index_truth import Segment, new_segment

_DEEP_EXAMPLES = 5_000
_STEPS = 14
_LIMITS = RemoteIndexLimits(
    rotation=Rotation(segment_bytes=2_500, segment_ms=1_000), most_bytes=1 << 30
)


class History:
    """One partition's files and the ledger: `living` segments by id."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.rng = path, random.Random(seed)
        self.now_ms = 0
        self.living: dict[bytes, Segment] = {}
        self.made = 0
        self.end = self.rng.randrange(50)
        self.start_process()

    def start_process(self) -> None:
        self.files = RemoteIndexFiles(self.path, _LIMITS, lambda: self.now_ms)
        self.files.load()

    def kept(self) -> list[Segment]:
        found = [self.living[raw] for raw in self.files.partition_of if raw in self.living]
        return sorted(found, key=lambda one: one.metadata.start_offset)

    def run(self) -> None:
        steps = (
            self.append, self.append, self.append, self.late, self.over, self.trim,
            self.wait, self.crash, self.torn, self.flip, self.discard,
        )  # fmt: skip
        for _ in range(_STEPS):
            self.rng.choice(steps)()
            self.check()

    def append(self) -> None:
        start = self.end + self.rng.choice((0, 0, 0, 5))
        self.end = start + self.rng.randrange(1, 40)
        if self.rng.random() < 0.8:
            self.add(self.segment(start, self.end))
        else:
            self.segment(start, self.end)  # another service copied it

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
        self.files.keep(segment.metadata, segment.indexes_object)
        self.files.keep(segment.metadata, segment.indexes_object)  # nothing is kept twice
        assert segment.raw_id in self.files.partition_of

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
        before = set(self.files.partition_of)
        self.start_process()
        assert set(self.files.partition_of) == before

    def torn(self) -> None:
        files = self.on_disk()
        if files:
            path = self.rng.choice(files)
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
        self.check_lookups()
        for one in tuple(self.living.values()):
            was_kept = one.raw_id in self.files.partition_of
            found = self.files.indexes(one.metadata)
            assert found is None or one.agrees(found), (one.metadata, found)
            if was_kept and found is None:  # it was damaged: it is made anew
                assert one.raw_id not in self.files.partition_of
                self.add(one)
                again = self.files.indexes(one.metadata)
                assert again is not None and one.agrees(again)
        self.check_lookups()
        names = {path.suffix for path in self.on_disk()}
        assert names <= {
            ".remotelogindex", ".remoteoffsetindex", ".remotetimeindex", ".remotesegmentindex"
        }  # fmt: skip

    def check_lookups(self) -> None:
        """By offset and by timestamp, against the entries of what is kept."""
        topic, partition = PARTITION.topic, PARTITION.partition
        for _ in range(6):
            offset = self.rng.randrange(self.end + 2)
            found = self.files.entry_at(topic, partition, offset)
            entries = [entry for one in self.kept() for entry in one.entries]
            ended = found is not None and found not in entries
            assert ended or found == next(
                (one for one in entries if one.first_offset <= offset <= one.last_offset), None
            )
            timestamp_ms = self.rng.randrange(self.end * 10 + 100)
            since = self.files.entry_since(topic, partition, timestamp_ms)
            entries = [entry for one in self.kept() for entry in one.entries]
            if since in entries or since is None:
                assert since == next(
                    (one for one in entries if one.last_timestamp_ms >= timestamp_ms), None
                )
            else:
                assert self.has_ended(since.rdi)
            assert found is None or not ended or self.has_ended(found.rdi)

    def has_ended(self, rdi: str) -> bool:
        """Segments that ended stay in a file in which later ones are living."""
        return not any(one.entries[0].rdi.split("?")[0] == rdi.split("?")[0]
                       for one in self.living.values())  # fmt: skip


def test_random_histories(tmp_path: Path) -> None:
    profile = hypothesis.settings.default
    is_deep = profile is not None and profile.max_examples >= _DEEP_EXAMPLES
    only = os.environ.get("SEED")
    seeds = [int(only)] if only else range(10_000 if is_deep else 150)
    for seed in seeds:
        try:
            History(tmp_path / str(seed), seed).run()
        except BaseException:
            print(f"SEED={seed}")
            raise

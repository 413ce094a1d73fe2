"""The ledger's answers beside those of Kafka's RemoteLogMetadataCache, over random histories.

In a history without zombies, in which at most one finished segment holds an offset, every answer is
the same but for one rule:
- Kafka's highest offset of an epoch never goes back, also when its segments were deleted; ours is
  that of the segments that are there. So Kafka's is the highest that ours ever was.

Where finished segments overlap, two rules more:
- Of several segments that hold an offset, ours is the one that reaches furthest; Kafka's is the
  last one that begins at or below it in this epoch, or none where that one ends too early.
- Kafka forgets a segment in whose place another one with the same first offset has finished that
  ends earlier; ours lists all.
"""

import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench.java_classes import kafka_class_path
from kip405.ids import MAX_OFFSET
from kip405.lineage import Lineage
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata
from rlm_sandbox.kafka_dist import java_environment, resolve_kafka
from rlmm.ledger import PartitionLedger
from rlmm.records import NO_PREVIOUS, LedgerKey, LedgerRecord, RecordHeaders
from rlmm.replay import LedgerState
from tests.kept_results import keep_result
from tests.rlmm.builders import DELETED, DELETING, FINISHED, KEY, STARTED, segment, uuid

pytestmark = pytest.mark.integration

EPOCHS = 3
_MAIN = "org.apache.kafka.server.log.remote.metadata.storage.CacheAnswers"
_LIMIT_S = 1_200
_HEADERS = {
    previous: RecordHeaders(leader_epoch=5, expected_previous=previous, writer=uuid(7))
    for previous in range(NO_PREVIOUS, DELETED + 1)
}


@dataclass
class History:
    """One random history: what Kafka is told, and our ledger after each step."""

    draw: random.Random
    overlapping: bool
    commands: list[str] = field(default_factory=lambda: ["new"])
    made: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    asked: list["Asked"] = field(default_factory=list)

    def __post_init__(self) -> None:
        cuts = [0]
        for _ in range(self.draw.randrange(3, 10)):
            cuts.append(cuts[-1] + self.draw.randrange(1, 9))
        self.cuts, self.end = cuts, cuts[-1]
        starts = sorted(self.draw.sample(range(1, self.end), min(EPOCHS - 1, self.end - 1)))
        self.lineage = Lineage(
            tuple(EpochEntry(epoch=at, start_offset=one) for at, one in enumerate([0, *starts]))
        )
        self.state, self.view = LedgerState(), PartitionLedger.empty(KEY)
        self.highest: dict[int, int] = {}
        self.play()

    def play(self) -> None:
        for step in range(self.draw.randrange(4, 30)):
            open_ones = [one for one in self.made if one.state is not DELETED]
            if not open_ones or self.draw.random() < 0.4:
                self.start()
            else:
                self.go_on(self.draw.choice(open_ones))
            if step % 4 == 3:
                self.ask()
        self.ask()

    def start(self) -> None:
        first = self.draw.randrange(len(self.cuts) - 1)
        last = self.draw.randrange(first + 1, len(self.cuts)) if self.overlapping else first + 1
        start, end = self.cuts[first], self.cuts[last]
        epochs = tuple((one.epoch, one.start_offset) for one in self.lineage.clip(start, end))
        number = len(self.made)
        self.made.append(segment(number, STARTED, start=start, end=end - 1, epochs=epochs))
        self.write(number, NO_PREVIOUS)
        text = ",".join(f"{epoch}:{offset}" for epoch, offset in epochs)
        self.commands.append(f"start {number} {start} {end - 1} {text}")

    def go_on(self, one: RemoteLogSegmentMetadata) -> None:
        after = {STARTED: [FINISHED, FINISHED, DELETING], FINISHED: [DELETING]}
        state = self.draw.choice(after.get(one.state, [DELETED]))
        if state is FINISHED and not self.overlapping and self.holders(one.start_offset):
            state = DELETING
        number = number_of(one)
        before, self.made[number] = (
            one.state,
            one.in_state(state, event_timestamp_ms=0, broker_id=1),
        )
        self.write(number, int(before))
        self.commands.append(f"state {number} {int(state)}")
        for epoch in range(EPOCHS):
            self.highest[epoch] = max(self.highest.get(epoch, -1), self.highest_now(epoch))

    def write(self, number: int, previous: int) -> None:
        made = self.made[number]
        record = LedgerRecord(
            key=LedgerKey.of(made.segment_id),
            metadata=made,
            headers=_HEADERS[previous],
            offset=self.state.next_offset,
            timestamp_ms=0,
        )
        self.state.apply(record)
        self.view = PartitionLedger.of(KEY, self.state.partitions[KEY], self.view)

    def holders(self, offset: int) -> list[int]:
        """Numbers of the finished segments that hold the offset."""
        return [
            number_of(one)
            for one in self.made
            if one.state is FINISHED and one.start_offset <= offset < one.next_offset
        ]

    def highest_now(self, epoch: int) -> int:
        """The highest offset that finished segments have of the epoch, -1 = none."""
        start = self.lineage.start_of(epoch)
        end = self.view.highest_end(self.lineage.up_to(epoch))
        return -1 if start is None or end is None or end <= start else end - 1

    def ask(self) -> None:
        self.commands.append(f"ask {EPOCHS} {self.end + 3}")
        listed = self.view.in_state(STARTED, FINISHED, DELETING)
        for epoch in range(EPOCHS):
            self.asked.append(
                Asked(
                    highest=self.highest.get(epoch, -1),
                    listed=sorted(
                        number_of(one.metadata)
                        for one in listed
                        if any(each.epoch == epoch for each in one.metadata.segment_leader_epochs)
                    ),
                    held=[self.held(epoch, offset) for offset in range(self.end + 3)],
                    holders=[self.holders(offset) for offset in range(self.end + 3)],
                    ends=[one.next_offset for one in self.made],
                )
            )

    def held(self, epoch: int, offset: int) -> int | None:
        """The segment that has the offset under the epoch."""
        if self.lineage.epoch_for_offset(offset) != epoch:
            return None
        found = self.view.usable_segment_for(self.lineage, MAX_OFFSET, offset)
        if found is None or not found.metadata.start_offset <= offset < found.next_offset:
            return None
        return number_of(found.metadata)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What our ledger answers about one epoch, and what is needed to compare where they differ."""

    highest: int
    listed: list[int]
    held: list[int | None]
    holders: list[list[int]]
    ends: list[int]

    def check(self, line: str, *, overlapping: bool) -> None:
        highest, listed, held = line.split(" ")
        assert (-1 if highest == "-" else int(highest)) == self.highest
        theirs = [] if listed == "-" else sorted(map(int, listed.split(",")))
        found = [None if one == "-" else int(one) for one in held.split(",")]
        if not overlapping:
            assert theirs == self.listed
            assert found == self.held
            return
        assert set(theirs) <= set(self.listed)
        for ours, one, holders in zip(self.held, found, self.holders, strict=True):
            if one is None:
                continue
            assert ours is not None
            assert one in holders
            assert self.ends[ours] == max(self.ends[each] for each in holders)
            assert len(holders) > 1 or ours == one


def number_of(one: RemoteLogSegmentMetadata) -> int:
    return int.from_bytes(one.segment_id.id.raw, "big")


def answers(class_path: str, histories: Sequence[History]) -> Iterator[str]:
    done = subprocess.run(
        [str(resolve_kafka().java), "-cp", class_path, _MAIN],
        input="\n".join(line for one in histories for line in one.commands) + "\n",
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        env=java_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return iter(done.stdout.splitlines())


@pytest.fixture(scope="module")
def class_path() -> str:
    sources = Path(__file__).parent / "kafka_cache"
    return kafka_class_path(resolve_kafka(), sources, "kafka-cache-answers")


def check_histories(class_path: str, seeds: range) -> int:
    """How many answers were compared, each about one epoch after one step."""
    histories = [History(random.Random(seed), overlapping=seed % 2 == 1) for seed in seeds]
    lines = answers(class_path, histories)
    for seed, one in zip(seeds, histories, strict=True):
        for asked in one.asked:
            line = next(lines)
            try:
                asked.check(line, overlapping=one.overlapping)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: Kafka says {line}, ours is {asked}") from error
    assert next(lines, None) is None
    return sum(len(one.asked) for one in histories)


def test_every_answer_is_that_of_kafkas_cache(class_path: str) -> None:
    assert check_histories(class_path, range(200)) > 1_000


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_every_answer_is_that_of_kafkas_cache_in_many_histories(class_path: str) -> None:
    first, end, step = 200, 10_200, 1_000
    compared = sum(
        check_histories(class_path, range(seed, seed + step)) for seed in range(first, end, step)
    )
    content = {"kafka": resolve_kafka().version, "seeds": [first, end], "answers": compared}
    keep_result("kafka-cache", {**content, "wrong": 0})

"""H4: the lineage that a leader publishes, so that readers of the remote tier decide as it does."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from kip405.ids import MAX_OFFSET
from kip405.lineage import Lineage, merge
from kip405.segments import EpochEntry
from rlm.plans.freeze import Frozen, freeze
from rlm.plans.history import MOST_EPOCHS, leaders_lineage, lineage_to_publish, published_lineage
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import HistoryRecord
from tests.builders.ledger import PARTITION, MemoryLedger, MemorySettings, metadata
from tests.rlm.plans.views import copied, history, lineage

KEY = PARTITION.key
CONTRADICTION = Frozen(reason="log and copies contradict each other")


def publish(
    ledger: PartitionLedger,
    local: dict[int, int],
    *,
    frozen: Frozen | None = None,
    published: HistoryRecord | None = None,
    trusted: bool = True,
) -> HistoryRecord | None:
    """What the leader of the newest epoch of `local` has to publish."""
    return lineage_to_publish(
        ledger,
        merge(ledger.remote_lineage, lineage(local)),
        frozen,
        leader_epoch=max(local),
        published=published,
        trusted=trusted,
    )


def readable(ledger: PartitionLedger, published: HistoryRecord | None) -> list[tuple[int, int]]:
    """Ranges that readers use."""
    found = ledger.usable(published_lineage(ledger, published), MAX_OFFSET)
    return [(one.metadata.start_offset, one.next_offset) for one in found]


def test_h04_ordinary_histories_need_no_word() -> None:
    ledger = copied((0, 100, {3: 0}), (100, 200, {3: 100, 5: 150}))
    assert publish(ledger, {3: 0, 5: 150}) is None
    assert publish(ledger, {5: 180}) is None  # trimmed, with a re-based epoch file
    assert publish(ledger, {5: 150, 6: 200}) is None  # a clean election
    assert publish(ledger, {5: 150, 6: 250, 9: 400}) is None
    assert publish(copied(), {9: 0}) is None


def test_h04_an_unclean_election_is_published_and_cuts_what_readers_use() -> None:
    ledger = copied((0, 1_000, {5: 0}))
    published = publish(ledger, {5: 0, 6: 500})
    assert published == history({5: 0, 6: 500})
    assert readable(ledger, None) == [(0, 1_000)]
    assert readable(ledger, published) == [(0, 500)]
    assert publish(ledger, {5: 0, 6: 500}, published=published) is None
    assert (
        publish(ledger, {5: 0, 6: 500, 8: 700}, published=published) is None
    )  # a clean one after it


def test_h04_of_dead_histories_the_higher_epoch_is_dropped_also_when_new_ones_are_remote() -> None:
    """B had the dead epoch 6, C never saw it: the segments alone would keep B's 500 to 600."""
    segments = [(0, 1_000, {5: 0}), (500, 800, {6: 500})]
    published = publish(copied(*segments), {5: 0, 7: 600})
    assert published == history({5: 0, 7: 600})
    assert readable(copied(*segments), published) == [(0, 600)]
    later = copied(*segments, (600, 900, {7: 600}), (900, 950, {7: 900, 9: 920}))
    assert (500, 600) in readable(later, None)
    assert readable(later, published) == [(0, 600), (600, 900), (900, 950)]
    assert published_lineage(later, published) == lineage({5: 0, 7: 600, 9: 920})


def test_h04_a_later_unclean_election_that_was_copied_cuts_what_was_published() -> None:
    published = history({5: 0, 7: 600})
    ledger = copied((0, 1_000, {5: 0}), (600, 900, {7: 600}), (400, 450, {8: 400}))
    assert readable(ledger, published) == [(0, 400), (400, 450)]


def test_h04_a_freeze_is_published_once_and_taken_back() -> None:
    ledger = copied((0, 1_000, {5: 0}))
    published = publish(ledger, {5: 0}, frozen=CONTRADICTION)
    assert published is not None and published.frozen == CONTRADICTION.reason
    longer = Frozen(reason="the log's end has moved meanwhile")
    assert publish(ledger, {5: 0}, frozen=longer, published=published) is None
    assert publish(ledger, {5: 0}, published=published) == history({5: 0})


def test_h04_a_ledger_with_a_problem_takes_no_freeze_away() -> None:
    published = history({5: 0}, frozen="divergence")
    assert publish(copied(), {5: 0}, published=published, trusted=False) is None
    assert publish(copied((0, 9, {5: 0})), {5: 0}, frozen=CONTRADICTION, trusted=False) is not None


def test_h04_a_former_leader_publishes_nothing() -> None:
    ledger = copied((0, 1_000, {5: 0}), (500, 800, {9: 500}))
    assert publish(ledger, {5: 0, 7: 600}) is None


def test_h04_a_history_that_is_too_long_is_published_once() -> None:
    """What lies below the newest epochs the segments show, as far as they know it."""
    ledger = copied((0, 9, {0: 0}), (5, 8, {1: 5}), (9, 99_999, {2: 9}))
    local = {0: 0} | {2 * at: 10 * at for at in range(1, MOST_EPOCHS + 2)}
    published = publish(ledger, local)
    assert published is not None and len(published.lineage.entries) == MOST_EPOCHS
    assert publish(ledger, local, published=published) is None


@dataclass
class Replica:
    """Leader epoch of every offset ever, and where the log begins by now."""

    epochs: list[int] = field(default_factory=list)
    log_start: int = 0


WORTH_SEEING = (
    "published",
    "frozen",
    "freeze taken back",
    "late and overruled",
    "blind without it",
)


class World:
    """Three replicas of one partition, elections of any kind, copies, trims, and a reader."""

    def __init__(self, seen: Counter[str]) -> None:
        self.seen = seen
        self.replicas = [Replica() for _ in range(3)]
        self.leader, self.epoch, self.copies = 0, 1, 0
        self.ledger = MemoryLedger()
        self.settings = MemorySettings()
        self.late: tuple[HistoryRecord, int] | None = None
        self.newest: tuple[HistoryRecord, int] | None = None
        self.accepted: int = -1

    @property
    def led(self) -> Replica:
        return self.replicas[self.leader]

    @property
    def local(self) -> Lineage:
        """As leader-epoch-checkpoint has it: re-based by trims, the own epoch even when empty."""
        log = self.led
        entries = [
            EpochEntry(epoch=epoch, start_offset=at)
            for at, epoch in enumerate(log.epochs)
            if at >= log.log_start and (at == log.log_start or log.epochs[at - 1] != epoch)
        ]
        if not entries or entries[-1].epoch != self.epoch:
            entries.append(EpochEntry(epoch=self.epoch, start_offset=len(log.epochs)))
        return Lineage.of(entries)

    def snapshot(self) -> tuple[Lineage, Frozen | None]:
        view = self.ledger.view
        whole = leaders_lineage(view, self.settings.view.history(KEY), self.local)
        end = len(self.led.epochs)
        found = freeze(view, whole, log_end_offset=end, accepted_epoch=self.accepted)
        return whole, found

    def append(self, count: int) -> None:
        self.led.epochs += [self.epoch] * (count + 1)

    def replicate(self, number: int) -> None:
        self.replicas[number % 3] = Replica(list(self.led.epochs), self.led.log_start)

    def elect(self, number: int) -> None:
        self.leader = number % 3
        self.epoch += 1

    def empty_disk(self, number: int) -> None:
        self.replicas[number % 3] = Replica()

    def copy(self, _: int) -> None:
        self.publish(0)  # as every snapshot does
        whole, frozen = self.snapshot()
        view, end = self.ledger.view, len(self.led.epochs)
        done = view.contiguous_end(whole, end, self.led.log_start)
        if frozen is not None or done >= end:
            return
        self.copies += 1
        epochs = {one.epoch: one.start_offset for one in whole.clip(done, end)}
        self.ledger.copied(metadata(self.copies, done, end, epochs))

    def trim(self, _: int) -> None:
        self.publish(0)
        whole, frozen = self.snapshot()
        if frozen is None:
            log, view = self.led, self.ledger.view
            log.log_start = view.contiguous_end(whole, len(log.epochs), log.log_start)

    def adopt(self, _: int) -> None:
        self.accepted = self.epoch

    def publish(self, _: int) -> None:
        whole, frozen = self.snapshot()
        before = self.settings.view.history(KEY)
        published = self._to_publish(whole, frozen)
        if published is not None:
            self.seen["published"] += 1
            self.seen["freeze taken back"] += bool(
                before and before.frozen and not published.frozen
            )
            self._write(published, self.epoch)
            self.late = self.late or (published, self.epoch)
        assert self._to_publish(whole, frozen) is None  # no word is said twice
        self._check(whole, frozen)

    def publish_late(self, _: int) -> None:
        """What a leader wanted to publish arrives when others lead, or again."""
        if self.late is not None:
            objection = self.settings.view.objection(*self.late)
            self.seen["late and overruled"] += objection is not None
            self._write(*self.late)
            self.late = None

    def compact(self, _: int) -> None:
        """A new reader finds only the newest record, whatever the others thought of it."""
        self.settings = MemorySettings()
        if self.newest is not None:
            self._write(*self.newest)

    def _to_publish(self, whole: Lineage, frozen: Frozen | None) -> HistoryRecord | None:
        return lineage_to_publish(
            self.ledger.view,
            whole,
            frozen,
            leader_epoch=self.epoch,
            published=self.settings.view.history(KEY),
            trusted=True,
        )

    def _write(self, published: HistoryRecord, epoch: int) -> None:
        self.newest = published, epoch
        self.settings.write(published, epoch=epoch)

    def _check(self, whole: Lineage, frozen: Frozen | None) -> None:
        """A reader uses what the leader's tier uses, and is frozen when that is."""
        view, published = self.ledger.view, self.settings.view.history(KEY)
        assert (published is not None and published.frozen is not None) == (frozen is not None)
        usable = view.usable(whole, MAX_OFFSET)
        assert view.usable(published_lineage(view, published), MAX_OFFSET) == usable
        self.seen["frozen"] += frozen is not None
        self.seen["blind without it"] += view.usable(view.remote_lineage, MAX_OFFSET) != usable


ACTIONS = (
    *(World.append, World.replicate, World.elect, World.copy) * 3,
    *(World.publish, World.trim, World.publish_late, World.compact) * 2,
    *(World.adopt, World.empty_disk),
)
SEEDS, STEPS = 400, 50


def test_h04_after_the_leaders_word_readers_see_as_its_tier_does() -> None:
    """Whatever elections, copies, trims, late words of old leaders and compactions were before."""
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        chance = Random(seed)
        world = World(seen)
        for _ in range(STEPS):
            chance.choice(ACTIONS)(world, chance.randrange(9))
        world.publish(0)
    assert all(seen[what] >= 10 for what in WORTH_SEEING), seen

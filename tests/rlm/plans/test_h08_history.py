"""H8: a trim cuts the log's epoch file; of dead histories no copy may come alive by that."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from kip405.ids import MAX_OFFSET, Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.coverage import cover
from rlm.plans.freeze import Frozen, freeze
from rlm.plans.history import (
    LEAST_OTHERS,
    MOST_ENTRIES_OF_OTHERS,
    MOST_EPOCHS,
    is_settled,
    leaders_lineage,
    lineage_to_publish,
    published_lineage,
    record_of,
)
from rlmm.ledger import PartitionLedger
from rlmm.settings_codec import decode_settings_record, encode_settings_record
from rlmm.settings_records import HistoryRecord, Stamp
from tests.builders.ledger import OUR_WRITER, PARTITION, MemoryLedger, MemorySettings, metadata
from tests.rlm.plans.views import copied, history, lineage

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
KEY = PARTITION.key
TRUE = {5: 0, 7: 600}
TRUE_COPIES = [(0, 500, {5: 0}), (500, 600, {5: 500}), (600, 700, {7: 600})]
DEAD_COPY = (500, 800, {6: 500})


def read_by_leader(
    ledger: PartitionLedger, local: dict[int, int], published: HistoryRecord | None
) -> list[tuple[int, int, int]]:
    """Ranges that the leader's tier reads, with the epoch of the copy's first record."""
    found = ledger.usable(leaders_lineage(ledger, published, lineage(local)), 1_000)
    return [
        (one.metadata.start_offset, one.next_offset, one.metadata.segment_leader_epochs[0].epoch)
        for one in found
    ]


TRUE_READS = [(0, 500, 5), (500, 600, 5), (600, 700, 7)]


def test_h08_what_was_published_keeps_a_dead_history_dead_after_the_trim() -> None:
    """Epoch 6 was copied before an unclean election to one that never had it."""
    ledger = copied(*TRUE_COPIES, DEAD_COPY)
    published = history(TRUE)
    for log_start in (0, 300, 500, 550, 600, 700):
        local = lineage(TRUE).from_start(log_start)
        epochs = {one.epoch: one.start_offset for one in local.entries}
        assert read_by_leader(ledger, epochs, published) == TRUE_READS
    assert (500, 600, 6) in read_by_leader(ledger, {7: 700}, None)  # nobody could know
    assert read_by_leader(ledger, {7: 700, 8: 900}, published) == TRUE_READS
    assert read_by_leader(ledger, {9: 950}, published) == TRUE_READS


@pytest.mark.parametrize("late", [False, True])
def test_h08_a_trim_that_would_lose_what_the_log_alone_knows_is_not_settled(late: bool) -> None:
    """The dead copy is there already, or is adopted from its manifest after the trim."""
    ledger = copied(*TRUE_COPIES) if late else copied(*TRUE_COPIES, DEAD_COPY)

    def settled(bound: int, published: HistoryRecord | None) -> bool:
        return is_settled(
            ledger, lineage(TRUE), published=published, local=lineage(TRUE), bound=bound
        )

    assert settled(599, None)  # 7 at 600 stays in the log, and 5 below it
    assert not settled(600, None)
    assert not settled(700, None)
    published = record_of(ledger, lineage(TRUE), None, None)
    assert published == history(TRUE)
    assert settled(600, published) and settled(700, published)
    assert settled(700, history(TRUE, frozen="divergence"))
    assert not settled(700, history({5: 0}, frozen="divergence"))
    assert not settled(700, history({5: 0, 6: 500}))


def test_h08_ordinary_trims_need_no_word() -> None:
    ledger = copied((0, 500, {5: 0}), (500, 700, {5: 500, 6: 600}), (700, 900, {7: 700}))
    whole = lineage({5: 0, 6: 600, 7: 700})
    for log_start in (0, 500, 600, 650):
        local = whole.from_start(log_start)
        assert leaders_lineage(ledger, None, local) == whole
        assert is_settled(ledger, whole, published=None, local=local, bound=900)


def test_h08_what_was_published_must_hold_the_epoch_the_log_begins_with() -> None:
    """Else it stays unknown whether it is of this log: another history may be published last."""
    ledger = copied(*TRUE_COPIES, (700, 900, {8: 700}))
    whole, local = lineage({5: 0, 7: 600, 8: 700}), lineage({7: 600, 8: 700})
    assert is_settled(ledger, whole, published=history(TRUE), local=local, bound=650)
    assert not is_settled(ledger, whole, published=history(TRUE), local=local, bound=900)
    published = record_of(ledger, whole, None, history(TRUE))
    assert published.others == ()
    assert is_settled(ledger, whole, published=published, local=local, bound=900)


def test_h08_epochs_in_no_copy_are_published() -> None:
    """A recorded hole, say."""
    ledger = copied((0, 500, {5: 0}), (800, 900, {7: 800}))
    whole = lineage({5: 0, 6: 600, 7: 800})
    assert not is_settled(ledger, whole, published=None, local=whole, bound=850)
    published = record_of(ledger, whole, None, None)
    assert is_settled(ledger, whole, published=published, local=whole, bound=850)


def test_h08_a_word_of_another_history_does_not_count() -> None:
    """7 never had epoch 6; 8 was elected with it, and its log knows it: its history is alive."""
    ledger = copied(*TRUE_COPIES, DEAD_COPY)
    whole = leaders_lineage(ledger, history(TRUE), lineage({6: 620, 8: 850}))
    assert whole == lineage({5: 0, 6: 500, 8: 850})


def test_h08_what_was_published_before_counts_when_its_log_is_elected_again() -> None:
    """Of the history of 5, trimmed to 5, and that of 6, each other's dead one."""
    ledger = copied((0, 5, {2: 0}), (0, 1, {4: 0}), (1, 8, {6: 1}))
    published = record_of(ledger, lineage({4: 0, 6: 1}), None, history({2: 0, 5: 5}))
    assert published.others == (lineage({2: 0, 5: 5}),)
    local = lineage({5: 5, 9: 12})
    assert leaders_lineage(ledger, published, local) == lineage({2: 0, 5: 5, 9: 12})
    again = record_of(ledger, lineage({2: 0, 5: 5, 9: 12}), None, published)
    assert again.others == (lineage({4: 0, 6: 1}),)
    key, value = encode_settings_record(
        again, Stamp(node_id=1, leader_epoch=9, writer=OUR_WRITER, time_ms=0)
    )
    decoded = decode_settings_record(key, value)
    assert decoded is not None and decoded[0] == again


def test_h08_a_word_of_an_emptied_disk_hides_nothing() -> None:
    ledger = copied(*TRUE_COPIES)
    emptied = history({8: 0}, frozen="divergence")
    assert leaders_lineage(ledger, emptied, lineage({9: 700})) == lineage({5: 0, 7: 600, 9: 700})
    assert leaders_lineage(ledger, emptied, lineage({7: 650})) == lineage(TRUE)


def test_h08_a_dead_epoch_later_than_the_logs_first_hides_none_of_its_copies() -> None:
    """8 began at 400 and was copied; 9 follows on 7, trimmed to 700."""
    ledger = copied(*TRUE_COPIES, (400, 450, {8: 400}))
    for published in (None, history(TRUE)):
        assert read_by_leader(ledger, {7: 700, 9: 900}, published) == TRUE_READS


def test_h08_a_history_that_is_too_long_is_settled_as_far_as_it_can_be_published() -> None:
    epochs = {2 * at: 10 * at for at in range(MOST_EPOCHS + 5)}
    whole, ledger = lineage(epochs), copied((0, 99_999, epochs))
    published = record_of(ledger, whole, None, None)
    assert published.lineage.entries == whole.entries[5:]
    assert is_settled(ledger, whole, published=published, local=whole, bound=90_000)


@pytest.mark.parametrize("extra", [{}, {"later": 1}])
def test_h08_more_epochs_in_the_log_than_can_be_published_hold_no_trim_up(
    extra: dict[str, int],
) -> None:
    """The trim's epoch is older than all published ones; fields of a later version are kept."""
    epochs = {2 * at: 10 * at for at in range(MOST_EPOCHS + 5)}
    whole, ledger = lineage(epochs), copied((0, 99_999, epochs))
    published = replace(record_of(ledger, whole, None, None), extra=extra)
    assert not is_settled(ledger, whole, published=None, local=whole, bound=25)
    assert is_settled(ledger, whole, published=published, local=whole, bound=25)


def test_h08_epochs_without_records_push_no_other_history_out() -> None:
    """6 was elected uncleanly and trimmed; 8, that never had it, tells again and again, each time
    under an epoch that the next election leaves without records.
    """
    ledger = copied((0, 500, {5: 0}), (500, 800, {6: 500}))
    published = record_of(ledger, lineage({3: 0, 6: 500}), None, None)
    for epoch in range(8, 40):
        published = record_of(ledger, lineage({5: 0, epoch: 900}), None, published)
    assert leaders_lineage(ledger, published, lineage({6: 700})) == lineage({3: 0, 6: 500})


def test_h08_others_have_a_limit() -> None:
    def long(epoch: int) -> Lineage:
        return lineage({epoch + at: epoch + 5 * at for at in range(100)})

    published = record_of(copied(), long(0), None, None)
    for epoch in range(1, 400):
        published = record_of(copied(), long(epoch), None, published)
    assert LEAST_OTHERS < len(published.others) <= MOST_ENTRIES_OF_OTHERS // 100
    assert is_settled(copied(), long(399), published=published, local=long(399), bound=600)


@dataclass
class Replica:
    """Leader epoch of every offset ever, and where the log begins by now."""

    epochs: list[int] = field(default_factory=list)
    log_start: int = 0


@dataclass
class Attempt:
    """A copy whose FINISHED record is not written yet, and what its bytes are."""

    metadata: RemoteLogSegmentMetadata
    epochs: list[int]
    leader_epoch: int


class World:
    """Three replicas, elections of any kind, copies that finish late, trims, lost words."""

    def __init__(self, seen: Counter[str]) -> None:
        self.seen = seen
        self.replicas = [Replica() for _ in range(3)]
        self.leader, self.epoch, self.copies = 0, 1, 0
        self.ledger, self.settings = MemoryLedger(), MemorySettings()
        self.bytes: dict[Uuid, list[int]] = {}
        self.attempts: list[Attempt] = []
        self.accepted = -1

    @property
    def led(self) -> Replica:
        return self.replicas[self.leader]

    def true_lineage(self, start: int) -> Lineage:
        """As leader-epoch-checkpoint has it, the own epoch even when it is empty."""
        epochs = self.led.epochs
        entries = [
            EpochEntry(epoch=epoch, start_offset=at)
            for at, epoch in enumerate(epochs)
            if at >= start and (at == start or epochs[at - 1] != epoch)
        ]
        if not entries or entries[-1].epoch != self.epoch:
            entries.append(EpochEntry(epoch=self.epoch, start_offset=len(epochs)))
        return Lineage.of(entries)

    @property
    def local(self) -> Lineage:
        return self.true_lineage(self.led.log_start)

    def snapshot(self) -> tuple[Lineage, Frozen | None]:
        view = self.ledger.view
        whole = leaders_lineage(view, self.settings.view.history(KEY), self.local)
        end = len(self.led.epochs)
        return whole, freeze(view, whole, log_end_offset=end, accepted_epoch=self.accepted)

    def append(self, count: int) -> None:
        self.led.epochs += [self.epoch] * (count + 1)

    def replicate(self, number: int) -> None:
        self.replicas[number % 3] = Replica(list(self.led.epochs), self.led.log_start)

    def elect(self, number: int) -> None:
        self.leader = number % 3
        self.epoch += 1

    def adopt(self, _: int) -> None:
        self.accepted = self.epoch

    def begin_copy(self, _: int) -> None:
        whole, frozen = self.snapshot()
        view, end = self.ledger.view, len(self.led.epochs)
        done = view.contiguous_end(whole, end, self.led.log_start)
        if frozen is not None or done >= end:
            return
        self.copies += 1
        epochs = {one.epoch: one.start_offset for one in whole.clip(done, end)}
        made = metadata(self.copies, done, end, epochs)
        started = made.in_state(STARTED, event_timestamp_ms=0, broker_id=made.broker_id)
        self.ledger.write(started, epoch=self.epoch)
        self.attempts.append(Attempt(made, self.led.epochs[done:end], self.epoch))

    def finish_copy(self, number: int) -> None:
        """By who began it, a zombie by now, or by a later leader who found its manifest."""
        if self.attempts:
            attempt = self.attempts.pop(number % len(self.attempts))
            self.bytes[attempt.metadata.segment_id.id] = attempt.epochs
            is_zombie = number % 4 == 3
            epoch = attempt.leader_epoch if is_zombie else self.epoch
            self.ledger.write(attempt.metadata, epoch=epoch, previous=0)

    def copy(self, number: int) -> None:
        self.begin_copy(number)
        self.finish_copy(-1)

    def lineage_publisher(self, _: int) -> None:
        """Publishes to readers; whether that succeeds changes no decision of the leader."""
        whole, frozen = self.snapshot()
        published = lineage_to_publish(
            self.ledger.view,
            whole,
            frozen,
            leader_epoch=self.epoch,
            published=self.settings.view.history(KEY),
            trusted=True,
        )
        if published is not None:
            self.settings.write(published, epoch=self.epoch)

    def trim(self, _: int) -> None:
        whole, frozen = self.snapshot()
        if frozen is not None:
            return
        log, view = self.led, self.ledger.view
        bound = view.contiguous_end(whole, len(log.epochs), log.log_start)
        if log.log_start < bound < len(log.epochs):  # the active segment stays
            self._settle(view, whole, bound)
            self._check(whole)
            log.log_start = bound
            assert leaders_lineage(view, self.settings.view.history(KEY), self.local) == whole
            self.seen["trimmed"] += 1

    def _settle(self, view: PartitionLedger, whole: Lineage, bound: int) -> None:
        def settled() -> bool:
            published = self.settings.view.history(KEY)
            return is_settled(view, whole, published=published, local=self.local, bound=bound)

        if not settled():
            published = record_of(view, whole, None, self.settings.view.history(KEY))
            self.settings.write(published, epoch=self.epoch)
            self.seen["published before a trim"] += 1
            assert settled()

    def check(self, _: int) -> None:
        whole, frozen = self.snapshot()
        self.seen["frozen"] += frozen is not None
        if frozen is None:
            self._check(whole)

    def _check(self, whole: Lineage) -> None:
        """Every copy the leader's tier reads has the bytes of its own log, and none is hidden."""
        view, log = self.ledger.view, self.led
        usable = view.usable(whole, len(log.epochs))
        for one in usable:
            self.seen["segment read"] += 1
            start = one.metadata.start_offset
            stored = self.bytes[one.metadata.segment_id.id][: one.next_offset - start]
            self.seen["wrong"] += stored != log.epochs[start : one.next_offset]
        if log.log_start:
            self.seen["hidden"] += not cover(usable).holds(0, log.log_start)
            self.seen["trimmed and checked"] += 1
        known = view.usable(published_lineage(view, self.settings.view.history(KEY)), MAX_OFFSET)
        self.seen["readers of the tier alone need the herald"] += known != usable


ACTIONS: tuple[Callable[[World, int], None], ...] = (
    *(World.append, World.copy, World.trim) * 3,
    *(World.elect,) * 4,
    *(World.replicate, World.begin_copy, World.finish_copy, World.check, World.lineage_publisher),
    *(World.adopt, World.adopt),
)
SEEDS, STEPS = 200, 120


def test_h08_no_trim_brings_a_dead_history_to_life_or_hides_a_true_one() -> None:
    """Whatever elections, late copies and words of leaders were before."""
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        chance = Random(seed)
        world = World(seen)
        for _ in range(STEPS):
            chance.choice(ACTIONS)(world, chance.randrange(9))
        world.check(0)
    assert (seen["wrong"], seen["hidden"]) == (0, 0), seen
    for what in ("published before a trim", "trimmed and checked", "frozen", "segment read"):
        assert seen[what] >= 100, seen

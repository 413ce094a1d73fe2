"""What a leader must tell those who read the remote tier alone, and what they make of it (H4).

The segments tell of their own epochs only. That a higher epoch has begun below a copy's end (an
unclean election), or that log and copies contradict each other, is known to the leader alone until
records of its own are remote, and sometimes even then: of two dead histories the one of the higher
epoch looks alive. So the leader tells its whole history, and whether the partition is frozen, in a
settings record of its own, but only where readers would take another course than its own tier does.
Such a settings record is true up to its newest epoch for ever; what a later leader has copied goes
on from there.

A leader needs such settings records himself: a trim cuts the log's own epoch file (H8). So none is
made before all is told that segments, also ones that turn up later, could contradict.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from kip405.ids import MAX_OFFSET
from kip405.lineage import Lineage, merge
from rlm.plans.freeze import Frozen
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import HistoryRecord

MOST_EPOCHS = 2_048
"""Told of one partition, the newest ones; of what lies below the segments tell."""
LEAST_OTHERS = 4
"""Histories told before that are kept, the newest ones; more of them while they are short."""
MOST_ENTRIES_OF_OTHERS = 2_048


def published_lineage(ledger: PartitionLedger, told: HistoryRecord | None) -> Lineage:
    """The history as readers know it: by the segments, and by what a leader has told."""
    remote = ledger.remote_lineage
    latest = told.lineage.latest_epoch if told else None
    if told is None or latest is None:
        return remote
    return _continued(ledger, told.lineage, remote)


def _continued(ledger: PartitionLedger, told: Lineage, remote: Lineage) -> Lineage:
    """What was told, with what copies know below it and `remote` of later epochs."""
    latest = -1 if told.latest_epoch is None else told.latest_epoch
    older = merge(ledger.remote_lineage_up_to(latest), told)
    return merge(older, Lineage(remote.entries[len(remote.up_to(latest).entries) :]))


def leaders_lineage(ledger: PartitionLedger, told: HistoryRecord | None, local: Lineage) -> Lineage:
    """The whole history of the log that the leader has; `local` is what its epoch file still says.

    An epoch had one leader and so one history below it: what was told of the oldest epoch that the
    log knows is true for this log, whatever the copies of dead histories say. What was told of
    other epochs only, by a leader of another history or of a frozen log, says nothing here.
    """
    first = local.first
    if first is None:
        return published_lineage(ledger, told)
    remote = ledger.remote_lineage_up_to(first.epoch)
    word = _told_of(told, first.epoch)
    if word is None:
        return merge(remote, local)
    if word.start_of(first.epoch) is not None:
        return merge(merge(remote, word.up_to(first.epoch)), local)
    return merge(_continued(ledger, word, remote), local)


def is_settled(
    ledger: PartitionLedger,
    lineage: Lineage,
    *,
    told: HistoryRecord | None,
    local: Lineage,
    bound: int,
) -> bool:
    """Whether the leader will know `lineage` as well when the log has lost what lies below `bound`.

    By what segments and leaders tell, also if a copy of a dead history turns up later (an attempt
    adopted from its manifest), or another history is told later: no epoch may fit between two of
    ours, or what was told holds the epoch that the log begins with then, and so all below it. Else
    the history must be told before (`record_of`).
    """
    return _is_known(ledger, lineage, told, local.from_start(bound), bound) or (
        # all was told that can be
        told is not None and replace(told, extra={}) == record_of(ledger, lineage, None, told)
    )


def _is_known(
    ledger: PartitionLedger,
    lineage: Lineage,
    told: HistoryRecord | None,
    left: Lineage,
    bound: int,
) -> bool:
    if leaders_lineage(ledger, told, left) != lineage:
        return False
    known = _known_to(told, left.first.epoch).entries if left.first else ()
    neighbours = {(one.epoch, two.epoch) for one, two in pairwise(known)}
    untold = known[0].epoch if len(known) >= MOST_EPOCHS else -1
    return all(
        two.epoch == one.epoch + 1 or (one.epoch, two.epoch) in neighbours or two.epoch <= untold
        for one, two in pairwise(lineage.entries)
        if two.start_offset <= bound
    )


def _told_of(told: HistoryRecord | None, epoch: int) -> Lineage | None:
    """What was told of the history of this epoch; else what was told last, if that was before it
    and of no frozen log.
    """
    if told is None:
        return None
    known = _known_to(told, epoch)
    if known.entries:
        return known
    latest = told.lineage.latest_epoch
    is_before = latest is not None and latest < epoch and told.frozen is None
    return told.lineage if is_before else None


def _known_to(told: HistoryRecord | None, epoch: int) -> Lineage:
    """The history with this epoch that was told; empty where there is none."""
    histories = (told.lineage, *told.others) if told else ()
    return next((one for one in histories if one.start_of(epoch) is not None), Lineage())


def record_of(
    ledger: PartitionLedger, lineage: Lineage, frozen: Frozen | None, told: HistoryRecord | None
) -> HistoryRecord:
    """What tells this history, as far as it can be told, in place of what was `told` before.

    Of that nothing is lost: a log of another history may be elected again.
    """
    kept = [Lineage(lineage.entries[-MOST_EPOCHS:])]
    known = [frozenset(kept[0].entries)]
    for one in (told.lineage, *told.others) if told else ():
        entries = frozenset(one.entries)
        if not any(entries <= other for other in known):
            kept.append(one)
            known.append(entries)
    return HistoryRecord(
        partition=ledger.key,
        frozen=frozen.reason if frozen else None,
        lineage=kept[0],
        others=_as_many_as_fit(kept[1:]),
    )


def _as_many_as_fit(others: Sequence[Lineage]) -> tuple[Lineage, ...]:
    """By entries, not by number: many a history differs from the next by an epoch without records
    only, and such must not push out the one of another log.
    """
    ends = accumulate(len(one.entries) for one in others)
    count = sum(1 for end in ends if end <= MOST_ENTRIES_OF_OTHERS)
    return tuple(others[: max(count, LEAST_OTHERS)])


def lineage_to_publish(
    ledger: PartitionLedger,
    lineage: Lineage,
    frozen: Frozen | None,
    *,
    leader_epoch: int,
    told: HistoryRecord | None,
    trusted: bool,
) -> HistoryRecord | None:
    """What the leader must publish now; None where readers know it already.

    `lineage`, `frozen`: of a snapshot under `leader_epoch`. `trusted` False = the ledger has a
    problem: segments it does not show are no reason to take a freeze away, only to tell of one.
    """
    if ledger.newest_epoch > leader_epoch or not (trusted or frozen):
        return None
    is_frozen_published = told is not None and told.frozen is not None
    is_freeze_known = is_frozen_published == (frozen is not None)
    if is_freeze_known and _reads_alike(ledger, lineage, told):
        return None
    record = record_of(ledger, lineage, frozen, told)
    if is_freeze_known and told is not None and told.lineage == record.lineage:
        return None  # all was told that can be
    return record


def _reads_alike(ledger: PartitionLedger, lineage: Lineage, told: HistoryRecord | None) -> bool:
    """Whether readers use the same segments up to the same ends as the leader's tier."""
    known, end = published_lineage(ledger, told), ledger.readable_end
    if end == 0 or (known.below(end).entries and known.below(end) == lineage.below(end)):
        return True  # the usual case; epochs that begin behind all segments cut none
    return ledger.usable(known, MAX_OFFSET) == ledger.usable(lineage, MAX_OFFSET)

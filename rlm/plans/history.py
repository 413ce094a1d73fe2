"""Decides which lineage a leader publishes for readers of the remote tier, and how they use it
(H4).

Segments only show their own epochs. That a higher epoch has begun below a copy's end (an unclean
election), or that log and copies contradict each other, is known to the leader alone until records
of its own are remote, and sometimes even then: of two dead lineages the one of the higher epoch
appears to be alive. So the leader publishes its whole lineage, and whether the partition is frozen,
in a settings record of its own, but only where readers would otherwise decide differently from the
leader's own tier. Such a record stays true up to its newest epoch; what a later leader has copied
continues from there.

The leader itself needs such records too: a trim truncates the log's own epoch file (H8). So no trim
is done before everything is published that segments, also ones that appear later, could contradict.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from kip405.ids import MAX_OFFSET
from kip405.lineage import Lineage, merge
from kip405.segments import EpochEntry
from rlm.plans.coverage import Ranges
from rlm.plans.freeze import Frozen
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import HistoryRecord

MOST_EPOCHS = 2_048
"""Published for one partition, the newest ones; segments show what lies below them."""
LEAST_OTHERS = 4
"""How many earlier published lineages are kept, the newest ones; more while they are short."""
MOST_ENTRIES_OF_OTHERS = 2_048


def published_lineage(ledger: PartitionLedger, published: HistoryRecord | None) -> Lineage:
    """The lineage as readers know it: by the segments, and by what a leader has published."""
    remote = ledger.remote_lineage
    latest = published.lineage.latest_epoch if published else None
    if published is None or latest is None:
        return remote
    return _continued(ledger, published.lineage, remote)


def _continued(ledger: PartitionLedger, published: Lineage, remote: Lineage) -> Lineage:
    """The published lineage, with what copies know below it and `remote` of later epochs."""
    latest = -1 if published.latest_epoch is None else published.latest_epoch
    older = merge(ledger.remote_lineage_up_to(latest), published)
    return merge(older, Lineage(remote.entries[len(remote.up_to(latest).entries) :]))


def leaders_lineage(
    ledger: PartitionLedger, published: HistoryRecord | None, local: Lineage
) -> Lineage:
    """The whole lineage of the leader's log; `local` is what that log itself still shows.

    An epoch had one leader, and so one lineage below it: what was published for the oldest epoch
    that the log knows is true for this log, whatever copies of dead lineages show. What was
    published for other epochs only, by a leader of another lineage or of a frozen log, proves
    nothing here.
    """
    first = local.first
    if first is None:
        return published_lineage(ledger, published)
    remote = ledger.remote_lineage_up_to(first.epoch)
    word = _published_for(published, first.epoch)
    if word is None:
        return merge(remote, local)
    if word.start_of(first.epoch) is not None:
        return merge(merge(remote, word.up_to(first.epoch)), local)
    return merge(_continued(ledger, word, remote), local)


def is_settled(
    ledger: PartitionLedger,
    lineage: Lineage,
    *,
    published: HistoryRecord | None,
    local: Lineage,
    bound: int,
) -> bool:
    """Whether the leader will still know `lineage` when the log has lost what lies below `bound`.

    It must follow from segments and published records, also if a copy of a dead lineage appears
    later (an attempt adopted from its manifest), or another lineage is published later: no epoch
    may fit between two of ours, or a published record holds the epoch that the log begins with
    then, and so all below it. Otherwise the lineage must be published first (`record_of`).
    """
    if _is_known(ledger, lineage, published, local.from_start(bound), bound):
        return True
    everything_that_fits = record_of(ledger, lineage, None, published)
    return is_same(everything_that_fits, published)


def is_same(record: HistoryRecord, published: HistoryRecord | None) -> bool:
    """Whether publishing the record would change nothing that this version knows of."""
    return published is not None and record == replace(published, extra={})


def _is_known(
    ledger: PartitionLedger,
    lineage: Lineage,
    published: HistoryRecord | None,
    left: Lineage,
    bound: int,
) -> bool:
    if leaders_lineage(ledger, published, left) != lineage:
        return False
    known = _known_to(published, left.first.epoch).entries if left.first else ()
    neighbours = {(one.epoch, two.epoch) for one, two in pairwise(known)}
    unpublished = known[0].epoch if len(known) >= MOST_EPOCHS else -1
    return all(
        two.epoch == one.epoch + 1
        or (one.epoch, two.epoch) in neighbours
        or two.epoch <= unpublished
        for one, two in pairwise(lineage.entries)
        if two.start_offset <= bound
    )


def _published_for(published: HistoryRecord | None, epoch: int) -> Lineage | None:
    """The published lineage of this epoch; else the last published one, if that was before the
    epoch and of no frozen log.
    """
    if published is None:
        return None
    known = _known_to(published, epoch)
    if known.entries:
        return known
    latest = published.lineage.latest_epoch
    is_before = latest is not None and latest < epoch and published.frozen is None
    return published.lineage if is_before else None


def unknown_start(
    lineage: Lineage, *, published: HistoryRecord | None, local: Lineage, gaps: Ranges
) -> EpochEntry | None:
    """The last epoch that begins right behind a gap, so that nobody knows what was written before
    it; None = there is none. `gaps`: ascending offsets [start, end) below the log's start that no
    copy has. What is published for the epoch that the log begins with is known.
    """
    known = _known_to(published, local.first.epoch) if local.first else Lineage()
    neighbours = {(one.epoch, two) for one, two in pairwise(known.entries)}
    for one, two in reversed(tuple(pairwise(lineage.entries))):
        is_behind_gap = any(start < two.start_offset <= end for start, end in gaps)
        if is_behind_gap and (one.epoch, two) not in neighbours:
            return two
    return None


def known_part(
    ledger: PartitionLedger,
    record: HistoryRecord,
    unknown: EpochEntry,
    published: HistoryRecord | None,
) -> HistoryRecord | None:
    """The record without the entries below the `unknown_start` of its lineage: copies show these
    (again). None where readers would then read differently, or not know any more what is published
    below it.
    """
    known = published.lineage.first if published else None
    if known is not None and known.start_offset < unknown.start_offset:
        return None
    entries = tuple(one for one in record.lineage.entries if one.epoch >= unknown.epoch)
    part = replace(record, lineage=Lineage(entries))
    return part if _reads_alike(ledger, record.lineage, part) else None


def _known_to(published: HistoryRecord | None, epoch: int) -> Lineage:
    """The published lineage that has this epoch; empty where there is none."""
    histories = (published.lineage, *published.others) if published else ()
    return next((one for one in histories if one.start_of(epoch) is not None), Lineage())


def record_of(
    ledger: PartitionLedger,
    lineage: Lineage,
    frozen: Frozen | None,
    published: HistoryRecord | None,
) -> HistoryRecord:
    """The record that publishes this lineage, as far as it fits, in place of `published`.

    Nothing of that record is lost: a log of another lineage may be elected again.
    """
    kept = [Lineage(lineage.entries[-MOST_EPOCHS:])]
    known = [frozenset(kept[0].entries)]
    for one in (published.lineage, *published.others) if published else ():
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
    """Bounded by entries, not by lineages: many lineages differ from the next one only by an epoch
    without records, and these must not displace the lineage of another log.
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
    published: HistoryRecord | None,
    trusted: bool,
) -> HistoryRecord | None:
    """What the leader must publish now; None where readers know it already.

    `lineage`, `frozen`: of a snapshot under `leader_epoch`. `trusted` False = the ledger has a
    problem: segments that it does not show are no reason to lift a freeze, only to publish one.
    """
    if ledger.newest_epoch > leader_epoch or not (trusted or frozen):
        return None
    is_frozen_published = published is not None and published.frozen is not None
    is_freeze_known = is_frozen_published == (frozen is not None)
    if is_freeze_known and _reads_alike(ledger, lineage, published):
        return None
    record = record_of(ledger, lineage, frozen, published)
    if is_freeze_known and published is not None and published.lineage == record.lineage:
        return None  # everything that fits is published
    return record


def _reads_alike(
    ledger: PartitionLedger, lineage: Lineage, published: HistoryRecord | None
) -> bool:
    """Whether readers use the same segments up to the same ends as the leader's tier."""
    known, end = published_lineage(ledger, published), ledger.readable_end
    if end == 0 or (known.below(end).entries and known.below(end) == lineage.below(end)):
        return True  # the usual case: epochs that begin after all segments cut none
    return ledger.usable(known, MAX_OFFSET) == ledger.usable(lineage, MAX_OFFSET)

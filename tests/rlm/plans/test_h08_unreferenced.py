"""Which segments of dead histories may go: proven, replaced, old, and few (H8)."""

from dataclasses import replace

import pytest

from kip405.lineage import Lineage
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata
from rlm.plans.freeze import NONE_ACCEPTED, Accepted
from rlm.plans.unreferenced import UnreferencedView, is_replaced, orphans_of, plan_unreferenced
from tests.builders.ledger import MemoryLedger, metadata

GRACE_MS = 1_000
LINEAGE = Lineage((EpochEntry(epoch=0, start_offset=0), EpochEntry(epoch=2, start_offset=200)))
BELOW, LIVE = metadata(1, 0, 200, {0: 0}), metadata(2, 200, 400, {2: 200})
DEAD = metadata(3, 200, 300, {0: 200})
NOBODY = Accepted(epoch=NONE_ACCEPTED, end_offset=0)


def ledger_of(*segments: RemoteLogSegmentMetadata) -> MemoryLedger:
    ledger = MemoryLedger()
    add(ledger, *segments)
    return ledger


def add(ledger: MemoryLedger, *segments: RemoteLogSegmentMetadata, at_ms: int = 0) -> None:
    """Records that the present leader published."""
    ledger.now_ms = at_ms
    for one in segments:
        ledger.write(one, epoch=2)


def view_of(ledger: MemoryLedger) -> UnreferencedView:
    return UnreferencedView(
        ledger=ledger.view,
        lineage=LINEAGE,
        local=LINEAGE,
        orphans=orphans_of(ledger.view, LINEAGE),
        remote_log_start_offset=0,
        copying=(),
        accepted=NOBODY,
        now_ms=GRACE_MS,
        grace_ms=GRACE_MS,
        max_orphans=3,
    )


def view(*segments: RemoteLogSegmentMetadata) -> UnreferencedView:
    return view_of(ledger_of(BELOW, *segments))


def going(seen: UnreferencedView) -> list[int]:
    return [one.start_offset for one in plan_unreferenced(seen).segments]


def test_h08_a_dead_segment_that_others_have_replaced_goes() -> None:
    plan = plan_unreferenced(view(LIVE, DEAD))
    assert plan.segments == (DEAD,)
    assert (plan.replacements, plan.held) == ((LIVE,), None)
    assert is_replaced(DEAD, view(LIVE, DEAD))
    assert is_replaced(DEAD, view(LIVE)), "whatever its own record says"


@pytest.mark.parametrize(
    "kept",
    [
        metadata(3, 100, 300, {0: 100}),  # its first half is in the lineage
        metadata(3, 200, 300, {2: 200}),  # a second copy
        metadata(3, 200, 300, {1: 200}),  # replaced, but see below: up to 500
        metadata(3, 300, 500, {0: 300}),  # not all of it is replaced
    ],
)
def test_h08_what_is_not_dead_or_not_replaced_stays(kept: RemoteLogSegmentMetadata) -> None:
    if kept.segment_leader_epochs[0].epoch == 1:
        kept = replace(kept, end_offset=499)
    assert going(view(LIVE, kept)) == []
    assert not is_replaced(kept, view(LIVE, kept))


def test_h08_an_epoch_that_is_only_absent_proves_nothing() -> None:
    cut = Lineage((EpochEntry(epoch=0, start_offset=250),))
    assert orphans_of(ledger_of(BELOW, LIVE, DEAD).view, cut) == ()
    newer = metadata(3, 200, 300, {7: 200})
    assert going(view(LIVE, newer)) == []


def test_h08_the_grace_counts_from_the_newest_record_of_both() -> None:
    young = ledger_of(BELOW, LIVE)
    add(young, DEAD, at_ms=1)
    assert going(view_of(young)) == []
    replaced_lately = ledger_of(BELOW, DEAD)
    add(replaced_lately, LIVE, at_ms=1)
    assert going(view_of(replaced_lately)) == []
    assert going(replace(view_of(replaced_lately), now_ms=GRACE_MS + 1)) == [200]


def test_h08_what_the_leaders_epoch_file_does_not_reach_is_not_proven_dead() -> None:
    """The broker's retention cut the file before any snapshot: 0@0, 2@200 was the history of the
    log, and what the copies of another dead history say instead is all that is left.
    """
    seen = view(LIVE, DEAD)
    for start, expected in ((200, [200]), (201, [])):
        cut = replace(seen, local=Lineage((EpochEntry(epoch=2, start_offset=start),)))
        assert going(cut) == expected
        assert is_replaced(DEAD, cut) == bool(expected)
    assert going(replace(seen, local=Lineage())) == []


def test_h08_the_grace_counts_from_the_first_copies_of_the_leaders_own_epoch() -> None:
    """An old log is elected again: what replaces the segment is as old as the segment itself."""
    again = Lineage((*LINEAGE.entries, EpochEntry(epoch=4, start_offset=400)))
    ledger = ledger_of(BELOW, LIVE, DEAD)
    seen = replace(view_of(ledger), lineage=again, local=again)
    assert going(seen) == []
    assert not is_replaced(DEAD, seen)
    add(ledger, metadata(4, 400, 500, {4: 400}), at_ms=1)
    seen = replace(seen, ledger=ledger.view)
    assert going(seen) == []
    assert going(replace(seen, now_ms=GRACE_MS + 1)) == [200]


def test_h03_a_disputed_segment_neither_goes_nor_replaces() -> None:
    for disputed in (DEAD, LIVE):
        ledger = ledger_of(BELOW, LIVE, DEAD)
        ledger.write(disputed, epoch=-1, previous=0)
        assert ledger.view.entries[disputed.segment_id.id].disputed
        assert going(view_of(ledger)) == []


def test_a_segment_of_a_live_copy_attempt_stays() -> None:
    assert going(replace(view(LIVE, DEAD), copying={DEAD.segment_id.id})) == []


def test_what_has_ended_is_not_looked_at_and_offsets_below_the_start_need_no_copy() -> None:
    assert going(replace(view(LIVE, DEAD), remote_log_start_offset=300)) == []
    late = metadata(2, 250, 400, {2: 250})
    assert going(view(late, DEAD)) == []
    assert going(replace(view(late, DEAD), remote_log_start_offset=250)) == [200]


def test_h08_more_than_the_newest_few_need_an_operator() -> None:
    dead = tuple(metadata(10 + n, 200 + n, 201 + n, {0: 200 + n}) for n in range(4))
    held = plan_unreferenced(view(LIVE, *dead))
    assert held.segments == ()
    assert "4 segments" in (held.held or "")
    assert len(going(view(LIVE, *dead[:3]))) == 3
    accepted = replace(view(LIVE, *dead), accepted=Accepted(epoch=2, end_offset=400))
    assert len(going(accepted)) == 4

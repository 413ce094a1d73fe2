"""H4: what is due for a partition whose remote part was given up, and about which log that was."""

import pytest

from kip405.lineage import Lineage
from kip405.segments import RemoteLogSegmentState, RemotePartitionDeleteState
from rlm.plans.discard import (
    DiscardStep,
    OwnPart,
    RemotePart,
    both,
    discard_freeze,
    has_foreign_trim,
    has_newer_copies,
    is_same_log,
    last_epoch,
    next_step,
    own_part,
    remote_part,
    start_alone,
)
from rlm.plans.freeze import Frozen
from rlmm.settings_records import DiscardRecord, TrimRecord
from tests.builders.ledger import PARTITION, MemoryLedger, metadata
from tests.rlm.plans.views import lineage

COPYING = RemoteLogSegmentState.COPY_SEGMENT_STARTED
MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
STARTED = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
FINISHED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED


def decided(*, epoch: int = 7, last: int = 7, offset: int = 120) -> DiscardRecord:
    return DiscardRecord(
        partition=PARTITION.key,
        by="ada",
        why="orphans",
        epoch=epoch,
        last_epoch=last,
        offset=offset,
        delay_ms=1_000,
        decided_ms=0,
    )


EMPTY = decided(last=-1, offset=0)
CUT = decided(epoch=7, last=5, offset=500)
"""A log of epoch 5 that ended at 500 when epoch 7 had no record yet."""


@pytest.mark.parametrize(
    ("record", "local", "end", "same"),
    [
        (decided(), {7: 0}, 120, True),
        (decided(), {7: 0}, 900, True),
        (decided(), {7: 0, 9: 120}, 900, True),
        (decided(), {7: 0}, 119, False),
        (decided(), {7: 0, 9: 119}, 900, False),
        (decided(), {5: 0, 9: 1_000}, 2_000, False),
        (decided(), {9: 120}, 900, False),
        (EMPTY, {7: 0}, 0, True),
        (EMPTY, {7: 0}, 50, True),
        (EMPTY, {9: 0}, 50, True),
        (EMPTY, {5: 0, 9: 1_000}, 2_000, False),
        (EMPTY, {9: 1_000}, 2_000, False),
        (EMPTY, {6: 0, 9: 100}, 200, False),
        (EMPTY, {}, 0, False),
        (CUT, {5: 0, 7: 500}, 500, True),
        (CUT, {5: 0, 9: 500}, 600, True),
        (CUT, {5: 0, 6: 500}, 900, False),
        (CUT, {5: 0, 9: 400}, 900, False),
        (CUT, {5: 0, 9: 1_000}, 2_000, False),
        (CUT, {5: 0, 7: 1_000}, 2_000, False),
        (CUT, {3: 0, 9: 500}, 600, False),
        (CUT, {5: 0}, 600, False),
    ],
)
def test_h04_a_decision_is_about_the_log_that_was_seen(
    record: DiscardRecord, local: dict[int, int], end: int, same: bool
) -> None:
    assert is_same_log(record, lineage(local), end) == same


@pytest.mark.parametrize(
    ("local", "start", "end", "epoch"),
    [({7: 0}, 0, 0, -1), ({7: 0}, 0, 1, 7), ({5: 0, 7: 500}, 0, 500, 5), ({5: 0}, 500, 500, -1)],
)
def test_the_epoch_of_the_last_record(
    local: dict[int, int], start: int, end: int, epoch: int
) -> None:
    assert last_epoch(lineage(local), log_start_offset=start, log_end_offset=end) == epoch
    assert last_epoch(Lineage(), log_start_offset=0, log_end_offset=0) == -1


@pytest.mark.parametrize(
    ("record", "state", "same", "age_ms", "step"),
    [
        (None, None, False, 0, None),
        (None, STARTED, False, 0, None),
        (decided(), None, True, 999, DiscardStep.WAIT),
        (decided(), STARTED, True, 999, DiscardStep.WAIT),
        (decided(), None, True, 1_000, DiscardStep.BEGIN),
        (decided(), MARKED, True, 1_000, DiscardStep.BEGIN),
        (decided(), STARTED, True, 1_000, DiscardStep.DELETE),
        (decided(), FINISHED, True, 1_000, DiscardStep.SETTLE),
        (decided(), None, False, 1_000, DiscardStep.REFUSE),
        (decided(), STARTED, False, 1_000, DiscardStep.REFUSE),
        (decided(), FINISHED, False, 1_000, DiscardStep.SETTLE),
    ],
)
def test_g4_one_step_is_due_after_the_other(
    record: DiscardRecord | None,
    state: RemotePartitionDeleteState | None,
    same: bool,
    age_ms: int,
    step: DiscardStep | None,
) -> None:
    assert next_step(record, state, same_log=same, age_ms=age_ms) is step


@pytest.mark.parametrize(
    ("record", "state", "local", "frozen"),
    [
        (None, None, {7: 0}, None),
        (None, MARKED, {7: 0}, None),
        (None, STARTED, {7: 0}, None),
        (decided(), None, {7: 0}, "ada gives up"),
        (decided(), STARTED, {7: 0}, "ada gives up"),
        (decided(), None, {5: 0, 9: 100}, None),
        (decided(), STARTED, {5: 0, 9: 100}, "for another log"),
    ],
)
def test_h04_it_stays_frozen_for_as_long_as_it_is_given_up(
    record: DiscardRecord | None,
    state: RemotePartitionDeleteState | None,
    local: dict[int, int],
    frozen: str | None,
) -> None:
    found = discard_freeze(record, state, lineage(local), 200)
    if frozen is None:
        assert found is None
    else:
        assert found is not None
        assert frozen in found.reason


def test_two_reasons_are_one() -> None:
    one, other = Frozen(reason="a", orphans=(1,)), Frozen(reason="b")
    assert both(one, None) == one
    assert both(None, other) == other
    assert both(one, other) == Frozen(reason="a; b", orphans=(1,))
    assert both(None, None) is None


@pytest.mark.parametrize(
    ("local", "log_start", "start", "decided_epoch", "alone"),
    [
        ({7: 0}, 0, 5_000, 5, 0),  # an emptied disk: nobody has ended what is in it
        ({7: 0}, 30, 5_000, 5, 30),
        ({7: 0}, 0, 5_000, -1, 0),
        ({7: 0}, 0, 100, 7, 100),  # ended in this log
        ({5: 200, 6: 500}, 200, 300, 5, 300),  # a user has deleted them: they do not come back
        ({5: 200, 6: 500}, 200, 800, 5, 500),
        ({5: 300, 6: 500}, 300, 100, 5, 300),
        ({}, 0, 100, 5, 100),
    ],
)
def test_h02_the_start_follows_the_log_but_what_was_ended_in_it_stays_ended(
    local: dict[int, int], log_start: int, start: int, decided_epoch: int, alone: int
) -> None:
    found = start_alone(
        lineage(local),
        log_start_offset=log_start,
        remote_log_start_offset=start,
        decided_epoch=decided_epoch,
    )
    assert found == alone


def test_what_is_given_up_counts_each_offset_once() -> None:
    ledger = MemoryLedger()
    nothing = RemotePart(segments=0, records=0, size_bytes=0, oldest_ms=-1, newest_ms=-1)
    assert remote_part(ledger.view) == nothing
    ledger.copied(metadata(1, 0, 100, {5: 0}), metadata(2, 50, 150, {6: 50}))
    ledger.copied(metadata(3, 200, 300, {5: 200}))
    whole = RemotePart(segments=3, records=250, size_bytes=3, oldest_ms=0, newest_ms=0)
    assert remote_part(ledger.view) == whole


@pytest.mark.parametrize(
    ("log", "records"), [((150, 400), 130), ((0, 400), 0), ((150, 150), 130), ((100, 140), 90)]
)
def test_h04_what_a_discard_takes_of_the_leaders_own_history_is_counted(
    log: tuple[int, int], records: int
) -> None:
    """The second segment is of it up to 150, and the third one is not. What the log has is in a
    tier afterwards too.
    """
    ledger = MemoryLedger()
    ledger.copied(metadata(1, 0, 100, {5: 0}), metadata(2, 100, 200, {5: 100}))
    ledger.copied(metadata(3, 200, 300, {6: 200}))
    found = own_part(
        ledger.view,
        lineage({5: 0, 7: 150}),
        log_start_offset=log[0],
        log_end_offset=log[1],
        remote_log_start_offset=20,
    )
    assert found == OwnPart(segments=2, size_bytes=2, only_remote_records=records)


def test_h04_what_a_later_leader_has_copied_was_not_given_up() -> None:
    ledger = MemoryLedger()
    ledger.copied(metadata(1, 0, 100, {5: 0}), metadata(2, 100, 200, {7: 100}))
    assert not has_newer_copies(decided(epoch=7), ledger.view)
    old = metadata(3, 200, 300, {5: 200})
    ledger.write(old.in_state(COPYING, event_timestamp_ms=0, broker_id=2), epoch=9)
    assert has_newer_copies(decided(epoch=7), ledger.view)
    assert not has_newer_copies(decided(epoch=9), ledger.view)
    ledger.write(old, epoch=9, previous=0)
    assert has_newer_copies(decided(epoch=7), ledger.view)


@pytest.mark.parametrize(
    ("planned_epoch", "local", "is_foreign"),
    [
        (6, {7: 0, 9: 100}, False),  # before the decision
        (7, {9: 100}, False),
        (8, {7: 0, 9: 100}, True),
        (8, {7: 0, 8: 80, 9: 100}, False),  # of this log
    ],
)
def test_h04_a_trim_of_another_log_since_then_counts(
    planned_epoch: int, local: dict[int, int], is_foreign: bool
) -> None:
    trim = TrimRecord(partition=PARTITION.key, bound=50, planned_epoch=planned_epoch)
    assert has_foreign_trim(decided(epoch=7), trim, lineage(local)) == is_foreign
    assert not has_foreign_trim(decided(epoch=7), None, lineage(local))

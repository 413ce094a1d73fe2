"""H15: where a gap in the remote data is no hole yet, because something may still come back."""

import pytest

from kip405.segments import RemoteLogSegmentState
from rlm.plans.coverage import SETTLED, unsettled_end
from rlmm.ledger import PartitionLedger
from tests.builders.ledger import OTHER_WRITER, MemoryLedger, metadata
from tests.rlm.plans.views import lineage

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
LOG_END = 10_000


def ledger() -> MemoryLedger:
    """[0, 100) and [200, 300) are there."""
    made = MemoryLedger()
    made.copied(metadata(1, 0, 100, {0: 0}), metadata(2, 200, 300, {0: 200}))
    return made


def end(
    view: PartitionLedger, start: int = 0, next_offset: int = 300, *, trusted: bool = True
) -> int:
    return unsettled_end(
        view, lineage({0: 0}), LOG_END, start=start, next_offset=next_offset, trusted=trusted
    )


def test_h15_a_gap_that_nobody_can_fill_is_a_hole() -> None:
    assert end(ledger().view) == SETTLED


@pytest.mark.parametrize("state", [STARTED, DELETING])
def test_h15_an_attempt_or_a_deletion_that_was_begun_settles_nothing(
    state: RemoteLogSegmentState,
) -> None:
    made = ledger()
    made.write(metadata(3, 100, 150, {0: 100}, STARTED))
    if state is DELETING:
        made.write(metadata(3, 100, 150, {0: 100}, DELETING), previous=0)
    assert not made.view.disputes
    assert end(made.view) == 150
    assert end(made.view, start=150) == SETTLED
    assert end(made.view, start=149) == 150
    assert end(made.view, next_offset=100) == SETTLED
    assert end(made.view, next_offset=101) == 150


def test_h15_a_deletion_that_is_finished_leaves_a_hole() -> None:
    made = ledger()
    made.write(metadata(3, 100, 150, {0: 100}, STARTED))
    made.write(metadata(3, 100, 150, {0: 100}, DELETING), previous=0)
    made.write(metadata(3, 100, 150, {0: 100}, DELETED), previous=2)
    assert end(made.view) == SETTLED


def test_h03_a_disputed_record_settles_nothing() -> None:
    """A zombie says that the segment is gone; the leader may take that back."""
    made = ledger()
    made.write(metadata(3, 100, 150, {0: 100}, STARTED))
    made.write(metadata(3, 100, 150, {0: 100}, DELETED), previous=3, writer=OTHER_WRITER)
    assert made.view.entries[metadata(3, 100, 150, {0: 100}).segment_id.id].disputed
    assert end(made.view) == 150


def test_an_attempt_at_what_is_there_already_holds_nobody_up() -> None:
    made = ledger()
    made.write(metadata(3, 0, 100, {0: 0}, STARTED))
    assert end(made.view) == SETTLED
    made.write(metadata(4, 50, 120, {0: 50}, STARTED))
    assert end(made.view) == 120


def test_h06_a_ledger_with_a_problem_proves_no_hole() -> None:
    assert end(ledger().view, trusted=False) == 300
    assert end(ledger().view, next_offset=100, trusted=False) == SETTLED
    assert end(ledger().view, start=100, next_offset=100, trusted=False) == SETTLED

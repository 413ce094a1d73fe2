"""H6: what is published while nobody knows which epochs the offsets of a gap have."""

import pytest

from kip405.segments import EpochEntry
from rlm.plans.history import known_part, record_of, unknown_start
from rlmm.settings_records import HistoryRecord
from tests.rlm.plans.views import copied, history, lineage

WHOLE = lineage({0: 0, 4: 200, 6: 400})
BEHIND = EpochEntry(epoch=6, start_offset=400)
COPIES = copied((0, 100, {0: 0}), (200, 300, {4: 200}))


def test_h06_the_last_gap_counts() -> None:
    gaps = ((100, 200), (300, 400))
    found = unknown_start(WHOLE, published=None, local=lineage({6: 400}), gaps=gaps)
    assert found == BEHIND


def part(published: HistoryRecord | None) -> HistoryRecord | None:
    record = record_of(COPIES, WHOLE, None, published)
    return known_part(COPIES, record, BEHIND, published)


@pytest.mark.parametrize("published", [None, history({6: 410})])
def test_h06_what_is_behind_the_gap_is_published(published: HistoryRecord | None) -> None:
    found = part(published)
    assert found is not None
    assert found.lineage == lineage({6: 400})


def test_h08_nothing_that_is_published_below_the_gap_is_given_up() -> None:
    assert part(history({0: 0, 4: 200})) is None


def test_h04_readers_must_read_like_the_leader() -> None:
    """A dead copy of epoch 5 would hide what was copied of epoch 4."""
    ledger = copied((0, 100, {0: 0}), (200, 300, {4: 200}), (150, 350, {5: 150}))
    assert known_part(ledger, record_of(ledger, WHOLE, None, None), BEHIND, None) is None

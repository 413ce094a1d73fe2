"""What forbids every deletion: each guard alone, in one text for status and logs."""

from dataclasses import replace

import pytest

from rlm.plans.freeze import Frozen
from rlm.plans.guards import DeletionGuards, refusal
from tests.rlm.plans.views import NOTHING_FORBIDS


@pytest.mark.parametrize(
    ("guards", "text"),
    [
        (NOTHING_FORBIDS, None),
        (replace(NOTHING_FORBIDS, ready=False), "settings or ledger are not read yet"),
        (
            replace(NOTHING_FORBIDS, ledger_problem="shrunk"),
            "the ledger has a problem: shrunk",
        ),
        (replace(NOTHING_FORBIDS, freeze_record="ops: why"), "frozen by command: ops: why"),
        (
            replace(NOTHING_FORBIDS, frozen=Frozen(reason="emptied")),
            "partition is frozen: emptied",
        ),
    ],
)
def test_h06_each_guard_forbids_every_deletion(guards: DeletionGuards, text: str | None) -> None:
    assert refusal(guards) == text

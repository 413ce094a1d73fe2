"""What is wrong with the processes of a service with proxy workers (H24, H38)."""

import pytest

from rlm.plans.problems import ProblemKind
from rlm.plans.process_rules import ProcessObservation, process_findings


def kinds(**changes: int) -> list[ProblemKind]:
    given = {"quiet_ms": 900, "up_ms": 60_000, "recent_ends": 0, **changes}
    return [one.kind for one in process_findings([ProcessObservation(name="worker 1", **given)])]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, None),
        ({"quiet_ms": 15_000}, None),
        ({"quiet_ms": 15_001}, ProblemKind.PROCESS_MISSING),
        ({"quiet_ms": 15_001, "recent_ends": 9}, ProblemKind.PROCESS_MISSING),
        ({"recent_ends": 2}, None),
        ({"recent_ends": 3}, ProblemKind.PROCESS_ENDS),
        ({"recent_ends": 3, "up_ms": 0}, ProblemKind.PROCESS_ENDS),
        ({"recent_ends": 3, "up_ms": 600_000}, None),
    ],
)
def test_h38_a_process_that_is_away_or_keeps_ending_is_a_problem(
    changes: dict[str, int], kind: ProblemKind | None
) -> None:
    assert kinds(**changes) == ([] if kind is None else [kind])


def test_a_problem_names_its_process() -> None:
    one = ProcessObservation(name="worker 1", quiet_ms=61_000, up_ms=0, recent_ends=0)
    (found,) = process_findings([one])
    assert found.subject == "worker 1"
    assert "61 s" in found.text

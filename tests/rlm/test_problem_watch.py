"""Problems in the log, and asked for (H38)."""

import structlog

from rlm.plans.problems import Finding, ProblemKind
from rlm.service.problems import ProblemWatch
from tests.builders.clock import ManualClock

FULL = Finding(kind=ProblemKind.STORE_REFUSES_WRITES, subject="store hot", text="it is full")
SOON = Finding(kind=ProblemKind.CERTIFICATE_ENDS_SOON, subject="api.pem", text="renew it")


class Found:
    """A source of findings that the test changes."""

    def __init__(self, *now: Finding) -> None:
        self.now: list[Finding] = list(now)

    def __call__(self) -> list[Finding]:
        return self.now


def watch(*sources: Found) -> ProblemWatch:
    return ProblemWatch(sources, ManualClock(5_000))


def test_h38_a_problem_is_logged_when_it_appears_and_when_it_ends_and_not_between() -> None:
    found = Found(FULL, SOON)
    watched = watch(found)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            assert [one.subject for one in watched.current()] == ["store hot", "api.pem"]
        found.now = [SOON]
        for _ in range(2):
            watched.current()
    assert [(row["event"], row["log_level"], row["subject"]) for row in logs] == [
        ("problem", "error", "store hot"),
        ("problem", "warning", "api.pem"),
        ("problem_ended", "info", "store hot"),
    ]
    assert logs[0]["problem"] == "it is full"
    assert logs[-1]["since_ms"] == 5_000


def test_all_sources_are_asked_at_each_question() -> None:
    one, two = Found(FULL), Found()
    watched = watch(one, two)
    assert len(watched.current()) == 1
    two.now = [SOON]
    assert len(watched.current()) == 2


def test_many_of_one_kind_are_twenty_lines_and_a_count() -> None:
    many = [
        Finding(kind=ProblemKind.LAG_UNKNOWN, subject=f"orders-{number}", text="not measured")
        for number in range(500)
    ]
    with structlog.testing.capture_logs() as logs:
        assert len(watch(Found(*many, FULL)).current()) == 501
    assert len(logs) == 21
    [counted] = [row for row in logs if "more_of_this_kind" in row]
    assert counted["more_of_this_kind"] == 480

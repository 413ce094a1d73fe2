"""Kinds of problems, and how long each lasts (H38)."""

import pytest

from rlm.plans.problems import (
    KINDS,
    Finding,
    Problem,
    ProblemKind,
    ProblemRegister,
    Severity,
    about,
    generate_docs,
    health_of,
)

FULL = Finding(kind=ProblemKind.STORE_REFUSES_WRITES, subject="store hot", text="it is full")
SOON = Finding(kind=ProblemKind.CERTIFICATE_ENDS_SOON, subject="api.pem", text="renew it")

STARTING = Finding(kind=ProblemKind.STARTING, subject="service", text="settings are not read yet")


def lag(partition: int, text: str = "not measured") -> Finding:
    return Finding(
        kind=ProblemKind.LAG_UNKNOWN, subject=f"orders-{partition}", text=text, topic="orders"
    )


def problem(finding: Finding, since_ms: int = 0) -> Problem:
    return Problem(
        kind=finding.kind,
        subject=finding.subject,
        text=finding.text,
        topic=finding.topic,
        since_ms=since_ms,
    )


def test_h38_every_kind_has_a_row_and_a_word_of_its_own() -> None:
    assert KINDS.keys() == set(ProblemKind)
    assert len({kind.value for kind in ProblemKind}) == len(ProblemKind)
    docs = generate_docs()
    assert all(f"| `{kind.value}` | {row.severity.value} |" in docs for kind, row in KINDS.items())


def test_a_problem_lasts_since_it_was_first_seen() -> None:
    register = ProblemRegister()
    changes = register.update([FULL], now_ms=1_000)
    assert changes.appeared == (problem(FULL, 1_000),)
    assert register.update([FULL], now_ms=2_000).appeared == ()
    assert register.current == (problem(FULL, 1_000),)


def test_one_that_is_not_found_again_has_ended_and_starts_again() -> None:
    register = ProblemRegister()
    register.update([FULL, SOON], now_ms=1_000)
    changes = register.update([SOON], now_ms=2_000)
    assert changes.ended == (problem(FULL, 1_000),)
    assert changes.appeared == ()
    assert register.update([FULL, SOON], now_ms=3_000).appeared == (problem(FULL, 3_000),)


def test_a_text_that_changes_is_the_same_problem() -> None:
    register = ProblemRegister()
    register.update([lag(0, "for 90 s")], now_ms=1_000)
    changes = register.update([lag(0, "for 91 s")], now_ms=2_000)
    assert (changes.appeared, changes.ended) == ((), ())
    [now] = register.current
    assert (now.text, now.since_ms) == ("for 91 s", 1_000)


def test_a_rule_that_knows_since_when_is_believed() -> None:
    register = ProblemRegister()
    known = Finding(kind=FULL.kind, subject=FULL.subject, text=FULL.text, since_ms=7)
    register.update([FULL], now_ms=1_000)
    register.update([known], now_ms=2_000)
    assert register.current == (problem(FULL, 7),)


def test_findings_of_one_kind_and_subject_are_one_problem_with_all_texts() -> None:
    register = ProblemRegister()
    register.update([lag(0, "a"), lag(0, "b"), lag(0, "a"), lag(1, "c")], now_ms=1)
    assert [(one.subject, one.text) for one in register.current] == [
        ("orders-0", "a; b"),
        ("orders-1", "c"),
    ]


def test_alarms_come_first() -> None:
    register = ProblemRegister()
    register.update([STARTING, SOON, lag(0)], now_ms=1)
    assert [one.severity for one in register.current] == list(Severity)


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [([], "well"), ([STARTING], "well"), ([SOON], "warning"), ([SOON, FULL], "alarm")],
)
def test_the_verdict_is_that_of_the_gravest(findings: list[Finding], verdict: str) -> None:
    assert health_of(findings) == verdict


def test_what_is_about_another_topic_is_left_out() -> None:
    every = [problem(FULL), problem(lag(0))]
    assert about(every, "orders") == tuple(every)
    assert about(every, "bids") == (problem(FULL),)
    assert about(every, "") == tuple(every)

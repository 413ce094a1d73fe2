"""Runs of very many seeds can be stopped, go on later, and keep every failure."""

from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.many_seeds import Collected, Portion, run_portion
from tests.simulation.seeds import Failure


def _portion(first: int, end: int, **failures: str) -> Portion:
    failed = {int(seed.removeprefix("s")): broken for seed, broken in failures.items()}
    events = Counter({"kill": end - first})
    return Portion(seeds=range(first, end), cpu_s=0.5, events=events, failures=failed)


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    return Collected(path=tmp_path / "results" / "simulation.json")


def test_what_a_file_has_is_not_run_again(collected: Collected) -> None:
    for first, end in ((110, 120), (100, 105), (90, 100)):
        collected.add(_portion(first, end), "abc")
    again = Collected.read(collected.path)
    assert list(again.missing(range(95, 130), 4)) == [
        range(105, 109),
        range(109, 110),
        range(120, 124),
        range(124, 128),
        range(128, 130),
    ]
    assert list(again.missing(range(92, 104))) == []


def test_portions_of_one_commit_become_one_row_and_others_have_their_own(
    collected: Collected,
) -> None:
    for first, at_commit in ((100, "abc"), (110, "abc"), (120, "def")):
        collected.add(_portion(first, first + 10), at_commit)
    rows = Collected.read(collected.path).rows
    assert [(one["commit"], one["first_seed"], one["end_seed"]) for one in rows] == [
        ("abc", 100, 120),
        ("def", 120, 130),
    ]
    assert rows[0]["events"] == {"kill": 20}
    assert rows[0]["cpu_s"] == 1.0


def test_failures_of_earlier_runs_count(collected: Collected) -> None:
    collected.add(_portion(100, 110, s103="early trim"), "abc")
    again = Collected.read(collected.path)
    again.add(_portion(110, 120, s111="not quiet"), "def")
    assert again.failures(range(100, 112)) == {103: "early trim", 111: "not quiet"}
    assert again.failures(range(104, 111)) == {}


def test_a_failure_that_passes_at_a_later_commit_is_none_and_stays_in_the_file(
    collected: Collected,
) -> None:
    collected.add(_portion(100, 110, s103="early trim", s104="not quiet"), "abc")
    collected.passed(103, "def")
    again = Collected.read(collected.path)
    assert again.failures(range(100, 110)) == {104: "not quiet"}
    assert again.rows[0]["failures"] == {"103": "early trim", "104": "not quiet"}
    assert again.rows[0]["passed_at"] == {"103": "def"}


def test_a_seed_that_fails_is_kept_and_the_others_go_on() -> None:
    def run(seed: int) -> Counter[str]:
        if seed == 3:
            raise Failure(seed, [], AssertionError("early trim"))
        return Counter({"kill": 1})

    portion = run_portion(range(1, 6), run)
    assert (portion.failures, portion.events) == ({3: "early trim"}, Counter({"kill": 4}))

"""What is made of each partition: made again at once where it would be outdated, and only there."""

from collections.abc import Sequence

import pytest

from kip405.ids import PartitionKey, Uuid
from rlm.api.per_partition import AT_EACH_REPORT_MS, FOREVER_MS, PerPartition

KEYS = [PartitionKey(Uuid(b"t" * 16), number) for number in range(4)]
ALL = (0, 1, 2, 3)


class Report:
    """Two columns of inputs, of which the value of a partition is made."""

    def __init__(self) -> None:
        self.names = ["a", "b", "c", "d"]
        self.others = [object() for _ in KEYS]
        self.until_ms: dict[str, int] = {}
        self.fails = False
        self.values = PerPartition(self._make)
        self._made: list[str] = []

    def _make(self, name: str, other: object) -> tuple[tuple[str, object], int]:
        if self.fails:
            raise RuntimeError(name)
        self._made.append(name)
        return (name, other), self.until_ms.get(name, FOREVER_MS)

    def made(self, numbers: Sequence[int] = ALL, now_ms: int = 0) -> list[str]:
        """Of which partitions a value was made for this report; all values are checked."""
        self._made = []
        names, others = ([row[at] for at in numbers] for row in (self.names, self.others))
        found = self.values.read([KEYS[at] for at in numbers], names, others, now_ms=now_ms)
        assert list(found) == list(zip(names, others, strict=True))
        return self._made


@pytest.fixture
def report() -> Report:
    made = Report()
    assert made.made() == ["a", "b", "c", "d"]
    assert made.made() == []
    return made


def test_only_what_has_another_input_is_made_again(report: Report) -> None:
    report.others[2] = object()
    assert report.made() == ["c"]
    report.names[0] = "e"
    report.others[3] = object()
    assert report.made() == ["e", "d"]
    assert report.made() == []


def test_partitions_come_and_go_and_the_others_keep_what_is_known_of_them(report: Report) -> None:
    assert report.made((1, 2)) == []
    assert report.made((2, 0, 1)) == ["a"], "it was forgotten"
    report.others[1] = object()
    assert report.made((3, 1, 2)) == ["d", "b"]
    assert report.made(()) == []
    assert report.made((2,)) == ["c"]


def test_time_alone_makes_a_value_again_after_its_end_and_not_before(report: Report) -> None:
    report.until_ms["b"] = 1_000
    report.others[1] = object()
    assert report.made(now_ms=10) == ["b"]
    assert report.made(now_ms=1_000) == []
    assert report.made((2, 1), now_ms=1_000) == []
    report.until_ms["b"] = 2_000
    assert report.made((2, 1), now_ms=1_001) == ["b"]
    assert report.made((2, 1), now_ms=2_000) == []


def test_a_value_that_is_true_for_its_report_only_is_made_for_each(report: Report) -> None:
    report.until_ms["b"] = AT_EACH_REPORT_MS
    report.others[1] = object()
    assert report.made() == report.made() == report.made() == ["b"]


def test_what_could_not_be_made_is_made_by_the_next_report(report: Report) -> None:
    report.others[0] = report.others[3] = object()
    report.fails = True
    with pytest.raises(RuntimeError):
        report.made()
    report.fails = False
    assert report.made() == ["a", "d"]


def test_h38_of_a_report_that_could_not_be_made_no_value_is_kept() -> None:
    """The first partition was made already, of an input that the next report does not have."""
    broken = ["x"]

    def make(text: str) -> tuple[str, int]:
        if text in broken:
            raise RuntimeError(text)
        return text, FOREVER_MS

    values: PerPartition[str] = PerPartition(make)
    for first in ("a", "b", "c"):
        with pytest.raises(RuntimeError):
            values.read(KEYS[:2], [first, "x"])
        assert values.read(KEYS[:2], ["b", "y"]) == ("b", "y")

"""Kafka's own tests of tiered storage: each has a test here, or a reason why there is none.

Scenarios are Kafka's integration tests (storage/src/test/java/org/apache/kafka/tiered/storage/
integration); the marker `kafka_scenario` names them on the tests that stand for them. Unit tests
are in tests/project/kafka_unit_lists.py.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.project.kafka_unit_lists import NOT_HERE, UNIT_LISTS
from tests.project.tree import ROOT

SCENARIOS = {
    1: "OffloadAndConsumeFromLeader",
    2: "OffloadAndTxnConsumeFromLeader",
    3: "RollAndOffloadActiveSegment",
    4: "DeleteSegments",
    5: "DeleteSegmentsDueToLogStartOffsetBreach",
    6: "DeleteTopic",
    7: "DisableRemoteLogOnTopic",
    8: "EnableRemoteLogOnTopic",
    9: "FetchFromLeaderWithCorruptedCheckpoint",
    10: "ListOffsets",
    11: "PartitionsExpand",
    12: "ReassignReplicaMoveAndExpand",
    13: "ReassignReplicaShrink",
    14: "AlterLogDir",
    15: "TransactionsWithTieredStore",
    17: "RemoteTopicCrud",
}
"""By their numbers in our list. The 16th is of tests without tiering that live in the same folder.

What they show and ours do not: Kafka's retention goes on for a topic whose copies are disabled,
while ours keeps everything remote until the topic is enabled again or its data deleted; Kafka
refuses to switch tiering of a whole cluster off while a topic uses it, and we have no such switch.
"""


def named_by(marker: str, source: str) -> Iterator[tuple[str, str]]:
    """Each argument of a marker and the name of the test that has it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for one in node.decorator_list:
                if isinstance(one, ast.Call) and ast.unparse(one.func) == f"pytest.mark.{marker}":
                    yield from ((ast.literal_eval(argument), node.name) for argument in one.args)


def test_every_scenario_of_kafka_has_a_test() -> None:
    sources = [path.read_text() for path in (ROOT / "tests/scenarios").glob("test_*.py")]
    marked = {name for text in sources for name, _ in named_by("kafka_scenario", text)}
    assert marked == set(SCENARIOS.values())


def missing(test: str) -> bool:
    """Whether a name like `rlm/test_a.py::test_b`, below tests/, is no test."""
    file, _, name = test.partition("::")
    path = ROOT / "tests" / file
    return not (path.is_file() and f"def {name}(" in path.read_text())


@pytest.mark.parametrize("of", UNIT_LISTS)
def test_every_unit_test_of_kafka_that_is_listed_has_one_here_or_a_reason(of: str) -> None:
    wrong = [
        (case, test)
        for case, test in UNIT_LISTS[of].items()
        if not test.removeprefix(NOT_HERE) or (not test.startswith(NOT_HERE) and missing(test))
    ]
    assert wrong == []


def test_the_rule_about_unit_tests_can_fail() -> None:
    here = "project/test_kafka_lists.py::test_the_rule_about_unit_tests_can"
    assert missing(here)
    assert missing("project/no_such_file.py::test_a")
    assert not missing(f"{here}_fail")


@pytest.mark.parametrize(
    ("decorators", "found"),
    [
        ('@pytest.mark.a("X", "Y")\n', {("X", "test_a"), ("Y", "test_a")}),
        ('@pytest.mark.b("X")\n', set()),
        ("", set()),
    ],
)
def test_the_rule_about_markers_can_fail(decorators: str, found: set[tuple[str, str]]) -> None:
    assert set(named_by("a", f"{decorators}def test_a() -> None: ...")) == found

"""ARCHITECTURE.md and the pages against the tree: what is named exists, what exists is named."""

import re

import pytest

from tests.docs import reading
from tests.docs.file_map import brought_up_to_date, modules
from tests.docs.site import hand_written
from tests.project.tree import ROOT

ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
HAZARDS = reading.hazards(ARCHITECTURE)
# Hazards whose rules are built; each has a test that carries its number.
BUILT = {1, 2, 3, 4, 5, 6, 9, 10, 11, 13, 14, 17, 19, 20, 21, 22, 26, 29, 30}
DOCUMENTS = tuple(name for name in hand_written() if name != "CHANGELOG.md")


def test_the_file_map_has_every_module_and_no_other() -> None:
    assert sorted(reading.file_map(ARCHITECTURE)) == sorted(modules()), (
        "run: python -m tests.docs.file_map, then put the new lines better"
    )


def test_the_file_map_can_be_brought_up_to_date() -> None:
    path = ROOT / "tests" / "docs" / "file_map.py"
    wanted = {"rlm/a.py": path, "rlm/clock.py": path, "rlm/new/b.py": path, "rlmm/c.py": path}
    before = (
        "### rlm/\n\n- `clock.py`: the clock\n- `gone.py`: x\n\n"
        "### rlmm/\n\n- `c.py`: c\n\n### tests/\n"
    )
    after = brought_up_to_date(before, wanted)
    assert list(reading.file_map(after)) == list(wanted)
    assert "- `clock.py`: the clock\n" in after


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_named_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    present = text.partition("- **Not there yet**")[0]
    assert [path for path in reading.paths(present) if not (ROOT / path).exists()] == []


def test_every_hazard_built_has_an_entry() -> None:
    assert BUILT - HAZARDS.keys() == set()


def test_every_hazard_with_a_test_has_an_entry() -> None:
    found = {
        int(number)
        for path in (ROOT / "tests").rglob("test_*.py")
        for number in re.findall(r"def test_h(\d\d)_", path.read_text(encoding="utf-8"))
    }
    assert found - HAZARDS.keys() == set()


@pytest.mark.parametrize("number", sorted(HAZARDS))
def test_every_test_file_of_a_hazard_has_its_test(number: int) -> None:
    tests = [path for path in reading.paths(HAZARDS[number]) if path.startswith("tests/")]
    without = [
        path
        for path in tests
        if f"def test_h{number:02}_" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert tests and without == []

"""The map of the project: every folder has its line in ARCHITECTURE.md, every module its docstring.

A module's docstring is its entry in the map, so its first sentence must say what the module is.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.site import text_of
from tests.project.tree import GROUP, PACKAGES, ROOT, findings, rule, show

pytestmark = GROUP

_LINE = re.compile(r"^\| `([\w/.]+/)` \| \S", re.MULTILINE)
_MAPPED = {*PACKAGES, "bench", "build_tools"}
OTHER_FOLDERS = {"docker/", "docs/", "k8s/", "proto/", "requirements/", "tests/"}
MAX_LINES = {"ARCHITECTURE.md": 350, "README.md": 180}
_MAX_SENTENCE_LINES = 3
_MIN_WORDS = 4


def folder_lines(text: str) -> list[str]:
    """The folders that have a line in a table of the document."""
    return _LINE.findall(text)


def folders() -> set[str]:
    """Every folder with Python modules of ours, generated ones too, outside of the tests."""
    modules = (path for name in _MAPPED for path in (ROOT / name).rglob("*.py"))
    return {f"{show(path.parent)}/" for path in modules}


@rule
def poor_heads(module: ast.Module) -> Iterator[str]:
    """What keeps the head of a module's docstring from being a sentence that says what it is."""
    docstring = ast.get_docstring(module)
    if docstring is None:
        if module.body:
            yield "has no docstring"
        return
    head = docstring.split("\n\n")[0]
    if not head.endswith("."):
        yield f"does not begin with a sentence: {head!r}"
    if len(head.split()) < _MIN_WORDS:
        yield f"does not say what the module is: {head!r}"
    if len(head.splitlines()) > _MAX_SENTENCE_LINES:
        yield f"begins with more than {_MAX_SENTENCE_LINES} lines: {head!r}"


def test_every_folder_has_its_line_in_the_map_once() -> None:
    named = folder_lines(text_of("ARCHITECTURE.md"))
    assert sorted(named) == sorted(folders() | OTHER_FOLDERS)


def test_every_module_says_what_it_is() -> None:
    assert [f"{show(path)} {what}" for path, what in findings(poor_heads)] == []


@pytest.mark.parametrize("name", MAX_LINES)
def test_the_first_papers_are_short(name: str) -> None:
    assert len(text_of(name).splitlines()) <= MAX_LINES[name]


def test_lines_of_folders_are_found() -> None:
    text = "| folder | what |\n|---|---|\n| `rlm/plans/` | decisions |\n| `rlm/api/` |  |\n"
    assert folder_lines(text) == ["rlm/plans/"]


@pytest.mark.parametrize(
    ("source", "poor"),
    [
        ('"""Decides which segments are copied next."""', False),
        ('"""Decides what is next.\n\nWhy: nobody else can."""', False),
        ('"""Which segments are copied next?"""', True),
        ('"""The module."""', True),
        ('"""One\ntwo\nthree\nfour."""', True),
        ("x = 1", True),
        ("", False),
    ],
)
def test_the_rule_of_docstrings_can_fail(source: str, poor: bool) -> None:
    assert bool(list(poor_heads(ast.parse(source)))) == poor

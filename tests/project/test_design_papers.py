"""Guarantees and hazards that are cited are defined, what they name exists, and no text refers to a
document that is not in the repository.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from tests.docs import reading
from tests.docs.site import hand_written
from tests.project.tree import ROOT, files, show, texts

GUARANTEES, HAZARDS = "docs/design/guarantees.md", "docs/design/hazards.md"
DECISIONS = "docs/design/decisions.md"
# Files with examples of what must be noticed.
_PLANTED = {show(Path(__file__).resolve()), "tests/docs/test_site.py"}
_BY_TOOLS = ("bench/results/", "requirements/")

_CITED = re.compile(r"(?<![\w#-])([GH])([1-9]\d?)(?![\w-])|def test_(h)(\d\d)_")
_ENTRY = re.compile(r"^## ([GHD]\d+)\n\n\*\*[^*\n]+\.\*\*\n\n(.*?)(?=^## |\Z)", re.M | re.S)
_TESTS = re.compile(r"^\*\*Tests\*\* (.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
_WITHOUT_TEST = "none under this number, because "
_FILE = re.compile(r"`((?:[\w-]+/)+[\w.-]+\.(?:c|h|md|proto|py|toml))`")
_DOCUMENT = re.compile(r"(?<![\w./*<{-])((?:[\w-]+/)*[\w-]+\.md)\b(?!/)")

# Written in pieces, so that this file keeps its own rule.
RETIRED = re.compile(
    "|".join(
        (
            r"\bDES" + r"IGN\b",
            r"\bCONVEN" + r"TIONS\b",
            r"\bse" + r"ed(?:s?/|(?: file)?s? \d{3}\b| files?\b)",
            r"\b(?:this|an earlier|a later) st" + r"ep\b",
            r"\bthe (?:dra" + r"fts?\b|aud" + r"it of\b|des" + r"ign (?:asks|says|wants)\b)",
            r"'s dra" + r"ft\b",
            r"\b(?:this|the|first|next|earlier|another) iss" + r"ue\b",
            r"_of_the_iss" + r"ue",
            r"\biss" + r"ue #?\d",
            r"\bof the des" + r"ign\b",
        )
    )
)
_STEMS = (
    *("DES" + "IGN", "CONVEN" + "TIONS", "se" + "ed", "this st", "er st", "dra" + "ft"),
    *("iss" + "ue", "aud" + "it of", "the des" + "ign"),
)
_ITS_OWN_WORDS = {"LICENSE"}


@cache
def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def own_texts() -> Mapping[str, str]:
    """Every text that people of this project write, by its name; not what a tool wrote."""
    return {
        show(path): path.read_text(encoding="utf-8", errors="replace")
        for path in texts()
        if not show(path).startswith(_BY_TOOLS)
    }


def entries(text: str) -> dict[str, str]:
    """What the text says of each number. A heading is the number alone, so that its anchor is too,
    on GitHub and on the site alike; the title follows.
    """
    return dict(_ENTRY.findall(text))


def cited(text: str) -> set[str]:
    """Each guarantee and hazard that a text cites."""
    return {
        f"{letter or lower.upper()}{int(number or digits)}"
        for letter, number, lower, digits in _CITED.findall(text)
    }


def undefined(by_name: Mapping[str, str], defined: Collection[str]) -> list[str]:
    """Citations of numbers that nothing defines."""
    return [
        f"{name}: {number}"
        for name, text in by_name.items()
        for number in sorted(cited(text))
        if number not in defined
    ]


def faults(number: str, body: str, tests: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with a hazard's entry. `tests`: the text of each test file by its name."""
    said = _TESTS.search(body)
    if said is None or "**Rule.** " not in body or "**Kept in** " not in body:
        yield f"{number} lacks its rule, where it is kept, or its tests"
        return
    function = f"def test_h{int(number[1:]):02}_"
    named = [path for path in reading.paths(said[1]) if path.endswith(".py")]
    if said[1].startswith(_WITHOUT_TEST):
        yield from (f"{number} has a test in {name}" for name in tests if function in tests[name])
        return
    if not named:
        yield f"{number} names no test"
    yield from (f"{number}: no test in {name}" for name in named if function not in tests[name])


def missing_paths(text: str) -> list[str]:
    """Paths of the repository in backquotes that are not there."""
    named = {*reading.paths(text), *_FILE.findall(text)}
    return sorted(path for path in named if not (ROOT / path).exists())


def unknown_documents(name: str, text: str, known: Iterable[str]) -> list[str]:
    """Names of Markdown files in a text that belong to no file of the repository."""
    endings = tuple(f"/{path}" for path in known)
    return [
        f"{name}: {document}"
        for document in _DOCUMENT.findall(text)
        if not any(path.endswith(f"/{document}") for path in endings)
    ]


def retired(text: str) -> list[str]:
    """Words of documents that a reader of this repository cannot have."""
    return RETIRED.findall(text) if any(stem in text for stem in _STEMS) else []


def test_guarantees_hazards_and_decisions_are_numbered_and_indexed() -> None:
    for name, letter in ((GUARANTEES, "G"), (HAZARDS, "H"), (DECISIONS, "D")):
        headings = re.findall(r"^## ", read(name), re.MULTILINE)
        numbers = [f"{letter}{number}" for number in range(1, len(headings) + 1)]
        assert list(entries(read(name))) == numbers
        rows = re.findall(r"^\| \[([GHD]\d+)\]\(#([ghd]\d+)\) \|", read(name), re.MULTILINE)
        assert rows == [(number, number.lower()) for number in numbers]


def test_every_number_cited_is_defined() -> None:
    defined = {*entries(read(GUARANTEES)), *entries(read(HAZARDS))}
    by_name = {name: text for name, text in own_texts().items() if name not in _PLANTED}
    assert undefined(by_name, defined) == []


def test_every_hazard_names_its_rule_its_modules_and_its_tests() -> None:
    tests = {name: text for name, text in own_texts().items() if name.startswith("tests/")}
    found = [faults(number, body, tests) for number, body in entries(read(HAZARDS)).items()]
    assert list(chain.from_iterable(found)) == []


@pytest.mark.parametrize("name", hand_written())
def test_paths_that_a_page_names_are_there(name: str) -> None:
    assert missing_paths(read(name)) == []


def test_every_document_named_is_in_the_repository() -> None:
    known = [show(path) for path in files() if path.suffix == ".md"]
    found = [
        line
        for name, text in own_texts().items()
        if name not in _PLANTED
        for line in unknown_documents(name, text, known)
    ]
    assert found == []


def test_no_text_refers_to_papers_that_a_reader_cannot_have() -> None:
    found = {
        name: retired(text) for name, text in own_texts().items() if name not in _ITS_OWN_WORDS
    }
    assert {name: words for name, words in found.items() if words} == {}


def test_the_citation_rule_can_fail() -> None:
    assert cited("# stays (H7, G2), see -XX:+UseG1GC and x-H4-y") == {"H7", "G2"}
    assert undefined(
        {"a.py": "def test_h" + "44_is_new() -> None: ...\n# (G11)"}, {"H4", "G1"}
    ) == [
        "a.py: G11",
        "a.py: H44",
    ]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("**Rule.** x\n\n**Tests** `tests/a.py`.\n", "H7 lacks its rule, where it is kept, or its"),
        ("**Rule.** x\n\n**Kept in** y\n\n**Tests** `tests/b.py`.\n", "H7: no test in tests/b.py"),
        ("**Rule.** x\n\n**Kept in** y\n\n**Tests** some.\n", "H7 names no test"),
        (
            f"**Rule.** x\n\n**Kept in** y\n\n**Tests** {_WITHOUT_TEST}of z.\n",
            "H7 has a test in tests/a.py",
        ),
    ],
)
def test_the_rule_about_entries_can_fail(body: str, fault: str) -> None:
    (found,) = faults("H7", body, {"tests/a.py": "def test_h" + "07_a()", "tests/b.py": ""})
    assert found.startswith(fault)


def test_an_entry_without_title_or_with_another_anchor_is_noticed() -> None:
    text = "## H1\n\n**Title.**\n\nIt is.\n\n## H2 Title\n\nNot.\n\n## H3\n\nNot.\n"
    assert list(entries(text)) == ["H1"]


def test_the_rules_about_paths_can_fail() -> None:
    text = "`rlm/clock.py`, `rlm/no_such.py`, `rlm/gone/`, `gone/a.py`, `GET x/y`, `a/b`"
    assert missing_paths(text) == ["gone/a.py", "rlm/gone/", "rlm/no_such.py"]
    known = ["docs/design/hazards.md"]
    named = "docs/design/hazards.md, hazards.md, sign/hazards.md, peers.md, design/peers.md"
    assert unknown_documents("x", named, known) == [
        "x: sign/hazards.md",
        "x: peers.md",
        "x: design/peers.md",
    ]


@pytest.mark.parametrize(
    "words",
    [
        "the fields of DES" + "IGN",
        "of se" + "ed 000",
        "see se" + "eds/x",
        "built in this st" + "ep",
        "unlike the dra" + "fts",
        "the layout's dra" + "ft",
        "the first iss" + "ue",
        "iss" + "ue #10",
        "found by the aud" + "it of June",
        "guarantees of the des" + "ign",
    ],
)
def test_the_rule_about_retired_words_can_fail(words: str) -> None:
    assert retired(words)
    assert not retired("Random(seed); a draft; rlm audit; Authority.issue(); docs/design")

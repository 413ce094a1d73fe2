"""The pages that the code fills equal what the code says now; comments become Markdown."""

import pytest

from build_tools.locks import ROOT
from build_tools.reference.markdown import cell, prose
from build_tools.reference.pages import GENERATED, generate


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_generated_pages_are_fresh(name: str) -> None:
    written = (ROOT / name).read_text(encoding="utf-8")
    assert written == generate(name), "run: make reference"


def test_only_generated_pages_and_the_formats_are_in_the_reference() -> None:
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/reference").iterdir()}
    pages = {name for name in GENERATED if name.startswith("docs/")}
    assert written == {*pages, "docs/reference/formats.md"}


def test_a_table_in_a_comment_becomes_a_table() -> None:
    comment = (
        " Errors:\n\n"
        " condition      | status\n"
        " ---------------|-------\n"
        " store away,    | UNAVAILABLE\n"
        "   or read-only | \n"
    )
    assert prose(comment) == (
        "Errors:\n\n"
        "| condition | status |\n| --- | --- |\n| store away, or read-only | UNAVAILABLE |\n"
    )


def test_lines_of_a_comment_are_joined_and_lists_stay_lists() -> None:
    assert prose(" One\n two.\n\n Rules\n - a\n   b\n - c\n") == (
        "One two.\n\nRules\n\n- a b\n- c\n"
    )
    assert prose("") == ""


def test_nothing_in_plain_text_is_taken_for_markdown() -> None:
    assert cell("a <b> | c*\n `x | <y>`") == "a \\<b> \\| c\\* `x \\| <y>`"

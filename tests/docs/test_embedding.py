"""The page on embedding shows the program that tests/scenarios/test_embedded.py runs."""

import re

from tests.project.tree import ROOT

PAGE = ROOT / "docs" / "embedding.md"
PROGRAM = ROOT / "docs" / "embedded.py"


def test_the_page_shows_the_program() -> None:
    text = PAGE.read_text(encoding="utf-8")
    [shown] = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert shown == PROGRAM.read_text(encoding="utf-8")

"""The pages and what they say of each other: which are written by hand, their headings and links.

Must not know what a page is about.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from build_tools.reference.pages import GENERATED
from tests.project.tree import ROOT, files, show

DOCS = ROOT / "docs"
INDEX = "docs/index.md"
_FENCE = re.compile(r"^(```+).*?^\1\n", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
_TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.DOTALL | re.MULTILINE)


def hand_written() -> tuple[str, ...]:
    """Every document of the project that no code fills, by its path from the root."""
    found = [*ROOT.glob("*.md"), *(path for path in files(DOCS) if path.suffix == ".md")]
    return tuple(sorted(show(path) for path in found if show(path) not in GENERATED))


def on_the_site() -> tuple[str, ...]:
    """Every page of docs/."""
    return tuple(show(path) for path in files(DOCS) if path.suffix == ".md")


def text_of(name: str) -> str:
    """A page, whole."""
    return (ROOT / name).read_text(encoding="utf-8")


def links(text: str) -> list[str]:
    """Targets of the links inside the project, outside of code."""
    return _LINK.findall(re.sub(r"`[^`\n]+`", "", _FENCE.sub("", text)))


def anchors(text: str) -> set[str]:
    """What a link may have after its #: headings as GitHub and MyST name them, and our anchors."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    named = re.findall(r'^\(([\w-]+)\)=$|<a (?:id|name)="([\w-]+)"', text, re.MULTILINE)
    return {_slug(heading) for heading in headings} | {one or other for one, other in named}


def _slug(heading: str) -> str:
    shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")


def broken_links(name: str, text: str) -> Iterator[str]:
    """Each link of a page that leads nowhere, or out of docs/ where the site cannot follow it."""
    for target in links(text):
        path, _, anchor = target.partition("#")
        found = (ROOT / name).parent / path if path else ROOT / name
        page = text if found == ROOT / name else _read(found)
        if page is None or (anchor and anchor not in anchors(page)):
            yield target
        elif name.startswith("docs/") and not found.resolve().is_relative_to(DOCS):
            yield f"{target} (not on the site)"


def _read(path: Path) -> str | None:
    if path.is_dir():
        return ""
    # Pictures are linked too.
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def not_in_the_contents(index: str, pages: tuple[str, ...]) -> list[str]:
    """The pages that the contents of the index do not have."""
    entries = [line for block in _TOCTREE.findall(index) for line in block.splitlines()]
    listed = [f"docs/{line}.md" for line in entries if line and not line.startswith(":")]
    return [
        page for page in pages if page != INDEX and not any(fnmatch(page, one) for one in listed)
    ]

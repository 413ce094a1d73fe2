"""Words that the glossary replaced do not come back: in names of the code, in names of files, and
as nouns in the pages that people write.

A word is retired with its grammar: `look` is one as a noun, `look_up` is none. docs/glossary.md has
the words that are used instead.
"""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import pytest

from tests.docs.site import hand_written, text_of
from tests.project.tree import PACKAGES, ROOT, files, is_generated, show

# Parts of a name in small letters, joined by "_", and what is used instead. A row matches where its
# parts follow one another in a name; after "=" it is the whole name as it is written.
RETIRED: Mapping[str, str] = {
    "look": "(partition) snapshot",
    "looks": "(partition) snapshots",
    "eye": "snapshot reader",
    "eyes": "snapshot reader",
    "herald": "lineage publisher",
    "heralds": "lineage publisher",
    "lane": "task, task pool",
    "lanes": "tasks, task pool",
    "fact": "settings record, metadata",
    "facts": "settings records, metadata",
    "flight": "load",
    "flights": "chunk loader",
    "leg": "tier reader",
    "legs": "tier readers",
    "seam": "tier failover, border of the tiers",
    "seams": "tier failover, border of the tiers",
    "chase": "retry policy",
    "chases": "retry policy",
    "silence": "stall watchdog, idle time",
    "silences": "stall watchdog, idle time",
    "front": "APIs, what it is",
    "fronts": "APIs, what it is",
    "facts_side": "metadata",
    "work_side": "tasks",
    "reading_side": "read path",
    "store_side": "stores",
    "anew": "again, recreated",
    "place": "position, location, (topic) partition",
    "places": "positions, locations, (topic) partitions",
    "tell": "report, publish, receive",
    "tells": "reports, publishes, receives",
    "told": "reported, published, received",
    "judge": "check, decide",
    "judges": "checks, decides",
    "judged": "checked, decided",
    "standing": "state",
    "=round_": "run, pass",
    "=Parts": "dependencies (the class)",
    "=lives": "background tasks",
    "=_lives": "background tasks",
}
# What is a verb, a phrase of the field or a value of the API, by the parts around the word.
NOT_MEANT = (
    *("look_up", "looks_up", "look_like", "looks_like", "look_for", "looks_for"),
    *("in_flight", "single_flight"),
    *("in_place", "takes_place", "took_place"),
)
# Whole names that others gave: `fact` is a level in reports of stores (proto/rlm/v1/admin.proto),
# `tell` a method of files.
GIVEN = {"FACT", "tell"}

_NAME = re.compile(r"\w+")
# What a text may have as an ordinary word.
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NEARBY = re.compile("|".join(row.strip("=_").split("_")[0] for row in RETIRED), re.IGNORECASE)

# Nouns that are dialect in prose. A verb or a phrase of plain English is not meant.
_ONE = r"\b(?:an?|the|this|each|every|one|no|its|their|our|old|last)\s+"
_MANY = r"\b(?:the|these|those|all|its|their|our|old|last)\s+"
PROSE: Mapping[str, str] = {
    rf"{_ONE}look\b": "(partition) snapshot",
    rf"{_MANY}looks\b": "(partition) snapshots",
    r"\beyes\b": "snapshot reader",
    r"\bheralds?\b": "lineage publisher",
    r"\blanes?\b": "task, task pool",
    r"(?<!\bin )\bfacts?\b": "settings record, metadata",
    r"(?<!\bin )(?<!\bsingle )\bflights?\b": "load",
    r"\blegs?\b": "tier reader",
    r"\bseams?\b": "border of the tiers",
    r"\bchas(?:e[sd]?|ing)\b": "retry policy",
    r"\banew\b": "again, recreated",
    r"(?<!\bin\s)(?<!\btakes\s)(?<!\btake\s)\bplaces?\b": "position, location, partition",
    r"\b(?:told|tells?|telling)\b": "report, publish, receive",
    r"\bjudge[sd]?\b": "check, decide",
    r"\bsilences?\b": "time without an answer",
    r"(?<!\bin )\bfronts?\b": "what it is",
    rf"{_MANY}lives\b": "background tasks",
}
_PROSE = re.compile("|".join(PROSE), re.IGNORECASE)
_CODE = re.compile(r"^```.*?^```$|^ {4}.*?$|`[^`\n]+`|\]\([^)\n]*\)", re.DOTALL | re.MULTILINE)
_EXAMPLE = re.compile(r"^> \*\*Before:\*\*.*?$", re.MULTILINE)
# It lists the names that users knew.
_HISTORY = "CHANGELOG.md"


@cache
def retired(name: str) -> str | None:
    """The row that a name falls under."""
    if name in GIVEN or not _NEARBY.search(name):
        return None
    if f"={name}" in RETIRED:
        return f"={name}"
    parts = "_".join(part.lower() for part in _PART.findall(name))
    for phrase in NOT_MEANT:
        parts = re.sub(rf"(?<![a-z]){phrase}(?![a-z])", "", parts)
    for row in RETIRED:
        if f"_{row}_" in f"_{parts}_":
            return row
    return None


def names(source: str) -> Iterator[str]:
    """Each identifier of a Python file that may be retired: also one that only a text mentions,
    such as a log event or a metric, if its form shows that it is one.
    """
    found = {name for name in set(_NAME.findall(source)) if retired(name)}
    words = {name for name in found if _WORD.fullmatch(name)}
    if words:
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        used = {token.string for token in tokens if token.type == tokenize.NAME}
        found -= words - used
    yield from sorted(found)


def in_prose(text: str) -> list[str]:
    """The retired nouns of a page, without its code, the targets of its links, and its examples of
    what not to write.
    """
    return _PROSE.findall(_CODE.sub("", _EXAMPLE.sub("", text)))


def paths_of(paths: Iterable[str]) -> list[str]:
    """The paths in which a file or folder has a retired name."""
    return [path for path in paths if any(map(retired, re.split(r"[/.]", path)))]


def _sources() -> Iterator[str]:
    for top in (*PACKAGES, "tests"):
        for path in files(ROOT / top):
            if path.suffix == ".py" and not is_generated(path):
                yield show(path)


SOURCES = tuple(_sources())
# It has the words that it refuses.
_OWN = "tests/project/test_words.py"


def test_names_of_the_code_are_words_of_the_glossary() -> None:
    found = {
        path: list(names((ROOT / path).read_text(encoding="utf-8")))
        for path in SOURCES
        if path != _OWN
    }
    assert {path: words for path, words in found.items() if words} == {}


def test_names_of_files_are_words_of_the_glossary() -> None:
    assert paths_of(show(path) for top in (*PACKAGES, "tests") for path in files(ROOT / top)) == []


@pytest.mark.parametrize("page", [page for page in hand_written() if page != _HISTORY])
def test_pages_use_words_of_the_glossary(page: str) -> None:
    assert in_prose(text_of(page)) == []


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("RememberedLooks", "looks"),
        ("_look_at", "look"),
        ("PartitionHerald", "herald"),
        ("rlm_lane_errors_total", "lane"),
        ("LANES", "lanes"),
        ("test_h15_a_gap_at_the_seam", "seam"),
        ("facts_ready", "facts"),
        ("flights", "flights"),
        ("StoreSide", "store_side"),
        ("work_side", "work_side"),
        ("Parts", "=Parts"),
        ("_lives", "=_lives"),
        ("SILENCE_MS", "silence"),
    ],
)
def test_a_retired_name_is_noticed(name: str, row: str) -> None:
    assert retired(name) == row


@pytest.mark.parametrize(
    "name",
    [
        *("lookup", "look_up_offset", "does_not_look_like_it", "SingleFlightCache"),
        *("fetch_ranges_max_in_flight", "factory", "artifact", "frontier", "planes", "legal"),
        *("message_parts", "ClientSide", "purchase", "test_what_lives_stays", "eyesight", "Level"),
    ],
)
def test_a_name_that_only_resembles_a_retired_one_is_none(name: str) -> None:
    assert retired(name) is None


def test_names_are_found_where_they_are_names() -> None:
    source = (
        '"""The front of a look, in the silence of facts."""\n'
        "async def herald(front: str) -> None:\n"
        '    log.info("lane_busy", by=x.StoreSide)  # as facts_side has it\n'
    )
    assert list(names(source)) == ["StoreSide", "facts_side", "front", "herald", "lane_busy"]


def test_a_path_with_a_retired_name_is_noticed() -> None:
    paths = ("kip405/lanes/pool.py", "rlm/tasks/pool.py", "tests/test_the_seam.py", "a/lookup.py")
    assert paths_of(paths) == ["kip405/lanes/pool.py", "tests/test_the_seam.py"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Every look is shared.", ["Every look"]),
        ("Each task takes an old\nlook, the last looks.", ["old\nlook", "last looks"]),
        ("This looks like keys that look like it; look it up in front of `lane`.", []),
        ("In fact, 3 in flight.\n\n    a lane\n\n```\nthe seam\n```\n[a](lanes)", []),
        ("The facts, a lane, the heralds.", ["facts", "lane", "heralds"]),
        ("> **Before:** The cleanup's lane.\n>\n> **After:** The seam.", ["seam"]),
        (
            "Silence of a service: two legs chase its lives.",
            ["Silence", "legs", "chase", "its lives"],
        ),
    ],
)
def test_prose_with_a_retired_noun_is_noticed(text: str, found: list[str]) -> None:
    assert in_prose(text) == found

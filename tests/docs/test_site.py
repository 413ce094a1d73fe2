"""The pages name commands, options, metrics, targets, pages and headings that exist."""

import inspect
import re
from itertools import chain

import click
import pytest

from rlm.service.metrics import TABLE
from rlm_client.connection import service_connection
from rlm_client.store.options import store_options
from rlm_sandbox.demo.__main__ import main as demo
from tests.docs import reading
from tests.docs.command_lines import PROGRAMS, every_command, options_of, resolve
from tests.docs.site import (
    INDEX,
    anchors,
    broken_links,
    hand_written,
    not_in_the_contents,
    on_the_site,
    text_of,
)
from tests.project.tree import ROOT

MAX_LINE = 120
WRITTEN = hand_written()
PAGES = tuple(page for page in WRITTEN if page not in ("ARCHITECTURE.md", "CHANGELOG.md"))
NAMED = sorted({words for page in PAGES for words in reading.commands(text_of(page))})
COMMANDS = [*chain.from_iterable(map(every_command, PROGRAMS.values())), demo]
OPTIONS = set().union(*map(options_of, COMMANDS))
OTHERS_OPTIONS = {"--skip-message-on-error", "--to-earliest", "--to-datetime"}
"""Of Kafka's own tools."""
OF_THE_CONSUMER = {
    *("rlm_client", "rlm_endpoints"),
    *(f"rlm_{name}" for name in inspect.signature(service_connection).parameters),
    *(f"rlm_{name}" for name in inspect.signature(store_options).parameters),
    "rlm_stores",
}
"""The package, and arguments of TieredStorageConsumer."""


@pytest.mark.parametrize("words", NAMED, ids=" ".join)
def test_every_command_named_exists(words: tuple[str, ...]) -> None:
    assert resolve(words) is not None


def test_every_command_is_on_the_page_for_operators() -> None:
    named = {words[1] for words in reading.commands(text_of("docs/operate.md"))}
    for program in PROGRAMS.values():
        assert set(program.list_commands(click.Context(program))) - named == set()


def test_a_command_that_is_not_there_is_noticed() -> None:
    assert resolve(("rlm", "topics", "explode")) is None


@pytest.mark.parametrize("page", PAGES)
def test_every_option_of_a_command_exists(page: str) -> None:
    for line in reading.command_lines(text_of(page)):
        for words in reading.commands(f"`{line}`"):
            command = resolve(words)
            assert command is not None
            assert reading.options(line) - options_of(command) == set(), line


@pytest.mark.parametrize("page", PAGES)
def test_a_check_of_rights_names_whom_to_ask(page: str) -> None:
    lines = [one for one in reading.command_lines(text_of(page)) if one.startswith("rlm acls ")]
    checks = [(line, reading.options(line)) for line in lines if "--check" in line]
    assert [line for line, has in checks if not has & {"--config", "--bootstrap"}] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_option_that_is_named_alone_exists(page: str) -> None:
    alone = {span.partition(" ")[0] for span in reading.spans(text_of(page)) if span[:2] == "--"}
    assert alone - OPTIONS - OTHERS_OPTIONS == set()


@pytest.mark.parametrize("page", PAGES)
def test_metrics_named_exist(page: str) -> None:
    spans = "\n".join(reading.spans(text_of(page)))
    named = set(re.findall(r"\b(rlm_(?!spark\b|sandbox\b|pid\b)[a-z_]+)", spans))
    assert named - {row.name for row in TABLE} - OF_THE_CONSUMER == set()


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_named_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", text_of(page), re.MULTILINE))
    assert named - targets == set()


@pytest.mark.parametrize("page", WRITTEN)
def test_lines_are_short(page: str) -> None:
    lines = [line for line in text_of(page).splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > MAX_LINE] == []


@pytest.mark.parametrize("page", sorted({*WRITTEN, *on_the_site()}))
def test_links_lead_somewhere(page: str) -> None:
    assert list(broken_links(page, text_of(page))) == []


def test_every_page_is_in_the_contents() -> None:
    assert not_in_the_contents(text_of(INDEX), on_the_site()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](operate.md#health)", []),
        ("[a](operate.md#no-such-heading)", ["operate.md#no-such-heading"]),
        ("[a](nowhere.svg)", ["nowhere.svg"]),
        ("[a](#here)\n\n# Here", []),
        ("[a](../README.md)", ["../README.md (not on the site)"]),
        ("```\n[a](nowhere.svg)\n```\n", []),
    ],
)
def test_a_broken_link_is_noticed(text: str, found: list[str]) -> None:
    assert list(broken_links(INDEX, text)) == found


def test_headings_are_named_as_by_the_generator() -> None:
    assert anchors("# 1. Add a `listener`: now!\n") == {"1-add-a-listener-now"}


def test_a_page_that_is_not_in_the_contents_is_noticed() -> None:
    index = "```{toctree}\n:hidden:\n\nstores\ndesign/*\n```\n"
    pages = ("docs/index.md", "docs/stores.md", "docs/design/hazards.md", "docs/spark.md")
    assert not_in_the_contents(index, pages) == ["docs/spark.md"]

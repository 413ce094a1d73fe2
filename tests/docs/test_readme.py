"""README.md names commands, options, metrics and targets that exist, and fits on a screen."""

import re

import click
import pytest

from rlm.cli.main import main as cli
from rlm.metrics import TABLE
from rsm_plugins.main import main as rsm_plugin
from tests.docs import reading
from tests.project.tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAX_LINE = 120
PROGRAMS = {"rlm": cli, "rsm-plugin": rsm_plugin}
PAGES = ("docs/stores.md", "docs/writing-a-plugin.md", "docs/sandbox.md")
HAND_WRITTEN = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/reference/formats.md",
    *PAGES,
)
NAMED = sorted(
    {
        words
        for page in ("README.md", *PAGES)
        for words in reading.commands((ROOT / page).read_text(encoding="utf-8"))
    }
)


def resolve(words: tuple[str, ...]) -> click.Command | None:
    """The command that the words lead to; further words are its arguments. None: there is none."""
    command: click.Command = PROGRAMS[words[0]]
    context = click.Context(command)
    for word in words[1:]:
        if not isinstance(command, click.Group):
            return command
        found = command.get_command(context, word)
        if found is None:
            return None
        command = found
    return command


@pytest.mark.parametrize("words", NAMED, ids=" ".join)
def test_every_command_named_exists(words: tuple[str, ...]) -> None:
    assert resolve(words) is not None


def test_every_top_level_command_is_in_the_readme() -> None:
    named = {words[1] for words in reading.commands(README) if words[0] == "rlm"}
    assert set(cli.list_commands(click.Context(cli))) - named == set()


def test_a_command_that_is_not_there_is_noticed() -> None:
    assert resolve(("rlm", "topics", "explode")) is None


def test_every_option_named_exists() -> None:
    known = {"--config", "--kafka-home"}  # serve, and the demo's own
    for words in reading.commands(README):
        command = resolve(words)
        assert command is not None
        known |= {name for param in command.params for name in param.opts}
    known |= {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - known == set()


def test_metrics_named_exist() -> None:
    named = set(re.findall(r"`(rlm_[a-z_]+)`", README))
    assert named and named - {row.name for row in TABLE} == set()


def test_make_targets_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        named = set(re.findall(r"(?:`|    )make ([a-z][a-z-]*)", text))
        assert named and named - targets == set()


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_lines_are_short(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > MAX_LINE] == []


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert [target for target in targets if not ((ROOT / name).parent / target).exists()] == []

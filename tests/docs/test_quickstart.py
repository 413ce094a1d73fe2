"""docs/quickstart.md does what it says: its commands and programs run here, word for word and in
their order, up to the end of the sandbox; in `make long` on a new clone, from its set-up on.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_sandbox.sandbox import take_down
from tests.busy import busy_factor
from tests.docs.site import text_of
from tests.docs.walk import Step, Walk, not_shown, steps_of
from tests.project.tree import ROOT
from tests.rlm.console.browser import browser

PAGE = text_of("docs/quickstart.md")
README = text_of("README.md")
_BREAKING = "## Break things\n"
_DIR = "/tmp/sandbox"
_WITHIN_S = 600
"""What the page says of a new clone."""
_LIMIT_S = 600
"""Of one part of the page, on a busy machine."""
_BAR = """[...document.querySelectorAll('main [role=img]')].some(
  one => (one.getAttribute('aria-label') || '').includes('remote only 0 to'))"""
"""The bar of the topic's partition has a part that is remote only."""


def before_and_after() -> tuple[list[Step], list[Step]]:
    """The steps up to the console, and those that break things."""
    before, after = PAGE.split(_BREAKING)
    return steps_of(before), steps_of(after)


class Walked:
    """The first part of the page, done: its sandbox is there."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.instead = {_DIR: str(root)}
        self.walk = Walk(folder=folder, instead=self.instead)
        self.first, self.last = before_and_after()
        self.missing: dict[str, list[str]] = {}
        self.outputs: dict[str, str] = {}

    def run(self, steps: list[Step], *, after: tuple[Step, ...] = (), timeout_s: int) -> None:
        outputs = self.walk.run(steps, after=after, timeout_s=timeout_s)
        for step, output in zip(steps, outputs, strict=True):
            self.outputs[step.text] = output
            if missing := not_shown(step, output, self.instead):
                self.missing[step.text] = [*missing, "in", *output.splitlines()]

    def __enter__(self) -> "Walked":
        return self

    def __exit__(self, *_of: object) -> None:
        root = Path(self.instead[_DIR])
        if (root / "state.json").exists():
            take_down(root, delete=True)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """All is installed already."""
    with Walked(ROOT, tmp_path_factory.mktemp("quickstart") / "sandbox") as made:
        steps = [step for step in made.first if not step.text.startswith("make ")]
        made.run(steps, timeout_s=_LIMIT_S)
        yield made


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_the_commands_of_the_page_show_what_it_shows(walked: Walked) -> None:
    assert walked.missing == {}
    shown = [step for step in walked.first if step.shown]
    assert len(shown) >= 10, "the page shows output that nobody compares"
    [numbers] = [one for text, one in walked.outputs.items() if text.startswith("curl ")]
    assert json.loads(f"{{{numbers.strip().rstrip(',')}}}")["remote_segments"] >= 2


@pytest.mark.integration
async def test_the_console_of_the_page_shows_the_topic(walked: Walked) -> None:
    [address] = [one for text, one in walked.outputs.items() if text.startswith("echo ")]
    async with browser() as window:
        await window.open(f"{address.strip()}console/#/topic/clicks")
        await window.until(_BAR)


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_what_the_page_breaks_works_again(walked: Walked) -> None:
    walked.run(walked.last, after=tuple(walked.first), timeout_s=_LIMIT_S)
    assert walked.missing == {}
    assert not Path(walked.instead[_DIR]).exists()


@pytest.mark.integration
@pytest.mark.timeout(3600)
@pytest.mark.long
def test_the_whole_page_on_a_new_clone(tmp_path: Path) -> None:
    """Caches of this machine may be warm: RLM_CACHE_DIR and PIP_CACHE_DIR name others."""
    clone = tmp_path / "kafka-rlm"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=120)
    with Walked(clone, tmp_path / "sandbox") as made:
        began_s = time.monotonic()
        made.run([*made.first, *made.last], timeout_s=3_000)
        took_s = time.monotonic() - began_s
    print(f"the quickstart took {took_s:.0f} s on a new clone")
    assert made.missing == {}
    assert took_s <= _WITHIN_S * busy_factor()


def test_the_readme_has_the_same_program_and_commands() -> None:
    of_the_readme, on_the_page = steps_of(README), steps_of(PAGE)
    programs = [step.text for step in of_the_readme if step.is_program]
    assert programs == [step.text for step in on_the_page if step.is_program][:1]
    commands = {step.text for step in on_the_page}
    about_the_topic = [step.text for step in of_the_readme if " clicks" in step.text]
    assert [text for text in about_the_topic if text not in commands] == []


PLAIN = Step(text="rlm segments clicks", shown=("start  size     id", "0  1.5 KiB  x", "..."))


@pytest.mark.parametrize(
    ("output", "missing"),
    [
        ("start size id\n7  3 B  x\n7  3 B  y\n", []),
        ("start size id\n7  3 B  xy\n", ["0  1.5 KiB  x"]),
        ("7  3 B  x\nstart size id\n", ["0  1.5 KiB  x"]),
        ("", ["start  size     id", "0  1.5 KiB  x"]),
    ],
)
def test_output_that_is_not_as_shown_is_noticed(output: str, missing: list[str]) -> None:
    assert not_shown(PLAIN, output, {}) == missing


def test_numbers_of_records_are_compared() -> None:
    shown = "local\t5\t2026-11-21 14:52:47\ta ....... (9 bytes)"
    step = Step(text="rlm fetch clicks", shown=(shown,))
    later = shown.replace("2026-11-21", "2027-01-01").replace(".......", "......")
    assert not_shown(step, later, {}) == []
    assert not_shown(step, later.replace("local\t5", "local\t6"), {}) == [shown]


def test_a_step_that_fails_ends_the_walk(tmp_path: Path) -> None:
    walk = Walk(folder=tmp_path, instead={"HERE": str(tmp_path)})
    program = "```python\nprint(open('f').read())\n```\n"
    first = steps_of(f"    $ NAME=one\n    $ echo $NAME > HERE/f\n\n{program}")
    assert walk.run(first, timeout_s=240) == ["", "", "one\n\n"]
    failing = steps_of("    $ echo $NAME\n    $ false\n    $ echo never\n")
    with pytest.raises(AssertionError, match=r"^false\n"):
        walk.run(failing, after=first, timeout_s=240)
    with pytest.raises(AssertionError, match="not done after 1 s"):
        walk.run(steps_of("    $ sleep 300\n"), timeout_s=1)

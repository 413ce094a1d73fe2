"""docs/quickstart.md does what it says: its program and its commands run here, in their order."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rlm_sandbox.sandbox import Sandbox
from tests.docs.site import text_of
from tests.scenarios.cluster import Cluster, fresh

PAGE = text_of("docs/quickstart.md")
README = text_of("README.md")
_PROGRAM = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^    \$ rlm (.*)\n((?:    [^$\n].*\n)*)", re.MULTILINE)
_SANDBOX_DIR = "/tmp/sandbox"
_TOPIC = "clicks"


class Shown:
    """A command of the page and the lines that the page shows as its output."""

    def __init__(self, command: str, output: str) -> None:
        self.arguments = shlex.split(command, comments=True)
        self.lines = [line.strip() for line in output.splitlines()]


def commands_of(page: str) -> list[Shown]:
    """The commands about the topic."""
    found = [Shown(command, output) for command, output in _COMMAND.findall(page)]
    return [one for one in found if _TOPIC in one.arguments]


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox) -> Iterator[tuple[Cluster, str]]:
    """After the page's program; the topic has a name of its own."""
    cluster, topic = Cluster(sandbox), fresh(_TOPIC)
    (program,) = _PROGRAM.findall(PAGE)
    program = program.replace(_SANDBOX_DIR, str(sandbox.json["dir"])).replace(_TOPIC, topic)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=180)
    yield cluster, topic
    cluster.admin.delete_topics([topic])[topic].result(30)


def columns(line: str) -> list[str]:
    return re.split(r"  +|\t", line.strip())


@pytest.mark.integration
def test_the_commands_of_the_page_show_what_it_shows(cluster: tuple[Cluster, str]) -> None:
    rlm, topic = cluster
    enable, *others = commands_of(PAGE)
    assert enable.arguments[:2] == ["topics", "enable"]
    described = rlm.rlm(*(one.replace(_TOPIC, topic) for one in enable.arguments)).stdout
    shown = {columns(line)[0] for line in enable.lines if line != "..."}
    assert shown <= {columns(line)[0] for line in described.splitlines()}
    rlm.wait_for(lambda: rlm.log_start(topic) > 0, "the first trim")
    assert [one.arguments[0] for one in others] == ["status", "segments", "fetch", "fetch"]
    for one in others:
        out = rlm.rlm(*(word.replace(_TOPIC, topic) for word in one.arguments)).stdout
        first = columns(out.splitlines()[0])
        expected = columns(one.lines[0])
        if one.arguments[0] == "fetch":
            assert (first[:2], first[3]) == (expected[:2], expected[3])
        else:
            assert first == expected


def test_the_readme_has_the_same_program_and_commands() -> None:
    assert _PROGRAM.findall(README) == _PROGRAM.findall(PAGE)
    on_the_page = [one.arguments for one in commands_of(PAGE)]
    assert [one.arguments for one in commands_of(README) if one.arguments not in on_the_page] == []

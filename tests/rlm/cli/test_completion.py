"""Completion in shells: what `rlm completion` prints, and what the programs answer to a shell."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from rlm.cli.main import COMMANDS, main

SHELLS = {"bash": "complete -o nosort -F", "zsh": "compdef", "fish": "complete --no-files"}


@pytest.mark.parametrize(("shell", "registers"), SHELLS.items())
def test_both_programs_are_registered(shell: str, registers: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0, done.output
    for program, variable in (("rlm", "_RLM_COMPLETE"), ("rsm-plugin", "_RSM_PLUGIN_COMPLETE")):
        assert f"{variable}={shell}_complete" in done.stdout
        assert program in done.stdout
    assert done.stdout.count(registers) >= 2


def answered(module: str, variable: str, words: str) -> list[str]:
    """What a program answers when bash asks it about the last of the words."""
    code = f"import sys; sys.argv = [{words.split()[0]!r}]; from {module} import main; main()"
    asked = {variable: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_and_their_options_are_offered() -> None:
    offered = answered("rlm.cli.main", "_RLM_COMPLETE", "rlm co")
    assert offered == sorted(name for name in COMMANDS if name.startswith("co"))
    assert "--role" in answered("rlm.cli.main", "_RLM_COMPLETE", "rlm serve --ro")
    plugin = answered("rsm_plugins.process.main", "_RSM_PLUGIN_COMPLETE", "rsm-plugin s")
    assert plugin == ["serve"]


def test_a_name_is_completed_without_importing_the_commands() -> None:
    code = (
        "import sys, click; from rlm.cli.main import main\n"
        "found = main.shell_complete(click.Context(main, info_name='rlm'), 'sand')\n"
        "print([one.value for one in found], 'rlm_sandbox' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['sandbox'] False"


def bash_version() -> tuple[int, ...]:
    code = ["bash", "-c", "echo ${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]}"]
    return tuple(map(int, subprocess.run(code, capture_output=True, check=True).stdout.split()))


def test_bash_takes_it() -> None:
    if bash_version() < (4, 4):
        pytest.skip("bash is older than 4.4, which click needs")
    text = CliRunner().invoke(main, ["completion", "bash"]).stdout
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{text}\ncomplete -p rlm rsm-plugin"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].endswith(" rlm")

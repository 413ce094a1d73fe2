"""Commands in forked processes are as in processes of their own, for all that a scenario sees."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.forked_commands import ForkingProcess, run_command
from tests.project.tree import ROOT

LIMIT_S = 120
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "90"}
NOBODY = ("--address", "127.0.0.1:1")


@pytest.fixture
def forking() -> Iterator[ForkingProcess]:
    made = ForkingProcess()
    yield made
    made.close()


def in_its_own(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "rlm.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=ENVIRON,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("status", "--help"),
        ("no-such-command",),
        ("segments", "--address", "no port", "topic"),
        ("topics", "disable", "topic", "--delete", *NOBODY),
    ],
)
def test_output_and_exit_status_are_the_same(arguments: tuple[str, ...]) -> None:
    expected = in_its_own(*arguments)
    done = run_command(arguments, ENVIRON, LIMIT_S)
    assert (done.returncode, done.stdout) == (expected.returncode, expected.stdout)
    assert done.stderr == expected.stderr
    assert done.stdout or done.stderr
    assert done.is_retriable == (NOBODY[1] in arguments), "whoever does not answer now may do later"


def test_environment_and_folder_are_those_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = run_command(("config", "check", "here.yaml"), ENVIRON, LIMIT_S)
    (tmp_path / "here.yaml").write_text("no.such.setting: 1\n")
    second = run_command(("config", "check", "here.yaml"), ENVIRON, LIMIT_S)
    assert "no.such.setting" not in first.stdout + first.stderr
    assert "no.such.setting" in second.stdout + second.stderr
    named = run_command(("status",), {**ENVIRON, "RLM_ADDRESS": "in the environment"}, LIMIT_S)
    assert "in the environment" in named.stderr


def test_a_command_that_takes_too_long_is_ended(forking: ForkingProcess, tmp_path: Path) -> None:
    fifo = tmp_path / "rlm.yaml"
    os.mkfifo(fifo)  # whoever reads it waits for somebody who writes
    with pytest.raises(subprocess.TimeoutExpired):
        forking.run(("config", "check", str(fifo)), ENVIRON, 0.5)


def test_threads_run_commands_at_the_same_time() -> None:
    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(lambda _: run_command(("--version",), ENVIRON, LIMIT_S), range(6)))
    assert {one.stdout for one in done} == {in_its_own("--version").stdout}

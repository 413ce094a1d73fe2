"""A test that hangs where no limit of pytest reaches it ends its process, and the run goes on."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.project.tree import ROOT

SAMPLE = """
import threading
import pytest

@pytest.fixture
def hanging():
    yield
    while True:  # as a C library that sleeps on after a signal
        try:
            threading.Event().wait()
        except BaseException:
            pass

def test_that_fails(hanging):
    assert 0, "the reason"

def test_after_it():
    pass
"""


def test_a_hanging_teardown_is_shown_and_the_next_test_runs(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "watchdog.py", tests)
    (tests / "__init__.py").touch()
    (tests / "conftest.py").write_text('pytest_plugins = ["tests.watchdog"]\n')
    (tests / "test_sample.py").write_text(SAMPLE)
    limits = ["--timeout", "1", "-o", "hang_slack_s=2"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", *limits, "tests"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    printed = done.stdout.partition("= FAILURES =")[0]
    assert "test_that_fails: call failed after" in printed, done.stdout + done.stderr
    assert 'assert 0, "the reason"' in printed
    assert "in hanging" in done.stderr, "where it hangs is not shown"
    assert "1 passed" in done.stdout, "the run did not go on"

"""A test that is skipped for a reason that is not listed fails (H33)."""

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.project.tree import ROOT
from tests.skips import REASONS

CONFTEST = "from tests.skips import pytest_runtest_makereport\n"
SAMPLE = """
import pytest

def test_runs():
    pass

def test_listed():
    pytest.skip("no container engine answers: none")

def test_not_listed():
    pytest.skip("later")

@pytest.mark.skipif(True, reason="slow today")
def test_marked():
    pass

@pytest.fixture
def server():
    pytest.skip("does not start")

def test_by_a_fixture(server):
    pass

@pytest.mark.xfail(reason="known", strict=True)
def test_expected_to_fail():
    assert False
"""


def test_h33_only_a_listed_reason_skips(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "skips.py", tests)
    (tests / "__init__.py").touch()
    (tests / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tests / "test_sample.py").write_text(SAMPLE, encoding="utf-8")
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA"]
    run = subprocess.run(pytest, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout
    summary = run.stdout.splitlines()[-1]
    for count in ("1 failed", "2 errors", "1 passed", "1 skipped", "1 xfailed"):
        assert count in summary, run.stdout
    assert "skipped, but not listed in tests.skips: later" in run.stdout


def test_h33_each_listed_reason_is_one_of_a_test() -> None:
    given = set(_reasons())
    assert [one for one in REASONS if not any(text.startswith(one) for text in given)] == []
    assert sorted(text for text in given if not text.startswith(REASONS)) == []


def _reasons() -> Iterator[str]:
    """Of each `skip` and `skipif` in our tests: what its reason begins with."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield from _given(node, ast.unparse(node.func))


def _given(call: ast.Call, name: str) -> Iterator[str]:
    if name == "pytest.skip":
        yield _beginning(call.args[0])
    if name in {"pytest.mark.skipif", "pytest.mark.skip"}:
        yield from (_beginning(one.value) for one in call.keywords if one.arg == "reason")


def _beginning(text: ast.expr) -> str:
    first = text.values[0] if isinstance(text, ast.JoinedStr) else text
    assert isinstance(first, ast.Constant)
    return str(first.value)

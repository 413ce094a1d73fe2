"""Servers of the session end after the last test that uses them, once."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.project.tree import ROOT

CONFTEST = """
from tests.endings import pytest_collection_finish, pytest_runtest_teardown
"""
SAMPLE = """
import pytest
from tests.endings import ended_early

def note(what):
    with open({log!r}, "a") as log:
        log.write(what + "\\n")

@pytest.fixture(scope="session")
def server(request):
    with ended_early(request, lambda: note("end")):
        yield

@pytest.fixture
def client(server):
    yield
    note("client gone")

def test_by_name(server):
    note("one")

@pytest.mark.parametrize("number", range(2))
def test_by_another_fixture(client, number):
    note("two")

def test_without():
    note("three")

@pytest.fixture(scope="session")
def asked_for(request):
    with ended_early(request, lambda: note("end of the session")):
        yield

def test_that_asks(request):
    request.getfixturevalue("asked_for")

def test_later(request):
    note("four")
"""


def ran(tmp_path: Path, *arguments: str) -> list[str]:
    log = tmp_path / "log"
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "endings.py", tests)
    (tests / "__init__.py").touch()
    (tests / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tests / "test_sample.py").write_text(SAMPLE.format(log=str(log)), encoding="utf-8")
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(pytest, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    return log.read_text().splitlines()


def test_a_server_ends_after_its_last_test(tmp_path: Path) -> None:
    two = ["two", "client gone"]
    assert ran(tmp_path) == [
        *("one", *two, *two, "end", "three", "four"),
        "end of the session",
    ]


def test_deselected_tests_need_no_server(tmp_path: Path) -> None:
    assert ran(tmp_path, "-k", "by_name or without") == ["one", "end", "three"]

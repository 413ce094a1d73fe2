"""The table of planted bugs fits the code, and a run of it says what happened (H43)."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.mutants.edits import ROOT, DoesNotApply, Edit
from tests.mutants.runner import BaselineFailed, Result, Verdict, run
from tests.mutants.table import EDITS, MOST_HARMLESS

LEAST = 150
"""Fewer planted bugs than this leave guards unseen."""


@pytest.mark.parametrize("file", sorted({edit.file for edit in EDITS}))
def test_h43_every_planted_bug_fits_its_file(file: str) -> None:
    """Who changes a guarded line changes its row in the table."""
    wrong = []
    for edit in (edit for edit in EDITS if edit.file == file):
        try:
            edit.check()
        except DoesNotApply as error:
            wrong.append(str(error))
    assert wrong == []


def test_h43_the_table_is_long_enough_and_says_each_bug_once() -> None:
    assert len(EDITS) >= LEAST
    assert [name for name, count in Counter(edit.name for edit in EDITS).items() if count > 1] == []
    twice = Counter((edit.file, edit.old, edit.new) for edit in EDITS)
    assert [bug for bug, count in twice.items() if count > 1] == []


def test_h43_few_planted_bugs_are_harmless() -> None:
    assert sum(1 for edit in EDITS if edit.harmless) <= MOST_HARMLESS


MODULE = """def least(values: list[int]) -> int:
    return min(values, default=0)
"""
TESTS = """from limits import least


def test_least():
    assert least([3, 2]) == 2
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one module, one test of it, and the process that runs tests."""
    root = tmp_path / "root"
    package = root / "tests" / "mutants"
    package.mkdir(parents=True)
    here = Path(__file__).parent
    for name in ("__init__.py", "warm.py"):
        (package / name).write_text((here / name).read_text())
    (root / "tests" / "__init__.py").touch()
    (root / "limits.py").write_text(MODULE)
    (root / "test_limits.py").write_text(TESTS)
    return root


def edit(old: str, new: str, *, harmless: str = "") -> Edit:
    return Edit(
        file="limits.py",
        hazard=f"{old} is {new}",
        old=old,
        new=new,
        tests=("test_limits.py",),
        harmless=harmless,
    )


KILLED = edit("min(values", "max(values")
SURVIVED = edit("default=0", "default=1")
HARMLESS = edit("default=0", "default=2", harmless="nobody asks for the least of nothing")
BROKEN = edit("def least", "def most")


def test_h43_a_run_says_which_bugs_were_noticed_and_by_whom(tree: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    def note(number: int, result: Result) -> None:
        seen.append(number)

    edits = [KILLED, SURVIVED, HARMLESS, BROKEN]
    found = run(edits, tmp_path / "scratch", workers=2, report=note, root=tree)
    assert [result.edit for result in found] == edits
    assert [result.verdict for result in found] == [
        Verdict.KILLED,
        Verdict.SURVIVED,
        Verdict.HARMLESS,
        Verdict.BROKEN,
    ]
    assert found[0].by == "test_limits.py::test_least"
    assert seen == [1, 2, 3, 4]
    assert (tree / "limits.py").read_text() == MODULE


def test_h43_a_test_that_fails_without_a_bug_shows_nothing(tree: Path, tmp_path: Path) -> None:
    (tree / "test_limits.py").write_text(TESTS.replace("== 2", "== 3"))
    with pytest.raises(BaselineFailed, match="test_least"):
        run([KILLED], tmp_path / "scratch", workers=1, report=lambda *_: None, root=tree)


WAITING = """import os
import time
from pathlib import Path


def test_least():
    made = Path("{file}.made")
    made.write_text(f"{{os.getpid()}} {{os.getppid()}}")
    made.rename("{file}")
    time.sleep(600)
"""
RUN = """import signal
import sys
from pathlib import Path

from tests.mutants.runner import run
from tests.mutants.test_edits import KILLED

signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
root, scratch = map(Path, sys.argv[1:])
run([KILLED], scratch, workers=1, report=lambda *_: None, root=root)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process(
    tree: Path, tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "process-ids"
    (tree / "test_limits.py").write_text(WAITING.format(file=file))
    command = [sys.executable, "-c", RUN, str(tree), str(tmp_path / "scratch")]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        wait_for(file.exists)
        process.send_signal(number)
        assert process.wait(LIMIT_S) == (2 if number is signal.SIGTERM else -number)
    finally:
        process.kill()
        process.wait()
    test, warm = map(int, file.read_text().split())
    wait_for(lambda: not is_running(test))
    wait_for(lambda: not is_running(warm))


LIMIT_S = 120


def wait_for(reached: Callable[[], bool]) -> None:
    """Far less than the test that is ended would take, and far more than its end."""
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(process_id: int) -> bool:
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (edit("nowhere", "x"), "is there 0 times"),
        (edit("values", "x"), "is there 2 times"),
        (edit("return min", "return return min"), "invalid syntax"),
        (edit("default=0", "default = 0"), "changes nothing"),
        (edit("default=0", "default=nothing"), "nothing has these names: ..nothing"),
    ],
)
def test_h43_an_edit_that_does_not_fit_is_an_error(tree: Path, wrong: Edit, why: str) -> None:
    with pytest.raises(DoesNotApply, match=why):
        wrong.check(tree)


CLASS = """class Limits:
    def __init__(self) -> None:
        self.most = 1

    @property
    def least(self) -> int:
        return 0

    def all(self) -> list[int]:
        return [self.least, self.most]
"""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("return 0", "return return 0", "invalid syntax"),
        ("return 0", "return 0\nleft = 1", "unexpected indent"),
        ("return 0\n\n", "return 0", "invalid syntax"),
        ("return 0", "return  0", "changes nothing"),
        ("return 0", "return self.other", "nothing has these names: ..other"),
        ("    @property\n", "@property\n", "expected an indented block|unexpected|unindent"),
        ("return 0", "return self.most", ""),
        ("    @property\n", "", ""),
        ("return 0\n\n    def all", "return 1\n\n    def both", ""),
        ("return 0", "other = 1\n        return other", ""),
        ("class Limits:", "class Limits(Exception):", ""),
    ],
)
def test_h43_an_edit_within_a_class_fits_as_one_of_the_whole_file(
    tree: Path, old: str, new: str, why: str
) -> None:
    (tree / "limits.py").write_text(CLASS)
    made = edit(old, new)
    if not why:
        made.check(tree)
        return
    with pytest.raises(DoesNotApply, match=why):
        made.check(tree)


def test_h43_an_edit_whose_test_is_gone_is_an_error(tree: Path) -> None:
    (tree / "test_limits.py").unlink()
    with pytest.raises(DoesNotApply, match="there is no test_limits"):
        KILLED.check(tree)

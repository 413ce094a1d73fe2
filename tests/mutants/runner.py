"""Runs the tests of each planted bug in copies of the tree, several at a time.

The tree itself is never touched. Each copy has its bytecode compiled beforehand, checked by the
hash of the source: an edit of the same size within the same second must not be overlooked.
"""

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.mutants.edits import ROOT, Edit

_NOT_COPIED = (".git", ".venv", ".cache", ".*_cache", ".hypothesis", "__pycache__", ".sandbox")
_TIMEOUT_S = 200.0
_BASELINE_TIMEOUT_S = 1_800.0
_FIRST = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_PASSED, _FAILED = 0, 1


class Verdict(Enum):
    KILLED = "killed"
    SURVIVED = "survived"
    HARMLESS = "harmless"
    BROKEN = "broken"
    """The tests could not even be loaded: that shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one planted bug; `by`: the first test that failed, or how the run ended."""

    edit: Edit
    verdict: Verdict
    by: str
    duration_s: float


class BaselineFailed(Exception):
    """A test fails without any planted bug: nothing can be said."""


def run(
    edits: Sequence[Edit],
    scratch: Path,
    *,
    workers: int,
    report: Callable[[int, Result], None],
    root: Path = ROOT,
) -> list[Result]:
    """Every edit's result, in the order of the table. `report` receives each as it comes."""
    with contextlib.ExitStack() as stack:
        trees = [_tree(root, scratch / f"tree{number}") for number in range(workers)]
        free: queue.Queue[_Tree] = queue.Queue()
        for tree in trees:
            stack.callback(tree.close)
            free.put(tree)
        _check_baseline(trees, edits)

        def one(edit: Edit) -> Result:
            tree = free.get()
            try:
                return _try(tree, edit)
            finally:
                free.put(tree)

        results = []
        with _threads(trees) as pool:
            for number, result in enumerate(pool.map(one, edits), start=1):
                results.append(result)
                report(number, result)
        return results


def _tree(root: Path, path: Path) -> "_Tree":
    shutil.copytree(root, path, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([*command, str(path)], check=False, capture_output=True)
    return _Tree(path)


def _check_baseline(trees: "Sequence[_Tree]", edits: Iterable[Edit]) -> None:
    """Every file of tests passes without a bug; folders are long, and full of them."""
    tests = sorted({test for edit in edits for test in edit.tests if test.endswith(".py")})

    def check(number: int) -> None:
        some = tests[number :: len(trees)]
        code, output = trees[number].pytest(some, _BASELINE_TIMEOUT_S) if some else (_PASSED, "")
        if code != _PASSED:
            raise BaselineFailed(f"tests fail without any planted bug, with {code}\n{output}")

    with _threads(trees) as pool:
        list(pool.map(check, range(len(trees))))


@contextlib.contextmanager
def _threads(trees: "Sequence[_Tree]") -> Iterator[ThreadPoolExecutor]:
    """One for each tree. An error ends the runs that they wait for, and begins no others."""
    with ThreadPoolExecutor(len(trees)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for tree in trees:
                tree.end()
            raise


def _try(tree: "_Tree", edit: Edit) -> Result:
    path = tree.path / edit.file
    text = path.read_text(encoding="utf-8")
    began = time.monotonic()
    path.write_text(edit.applied(text), encoding="utf-8")
    try:
        code, output = tree.pytest(edit.tests)
    finally:
        path.write_text(text, encoding="utf-8")
    duration_s = round(time.monotonic() - began, 1)
    verdict, by = _verdict_of(edit, code, output)
    return Result(edit=edit, verdict=verdict, by=by, duration_s=duration_s)


def _verdict_of(edit: Edit, code: int | None, output: str) -> tuple[Verdict, str]:
    if code is None:
        return Verdict.KILLED, f"no end within {_TIMEOUT_S:.0f} s"
    if code == _PASSED:
        return (Verdict.HARMLESS if edit.harmless else Verdict.SURVIVED), ""
    found = _FIRST.search(output)
    by = found.group(1) if found else f"pytest ended with {code}"
    return (Verdict.KILLED if code == _FAILED and found else Verdict.BROKEN), by


class _Tree:
    """One copy of the tree, and the process that runs tests in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._output = path.with_suffix(".out")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.warm"],
            cwd=path,
            env={
                **os.environ,
                "PYTHONPATH": str(path),
                "PYTHONDONTWRITEBYTECODE": "1",
                "HYPOTHESIS_PROFILE": "fast",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def end(self) -> None:
        """A run that is under way is ended with the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        assert self._process.stdout is not None
        self.end()
        self._process.wait()
        self._process.stdout.close()

    def pytest(self, tests: Sequence[str], timeout_s: float = _TIMEOUT_S) -> tuple[int | None, str]:
        """Exit code, None for a run that does not end, and what was printed."""
        options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
        arguments = [*options, "-m", "not integration and not long", *tests]
        request = {"arguments": arguments, "output": str(self._output)}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        process_id = int(self._process.stdout.readline())
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            _kill(process_id)

        timer = threading.Timer(timeout_s, end)
        timer.start()
        try:
            code = int(self._process.stdout.readline())
        finally:
            timer.cancel()
        _kill(process_id)  # what a test has left
        output = self._output.read_text(encoding="utf-8", errors="replace")
        return (None if is_late.is_set() else code), output


def _kill(process_id: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process_id, signal.SIGKILL)

"""Tests that make a proxy run twice: with its tier in one process, and as a worker whose tier is in
a core behind a unix socket (H24). Those of some modules run a third time, with TLS on both sides.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rlm.proxy.border import (
    FIRST_MOMENT_MS,
    ONE_PROCESS,
    SHORT_FIRST_MOMENT_MS,
    TLS,
    WORKER,
    bordered,
    long_first_moments,
)
from tests.rlm.proxy.secured import Secured, secure
from tests.rlm.workers.behind import behind_core

_MAKES_A_PROXY = frozenset({"world", "proxied", "reach"})
_RUNS_UNDER_TLS = frozenset({"test_fetch_splice", "test_held_answers", "test_pass_through"})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """By what the module of a test uses, unless a test says it itself."""
    marks = metafunc.definition.iter_markers("parametrize")
    uses = vars(metafunc.module).keys() & _MAKES_A_PROXY
    if uses and inspect.iscoroutinefunction(metafunc.function) and not any(map(_is_ours, marks)):
        is_tls = metafunc.module.__name__.rpartition(".")[2] in _RUNS_UNDER_TLS
        borders = [ONE_PROCESS, WORKER, *([TLS] if is_tls else [])]
        metafunc.parametrize("border", borders, indirect=True)


def _is_ours(mark: pytest.Mark) -> bool:
    return "border" in mark.args[0]


@pytest.fixture(autouse=True)
def border(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where the tier of the proxies of this test is."""
    if getattr(request, "param", ONE_PROCESS) == ONE_PROCESS:
        yield
        return
    folder: Path = request.getfixturevalue("tmp_path")
    if request.param == TLS:
        with secure(Secured.of(folder)):
            yield
        return
    is_short = "short_first_moment" in request.fixturenames
    first_ms = SHORT_FIRST_MOMENT_MS if is_short else FIRST_MOMENT_MS
    with bordered(behind_core(folder)), long_first_moments(first_ms):
        yield


@pytest.fixture
def short_first_moment() -> None:
    """For `usefixtures`, by tests of reads and barriers that do not end."""

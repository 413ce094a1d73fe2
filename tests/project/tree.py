"""The files of this project that could be committed, found without git."""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    *("kafka_clients", "kafka_protocol", "kip405"),
    *("rlm", "rlm_client", "rlm_sandbox", "rlmm", "rsm_plugins", "rlm_spark", "tiered_reads"),
)
TEXT_SUFFIXES = {"", ".cfg", ".ini", ".json", ".md", ".proto", ".py", ".pyi", ".toml", ".txt"}
TEXT_SUFFIXES |= {".sh", ".yaml", ".yml"}
# As .gitignore has them: made by tools, never committed.
IGNORED = {".git", ".venv", ".cache", "__pycache__", "build", "dist", ".hypothesis"}
IGNORED |= {".import_linter_cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".sandbox"}
IGNORED |= {".demo"}


def files(folder: Path = ROOT) -> Iterator[Path]:
    """Every file below a folder that is not ignored."""
    for path in sorted(folder.iterdir()):
        if path.name in IGNORED or path.name.endswith(".egg-info") or path.is_symlink():
            continue
        if path.is_dir():
            yield from files(path)
        else:
            yield path


def is_generated(path: Path) -> bool:
    """Whether protoc made the file."""
    return path.stem.endswith(("_pb2", "_pb2_grpc"))


def texts() -> Iterator[Path]:
    """Every text file of the project."""
    return (path for path in files() if path.suffix in TEXT_SUFFIXES)


def sources(*, with_tests: bool) -> Iterator[Path]:
    """Every Python file written by hand."""
    tops = {*PACKAGES, "build_tools", "bench"} | ({"tests"} if with_tests else set())
    for path in files():
        top = path.relative_to(ROOT).parts[0]
        if path.suffix == ".py" and top in tops and not is_generated(path):
            yield path


def parse(path: Path) -> ast.Module:
    """The syntax tree of a Python file. Nobody keeps it: all trees take half a gigabyte, which each
    collection of garbage would walk through.
    """
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


Rule = Callable[[ast.Module], Iterator[Any]]
GROUP = pytest.mark.xdist_group("syntax trees")
"""The mark of modules with rules: one worker parses all files, once for all rules."""

_rules: list[Rule] = []
_rules_of_tests: list[Rule] = []


def rule(function: Rule) -> Rule:
    """A rule that `findings` applies to sources that are no tests."""
    _rules.append(function)
    return function


def rule_of_tests_too(function: Rule) -> Rule:
    """A rule that `findings` applies to every source."""
    _rules_of_tests.append(function)
    return rule(function)


def findings(of: Rule) -> Iterator[tuple[Path, Any]]:
    """What a rule finds in each file that it is for."""
    for path in sources(with_tests=of in _rules_of_tests):
        yield from ((path, found) for found in _findings(path)[of])


@cache
def _findings(path: Path) -> dict[Rule, list[Any]]:
    """Of all rules that are known when the first asks: tests are collected before one runs."""
    module = parse(path)
    is_test = path.relative_to(ROOT).parts[0] == "tests"
    return {one: list(one(module)) for one in (_rules_of_tests if is_test else _rules)}


def show(path: Path) -> str:
    """A file's name for a person: relative to the project."""
    return path.relative_to(ROOT).as_posix()

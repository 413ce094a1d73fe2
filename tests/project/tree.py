"""The files of this project that could be committed, found without git."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def show(path: Path) -> str:
    """A file's name for a person: relative to the project."""
    return path.relative_to(ROOT).as_posix()

"""`python -m build_tools.clean`: remove .venv and what tools left behind."""

import shutil
import sys
from pathlib import Path

from build_tools import native
from build_tools.locks import ROOT

LEFTOVERS = (
    ".venv",
    ".hypothesis",
    ".import_linter_cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "build",
    "dist",
    "kafka_rlm.egg-info",
)


def main() -> int:
    """Remove the leftovers; the exit status of the process."""
    for name in LEFTOVERS:
        shutil.rmtree(ROOT / name, ignore_errors=True)
    native.remove()
    for folder in _caches(ROOT):
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _caches(root: Path) -> list[Path]:
    return [path for path in root.rglob("__pycache__") if path.is_dir()]


if __name__ == "__main__":
    sys.exit(main())

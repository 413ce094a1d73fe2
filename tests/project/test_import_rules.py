"""Planted cycles, and imports against the layers, break the import rules of pyproject.toml."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.project.tree import PACKAGES, ROOT

CYCLES = "no folder and no module is in a cycle"
FOLDERS = "rlm: each folder knows those below it only"
PROXY = "the proxy imports nothing of tasks, stores and plugins (G6)"
TOPS = "packages: each knows those below it only"
_VERDICT = re.compile(r"^(.+) (KEPT|BROKEN)(?: \(.*\))?$", re.MULTILINE)
PLANTED = {
    # Two modules of one folder.
    "rlmm/planted_one.py": "import rlmm.planted_two",
    "rlmm/planted_two.py": "import rlmm.planted_one",
    # rlm/tasks imports rlm/plans everywhere.
    "rlm/plans/planted.py": "import rlm.tasks.copy",
    "kip405/planted.py": "import rlmm.ledger",
    # rlm/tasks is below rlm/proxy, so that the order of folders allows this one (G6, H32).
    "rlm/proxy/planted.py": "import rlm.tasks.copy",
}


def _rules(root: Path) -> dict[str, str]:
    """Each contract of the tree's pyproject.toml, with KEPT or BROKEN."""
    script = "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())"
    done = subprocess.run(
        [sys.executable, "-c", script, "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = dict(_VERDICT.findall(done.stdout))
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {one["name"] for one in settings["tool"]["importlinter"]["contracts"]}
    assert found.keys() == contracts, done.stdout + done.stderr
    return found


def test_planted_cycles_and_imports_upwards_break_the_rules(tmp_path: Path) -> None:
    for name in PACKAGES:
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pyc*")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, text in PLANTED.items():
        (tmp_path / path).write_text(text + "\n", encoding="utf-8")
    rules = _rules(tmp_path)
    broken = {name for name, verdict in rules.items() if verdict == "BROKEN"}
    assert broken >= {CYCLES, FOLDERS, PROXY, TOPS}, rules

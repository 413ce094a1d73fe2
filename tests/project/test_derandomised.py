"""Examples of the profile `fast` are the same whatever a worker has imported before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = """
import importlib

from hypothesis import given, settings
from hypothesis import strategies as st

for name in {modules!r}:
    importlib.import_module(name)


@settings(max_examples=1_000)
@given(st.integers(), st.integers(0, 1_000))
def test_draws(number, pick):
    print("drawn", number, pick)
"""


def drawn(path: Path, *modules: str) -> list[str]:
    """What a test draws in a process of its own that has loaded these modules."""
    path.write_text(TEST.format(modules=modules))
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.conftest"]
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider", f"--rootdir={path.parent}", str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HYPOTHESIS_PROFILE": "fast"},
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in ended.stdout.splitlines() if line.startswith("drawn")]


@pytest.mark.parametrize("module", ["rlm.plans.trim", "rsm_plugins.s3.uploads"])
def test_derandomised_examples_do_not_depend_on_what_was_imported(
    tmp_path: Path, module: str
) -> None:
    path = tmp_path / "test_draws.py"
    alone = drawn(path)
    assert len(alone) >= 1_000
    assert drawn(path, module) == alone

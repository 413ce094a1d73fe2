"""The order of the rings: unit tests on all workers, then integration tests one by one on one."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.project.tree import ROOT

SAMPLE = """
import os, pathlib, pytest

def note(ring):
    with open({log!r}, "a") as log:
        log.write(ring + " " + os.environ["PYTEST_XDIST_WORKER"] + "\\n")

@pytest.mark.integration
@pytest.mark.parametrize("number", range(6))
def test_with_kafka(number):
    note("integration")

@pytest.mark.long
def test_of_another_ring():
    note("long")

@pytest.mark.parametrize("number", range(6))
def test_alone(number):
    note("unit")
"""


def test_integration_tests_follow_on_one_worker(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "rings.py", tests / "conftest.py")
    (tests / "test_sample.py").write_text(SAMPLE.format(log=str(log)), encoding="utf-8")
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*pytest, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    rings, workers = zip(*(line.split() for line in log.read_text().splitlines()), strict=True)
    assert sorted(rings) == ["integration"] * 6 + ["unit"] * 6
    rows = list(zip(rings, workers, strict=True))
    (alone,) = {worker for ring, worker in rows if ring == "integration"}
    # The other worker may still be at its unit tests when this one goes on to the integration ring.
    own = [ring for ring, worker in rows if worker == alone]
    assert own == sorted(own, reverse=True)

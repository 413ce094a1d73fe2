"""The order of the rings: unit tests on all workers, then integration tests, a group on one."""

import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.project.tree import ROOT

NOTING = """
import os, pathlib, pytest

def note(ring):
    with open({log!r}, "a") as log:
        log.write(ring + " " + os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""
SAMPLE = """
@pytest.mark.integration
@pytest.mark.parametrize("number", range(6))
def test_with_servers_of_its_own(number):
    note("own")

@pytest.mark.long
def test_of_another_ring():
    note("long")

@pytest.mark.parametrize("number", range(6))
def test_alone(number):
    note("unit")

@pytest.fixture(params=["local"])
def one_broker(request):
    return request.param

@pytest.mark.integration
@pytest.mark.parametrize("number", range(5))
def test_with_a_local_store(one_broker, number):
    note("kafka")

@pytest.fixture
def sandbox():
    pass

@pytest.mark.integration
def test_with_the_shared_sandbox(sandbox):
    note("kafka")

@pytest.fixture
def kafka_cluster():
    pass

@pytest.mark.integration
@pytest.mark.parametrize("number", range(3))
def test_with_brokers_alone(kafka_cluster, number):
    note("broker")

@pytest.mark.integration
@pytest.mark.parametrize("one_broker", ["s3", "hdfs"], indirect=True)
def test_with_a_store_of_its_own(one_broker):
    note("stores")

@pytest.mark.integration
@pytest.mark.parametrize("one_broker", ["workers"], indirect=True)
def test_with_proxy_workers(one_broker):
    note("workers")

@pytest.mark.integration
@pytest.mark.parametrize("one_broker", ["workers"], indirect=True)
@pytest.mark.parametrize("number", range(2))
def test_with_proxy_workers_too(one_broker, number):
    note("workers")

@pytest.fixture
def s3_server():
    pass

@pytest.mark.integration
def test_with_a_server(s3_server):
    note("stores")

@pytest.fixture
def three_brokers():
    pass

@pytest.fixture
def three(three_brokers):
    pass

@pytest.mark.integration
@pytest.mark.parametrize("number", range(3))
def test_with_three(three, number):
    note("three")
"""
FOLDERS = {"rsm_plugins": "stores", "spark": "spark"}
IN_A_FOLDER = """
@pytest.mark.integration
@pytest.mark.parametrize("number", range(3))
def test_there(number):
    note("{ring}")
"""
OWN_IN_ANOTHER_FILE = """
@pytest.mark.integration
@pytest.mark.parametrize("number", range(6))
def test_there(number):
    note("own2")
"""
COUNTS = {
    "unit": 6,
    "kafka": 6,
    "workers": 3,
    "stores": 6,
    "three": 3,
    "spark": 3,
    "broker": 3,
    "own": 6,
    "own2": 6,
}
LAST = {"own", "own2"}


def test_each_group_of_integration_tests_follows_on_one_worker(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "rings.py", tests / "conftest.py")
    noting = NOTING.format(log=str(log))
    (tests / "test_sample.py").write_text(noting + SAMPLE, encoding="utf-8")
    for folder, ring in FOLDERS.items():
        (tests / folder).mkdir()
        text = noting + IN_A_FOLDER.format(ring=ring)
        (tests / folder / "test_in_it.py").write_text(text, encoding="utf-8")
    (tests / "test_another.py").write_text(noting + OWN_IN_ANOTHER_FILE, encoding="utf-8")
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*pytest, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    rows = [tuple(line.split()) for line in log.read_text().splitlines()]
    rings = [ring for ring, _ in rows]
    assert {ring: rings.count(ring) for ring in rings} == COUNTS
    of_worker: dict[str, list[str]] = defaultdict(list)
    for ring, worker in rows:
        of_worker[worker].append(ring)
    for ran in of_worker.values():
        # Another worker may still be at its unit tests when this one goes on.
        assert "unit" not in ran[ran.count("unit") :], ran
        last = [ring in LAST for ring in ran]
        assert last == sorted(last), ran
        begun = [ring for at, ring in enumerate(ran) if ran[:at].count(ring) == 0]
        assert len(begun) == sum(ran[at - 1] != ring for at, ring in enumerate(ran) if at) + 1, ran
    for ring in COUNTS.keys() - {"unit"}:
        assert len({worker for one, worker in rows if one == ring}) == 1, ring

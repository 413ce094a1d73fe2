"""What the processes of a sandbox get of the environment."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.clock import SystemClock
from rlm_sandbox.launcher import Launcher
from rlm_sandbox.ports import PortReservation
from rlm_sandbox.processes import spawn
from rlm_sandbox.spec import Layout, SandboxError, SandboxSpec
from rlm_sandbox.state import prepared

OF_THE_SHELL = {"RLM_LOG_LEVEL": "debug", "RLM_STORES": "{}", "RLM_CACHE_DIR": "/c", "OTHER": "o"}
GIVEN = {"RLM_KAFKA_SSL_KEY_PASSWORD": "given"}
WITH_ALL = SandboxSpec(store="s3", readers=1)


def launcher(folder: Path, spec: SandboxSpec = WITH_ALL) -> Launcher:
    layout, ports = Layout(root=folder), PortReservation()
    try:
        state = prepared(layout, spec, None, ports)
    finally:
        ports.release_all()
    clock = SystemClock()
    return Launcher(layout=layout, state=state, dists={}, clock=clock, service_variables=GIVEN)


def test_no_process_gets_a_setting_of_the_shell(tmp_path: Path) -> None:
    made = launcher(tmp_path)
    made.store.prepare()
    for name in ("broker:1", "plugin:1", "rlm:1", "reader:1", "store:s3"):
        found = made.environment(name, OF_THE_SHELL)
        assert (found["RLM_CACHE_DIR"], found["OTHER"]) == ("/c", "o")
        settings = {one for one in found if one.startswith("RLM_")} - {"RLM_CACHE_DIR"}
        assert settings == (set(GIVEN) if name in ("rlm:1", "reader:1") else set()), name
    assert "ROOT_SECRET_ACCESS_KEY" in made.environment("store:s3", OF_THE_SHELL)


def test_our_packages_come_before_those_of_pythonpath(tmp_path: Path) -> None:
    made = launcher(tmp_path)
    alone = made.environment("rlm:1", {})["PYTHONPATH"]
    assert (Path(alone) / "rlm/__init__.py").is_file()
    both = made.environment("rlm:1", {"PYTHONPATH": "/mine"})["PYTHONPATH"]
    assert both == f"{alone}{os.pathsep}/mine"


def test_a_service_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    made = launcher(tmp_path)
    ended = spawn(
        [sys.executable, "-c", ""], log=made.layout.log("rlm:1"), environ={}, cwd=tmp_path
    )
    begun = replace(made, state=made.state.with_process("rlm:1", ended))
    with pytest.raises(SandboxError, match="the services do not hear each other"):
        begun.wait_services(timeout_ms=60_000)


def test_services_that_are_not_there_are_not_waited_for(tmp_path: Path) -> None:
    for name, spec in {
        "none": SandboxSpec(services=False),
        "later": SandboxSpec(without=("rlm:1",)),
    }.items():
        (tmp_path / name).mkdir()
        launcher(tmp_path / name, spec).wait_services(timeout_ms=0)


def test_no_test_gets_a_setting_of_the_shell() -> None:
    program = "import os, tests.conftest; print(*sorted(n for n in os.environ if n[:4] == 'RLM_'))"
    kept = {key: one for key, one in os.environ.items() if not key.startswith("RLM_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**kept, **OF_THE_SHELL},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["RLM_CACHE_DIR"]

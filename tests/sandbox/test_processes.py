"""Detached processes: known by pid and start time, killed with all they started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from rlm.clock import SystemClock
from rlm_sandbox.processes import (
    ProcessIdentity,
    group_members,
    kill_group,
    pause_group,
    spawn,
    stop_all,
)

# A supervisor with one child; both say when they are there by a file that grows.
SUPERVISOR = """
import subprocess, sys, signal
code = "import time; print('x', flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code])
child.wait()
"""
IGNORES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[ProcessIdentity]]:
    identities: list[ProcessIdentity] = []
    yield identities
    for identity in identities:
        kill_group(identity)


def run(code: str, tmp_path: Path, started: list[ProcessIdentity]) -> ProcessIdentity:
    log = tmp_path / "out.log"
    identity = spawn([sys.executable, "-c", code], log=log, environ=os.environ, cwd=tmp_path)
    started.append(identity)
    while not log.read_text():
        assert not identity.wait_gone(20), "ended at once"
    return identity


def until_empty(identity: ProcessIdentity) -> None:
    """Who is killed may be seen until its parent has heard of it."""
    ends_at = time.monotonic() + 60
    while group_members(identity):
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def test_killing_a_supervisor_kills_its_children(
    tmp_path: Path, started: list[ProcessIdentity]
) -> None:
    identity = run(SUPERVISOR, tmp_path, started)
    assert len(group_members(identity)) == 2
    kill_group(identity)
    assert identity.find() is None
    until_empty(identity)


def test_children_of_a_supervisor_that_died_first_are_found(
    tmp_path: Path, started: list[ProcessIdentity]
) -> None:
    identity = run(SUPERVISOR, tmp_path, started)
    os.kill(identity.pid, signal.SIGKILL)
    assert identity.wait_gone(60_000)
    (child,) = group_members(identity)
    orphan = psutil.Process(child)
    kill_group(identity)
    orphan.wait(timeout=60)
    assert group_members(identity) == ()


def test_stop_kills_what_ignores_term(tmp_path: Path, started: list[ProcessIdentity]) -> None:
    identity = run(IGNORES_TERM, tmp_path, started)
    stop_all([identity], grace_ms=200, clock=SystemClock())
    assert identity.state() == "stopped"


def test_stop_ends_a_paused_process(tmp_path: Path, started: list[ProcessIdentity]) -> None:
    identity = run(SUPERVISOR, tmp_path, started)
    assert pause_group(identity)
    assert identity.state() == "paused"
    stop_all([identity], grace_ms=5_000, clock=SystemClock())
    assert identity.state() == "stopped"
    assert group_members(identity) == ()


def test_a_reused_pid_is_never_touched() -> None:
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    )
    try:
        born = psutil.Process(bystander.pid).create_time()
        older = ProcessIdentity(pid=bystander.pid, started_s=born - 100)
        assert older.find() is None
        assert not older.signal_group(signal.SIGSTOP)
        kill_group(replace(older, started_s=born + 100))
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()

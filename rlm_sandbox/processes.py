"""Detached processes, known by pid and start time so that a reused pid is never touched.

Each runs in a session of its own, hence its pid is its process group: signals go to the group, and
what a supervisor started dies with it. This module must not know what the processes are.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from rlm.clock import Clock

_START_TIME_SLACK_S = 1.0
"""psutil derives start times from clock ticks and the boot time, which NTP may nudge."""

_PAUSE_POLL_MS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process as this machine knows it: pid alone may be reused."""

    pid: int
    started_s: float

    def find(self) -> psutil.Process | None:
        """The live process, or None when it is gone, a zombie, or the pid is somebody else's."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started_s) < _START_TIME_SLACK_S
            return process if same and not _is_dead(process) else None
        except psutil.Error:
            return None

    def state(self) -> str:
        """`running`, `paused` or `stopped`."""
        process = self.find()
        if process is None:
            return "stopped"
        try:
            return "paused" if process.status() == psutil.STATUS_STOPPED else "running"
        except psutil.Error:
            return "stopped"

    def signal_group(self, number: signal.Signals) -> bool:
        """Signal the process and all of its group; False when it is already gone."""
        if self.find() is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        return True

    def wait_gone(self, timeout_ms: int) -> bool:
        """Wait until the process is gone; False when it still runs after the time."""
        process = self.find()
        if process is None:
            return True
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(timeout=timeout_ms / 1000)
        return self.find() is None


def spawn(
    argv: Sequence[str], *, log: Path, environ: Mapping[str, str], cwd: Path
) -> ProcessIdentity:
    """Start `argv` detached (own session, no stdin), its output appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603 - argv is built by the sandbox
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            close_fds=True,
            env=dict(environ),
            cwd=cwd,
        )
    # The identity takes over; without this, Popen's destructor would warn of a live child.
    child.returncode = 0
    try:
        started_s = psutil.Process(child.pid).create_time()
    except psutil.Error:
        started_s = 0.0
    return ProcessIdentity(pid=child.pid, started_s=started_s)


def stop_all(identities: Iterable[ProcessIdentity], *, grace_ms: int, clock: Clock) -> None:
    """TERM to all at once, KILL to what is left after the grace; returns when none is left."""
    living = [one for one in identities if one.find() is not None]
    for one in living:
        one.signal_group(signal.SIGCONT)
        one.signal_group(signal.SIGTERM)
    deadline_ms = clock.monotonic_ms() + grace_ms
    for one in living:
        one.wait_gone(max(0, deadline_ms - clock.monotonic_ms()))
    for one in living:
        kill_group(one)


def kill_group(identity: ProcessIdentity, *, timeout_ms: int = 10_000) -> None:
    """SIGKILL the process and its group, and wait until it is gone."""
    # The group may outlive its leader (a child that ignored TERM); its id is not reused meanwhile.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if identity.find() is not None or group_members(identity):
            os.killpg(identity.pid, signal.SIGKILL)
    identity.wait_gone(timeout_ms)
    _wait_for_orphans(identity, timeout_ms)


def _wait_for_orphans(identity: ProcessIdentity, timeout_ms: int) -> None:
    """Killed children are another parent's to reap; until then they hold ports and files."""
    orphans = []
    for pid in group_members(identity):
        with contextlib.suppress(psutil.Error):
            orphans.append(psutil.Process(pid))
    psutil.wait_procs(orphans, timeout=timeout_ms / 1000)


def _is_dead(process: psutil.Process) -> bool:
    """Whether it is a zombie whole: a leader may be one while its threads still hold ports."""
    return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1


def pause_group(identity: ProcessIdentity, *, timeout_ms: int = 2_000) -> bool:
    """SIGSTOP the group and return once it is stopped; False when the process is gone."""
    if not identity.signal_group(signal.SIGSTOP):
        return False
    for _ in range(timeout_ms // _PAUSE_POLL_MS):
        if identity.state() == "paused":
            return True
        identity.wait_gone(_PAUSE_POLL_MS)
    return identity.find() is not None


def group_members(identity: ProcessIdentity) -> tuple[int, ...]:
    """Pids of live processes in the group that were started no earlier than its leader."""
    members = []
    for process in psutil.process_iter():
        try:
            in_group = os.getpgid(process.pid) == identity.pid
            young = process.create_time() >= identity.started_s - _START_TIME_SLACK_S
            if in_group and young and not _is_dead(process):
                members.append(process.pid)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return tuple(members)

"""CPU seconds of whole process trees, and what the rest of the machine did meanwhile."""

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import psutil

from rlm_sandbox.kafka_dist import java_environment


class BenchError(Exception):
    """The benchmark cannot go on; the message says why."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, its children and those already gone."""
    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


def resident_bytes(pid: int) -> int:
    """Of a process and its children."""
    return sum(int(psutil.Process(one).memory_info().rss) for one in process_tree(pid))


def process_tree(pid: int) -> list[int]:
    """The process and its children."""
    return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeMark:
    """Counters of processes and their children that live, at one moment (Linux)."""

    user_s: float
    system_s: float
    faults: int

    @classmethod
    def of(cls, *pids: int) -> Self:
        user_s = system_s = 0.0
        faults = 0
        for one in (child for pid in pids for child in process_tree(pid)):
            used = psutil.Process(one).cpu_times()
            user_s, system_s = user_s + used.user, system_s + used.system
            fields = _proc_file(one, "stat").rpartition(")")[2].split()
            faults += int(fields[7]) + int(fields[9])
        return cls(user_s=user_s, system_s=system_s, faults=faults)


def reset_peak(*pids: int) -> None:
    """Let the peak of their memory begin again at what is resident now."""
    for one in (child for pid in pids for child in process_tree(pid)):
        with open(f"/proc/{one}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")


def peak_mib(*pids: int) -> float:
    """Of all processes and their children, each at its own time."""
    kib = 0
    for one in (child for pid in pids for child in process_tree(pid)):
        [line] = [row for row in _proc_file(one, "status").splitlines() if row.startswith("VmHWM:")]
        kib += int(line.split()[1])
    return round(kib / 1024, 1)


def _proc_file(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
        return file.read()


def wait_idle(pid: int, *, share: float = 0.1, at_most_s: float = 15.0) -> None:
    """Return once the process uses less than that share of a core over a second."""
    deadline = time.monotonic() + at_most_s
    while time.monotonic() < deadline:
        before = cpu_seconds(pid)
        time.sleep(1.0)
        if cpu_seconds(pid) - before < share:
            return


def machine_busy_seconds() -> float:
    """Busy time of all cores since boot."""
    used = psutil.cpu_times()
    idle = used.idle + getattr(used, "iowait", 0.0)
    return float(sum(used[:8]) - idle)  # guest times are part of user time


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuMark:
    """CPU readings at one moment, by role."""

    roles: Mapping[str, float]
    machine: float

    @classmethod
    def now(cls, pids: Mapping[str, int]) -> Self:
        roles = {role: cpu_seconds(pid) for role, pid in pids.items()}
        return cls(roles=roles, machine=machine_busy_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A process that ran to its end; its own CPU includes start and end."""

    output: str
    cpu_s: float
    wall_s: float


def run_measured(argv: Sequence[str]) -> Finished:
    """Run to the end with rusage of exactly that process; raises BenchError where it fails."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        began_s = time.monotonic()
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=java_environment(),
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.monotonic() - began_s
        output.seek(0)
        errors.seek(0)
        text = output.read().decode(errors="replace")
        if child.returncode != 0:
            said = errors.read().decode(errors="replace")[-2000:] or text[-2000:]
            raise BenchError(f"{argv[0]} ended with {child.returncode}: {said}")
    return Finished(output=text, cpu_s=used.ru_utime + used.ru_stime, wall_s=wall_s)

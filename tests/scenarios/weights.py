"""What the processes of a sandbox weigh over a long run, and whether that stays."""

import contextlib
import http.client
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import psutil

from rlm_sandbox.sandbox import Sandbox

MEMORY, FILES, THREADS, TASKS = "rss_mib", "files", "threads", "tasks"
PID = "pid"
"""A component with another one has begun anew."""
_TASKS = ("rlm_tasks_running{", "rlm_tasks_waiting{")
_SERVICES = ("rlm", "reader")
_LEAST_SAMPLES = 3

Weight = Mapping[str, float]
"""Of a component with all its processes. `tasks`, which services and readers have, are the jobs of
their pools that run or wait; without them it did not answer.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """All components that ran at that time, in seconds since the beginning."""

    at_s: float
    phase: str
    weights: Mapping[str, Weight]


def weighed(sandbox: Sandbox) -> dict[str, Weight]:
    """What runs now, by its name in the sandbox."""
    found: dict[str, Weight] = {}
    for row in sandbox.status():
        if row.pid is None:
            continue
        with contextlib.suppress(psutil.Error):
            weight = of_processes(tree(row.pid))
            kind, _, number = row.name.partition(":")
            tasks = _tasks(sandbox, kind, int(number)) if kind in _SERVICES else {}
            found[row.name] = {PID: row.pid, **weight, **tasks}
    return found


def tree(pid: int) -> list[psutil.Process]:
    """A process and all that it has started."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def of_processes(processes: Sequence[psutil.Process]) -> Weight:
    """Of all of them together."""
    rss = sum(one.memory_info().rss for one in processes)
    return {
        MEMORY: round(rss / 2**20, 1),
        FILES: sum(one.num_fds() for one in processes),
        THREADS: sum(one.num_threads() for one in processes),
    }


def _tasks(sandbox: Sandbox, kind: str, number: int) -> Weight:
    state = sandbox.state
    ports = state.reader_ports if kind == "reader" else state.ports
    found = metric_sum(ports[number].http, *_TASKS)
    return {} if found is None else {TASKS: found}


def metric_sum(http_port: int, *beginnings: str) -> float | None:
    """Of all samples of a service that begin so; None where it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except (OSError, http.client.HTTPException):
        return None
    return sum(float(one.rsplit(" ", 1)[1]) for one in lines if one.startswith(beginnings))


def values(taken: Sequence[Weighing], phase: str, name: str, what: str) -> list[float]:
    """Of one component in one phase, in their order."""
    rows = [one.weights.get(name, {}) for one in taken if one.phase == phase]
    return [row[what] for row in rows if what in row]


def drift(found: Sequence[float]) -> float:
    """How much more the last third has than the first one, each by its median."""
    third = len(found) // 3
    assert third * 3 >= _LEAST_SAMPLES, f"only {len(found)} samples"
    return median(found[-third:]) - median(found[:third])


def step(before: Sequence[float], after: Sequence[float]) -> float:
    """How much more a later phase has at its end than an earlier one, by medians."""
    assert before, "no samples before"
    assert after, "no samples after"
    return median(after[-_LEAST_SAMPLES:]) - median(before[-_LEAST_SAMPLES:])

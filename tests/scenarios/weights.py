"""What the processes of a sandbox weigh over a long run, and whether that stays."""

import contextlib
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import psutil

from rlm_sandbox.sandbox import Sandbox

MEMORY, FILES, THREADS, TASKS = "rss_mib", "files", "threads", "tasks"
_TASKS = ("rlm_tasks_running{", "rlm_tasks_waiting{")
_LEAST_SAMPLES = 3

Weight = Mapping[str, float]
"""Of a component with all its processes. `tasks`, which a service alone has, are the jobs of its
pools that run or wait; without them it did not answer.
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
            found[row.name] = _of_tree(psutil.Process(row.pid))
            kind, _, number = row.name.partition(":")
            if kind == "rlm":
                found[row.name] = {**found[row.name], **_tasks(sandbox, int(number))}
    return found


def _of_tree(root: psutil.Process) -> Weight:
    processes = [root, *root.children(recursive=True)]
    rss = sum(one.memory_info().rss for one in processes)
    return {
        MEMORY: round(rss / 2**20, 1),
        FILES: sum(one.num_fds() for one in processes),
        THREADS: sum(one.num_threads() for one in processes),
    }


def _tasks(sandbox: Sandbox, node: int) -> Weight:
    url = f"http://127.0.0.1:{sandbox.state.ports[node].http}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    return {TASKS: sum(float(one.rsplit(" ", 1)[1]) for one in lines if one.startswith(_TASKS))}


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

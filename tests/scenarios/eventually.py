"""Commands that are run again and again until they answer what is waited for.

Under load a command may well answer "not yet": a heartbeat was late, a broker answered nothing, or
a task has not run again. A failure begins with what the last run said, as the summary of a run of
all tests shows hardly more than the beginning of a message.
"""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from tests.scenarios.cluster import Cluster

Done = subprocess.CompletedProcess[str]
_COMMAND_S = 300
"""Longer than any command waits by itself."""
_LIMIT_S = 240
_REASONS = ("why", "error", "reason", "detail", "text", "problem", "left_out", "alarms")
_MOST = 2_000


def comes_to(
    cluster: Cluster,
    command: tuple[str, ...],
    is_so: Callable[[Done], bool] = lambda done: done.returncode == 0,
    timeout_s: float = _LIMIT_S,
) -> Done:
    """The first run of a command that is as wanted; without more it ends with status 0."""
    last: list[Done] = []

    def reached() -> bool:
        last[:] = [cluster.rlm(*command, check=False, timeout_s=_COMMAND_S)]
        return is_so(last[0])

    try:
        cluster.wait_for(reached, f"rlm {' '.join(command)}", timeout_s)
    except AssertionError as error:
        raise AssertionError(f"{words_of(last[0]) if last else ''} {error}") from error
    return last[0]


def json_comes_to(
    cluster: Cluster,
    command: tuple[str, ...],
    is_so: Callable[[Any], bool],
    timeout_s: float = _LIMIT_S,
) -> Any:
    """The same of what a command prints with `--json`, whatever its exit status."""

    def is_wanted(done: Done) -> bool:
        found = _json(done)
        return found is not None and is_so(found)

    return _json(comes_to(cluster, (*command, "--json"), is_wanted, timeout_s))


def copied_now(cluster: Cluster, *words: str) -> list[dict[str, Any]]:
    """The rows of an `rlm copy` that did all that was asked for, and says so."""
    done = comes_to(cluster, ("copy", *words, "--json"))
    found = _json(done)
    assert found is not None and found["complete"], words_of(done)
    return list(found["partitions"])


def words_of(done: Done) -> str:
    """Exit status and reasons first, then what was printed."""
    reasons = "; ".join(_reasons(_json(done)))
    return f"{done.returncode}: {reasons} {done.stderr[-_MOST:]} {done.stdout[-_MOST:]}"


def _json(done: Done) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(done.stdout)
    return None


def _reasons(found: Any, name: str = "") -> Iterator[str]:
    if isinstance(found, dict):
        for key, value in found.items():
            yield from _reasons(value, key)
    elif isinstance(found, list):
        for value in found:
            yield from _reasons(value, name)
    elif isinstance(found, str) and found and name in _REASONS:
        yield found

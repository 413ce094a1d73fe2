"""`python -m bench.idle`: the processor time of a service that leads many partitions and has
nothing to do.

One topic with so many partitions is enabled; each has a few records in its active segment. When the
service has settled, the CPU of service and plugin is measured over windows of a minute, with the
intervals that services have by default. Nobody produces, fetches or scrapes meanwhile.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.command import document, measure, parser, say
from bench.machine import load_in_words
from bench.processes import CpuMark
from bench.production import answer_of, production_sandbox
from bench.topics import enable, make_topic, produce
from rlm_sandbox.sandbox import Sandbox

_SEGMENT_MIB = 16
_RECORDS_EACH = 10
_TOPIC = "idle"
_SETTLE_S = 90
_OPTIONS = ("partitions", "rounds")
_CPU = "user + system time of service and plugin, in percent of a core"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRun:
    """One window: CPU by the time, in percent of a core."""

    partitions: int
    seconds: float
    service_percent: float
    plugin_percent: float
    problems: tuple[str, ...]
    load: str


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _run(given, say)
        middle = median(one.service_percent for one in runs)
        line = f"{middle:.1f} % of a core, the median of {len(runs)}"
        return [line], document(given, "idle", _OPTIONS, runs, cpu=_CPU)

    return measure(given, "idle", run)


def _run(given: argparse.Namespace, progress: Callable[[str], None]) -> list[IdleRun]:
    partitions, rounds, window_s = given.partitions, given.rounds, given.window_s
    if given.quick:
        partitions, rounds, window_s = 20, 1, 5
    with production_sandbox(progress) as sandbox:
        make_topic(sandbox, _TOPIC, partitions, _SEGMENT_MIB)
        produce(sandbox, _TOPIC, partitions * _RECORDS_EACH)
        enable(sandbox, _TOPIC)
        progress("waiting until the service has settled")
        time.sleep(0 if given.quick else _SETTLE_S)
        return [_window(sandbox, partitions, window_s, progress) for _ in range(rounds)]


def _window(
    sandbox: Sandbox, partitions: int, window_s: int, progress: Callable[[str], None]
) -> IdleRun:
    [broker] = sandbox.json["brokers"]
    pids = {"service": broker["rlm_pid"], "plugin": broker["plugin_pid"]}
    before, began_s = CpuMark.now(pids), time.monotonic()
    time.sleep(window_s)
    after, seconds = CpuMark.now(pids), time.monotonic() - began_s
    percent = {
        role: round(100 * (after.roles[role] - before.roles[role]) / seconds, 2) for role in pids
    }
    run = IdleRun(
        partitions=partitions,
        seconds=round(seconds, 1),
        service_percent=percent["service"],
        plugin_percent=percent["plugin"],
        problems=_problems(sandbox),
        load=load_in_words(),
    )
    progress(
        f"{partitions} partitions: service {run.service_percent} %, plugin {run.plugin_percent} % "
        f"of a core; problems: {', '.join(run.problems) or 'none'}; load {run.load}"
    )
    return run


def _problems(sandbox: Sandbox) -> tuple[str, ...]:
    """The kinds of problems that the service has."""
    problems = json.loads(answer_of(sandbox, 1, "/healthz"))["problems"]
    return tuple(sorted({one["kind"] for one in problems}))


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.idle", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--partitions", type=int, default=1_000)
    made.add_argument("--window-s", type=int, default=60)
    return made


if __name__ == "__main__":
    raise SystemExit(main())

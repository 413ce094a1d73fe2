"""`python -m bench.night`: all benchmarks, one after the other, each within ten minutes.

A part that takes longer is stopped and counted as failed, the others go on. What the parts measure
and how is in their own modules; here are only their sizes. Results go to a folder, with an index of
how each part ended. Nothing else should run on the machine meanwhile.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.command import measure, parser, say
from bench.machine import commit, load_in_words, machine_in_words
from bench.pass_through import CONSUME, CONSUME_ONES, PRODUCE
from bench.processes import BenchError

_LIMIT_S = 600
_STOP_S = 60
_MANY = 64
"""Partitions of a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One benchmark with its sizes."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a part ended; 0 is success, None that it was stopped at its limit."""

    name: str
    exit_code: int | None
    seconds: float
    load: str


def _read(partitions: int, fetch_mib: int, *, workers: int = 0) -> Part:
    """Segments so small that most of a partition is closed, and so remote."""
    segment_mib = 2 if partitions == _MANY else 16
    sizes = f"--partitions {partitions} --fetch-mib {fetch_mib} --size-mib 512 --passes 5"
    sizes += f" --segment-mib {segment_mib}"
    name = f"read-{partitions}-{fetch_mib}mib" + (f"-{workers}-workers" if workers else "")
    arguments = (*sizes.split(), "--workers", str(workers))
    return Part(name=name, module="bench", arguments=arguments)


def _stores(store: str, delay_ms: int) -> Part:
    sizes = f"--stores {store} --delays-ms {delay_ms} --size-mib 512 --passes 3 --copy-pairs 3"
    sizes += " --copy-mib 256"
    name = f"stores-{store}-{delay_ms}ms"
    return Part(name=name, module="bench.stores", arguments=tuple(sizes.split()))


def _pass_through(part: str, workers: int) -> Part:
    """Consumers are fast: with little to read, what a service does while idle is most of it."""
    size_mib = 256 if part == PRODUCE else 1024
    sizes = f"--parts {part} --workers {workers} --size-mib {size_mib} --rounds 5"
    name = f"pass-through-{part}-{workers}-workers"
    return Part(name=name, module="bench.pass_through", arguments=tuple(sizes.split()))


def _connections(part: str, workers: int) -> Part:
    sizes = f"--parts {part} --workers {workers}"
    name = f"connections-{part}-{workers}-workers"
    return Part(name=name, module="bench.connections", arguments=tuple(sizes.split()))


def _copying(module: str, partitions: int) -> Part:
    """Each backlog waits up to half a minute for the next task, so they are two parts."""
    name = f"{module.replace('_', '-')}-{partitions}"
    return Part(name=name, module=f"bench.{module}", arguments=("--partitions", str(partitions)))


_READ_8 = ("--partitions", "8", "--fetch-mib", "1", "--size-mib", "512", "--passes", "5")
PARTS = (
    Part(name="floors", module="bench.floors"),
    *(_pass_through(part, n) for part in (CONSUME, CONSUME_ONES, PRODUCE) for n in (0, 2)),
    Part(name="small-requests", module="bench.small_requests"),
    *(_connections(part, workers) for part in ("tails", "places") for workers in (0, 2)),
    *(_read(partitions, mib) for partitions in (1, 8, _MANY) for mib in (1, 16, 50)),
    *(_read(partitions, 1, workers=2) for partitions in (1, 8)),
    Part(name="read-8-1mib-warm", module="bench", arguments=(*_READ_8, "--warm")),
    Part(name="read-8-1mib-ones", module="bench", arguments=(*_READ_8, "--batches-of-one")),
    *(_stores("s3", delay_ms) for delay_ms in (0, 20, 100)),
    _stores("hdfs", 0),
    *(_copying(module, n) for module in ("copying", "copying_native") for n in (1, 8)),
    *(
        Part(name=f"latency-{n}-workers", module="bench.latency", arguments=("--workers", str(n)))
        for n in (0, 2)
    ),
    Part(name="rolls", module="bench.rolls", arguments=("--rounds", "3")),
    Part(name="leadership", module="bench.leadership", arguments=("--rounds", "5")),
    Part(name="deleting", module="bench.deleting"),
    Part(name="client", module="bench.client"),
    Part(name="scale", module="bench.scale"),
    Part(name="ledger", module="bench.ledger_native"),
    Part(name="ledger-snapshot", module="bench.ledger_snapshot"),
    Part(name="idle", module="bench.idle", arguments=("--rounds", "5")),
    Part(name="idle-connections", module="bench.idle_connections"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every part was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)
    failed: list[str] = []

    def run() -> tuple[list[str], dict[str, Any]]:
        ended = [_run(part, given) for part in _chosen(given)]
        failed.extend(one.name for one in ended if one.exit_code != 0)
        lines = [f"{len(ended) - len(failed)} of {len(ended)} parts were measured"]
        lines += [f"failed: {', '.join(failed)}"] if failed else []
        return lines, {
            "v": 1,
            "kind": "bench",
            "name": "night",
            "commit": commit(),
            "machine": machine_in_words(),
            "parts": [asdict(one) for one in ended],
        }

    return measure(given, "night", run) or int(bool(failed))


def _chosen(given: argparse.Namespace) -> list[Part]:
    """The parts that are asked for and, with --resume, have no result in the folder yet."""
    unknown = set(given.only) - {part.name for part in PARTS}
    if unknown:
        known = ", ".join(part.name for part in PARTS)
        raise BenchError(f"no such part: {', '.join(sorted(unknown))}; there are {known}")
    chosen = [part for part in PARTS if not given.only or part.name in given.only]
    done = {path.stem for path in Path(given.out).glob("*.json")} if given.resume else set()
    return [part for part in chosen if part.name not in done]


def _run(part: Part, given: argparse.Namespace) -> Ended:
    say(f"== {part.name}; load {load_in_words()}")
    argv = [sys.executable, "-P", "-m", part.module, "--out", given.out, "--name", part.name]
    began_s = time.monotonic()
    child = subprocess.Popen([*argv, *(("--quick",) if given.quick else part.arguments)])
    try:
        exit_code: int | None = child.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        exit_code = None
        say(f"{part.name} took longer than {_LIMIT_S} s and is stopped")
    finally:
        _stop(child)
    return Ended(
        name=part.name,
        exit_code=exit_code,
        seconds=round(time.monotonic() - began_s, 1),
        load=load_in_words(),
    )


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """A benchmark stops its servers when it is told to end."""
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.night", __doc__)
    made.add_argument("--only", type=lambda text: tuple(text.split(",")), default=())
    made.add_argument("--resume", action="store_true", help="skip parts that have a result")
    return made


if __name__ == "__main__":
    raise SystemExit(main())

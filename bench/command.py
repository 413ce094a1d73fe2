"""What the benchmarks' commands share: kinds of options, and how a result is said and written."""

import argparse
import dataclasses
import json
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.machine import commit, machine_in_words
from bench.processes import BenchError
from rlm_sandbox.spec import SandboxError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

_RESULTS = Path(__file__).resolve().parent / "results"


def say(line: str) -> None:
    """Prints one line of progress."""
    print(line, flush=True)


def numbers(least: int = 1) -> Callable[[str], tuple[int, ...]]:
    """A comma list of numbers, such as 8,1."""

    def parse(text: str) -> tuple[int, ...]:
        found = tuple(int(part) for part in text.split(","))
        if min(found) < least:
            wanted = "positive numbers" if least == 1 else f"numbers from {least} on"
            raise argparse.ArgumentTypeError(f"{text}: {wanted}, please")
        return found

    return parse


def words(allowed: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """A comma list of some of the words."""

    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        if unknown := set(chosen) - set(allowed):
            raise argparse.ArgumentTypeError(f"{sorted(unknown)}: allowed are {allowed}")
        return chosen

    return parse


def parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """With the options that every benchmark has: --quick, --out, --name."""
    made = argparse.ArgumentParser(prog=prog, description=description)
    made.add_argument("--quick", action="store_true", help="a small smoke, no numbers to quote")
    made.add_argument("--out", default=str(_RESULTS), help="directory of the result")
    made.add_argument("--name", help="file name of the result, without .json")
    return made


def options_from(given: argparse.Namespace, quick: "T", full: "T", names: Iterable[str]) -> "T":
    """The options of --quick or of a full run, changed by the named options that were given."""
    chosen: dict[str, Any] = {
        name: value for name in names if (value := getattr(given, name)) is not None
    }
    return dataclasses.replace(quick if given.quick else full, **chosen)


def document(
    given: argparse.Namespace,
    name: str,
    options: Iterable[str],
    runs: "Iterable[DataclassInstance]",
    **notes: str,
) -> dict[str, Any]:
    """The result of a benchmark whose runs are rows; `notes` say what these count, such as CPU."""
    return {
        "v": 1,
        "kind": "bench",
        "name": name,
        "commit": commit(),
        "machine": machine_in_words(),
        "options": {one: getattr(given, one) for one in options},
        **notes,
        "runs": [dataclasses.asdict(run) for run in runs],
    }


def measure(
    given: argparse.Namespace, stem: str, run: Callable[[], tuple[list[str], dict[str, Any]]]
) -> int:
    """Runs the benchmark, prints its progress, writes its result; 0 if everything was measured.
    SIGTERM ends it as Ctrl-C does: its servers are stopped.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        lines, result = run()
    except KeyboardInterrupt:
        print("bench: stopped", file=sys.stderr)
        return 130
    except (BenchError, SandboxError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    for line in lines:
        say(line)
    path = Path(given.out) / f"{given.name or (f'{stem}-quick' if given.quick else stem)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    say(f"written to {path.name} in {path.parent.name}/")
    return 0

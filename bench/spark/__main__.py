"""`python -m bench.spark`, which `make bench-spark` calls: prints runs, writes results as JSON."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.processes import BenchError
from bench.spark.options import CODECS, TASKS, SparkOptions
from bench.spark.report import tables
from bench.spark.run import run_spark
from rlm.sandbox.errors import SandboxError

_RESULTS = Path(__file__).resolve().parents[1] / "results"
_NUMBERS = ("size_mib", "segment_mib", "partitions", "rounds")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    given = _parser().parse_args(arguments)
    try:
        runs, result = run_spark(_options(given), _say)
    except (BenchError, SandboxError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    _say(tables(runs))
    path = Path(given.out) / f"{given.name or ('spark-quick' if given.quick else 'spark')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    _say(f"written to {path.name} in {path.parent.name}/")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small smoke, no numbers to quote")
    parser.add_argument("--record-bytes", type=_numbers, help="such as 100,1024")
    parser.add_argument("--codecs", type=_words(CODECS), help=f"some of {','.join(CODECS)}")
    parser.add_argument("--cores", type=_numbers, help="such as 1,2")
    parser.add_argument("--tasks", type=_words(TASKS), help=f"some of {','.join(TASKS)}")
    for name in _NUMBERS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    parser.add_argument("--out", default=str(_RESULTS), help="directory of the result")
    parser.add_argument("--name", help="file name of the result, without .json")
    return parser


def _options(given: argparse.Namespace) -> SparkOptions:
    chosen: dict[str, Any] = {
        name: value
        for name in ("record_bytes", "codecs", "cores", "tasks", *_NUMBERS)
        if (value := getattr(given, name)) is not None
    }
    basis = SparkOptions.quick() if given.quick else SparkOptions.full()
    return dataclasses.replace(basis, **chosen)


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: positive numbers, please")
    return numbers


def _words(allowed: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        if unknown := set(chosen) - set(allowed):
            raise argparse.ArgumentTypeError(f"{sorted(unknown)}: allowed are {allowed}")
        return chosen

    return parse


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

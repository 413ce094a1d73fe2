"""`python -m bench.stores`: prints every run, writes results as JSON."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.processes import BenchError
from bench.stores.options import STORES, StoreOptions
from bench.stores.report import tables
from bench.stores.run import run_stores
from rlm.sandbox.errors import SandboxError

_RESULTS = Path(__file__).resolve().parents[1] / "results"
_NUMBERS = ("size_mib", "segment_mib", "rounds", "first_records", "copy_pairs", "copy_mib")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    given = _parser().parse_args(arguments)
    try:
        figures, result = run_stores(_options(given), _say)
    except (BenchError, SandboxError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    _say(tables(figures))
    path = Path(given.out) / f"{given.name or ('stores-quick' if given.quick else 'stores')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    _say(f"written to {path.name} in {path.parent.name}/")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.stores", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small smoke, no numbers to quote")
    parser.add_argument("--stores", type=_words(STORES), help=f"some of {','.join(STORES)}")
    parser.add_argument("--delays-ms", type=_numbers(0), help="such as 0,20,100 (S3 only)")
    parser.add_argument("--partitions", type=_numbers(1), help="such as 8,1")
    for name in _NUMBERS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    parser.add_argument("--out", default=str(_RESULTS), help="directory of the result")
    parser.add_argument("--name", help="file name of the result, without .json")
    return parser


def _options(given: argparse.Namespace) -> StoreOptions:
    chosen: dict[str, Any] = {
        name: value
        for name in ("stores", "delays_ms", "partitions", *_NUMBERS)
        if (value := getattr(given, name)) is not None
    }
    basis = StoreOptions.quick() if given.quick else StoreOptions.full()
    return dataclasses.replace(basis, **chosen)


def _numbers(least: int) -> Callable[[str], tuple[int, ...]]:
    def parse(text: str) -> tuple[int, ...]:
        numbers = tuple(int(part) for part in text.split(","))
        if min(numbers) < least:
            raise argparse.ArgumentTypeError(f"{text}: numbers from {least} on, please")
        return numbers

    return parse


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

"""`python -m bench`, which `make bench` calls: prints every run, writes results as JSON."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.plan import VARIANTS, Options
from bench.processes import BenchError
from bench.read import run_read
from bench.report import Run, tables
from rlm.sandbox.errors import SandboxError

_RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    given = _parser().parse_args(arguments)
    options = _options(given)
    try:
        result = run_read(options, _say)
    except (BenchError, SandboxError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    _say(tables([Run(**run) for run in result["runs"]], options.shapes))
    _say(f"\nremote share of records: {result['remote_share']}\ncaches: {result['caches']}")
    path = Path(given.out) / f"{given.name or _name(given)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    _say(f"written to {path.name} in {path.parent.name}/")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small smoke, no numbers to quote")
    parser.add_argument("--size-mib", type=int, help="values of the topic with 8 partitions")
    parser.add_argument("--segment-mib", type=int, help="segment.bytes of all topics")
    parser.add_argument("--rounds", type=int, help="rounds of all variants and shapes")
    parser.add_argument("--partitions", type=_numbers, help="such as 8,1")
    parser.add_argument("--fetch-mib", type=_numbers, help="such as 1,16")
    parser.add_argument("--variants", type=_variants, help=f"some of {','.join(VARIANTS)}")
    parser.add_argument("--out", default=str(_RESULTS), help="directory of the result")
    parser.add_argument("--name", help="file name of the result, without .json")
    return parser


def _options(given: argparse.Namespace) -> Options:
    chosen: dict[str, Any] = {
        name: value
        for name in ("size_mib", "segment_mib", "rounds", "partitions", "fetch_mib", "variants")
        if (value := getattr(given, name)) is not None
    }
    basis = Options.quick() if given.quick else Options.full()
    return dataclasses.replace(basis, **chosen)


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: positive numbers, please")
    return numbers


def _variants(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := set(chosen) - set(VARIANTS):
        raise argparse.ArgumentTypeError(f"{sorted(unknown)}: allowed are {VARIANTS}")
    return chosen


def _name(given: argparse.Namespace) -> str:
    return "read-quick" if given.quick else "read"


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

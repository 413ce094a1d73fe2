"""`python -m bench.stores`: prints every run, writes results as JSON."""

import argparse
from collections.abc import Sequence
from typing import Any

from bench.command import measure, numbers, options_from, parser, say, words
from bench.stores.options import STORES, StoreOptions
from bench.stores.report import tables
from bench.stores.run import run_stores

_NUMBERS = (
    *("size_mib", "segment_mib", "passes", "first_records", "copy_pairs", "copy_mib"),
    "workers",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        figures, result = run_stores(_options(given), say)
        return [tables(figures)], result

    return measure(given, "stores", run)


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.stores", __doc__)
    made.add_argument("--stores", type=words(STORES), help=f"some of {','.join(STORES)}")
    made.add_argument("--delays-ms", type=numbers(0), help="such as 0,20,100 (S3 only)")
    made.add_argument("--partitions", type=numbers(), help="such as 8,1")
    made.add_argument("--fetch-mib", type=numbers(), help="such as 1,16")
    made.add_argument(
        "--warm", action="store_true", default=None, help="with a cache on disk, each read twice"
    )
    for name in _NUMBERS:
        made.add_argument(f"--{name.replace('_', '-')}", type=int)
    return made


def _options(given: argparse.Namespace) -> StoreOptions:
    names = ("stores", "delays_ms", "partitions", "fetch_mib", "warm", *_NUMBERS)
    return options_from(given, StoreOptions.quick(), StoreOptions.full(), names)


if __name__ == "__main__":
    raise SystemExit(main())

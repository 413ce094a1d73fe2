"""`python -m bench.spark`, which `make bench-spark` calls: prints runs, writes results as JSON."""

import argparse
from collections.abc import Sequence
from typing import Any

from bench.command import measure, numbers, options_from, parser, say, words
from bench.spark.options import CODECS, TASKS, SparkOptions
from bench.spark.report import tables
from bench.spark.run import run_spark

_NUMBERS = ("size_mib", "segment_mib", "partitions", "passes")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs, result = run_spark(_options(given), say)
        return [tables(runs)], result

    return measure(given, "spark", run)


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.spark", __doc__)
    made.add_argument("--record-bytes", type=numbers(), help="such as 100,1024")
    made.add_argument("--codecs", type=words(CODECS), help=f"some of {','.join(CODECS)}")
    made.add_argument("--cores", type=numbers(), help="such as 1,2")
    made.add_argument("--tasks", type=words(TASKS), help=f"some of {','.join(TASKS)}")
    for name in _NUMBERS:
        made.add_argument(f"--{name.replace('_', '-')}", type=int)
    return made


def _options(given: argparse.Namespace) -> SparkOptions:
    names = ("record_bytes", "codecs", "cores", "tasks", *_NUMBERS)
    return options_from(given, SparkOptions.quick(), SparkOptions.full(), names)


if __name__ == "__main__":
    raise SystemExit(main())

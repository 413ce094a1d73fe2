"""`python -m bench`, which `make bench` calls: prints every run, writes results as JSON."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.command import measure, numbers, options_from, parser, say, words
from bench.plan import TLS, VARIANTS, Options
from bench.read import run_read
from bench.report import IdleRun, Run, tables

_OPTIONS = (
    "size_mib",
    "segment_mib",
    "passes",
    "partitions",
    "fetch_mib",
    "variants",
    "warm",
    "batches_of_one",
    "workers",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    given = _parser().parse_args(arguments)
    options = options_from(given, Options.quick(), Options.full(), _OPTIONS)
    if given.tls:
        options = replace(options, variants=(*options.variants, TLS))

    def run() -> tuple[list[str], dict[str, Any]]:
        result = run_read(options, say)
        rows = [Run(**run) for run in result["runs"]]
        idle = [IdleRun(**run) for run in result["idle_runs"]]
        runs = tables(rows, options.shapes, ones=options.batches_of_one, idle=idle)
        share, caches = result["remote_share"], result["caches"]
        return [runs, f"\nremote share of records: {share}\ncaches: {caches}"], result

    return measure(given, "read", run)


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench", __doc__)
    made.add_argument("--size-mib", type=int, help="values of the topic with 8 partitions")
    made.add_argument("--segment-mib", type=int, help="segment.bytes of all topics")
    made.add_argument("--passes", type=int, help="passes of all variants and shapes")
    made.add_argument("--partitions", type=numbers(), help="such as 8,1")
    made.add_argument("--fetch-mib", type=numbers(), help="such as 1,16")
    made.add_argument("--variants", type=words(VARIANTS), help=f"some of {','.join(VARIANTS)}")
    made.add_argument("--warm", action="store_true", default=None, help="keep the caches")
    made.add_argument(
        "--batches-of-one", action="store_true", default=None, help="one record in each batch"
    )
    made.add_argument("--workers", type=int, help="proxy.workers of the service")
    made.add_argument("--tls", action="store_true", help="the proxy with TLS as well")
    return made


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m tests.simulation --seeds 1000000..1100000`: runs seeds that no earlier run has.

It can be stopped at any time, and goes on where it stood. Ends with 1 where a seed has failed.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.many_seeds import Portion, results_file, run_all, seed_range


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 = no seed of the range has failed, in this run or an earlier one."""
    options = _options(arguments)
    path = options.out or results_file(options.seeds)
    failures = run_all(options.seeds, path, workers=options.workers, report=_report)
    print(f"{len(options.seeds)} seeds, {len(failures)} failed; raw result: {path}")
    return 1 if failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=seed_range, required=True, help="A..B: from A up to before B"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, help="the file of results that it goes on with")
    return parser.parse_args(arguments)


def _report(portion: Portion) -> None:
    at = time.strftime("%H:%M:%S", time.gmtime())
    print(f"{at} up to {portion.seeds.stop}: {portion.cpu_s:.0f} CPU s", flush=True)
    for seed, broken in portion.failures.items():
        print(f"SEED={seed}: {broken}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

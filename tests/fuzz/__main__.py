"""`python -m tests.fuzz --seeds 0..50000 --workers 2`: ten million inputs, as far as no earlier run
has had them, with the result under bench/results/. It can be stopped at any time.

`--cpu-s 12`: as many seeds from the first one on as that many seconds of CPU have room for, and no
file. Ends with 1 where something was found, and prints how to repeat it.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.run import INPUTS_OF_A_SEED, run_for, run_portion
from tests.simulation.many_seeds import Collected, Portion, results_file, run_all, seed_range

KIND = "fuzz"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 = nothing was found, in this run or an earlier one."""
    options = _options(arguments)
    if options.cpu_s is not None:
        portion = run_for(options.cpu_s, options.seeds.start)
        _report(portion)
        print(f"at most {portion.peak_mib} MiB", *_lines(portion), sep="\n")
        return 1 if portion.failures or portion.grown else 0
    path = options.out or results_file(options.seeds, KIND)
    failures = run_all(
        options.seeds, path, workers=options.workers, report=_report, run=run_portion, kind=KIND
    )
    inputs = len(options.seeds) * INPUTS_OF_A_SEED
    grown = Collected.read(path, KIND).grown()
    print(f"{inputs} inputs, {len(failures)} seeds failed; raw result: {path}", *grown, sep="\n")
    return 1 if failures or grown else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--seeds", type=seed_range, default=range(50_000), help="A..B: up to before B"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--cpu-s", type=float, help="so much CPU time in this process instead")
    parser.add_argument("--out", type=Path, help="the file of results that it goes on with")
    return parser.parse_args(arguments)


def _report(portion: Portion) -> None:
    inputs = len(portion.seeds) * INPUTS_OF_A_SEED
    print(f"{inputs} inputs up to seed {portion.seeds.stop}: {portion.cpu_s:.0f} CPU s", flush=True)
    for seed, broken in portion.failures.items():
        print(f"--seeds {seed}..{seed + 1}: {broken}", flush=True)
    if portion.grown:
        print(portion.grown, flush=True)


def _lines(portion: Portion) -> list[str]:
    return [f"{count:>8} {became}" for became, count in sorted(portion.events.items())]


if __name__ == "__main__":
    sys.exit(main())

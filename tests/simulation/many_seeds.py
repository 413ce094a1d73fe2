"""Runs very many seeds in portions, over several runs, commits and processes, into one file.

What a file has already is not run again, but for the seeds that failed. A seed that fails is kept,
with what it broke, and the others go on.
"""

import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import commit, load_in_words, machine_in_words
from tests.simulation.seeds import Failure, run_seed

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
_PORTION = 100
_PORTIONS_OF_A_PROCESS = 50
"""Then a process is replaced, so that nothing can pile up in it."""


def seed_range(text: str) -> range:
    """`A..B` on a command line: from A up to before B."""
    first, end = text.split("..")
    return range(int(first), int(end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What consecutive seeds came to; `cpu_s` of the process that ran them."""

    seeds: range
    cpu_s: float
    events: Counter[str]
    failures: dict[int, str]
    peak_mib: int | None = None
    """The most memory that its process ever had, None where nobody looked."""
    grown: str | None = None
    """How much more memory its process has than after its first portion, where that is too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A file of results: one row per commit and range of consecutive seeds, a failure by its seed.

    A row grows while portions of its commit follow on it, so that a file of 100,000 seeds is short.
    """

    path: Path
    kind: str = "simulation"
    rows: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, kind: str = "simulation") -> "Collected":
        """What the file has; nothing where there is none yet."""
        text = path.read_text(encoding="utf-8") if path.exists() else '{"results": []}'
        return cls(path=path, kind=kind, rows=json.loads(text)["results"])

    def missing(self, seeds: range, portion: int = _PORTION) -> Iterator[range]:
        """Portions of the seeds that no commit has run."""
        start = seeds.start
        for first, end in sorted((row["first_seed"], row["end_seed"]) for row in self.rows):
            yield from _cut(start, min(first, seeds.stop), portion)
            start = max(start, end)
        yield from _cut(start, seeds.stop, portion)

    def add(self, portion: Portion, at_commit: str) -> None:
        """Keep what a portion came to, on the disk too."""
        row = self._row_before(portion.seeds.start, at_commit)
        row["end_seed"] = portion.seeds.stop
        row["seeds"] = row["end_seed"] - row["first_seed"]
        row["cpu_s"] = round(row["cpu_s"] + portion.cpu_s, 1)
        row["events"] = dict(sorted((Counter(row["events"]) + portion.events).items()))
        row["failures"] |= {str(seed): broken for seed, broken in portion.failures.items()}
        if portion.peak_mib is not None:
            row["peak_mib"] = max(row.get("peak_mib", 0), portion.peak_mib)
        if portion.grown is not None:
            row.setdefault("grown", []).append(portion.grown)
        row["load"], row["until"] = load_in_words(), time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())
        self._write()

    def failures(self, seeds: range) -> dict[int, str]:
        """What failed of these seeds, at whatever commit, and has not passed since."""
        found: dict[int, str] = {}
        for row in self.rows:
            failed, passed = row["failures"], row["passed_at"]
            found |= {int(one): why for one, why in failed.items() if one not in passed}
        return {seed: why for seed, why in found.items() if seed in seeds}

    def grown(self) -> list[str]:
        """Where processes grew. No single seed shows that again: take the row out of the file, and
        all its seeds are run again.
        """
        return [one for row in self.rows for one in row.get("grown", ())]

    def passed(self, seed: int, at_commit: str) -> None:
        """Keep that a seed which had failed passes at this commit."""
        for row in self.rows:
            if str(seed) in row["failures"]:
                row["passed_at"][str(seed)] = at_commit
        self._write()

    def _row_before(self, first_seed: int, at_commit: str) -> dict[str, Any]:
        for row in self.rows:
            if (row["commit"], row["end_seed"]) == (at_commit, first_seed):
                return row
        row = {"commit": at_commit, "first_seed": first_seed, "end_seed": first_seed}
        row |= {"seeds": 0, "cpu_s": 0.0, "events": {}, "failures": {}, "passed_at": {}}
        self.rows.append(row)
        return row

    def _write(self) -> None:
        document = {
            "v": 1,
            "kind": self.kind,
            "machine": machine_in_words(),
            "seeds": sum(row["seeds"] for row in self.rows),
            "failed": sum(len(row["failures"]) - len(row["passed_at"]) for row in self.rows),
            "results": self.rows,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        written = self.path.with_suffix(".tmp")
        written.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        written.replace(self.path)


def results_file(seeds: range, kind: str = "simulation") -> Path:
    """The newest file that still lacks some of the seeds, else one of today."""
    found = sorted(RESULTS.glob(f"{kind}-*.json"))
    if found and any(Collected.read(found[-1]).missing(seeds)):
        return found[-1]
    return RESULTS / f"{kind}-{time.strftime('%Y-%m-%d', time.gmtime())}.json"


def run_all(
    seeds: range,
    path: Path,
    *,
    workers: int,
    report: Callable[[Portion], None],
    run: Callable[[range], Portion] | None = None,
    kind: str = "simulation",
) -> dict[int, str]:
    """Run what the file lacks of the seeds, and what had failed; what fails of all of them. `run`:
    of a module, as it is called in processes of their own; the simulation if there is none.
    """
    run = run or run_portion
    collected, at_commit = Collected.read(path, kind), commit()
    for seed in collected.failures(seeds):
        if not run(range(seed, seed + 1)).failures:
            collected.passed(seed, at_commit)
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, maxtasksperchild=_PORTIONS_OF_A_PROCESS) as pool:
        for portion in pool.imap(run, list(collected.missing(seeds))):
            collected.add(portion, at_commit)
            report(portion)
    return collected.failures(seeds)


def run_portion(seeds: range, run: Callable[[int], Counter[str]] = run_seed) -> Portion:
    """Run seeds in this process, whatever fails."""
    began_s, events, failures = time.process_time(), Counter[str](), {}
    for seed in seeds:
        try:
            events += run(seed)
        except Failure as failure:
            failures[seed] = failure.broken
    cpu_s = time.process_time() - began_s
    return Portion(seeds=seeds, cpu_s=cpu_s, events=events, failures=failures)


def _cut(start: int, end: int, portion: int) -> Iterator[range]:
    return (range(at, min(end, at + portion)) for at in range(start, end, portion))

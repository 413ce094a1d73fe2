"""Medians of pairs, expectations and the tables a person reads. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.spark.options import DEFAULT, EXPORT, OURS, SUM, TUNED, VALUE, Cell, Topic

LEAST_AGAINST_TUNED = {(SUM, 100): 1.5, (SUM, 1024): 1.0, (VALUE, 100): 1.5, (VALUE, 1024): 1.0}
LEAST_OF_EXPORT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One query. CPU seconds by role: `spark` is driver JVM and Python workers together."""

    cores: int
    record_bytes: int
    codec: str
    task: str
    variant: str
    pass_number: int
    wall_s: float
    records: int
    value_bytes: int
    cpu_s: Mapping[str, float]
    foreign_cores: float

    @property
    def cell(self) -> Cell:
        topic = Topic(record_bytes=self.record_bytes, codec=self.codec)
        return Cell(cores=self.cores, topic=topic, task=self.task)

    @property
    def all_cpu_s(self) -> float:
        return sum(self.cpu_s.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One cell: medians, and how often faster than each peer in the pairs of one pass."""

    cell: Cell
    wall_s: Mapping[str, float]
    spark_cpu_s: Mapping[str, float]
    all_cpu_s: Mapping[str, float]
    ratios: Mapping[str, float]
    pairs: Mapping[str, tuple[float, ...]]
    expected: float

    @property
    def met(self) -> bool:
        return self.ratios[TUNED] >= self.expected


def outcomes(runs: Sequence[Run]) -> list[Outcome]:
    """In the order in which the cells were measured."""
    return [_outcome(cell, rows) for cell, rows in _by_cell(runs)]


def _outcome(cell: Cell, runs: Sequence[Run]) -> Outcome:
    of = {variant: [run for run in runs if run.variant == variant] for variant in cell.variants}
    pairs = {
        variant: tuple(
            round(theirs.wall_s / ours.wall_s, 3)
            for ours, theirs in zip(of[OURS], of[variant], strict=True)
        )
        for variant in cell.variants
        if variant != OURS
    }
    return Outcome(
        cell=cell,
        wall_s=_medians(of, lambda run: run.wall_s),
        spark_cpu_s=_medians(of, lambda run: run.cpu_s["spark"]),
        all_cpu_s=_medians(of, lambda run: run.all_cpu_s),
        ratios={variant: round(median(found), 3) for variant, found in pairs.items()},
        pairs=pairs,
        expected=_expected(cell),
    )


def _medians(of: Mapping[str, Sequence[Run]], value: Any) -> dict[str, float]:
    return {variant: round(median(map(value, runs)), 3) for variant, runs in of.items()}


def _expected(cell: Cell) -> float:
    if cell.task == EXPORT:
        return LEAST_OF_EXPORT
    return LEAST_AGAINST_TUNED.get((cell.task, cell.topic.record_bytes), 1.0)


def _by_cell(runs: Iterable[Run]) -> Iterator[tuple[Cell, list[Run]]]:
    found: dict[Cell, list[Run]] = {}
    for run in runs:
        found.setdefault(run.cell, []).append(run)
    for cell, rows in found.items():
        yield cell, sorted(rows, key=lambda run: run.pass_number)


def run_line(run: Run) -> str:
    """One run while the benchmark goes on."""
    cpu = " ".join(f"{role} {used:.2f}" for role, used in run.cpu_s.items())
    return (
        f"  local[{run.cores}] {run.record_bytes:>5} B {run.codec:<4} {run.task:<6}"
        f" {run.variant:<13} {run.wall_s:7.2f} s; CPU s: {cpu}; foreign {run.foreign_cores:.2f}"
    )


def tables(runs: Sequence[Run]) -> str:
    """One line a cell, after a head."""
    head = (
        f"{'':<9}{'':>7} {'':<5}{'':<7}{'ours':>8}{'tuned':>8}{'default':>8}"
        f"{'tuned/ours':>12}{'expected':>10}{'default/ours':>14}   CPU s ours, tuned"
    )
    return "\n".join([head, *(_line(one) for one in outcomes(runs))])


def _line(one: Outcome) -> str:
    default = one.wall_s.get(DEFAULT)
    ratio = one.ratios.get(DEFAULT)
    verdict = "ok" if one.met else "MISSED"
    return (
        f"local[{one.cell.cores}] {one.cell.topic.record_bytes:>5} B {one.cell.topic.codec:<5}"
        f"{one.cell.task:<7}{one.wall_s[OURS]:>7.2f}s{one.wall_s[TUNED]:>7.2f}s"
        f"{f'{default:.2f}s' if default else '-':>8}{one.ratios[TUNED]:>11.2f}x"
        f"{f'>= {one.expected:.1f}':>10}{f'{ratio:.2f}x' if ratio else '-':>14}"
        f"   {one.all_cpu_s[OURS]:.1f}, {one.all_cpu_s[TUNED]:.1f}  {verdict}"
    )


def summary(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The outcomes as JSON values."""
    return [{**asdict(one), "met": one.met} for one in outcomes(runs)]

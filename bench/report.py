"""Medians of per-pair ratios, and the tables a person reads. Pure.

A ratio compares two runs of one pass and one shape: only those saw the same state of the machine.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

from bench.plan import DIRECT, MIB, NATIVE, PROXY, Shape

LEAST_OF_DIRECT = 0.8
LEAST_OF_NATIVE = 1.3
MOST_CPU_S_PER_GB = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One read of a topic. CPU is per 1e9 bytes of values, over the whole life of the consumer."""

    pass_number: int
    variant: str
    partitions: int
    fetch_bytes: int
    mib_s: float
    fetch_ms: int
    wall_s: float
    broker_cpu_s_gb: float
    service_cpu_s_gb: float
    consumer_cpu_s_gb: float
    foreign_cores: float
    """Cores kept busy by everything that is not part of the benchmark: the noise."""

    @property
    def shape(self) -> Shape:
        return Shape(partitions=self.partitions, fetch_bytes=self.fetch_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One expectation about one shape."""

    shape: str
    what: str
    measured: float
    expected: str
    met: bool


def ratios(runs: Sequence[Run], shape: Shape, above: str, below: str) -> list[float]:
    """Speed of `above` over speed of `below`, one value a pass."""
    speeds = {(r.pass_number, r.variant): r.mib_s for r in runs if r.shape == shape}
    passes = sorted({number for number, _ in speeds})
    return [
        speeds[number, above] / speeds[number, below]
        for number in passes
        if (number, above) in speeds and (number, below) in speeds
    ]


def p95(values: Iterable[float]) -> float:
    """The 95th percentile, interpolated; that of one value is the value."""
    found = tuple(values)
    return quantiles(found, n=20, method="inclusive")[-1] if len(found) > 1 else found[0]


def verdicts(runs: Sequence[Run], shapes: Iterable[Shape]) -> list[Verdict]:
    """The expectations and what was measured."""
    found = []
    for shape in shapes:
        if of_direct := ratios(runs, shape, PROXY, DIRECT):
            found.append(_at_least(shape, "proxy / direct", of_direct, LEAST_OF_DIRECT))
        of_native = ratios(runs, shape, PROXY, NATIVE)
        if of_native and shape.fetch_bytes == MIB:
            found.append(_at_least(shape, "proxy / Kafka's own", of_native, LEAST_OF_NATIVE))
        costs = [r.service_cpu_s_gb for r in runs if r.shape == shape and r.variant == PROXY]
        if costs:
            measured = median(costs)
            found.append(
                Verdict(
                    shape=shape.name,
                    what="service + plugin CPU s/GB",
                    measured=measured,
                    expected=f"<= {MOST_CPU_S_PER_GB}",
                    met=measured <= MOST_CPU_S_PER_GB,
                )
            )
    return found


def _at_least(shape: Shape, what: str, values: Sequence[float], least: float) -> Verdict:
    measured = median(values)
    return Verdict(
        shape=shape.name,
        what=what,
        measured=measured,
        expected=f">= {least}",
        met=measured >= least,
    )


def summary(runs: Sequence[Run], shapes: Iterable[Shape]) -> dict[str, Any]:
    """The medians as JSON values."""
    shapes = tuple(shapes)
    return {
        "medians": [_medians(runs, shape, v) for shape in shapes for v in _variants(runs, shape)],
        "pair_ratios": [
            {
                "shape": shape.name,
                "of": f"{PROXY}/{other}",
                "values": [round(value, 3) for value in values],
                "median": round(median(values), 3),
            }
            for shape in shapes
            for other in (DIRECT, NATIVE)
            if (values := ratios(runs, shape, PROXY, other))
        ],
        "expectations": [asdict(verdict) for verdict in verdicts(runs, shapes)],
    }


_MEASURES: tuple[tuple[str, Callable[[Run], float]], ...] = (
    ("mib_s", lambda run: run.mib_s),
    ("broker_cpu_s_gb", lambda run: run.broker_cpu_s_gb),
    ("service_cpu_s_gb", lambda run: run.service_cpu_s_gb),
    ("consumer_cpu_s_gb", lambda run: run.consumer_cpu_s_gb),
    ("foreign_cores", lambda run: run.foreign_cores),
)


def _variants(runs: Sequence[Run], shape: Shape) -> list[str]:
    return [v for v in (PROXY, DIRECT, NATIVE) if _of(runs, shape, v)]


def _of(runs: Sequence[Run], shape: Shape, variant: str) -> list[Run]:
    return [run for run in runs if run.shape == shape and run.variant == variant]


def _medians(runs: Sequence[Run], shape: Shape, variant: str) -> dict[str, Any]:
    wanted = _of(runs, shape, variant)
    measures = {name: round(median(map(read, wanted)), 3) for name, read in _MEASURES}
    return {"shape": shape.name, "variant": variant, **measures}


def raw_line(run: Run) -> str:
    """One run as it ends."""
    return (
        f"pass {run.pass_number}  {run.shape.name:16}  {run.variant:6}  {run.mib_s:7.1f} MiB/s"
        f"  CPU s/GB: broker {run.broker_cpu_s_gb:5.2f}  service+plugin {run.service_cpu_s_gb:5.2f}"
        f"  consumer {run.consumer_cpu_s_gb:5.2f}  foreign cores {run.foreign_cores:4.2f}"
    )


def tables(runs: Sequence[Run], shapes: Iterable[Shape]) -> str:
    """Medians, ratios and expectations for the terminal."""
    result = summary(runs, shapes)
    lines = [
        "",
        f"{'medians; CPU in s/GB':26}{'MiB/s':>8}{'broker':>9}{'service':>9}{'consumer':>10}",
    ]
    lines += [
        f"{row['shape']:18}{row['variant']:8}{row['mib_s']:8.1f}{row['broker_cpu_s_gb']:9.2f}"
        f"{row['service_cpu_s_gb']:9.2f}{row['consumer_cpu_s_gb']:10.2f}"
        for row in result["medians"]
    ]
    lines += ["", "ratios of speed, pair by pair"]
    for row in result["pair_ratios"]:
        values = " ".join(f"{value:.2f}" for value in row["values"])
        lines.append(f"{row['shape']:18}{row['of']:14} median {row['median']:.2f}   ({values})")
    lines += ["", "expected"]
    for row in result["expectations"]:
        word = "met" if row["met"] else "MISSED"
        lines.append(
            f"{row['shape']:18}{row['what']:27}{row['measured']:6.2f}  {row['expected']:7} {word}"
        )
    return "\n".join(lines)

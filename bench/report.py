"""Medians of per-pair ratios, and the tables a person reads. Pure.

A ratio compares two runs of one pass and one shape: only those saw the same state of the machine.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Self

from bench.plan import DIRECT, MIB, NATIVE, PROXY, TLS, Shape

MOST_BROKER_CPU_S_GB = 0.2
KAFKAS_OWN = "Kafka's own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is wanted of reads of one partition or of several. `of_native`: times the speed of
    Kafka's own, by MiB of a fetch.
    """

    of_direct: float
    of_native: Mapping[int, float]
    cpu_s_gb: float
    cpu_s_gb_ones: float = 0.8
    """For batches of one record."""

    @classmethod
    def of(cls, shape: Shape) -> Self:
        if shape.partitions == 1:
            return cls(of_direct=0.9, of_native={1: 1.5, 16: 6.0}, cpu_s_gb=0.7)
        return cls(of_direct=0.95, of_native={1: 2.0, 16: 6.0}, cpu_s_gb=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One read of a topic. CPU and page faults are per 1e9 bytes of values, over the whole life of
    the consumer. `user`, `system`, faults and the peak of the memory are of service and plugin.
    """

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
    service_user_s_gb: float
    service_system_s_gb: float
    service_faults_gb: int
    service_peak_mib: float

    @property
    def shape(self) -> Shape:
        return Shape(partitions=self.partitions, fetch_bytes=self.fetch_bytes)

    @property
    def gigabytes(self) -> float:
        """Values that were read, as the speed says."""
        return self.mib_s * MIB * self.fetch_ms / 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRun:
    """One turn in which nobody reads: cores that were busy. `service_`: with the plugin."""

    pass_number: int
    seconds: float
    broker_cores: float
    service_cores: float
    foreign_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is wanted of one shape, and what was measured. `native`: of Kafka's own tiered storage,
    None where the run had it not.
    """

    shape: str
    what: str
    measured: float
    wanted: str
    met: bool
    native: float | None


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
    return _last_of(values, 20)


def p99(values: Iterable[float]) -> float:
    """The 99th percentile, as `p95`."""
    return _last_of(values, 100)


def _last_of(values: Iterable[float], parts: int) -> float:
    found = tuple(values)
    return quantiles(found, n=parts, method="inclusive")[-1] if len(found) > 1 else found[0]


def verdicts(runs: Sequence[Run], shapes: Iterable[Shape], *, ones: bool = False) -> list[Verdict]:
    """What is wanted and what was measured; `ones`: each batch has one record."""
    found = []
    for shape in shapes:
        wanted = Wanted.of(shape)
        native_of_direct = ratios(runs, shape, NATIVE, DIRECT)
        if of_direct := ratios(runs, shape, PROXY, DIRECT):
            at_least = _Limit(least=wanted.of_direct)
            found.append(at_least.judge(shape, "proxy / direct", of_direct, native_of_direct))
        of_native = ratios(runs, shape, PROXY, NATIVE)
        if of_native and (least := wanted.of_native.get(shape.fetch_bytes // MIB)):
            found.append(_Limit(least=least).judge(shape, f"proxy / {KAFKAS_OWN}", of_native, ()))
        found += _of_cpu(runs, shape, wanted.cpu_s_gb_ones if ones else wanted.cpu_s_gb)
    return found


def _of_cpu(runs: Sequence[Run], shape: Shape, most: float) -> Iterator[Verdict]:
    """Kafka's own works in the broker alone. The broker's part is compared with its direct read."""
    ours, native, direct = (_of(runs, shape, variant) for variant in (PROXY, NATIVE, DIRECT))
    if not ours:
        return
    of_native = [one.broker_cpu_s_gb for one in native]
    service = [one.service_cpu_s_gb for one in ours]
    yield _Limit(most=most).judge(shape, "service + plugin CPU s/GB", service, of_native)
    broker = [one.broker_cpu_s_gb for one in ours]
    at_most = _Limit(most=MOST_BROKER_CPU_S_GB)
    yield at_most.judge(shape, "broker CPU s/GB", broker, of_native)
    if direct:
        most = round(median(one.broker_cpu_s_gb for one in direct), 3)
        yield _Limit(most=most).judge(shape, "broker CPU, of direct's", broker, of_native)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """One of both."""

    least: float | None = None
    most: float | None = None

    def judge(
        self, shape: Shape, what: str, values: Sequence[float], native: Sequence[float]
    ) -> Verdict:
        measured = median(values)
        sign, limit = (">=", self.least) if self.most is None else ("<=", self.most)
        met = (self.least is None or measured >= self.least) and (
            self.most is None or measured <= self.most
        )
        return Verdict(
            shape=shape.name,
            what=what,
            measured=measured,
            wanted=f"{sign} {limit:g}",
            met=met,
            native=median(native) if native else None,
        )


def summary(
    runs: Sequence[Run],
    shapes: Iterable[Shape],
    *,
    ones: bool = False,
    idle: Sequence[IdleRun] = (),
) -> dict[str, Any]:
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
        "wanted": [asdict(verdict) for verdict in verdicts(runs, shapes, ones=ones)],
        "less_idle": [_less_idle(runs, s, v, idle) for s in shapes for v in _variants(runs, s)]
        if idle
        else [],
    }


_MEASURES: tuple[tuple[str, Callable[[Run], float]], ...] = (
    ("mib_s", lambda run: run.mib_s),
    ("broker_cpu_s_gb", lambda run: run.broker_cpu_s_gb),
    ("service_cpu_s_gb", lambda run: run.service_cpu_s_gb),
    ("consumer_cpu_s_gb", lambda run: run.consumer_cpu_s_gb),
    ("foreign_cores", lambda run: run.foreign_cores),
    ("service_user_s_gb", lambda run: run.service_user_s_gb),
    ("service_system_s_gb", lambda run: run.service_system_s_gb),
    ("service_faults_gb", lambda run: run.service_faults_gb),
    ("service_peak_mib", lambda run: run.service_peak_mib),
)


def _variants(runs: Sequence[Run], shape: Shape) -> list[str]:
    return [v for v in (PROXY, TLS, DIRECT, NATIVE) if _of(runs, shape, v)]


def _of(runs: Sequence[Run], shape: Shape, variant: str) -> list[Run]:
    return [run for run in runs if run.shape == shape and run.variant == variant]


def _medians(runs: Sequence[Run], shape: Shape, variant: str) -> dict[str, Any]:
    wanted = _of(runs, shape, variant)
    measures = {name: round(median(map(read, wanted)), 3) for name, read in _MEASURES}
    return {"shape": shape.name, "variant": variant, **measures}


def _less_idle(
    runs: Sequence[Run], shape: Shape, variant: str, idle: Sequence[IdleRun]
) -> dict[str, Any]:
    """Medians of what a read takes more than as much time without one, in CPU s/GB."""
    found = _of(runs, shape, variant)
    broker, service = (
        median(one.broker_cores for one in idle),
        median(one.service_cores for one in idle),
    )
    seconds_gb = [run.wall_s / run.gigabytes for run in found]
    pairs = list(zip(found, seconds_gb, strict=True))
    return {
        "shape": shape.name,
        "variant": variant,
        "broker_cpu_s_gb": round(median(r.broker_cpu_s_gb - broker * s for r, s in pairs), 3),
        "service_cpu_s_gb": round(median(r.service_cpu_s_gb - service * s for r, s in pairs), 3),
        "idle_broker_s_gb": round(broker * median(seconds_gb), 3),
        "idle_service_s_gb": round(service * median(seconds_gb), 3),
    }


def idle_line(run: IdleRun) -> str:
    """One turn without a read, as it ends."""
    return (
        f"pass {run.pass_number}  nothing is read for {run.seconds:.1f} s  cores: broker "
        f"{run.broker_cores:.3f}  service+plugin {run.service_cores:.3f}  foreign "
        f"{run.foreign_cores:.2f}"
    )


def raw_line(run: Run) -> str:
    """One run as it ends."""
    return (
        f"pass {run.pass_number}  {run.shape.name:16}  {run.variant:6}  {run.mib_s:7.1f} MiB/s"
        f"  CPU s/GB: broker {run.broker_cpu_s_gb:5.2f}  service+plugin {run.service_cpu_s_gb:5.2f}"
        f"  consumer {run.consumer_cpu_s_gb:5.2f}  foreign cores {run.foreign_cores:4.2f}"
    )


def tables(
    runs: Sequence[Run],
    shapes: Iterable[Shape],
    *,
    ones: bool = False,
    idle: Sequence[IdleRun] = (),
) -> str:
    """Medians, ratios and what is wanted for the terminal."""
    result = summary(runs, shapes, ones=ones, idle=idle)
    lines = [
        "",
        f"{'medians; CPU in s/GB':26}{'MiB/s':>8}{'broker':>9}{'service':>9}{'user':>7}"
        f"{'system':>8}{'consumer':>10}{'faults/GB':>11}{'peak MiB':>10}",
    ]
    lines += [
        f"{row['shape']:18}{row['variant']:8}{row['mib_s']:8.1f}{row['broker_cpu_s_gb']:9.2f}"
        f"{row['service_cpu_s_gb']:9.2f}{row['service_user_s_gb']:7.2f}"
        f"{row['service_system_s_gb']:8.2f}{row['consumer_cpu_s_gb']:10.2f}"
        f"{row['service_faults_gb']:11.0f}{row['service_peak_mib']:10.0f}"
        for row in result["medians"]
    ]
    if idle:
        lines += ["", "CPU s/GB less what is taken while nobody reads (that in brackets)"]
    lines += [
        f"{row['shape']:18}{row['variant']:8}"
        f"broker {row['broker_cpu_s_gb']:5.2f} ({row['idle_broker_s_gb']:.2f})  "
        f"service {row['service_cpu_s_gb']:5.2f} ({row['idle_service_s_gb']:.2f})"
        for row in result["less_idle"]
    ]
    lines += ["", "ratios of speed, pair by pair"]
    for row in result["pair_ratios"]:
        values = " ".join(f"{value:.2f}" for value in row["values"])
        lines.append(f"{row['shape']:18}{row['of']:14} median {row['median']:.2f}   ({values})")
    lines += ["", f"{'wanted':45}{'measured':>8}  {'':10}{'':7}{KAFKAS_OWN:>12}"]
    for row in result["wanted"]:
        word = "met" if row["met"] else "MISSED"
        native = "-" if row["native"] is None else f"{row['native']:.2f}"
        lines.append(
            f"{row['shape']:18}{row['what']:27}{row['measured']:8.2f}  {row['wanted']:10}{word:7}"
            f"{native:>12}"
        )
    return "\n".join(lines)

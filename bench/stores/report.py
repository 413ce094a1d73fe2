"""Medians, what is wanted, and the tables a person reads, of the benchmark of stores. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from bench.stores import peers
from bench.stores.options import HDFS, S3

LEAST_OF_PEER = 2.5
LEAST_MB_S_AT_100_MS = {1: 100.0, 8: 220.0}
MOST_GETS_PER_GIB = 200.0
FIRST_RECORD_ROUND_TRIPS = 2
FIRST_RECORD_ABOVE_MS = 100.0
LEAST_OF_PLAIN_COPY = {S3: 0.9, HDFS: 0.8}
MOST_CPU_S_GB_READ = 1.5
MOST_CPU_S_GB_COPIED = {S3: 2.5}
_MB_PER_MIB = 1.048576
_WHERE = 34


class Cell(NamedTuple):
    """One kind of read."""

    store: str
    delay_ms: int
    partitions: int
    fetch_mib: int
    warm: bool

    @property
    def where(self) -> str:
        fetch = "" if self.fetch_mib == 1 else f", {self.fetch_mib} MiB"
        warm = ", warm" if self.warm else ""
        return f"{self.store} +{self.delay_ms} ms, {self.partitions} part.{fetch}{warm}"

    def peer(self) -> peers.PeerFigure | None:
        """The best of the others at the same."""
        if self.store != S3:
            return None
        return peers.best_read(self.partitions, self.delay_ms, self.fetch_mib, warm=self.warm)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun:
    """One read of a topic. CPU per 1e9 bytes of values, requests per GiB of them."""

    store: str
    delay_ms: int
    partitions: int
    fetch_mib: int
    warm: bool
    pass_number: int
    mib_s: float
    wall_s: float
    cpu_s_gb: Mapping[str, float]
    consumer_cpu_s_gb: float
    requests_per_gib: Mapping[str, float]
    store_bytes_per_byte: float
    foreign_cores: float

    @property
    def cell(self) -> Cell:
        return Cell(self.store, self.delay_ms, self.partitions, self.fetch_mib, self.warm)

    @property
    def our_cpu_s_gb(self) -> float:
        """Service and plugin."""
        return self.cpu_s_gb["service"] + self.cpu_s_gb["plugin"]

    @property
    def gets_per_gib(self) -> float:
        gets = (n for name, n in self.requests_per_gib.items() if name.startswith("GetObject"))
        return sum(gets)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRecord:
    """One cold Fetch at an offset: milliseconds to its answer."""

    store: str
    delay_ms: int
    partition: int
    offset: int
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed of one copy; CPU is ours (service and plugin) or the plain uploader's."""

    seconds: float
    mb_s: float
    cpu_s_gb: float
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPair:
    """The same files by us and by a plain uploader, one right after the other."""

    store: str
    delay_ms: int
    number: int
    ours: Speed
    plain: Speed

    @property
    def ratio(self) -> float:
        return self.ours.mb_s / self.plain.mb_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that was measured."""

    reads: tuple[ReadRun, ...] = ()
    first_records: tuple[FirstRecord, ...] = ()
    copies: tuple[CopyPair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is wanted, and what came."""

    where: str
    what: str
    measured: float
    wanted: str
    met: bool


def verdicts(figures: Figures) -> list[Verdict]:
    """Peers were measured on another machine: those rows are for orientation."""
    found: list[Verdict] = []
    for cell, runs in _cells(figures.reads):
        where = cell.where
        if cell.store == S3:
            found += _of_speed(cell, median(run.mib_s for run in runs))
            gets = median(run.gets_per_gib for run in runs)
            found.append(_at_most(where, "GetObject per GiB", gets, MOST_GETS_PER_GIB))
        cpu = median(run.our_cpu_s_gb for run in runs)
        found.append(_at_most(where, "service + plugin CPU s/GB", cpu, MOST_CPU_S_GB_READ))
    for (store, delay_ms), rows in _delays(figures.first_records):
        allowed = FIRST_RECORD_ROUND_TRIPS * delay_ms + FIRST_RECORD_ABOVE_MS
        took = median(row.ms for row in rows)
        found.append(_at_most(f"{store} +{delay_ms} ms", "first record, ms", took, allowed))
    for (store, delay_ms), pairs in _delays(figures.copies):
        ratio = median(pair.ratio for pair in pairs)
        where = f"{store} +{delay_ms} ms"
        least = LEAST_OF_PLAIN_COPY[store]
        found.append(_at_least(where, "copy / plain uploader", ratio, least))
        if most := MOST_CPU_S_GB_COPIED.get(store):
            cpu = median(pair.ours.cpu_s_gb for pair in pairs)
            found.append(_at_most(where, "copy, CPU s/GB", cpu, most))
    return found


def _of_speed(cell: Cell, mib_s: float) -> list[Verdict]:
    found = []
    least = LEAST_MB_S_AT_100_MS.get(cell.partitions)
    if cell.delay_ms == 100 and least is not None:
        found.append(_at_least(cell.where, "MB/s", mib_s * _MB_PER_MIB, least))
    best = cell.peer()
    if best is not None:
        found.append(_at_least(cell.where, "of the peer's best", mib_s / best.best, LEAST_OF_PEER))
    return found


def _at_least(where: str, what: str, measured: float, least: float) -> Verdict:
    return Verdict(
        where=where, what=what, measured=measured, wanted=f">= {least:g}", met=measured >= least
    )


def _at_most(where: str, what: str, measured: float, most: float) -> Verdict:
    return Verdict(
        where=where, what=what, measured=measured, wanted=f"<= {most:g}", met=measured <= most
    )


def _cells(runs: Iterable[ReadRun]) -> list[tuple[Cell, list[ReadRun]]]:
    cells: dict[Cell, list[ReadRun]] = {}
    for run in runs:
        cells.setdefault(run.cell, []).append(run)
    return sorted(cells.items(), key=lambda item: (item[0][0] != S3, *item[0]))


def _delays(rows: Iterable[Any]) -> list[tuple[tuple[str, int], list[Any]]]:
    found: dict[tuple[str, int], list[Any]] = {}
    for row in rows:
        found.setdefault((row.store, row.delay_ms), []).append(row)
    return sorted(found.items(), key=lambda item: (item[0][0] != S3, *item[0]))


def summary(figures: Figures) -> dict[str, Any]:
    """The medians as JSON values."""
    return {
        "reads": [_read_row(cell, runs) for cell, runs in _cells(figures.reads)],
        "first_records": [
            {
                "store": store,
                "delay_ms": delay_ms,
                "median_ms": median(row.ms for row in rows),
                "most_ms": max(row.ms for row in rows),
            }
            for (store, delay_ms), rows in _delays(figures.first_records)
        ],
        "copies": [_copy_row(where, pairs) for where, pairs in _delays(figures.copies)],
        "wanted": [asdict(verdict) for verdict in verdicts(figures)],
        "peers": {
            "of": peers.PEER,
            "reads": [asdict(row) for row in peers.READS],
            "gets_per_gib": peers.GETS_PER_GIB,
            "copy": peers.COPY,
        },
    }


def _read_row(cell: Cell, runs: Sequence[ReadRun]) -> dict[str, Any]:
    names = sorted({name for run in runs for name in run.requests_per_gib})
    peer = cell.peer()
    return {
        **cell._asdict(),
        "mib_s": round(median(run.mib_s for run in runs), 1),
        "peer_mib_s": None if peer is None else peer.mib_s,
        "peer_cpu_s_gb": None if peer is None else peer.cpu_s_gb,
        "our_cpu_s_gb": round(median(run.our_cpu_s_gb for run in runs), 2),
        "broker_cpu_s_gb": round(median(run.cpu_s_gb["broker"] for run in runs), 2),
        "requests_per_gib": {
            name: median(run.requests_per_gib.get(name, 0.0) for run in runs) for name in names
        },
        "store_bytes_per_byte": median(run.store_bytes_per_byte for run in runs),
    }


def _copy_row(where: tuple[str, int], pairs: Sequence[CopyPair]) -> dict[str, Any]:
    return {
        "store": where[0],
        "delay_ms": where[1],
        "ours_mb_s": round(median(pair.ours.mb_s for pair in pairs), 1),
        "plain_mb_s": round(median(pair.plain.mb_s for pair in pairs), 1),
        "ratios": [round(pair.ratio, 3) for pair in pairs],
        "median_ratio": round(median(pair.ratio for pair in pairs), 3),
        "ours_cpu_s_gb": round(median(pair.ours.cpu_s_gb for pair in pairs), 2),
        "plain_cpu_s_gb": round(median(pair.plain.cpu_s_gb for pair in pairs), 2),
    }


def read_line(run: ReadRun) -> str:
    """One read as it ends."""
    requests = ", ".join(f"{name} {count:g}" for name, count in run.requests_per_gib.items())
    return (
        f"pass {run.pass_number}  {run.cell.where:{_WHERE}}"
        f"  {run.mib_s:7.1f} MiB/s  CPU s/GB: service+plugin {run.our_cpu_s_gb:5.2f}"
        f"  broker {run.cpu_s_gb['broker']:5.2f}  foreign cores {run.foreign_cores:4.2f}"
        + (f"  per GiB: {requests}" if requests else "")
    )


def copy_line(pair: CopyPair) -> str:
    """One pair as it ends."""
    return (
        f"copy {pair.number}  {pair.store:4} +{pair.delay_ms:3} ms  ours {pair.ours.mb_s:6.1f} MB/s"
        f" ({pair.ours.cpu_s_gb:.2f} CPU s/GB)  plain {pair.plain.mb_s:6.1f} MB/s"
        f" ({pair.plain.cpu_s_gb:.2f})  ratio {pair.ratio:.2f}"
    )


def tables(figures: Figures) -> str:
    """Medians, peers and expectations for the terminal."""
    result = summary(figures)
    lines = [
        "",
        f"{'reads, medians':{_WHERE}}{'MiB/s':>9}{'CPU s/GB':>10}"
        f"{'peer, MiB/s':>13}{'CPU s/GB':>11}  requests per GiB",
    ]
    for row in result["reads"]:
        where = Cell(*(row[name] for name in Cell._fields)).where
        requests = ", ".join(f"{name} {n:g}" for name, n in row["requests_per_gib"].items())
        lines.append(
            f"{where:{_WHERE}}{row['mib_s']:9.1f}{row['our_cpu_s_gb']:10.2f}"
            f"{row['peer_mib_s'] or '-':>13}{row['peer_cpu_s_gb'] or '-':>11}  {requests or '-'}"
        )
    lines += ["", f"for orientation: {peers.PEER}"]
    for one in peers.READS:
        where = Cell("", one.delay_ms, one.partitions, one.fetch_mib, one.warm).where.strip()
        lines.append(f"{where:{_WHERE}}{one.mib_s:>9}{one.cpu_s_gb:>16}  {one.what}")
    lines += [f"GetObject per GiB {peers.GETS_PER_GIB}; {peers.COPY}", ""]
    for row in result["first_records"]:
        where = f"{row['store']} +{row['delay_ms']} ms"
        lines.append(
            f"{where:24}first record of a cold read: median {row['median_ms']:.0f} ms,"
            f" most {row['most_ms']:.0f} ms"
        )
    for row in result["copies"]:
        where = f"{row['store']} +{row['delay_ms']} ms"
        ratios = " ".join(f"{ratio:.2f}" for ratio in row["ratios"])
        lines.append(
            f"{where:24}copy {row['ours_mb_s']:.0f} MB/s, plain {row['plain_mb_s']:.0f} MB/s,"
            f" ratio {row['median_ratio']:.2f} ({ratios})"
        )
    lines += ["", "wanted; the peer was measured elsewhere"]
    for row in result["wanted"]:
        word = "met" if row["met"] else "MISSED"
        lines.append(
            f"{row['where']:{_WHERE}}{row['what']:27}{row['measured']:8.2f}"
            f"  {row['wanted']:8} {word}"
        )
    return "\n".join(lines)

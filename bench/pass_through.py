"""`python -m bench.pass_through`: what the proxy costs where it only passes bytes on.

Java's perf tools consume and produce the same local data through the proxy and directly, by turns.
No topic is tiered, so nothing is copied or read remotely meanwhile. Of the service, the processor
time by user and system, page faults and peak memory are measured over the life of the tool; those
of its workers are added (`--workers`). With `--tls` there are turns with TLS between tool and proxy
as well, and the service is restarted before each turn through the proxy.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from statistics import median
from typing import Any, Self

from bench.command import document, measure, parser, say, words
from bench.consumer import read_topic
from bench.machine import load_in_words
from bench.plan import DIRECT, MIB, PROXY, TLS, order_of
from bench.processes import (
    BenchError,
    TreeMark,
    machine_busy_seconds,
    peak_mib,
    reset_peak,
    run_measured,
    wait_idle,
)
from bench.production import production_sandbox, workers_override
from bench.read import restart_service
from bench.tls import ProxyTls
from bench.topics import make_topic
from rlm_sandbox.sandbox import Sandbox

CONSUME = "consume"
CONSUME_ONES = "consume_ones"
PRODUCE = "produce"
PARTS = (CONSUME, CONSUME_ONES, PRODUCE)
_KIB = 1024
_PARTITIONS = 8
_SEGMENT_MIB = 1024
_STEADY_BYTES_S = 50_000_000
_OPTIONS = ("rounds", "size_mib", "parts", "workers", "tls")
_LATENCIES = re.compile(
    r"([\d.,]+) ms avg latency.*?(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th", re.S
)
_CPU = "seconds of the service per 1e9 bytes of values, over the life of the tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One part with its sizes; `rate_bytes_s` of producers, None = as fast as it goes."""

    part: str
    record_bytes: int
    fetch_bytes: int | None = None
    rate_bytes_s: int | None = None

    @property
    def name(self) -> str:
        """Such as `consume 16 MiB` or `produce 100 B at 50 MB/s`."""
        if self.fetch_bytes is not None:
            return f"{self.part} {self.fetch_bytes // MIB} MiB"
        rate = "" if self.rate_bytes_s is None else f" at {self.rate_bytes_s / 1e6:.0f} MB/s"
        return f"{self.part} {self.record_bytes} B{rate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRun:
    """One tool's run. Latencies are those of ProducerPerformance, None for consumers."""

    case: str
    variant: str
    round_number: int
    mb_s: float
    wall_s: float
    service_user_s_gb: float
    service_system_s_gb: float
    faults_gb: int
    peak_mib: float
    avg_ms: float | None
    """Of all records; the percentiles are whole milliseconds, so it says smaller differences."""
    p50_ms: int | None
    p99_ms: int | None
    foreign_cores: float
    load: str

    @property
    def service_s_gb(self) -> float:
        return self.service_user_s_gb + self.service_system_s_gb


def cases(parts: Sequence[str], *, quick: bool) -> tuple[Case, ...]:
    """What is measured, in order; a smoke takes the first case of each part."""
    found = {
        CONSUME: tuple(
            Case(part=CONSUME, record_bytes=_KIB, fetch_bytes=mib * MIB) for mib in (1, 16)
        ),
        CONSUME_ONES: (Case(part=CONSUME_ONES, record_bytes=_KIB, fetch_bytes=MIB),),
        PRODUCE: tuple(
            Case(part=PRODUCE, record_bytes=size_bytes, rate_bytes_s=rate)
            for rate in (_STEADY_BYTES_S, None)
            for size_bytes in (_KIB, 100, 100 * _KIB)
        ),
    }
    return tuple(case for part in parts for case in found[part][: 1 if quick else None])


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _run(given, say)
        return list(summary(runs)), document(given, "pass-through", _OPTIONS, runs, cpu=_CPU)

    return measure(given, "pass-through", run)


def summary(runs: Sequence[PassRun]) -> Iterator[str]:
    """A line for each case and way through the proxy: medians, and the speed by that of the direct
    run of the same round.
    """
    for case, variant in dict.fromkeys((run.case, run.variant) for run in runs):
        if variant == DIRECT:
            continue
        ours = [run for run in runs if (run.case, run.variant) == (case, variant)]
        direct = [run for run in runs if (run.case, run.variant) == (case, DIRECT)]
        beside = {run.round_number: run for run in direct}
        pairs = [(run, beside[run.round_number]) for run in ours]
        of_direct = median(run.mb_s / other.mb_s for run, other in pairs)
        way = "" if variant == PROXY else f" ({variant})"
        yield (
            f"{case}{way}: {median(run.service_s_gb for run in ours):.2f} CPU s/GB "
            f"({median(starmap(less_idle, pairs)):.2f} less what it takes while idle), "
            f"{of_direct:.2f} of direct{_added(pairs)}"
        )


def less_idle(ours: PassRun, direct: PassRun) -> float:
    """CPU s/GB of the service without what it takes in the same time while the bytes go past it."""
    return ours.service_s_gb - direct.service_s_gb * ours.wall_s / direct.wall_s


def _added(pairs: Sequence[tuple[PassRun, PassRun]]) -> str:
    """The latencies of producers: the medians of both, and that of the differences."""
    words_of = []
    for name in ("avg_ms", "p50_ms", "p99_ms"):
        found = [(getattr(run, name), getattr(other, name)) for run, other in pairs]
        if all(None not in pair for pair in found):
            ours, direct = (median(values) for values in zip(*found, strict=True))
            added = median(one - other for one, other in found)
            words_of.append(f", {name} {ours:g} by {direct:g} ({added:+.3g})")
    return "".join(words_of)


def _run(given: argparse.Namespace, progress: Callable[[str], None]) -> list[PassRun]:
    rounds, size_mib = (1, 16) if given.quick else (given.rounds, given.size_mib)
    chosen = cases(given.parts, quick=given.quick)
    runs: list[PassRun] = []
    workers = workers_override(given.workers)
    with production_sandbox(progress, overrides=(workers,)) as sandbox:
        _fill(sandbox, {case.part for case in chosen}, size_mib, progress)
        tls = ProxyTls(sandbox) if given.tls else None
        variants = (PROXY, DIRECT) if tls is None else (PROXY, TLS, DIRECT)
        for number in range(rounds):
            for case in chosen:
                for variant in order_of(variants, number):
                    if tls is not None and variant != DIRECT:
                        tls.switch(on=variant == TLS)
                        restart_service(sandbox)
                    runs.append(_measured(sandbox, case, variant, number, size_mib, tls))
                    progress(_line(runs[-1]))
    return runs


def _fill(
    sandbox: Sandbox, parts: set[str], size_mib: int, progress: Callable[[str], None]
) -> None:
    """The topics; those to be consumed have their records."""
    for part in sorted(parts):
        make_topic(sandbox, part, _PARTITIONS, _SEGMENT_MIB)
        if part != PRODUCE:
            progress(f"producing {_size_mib(part, size_mib)} MiB to {part}")
            batch = ("batch.size=1",) if part == CONSUME_ONES else ()
            records = _size_mib(part, size_mib) * MIB // _KIB
            run_measured(
                _producer(sandbox, sandbox.direct_bootstrap, part, records, _KIB, -1, *batch)
            )


def _size_mib(part: str, size_mib: int) -> int:
    """Batches of one are produced slowly."""
    return size_mib if part == CONSUME else max(size_mib // 4, 1)


def _producer(
    sandbox: Sandbox,
    bootstrap: str,
    topic: str,
    records: int,
    record_bytes: int,
    records_s: int,
    *properties: str,
) -> list[str]:
    return sandbox.dist.java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic),
        *("--num-records", str(records)),
        *("--record-size", str(record_bytes)),
        *("--throughput", str(records_s)),
        *("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all", *properties),
        jvm=("-Xmx512m",),
    )


def _measured(
    sandbox: Sandbox, case: Case, variant: str, number: int, size_mib: int, tls: ProxyTls | None
) -> PassRun:
    pid = sandbox.json["brokers"][0]["rlm_pid"]
    wait_idle(pid)
    bootstrap = sandbox.direct_bootstrap if variant == DIRECT else sandbox.bootstrap
    properties = tls.client_properties() if tls is not None and variant == TLS else None
    records = _size_mib(case.part, size_mib) * MIB // case.record_bytes
    if case.part == PRODUCE:
        records = size_mib * MIB // case.record_bytes
    reset_peak(pid)
    before, busy_s = TreeMark.of(pid), machine_busy_seconds()
    took = _consumed if case.fetch_bytes is not None else _produced
    mb_s, wall_s, latencies = took(sandbox, case, bootstrap, records, properties)
    after, busy_s = TreeMark.of(pid), machine_busy_seconds() - busy_s
    gigabytes = records * case.record_bytes / 1e9
    user_s, system_s = after.user_s - before.user_s, after.system_s - before.system_s
    return PassRun(
        case=case.name,
        variant=variant,
        round_number=number,
        mb_s=round(mb_s, 1),
        wall_s=round(wall_s, 2),
        service_user_s_gb=round(user_s / gigabytes, 3),
        service_system_s_gb=round(system_s / gigabytes, 3),
        faults_gb=round((after.faults - before.faults) / gigabytes),
        peak_mib=peak_mib(pid),
        avg_ms=None if latencies is None else latencies.avg_ms,
        p50_ms=None if latencies is None else latencies.p50_ms,
        p99_ms=None if latencies is None else latencies.p99_ms,
        foreign_cores=round(max(0.0, busy_s - user_s - system_s) / wall_s, 2),
        load=load_in_words(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Of a run of ProducerPerformance, in ms."""

    avg_ms: float
    p50_ms: int
    p99_ms: int

    @classmethod
    def parse(cls, output: str) -> Self:
        """Of its last line; BenchError where that has none."""
        found = _LATENCIES.search(output.strip().rpartition("\n")[2])
        if found is None:
            raise BenchError(f"ProducerPerformance printed no result: {output[-500:]!r}")
        # The point is that of the language of the machine.
        avg_ms = float(found[1].replace(",", "."))
        return cls(avg_ms=avg_ms, p50_ms=int(found[2]), p99_ms=int(found[4]))


_Took = tuple[float, float, Latencies | None]
"""MB/s of values, seconds of the whole process, latencies of a producer."""


def _consumed(
    sandbox: Sandbox, case: Case, bootstrap: str, records: int, properties: Path | None
) -> _Took:
    read = read_topic(
        sandbox.dist,
        bootstrap=bootstrap,
        topic=case.part,
        records=records,
        fetch_bytes=case.fetch_bytes or MIB,
        properties=properties,
    )
    return read.line.fetch_mib_s * MIB / 1e6, read.process.wall_s, None


def _produced(
    sandbox: Sandbox, case: Case, bootstrap: str, records: int, properties: Path | None
) -> _Took:
    records_s = -1 if case.rate_bytes_s is None else case.rate_bytes_s // case.record_bytes
    argv = _producer(sandbox, bootstrap, case.part, records, case.record_bytes, records_s)
    if properties is not None:
        argv += ["--producer.config", str(properties)]
    ran = run_measured(argv)
    latencies = Latencies.parse(ran.output)
    rate = re.search(r"\(([\d.]+) MB/sec\)", ran.output.strip().rpartition("\n")[2])
    if rate is None:
        raise BenchError(f"ProducerPerformance printed no speed: {ran.output[-500:]!r}")
    return float(rate[1]) * MIB / 1e6, ran.wall_s, latencies


def _line(run: PassRun) -> str:
    latency = (
        ""
        if run.avg_ms is None
        else f", avg {run.avg_ms} ms, p50 {run.p50_ms} ms, p99 {run.p99_ms} ms"
    )
    return (
        f"{run.round_number} {run.case:26} {run.variant:6} {run.mb_s:7.1f} MB/s, service "
        f"{run.service_user_s_gb:.2f} + {run.service_system_s_gb:.2f} CPU s/GB, "
        f"{run.faults_gb:>7} faults/GB, peak {run.peak_mib:.0f} MiB{latency}, load {run.load}"
    )


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.pass_through", __doc__)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--size-mib", type=int, default=512, help="values of each run")
    made.add_argument("--parts", type=words(PARTS), default=PARTS, help=",".join(PARTS))
    made.add_argument("--workers", type=int, default=0, help="proxy.workers of the service")
    made.add_argument("--tls", action="store_true", help="turns with TLS to the proxy as well")
    return made


if __name__ == "__main__":
    raise SystemExit(main())

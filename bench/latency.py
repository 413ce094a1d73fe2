"""`python -m bench.latency`: how long records take to be acknowledged while a backlog is copied.

Two producers send one record after the other all the time, one through the proxy to an enabled
topic, the other straight to the broker: what the second one loses is the machine's doing. Meanwhile
one filled topic after the other is enabled, and its backlog is copied with the settings that a
service has by default. Idle windows and copies take turns. Each copy is compared with the idle
windows before and after it, taken together.

A copy's window is that from the first file in the store to the last segment_copied of the service's
log. The service begins a copy at its next interval, up to 30 s after the topic was enabled.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.command import document, measure, parser, say
from bench.copying import copy_backlog
from bench.machine import load_in_words
from bench.plan import MIB
from bench.processes import BenchError
from bench.producer import TimedProducer
from bench.production import production_sandbox, workers_override
from bench.report import p95, p99
from bench.topics import enable, make_filled, make_topic
from rlm_sandbox.sandbox import Sandbox

IDLE = "idle"
COPYING = "copying"
MOST_RATIO = 1.25
_PRODUCED = "latency"
_TWIN = "latency-direct"
_PRODUCED_SEGMENT_MIB = 1024
"""Large, so that nothing of these topics is copied."""
_WARM_S = 5.0
_SETTLE_S = 2.0
_IDLE_S = 8.0
_LEAST_ACKS = 20
_LEAST_ACKS_QUICK = 2
_WATCH_S = 0.1
"""Ten looks a second do not take the processor from the producers."""
_OPTIONS = ("size_mib", "segment_mib", "partitions", "rounds", "workers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One idle time (`mb_s` None) or one copy; `direct_`: the producer past the proxy. Times of
    acknowledgement in ms.
    """

    phase: str
    number: int
    seconds: float
    mb_s: float | None
    records: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    direct_p50_ms: float
    direct_p95_ms: float
    direct_p99_ms: float
    load: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRatio:
    """What a copy made of the times of acknowledgement: those in it by those beside it."""

    number: int
    p50: float
    p95: float
    direct_p50: float
    direct_p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Producers:
    proxied: TimedProducer
    direct: TimedProducer
    least_acks: int

    def took_ms(self, spans: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
        """Times of acknowledgement in these spans: through the proxy, and direct."""
        found = tuple(
            [took_s * 1000 for start_s, end_s in spans for _, took_s in one.between(start_s, end_s)]
            for one in (self.proxied, self.direct)
        )
        if self.proxied.failures or self.direct.failures:
            raise BenchError(f"not produced: {[*self.proxied.failures, *self.direct.failures]}")
        if min(map(len, found)) < self.least_acks:
            raise BenchError(f"{min(map(len, found))} records within {spans}: copy more data")
        return found[0], found[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """A window's time, in seconds since the epoch; `mb_s` of a copy."""

    start_s: float
    end_s: float
    load: str
    mb_s: float | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        return self.start_s, self.end_s


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        windows, ratios = _run(given, say)
        result = document(given, "latency", _OPTIONS, windows)
        result["ratios"] = [asdict(one) for one in ratios]
        lines = [_line(one) for one in windows]
        return [*lines, *_summary(ratios)], result

    return measure(given, "latency", run)


def _run(
    given: argparse.Namespace, progress: Callable[[str], None]
) -> tuple[list[Window], list[CopyRatio]]:
    rounds, size_mib, segment_mib = given.rounds, given.size_mib, given.segment_mib
    if given.quick:
        rounds, size_mib, segment_mib = 1, 64, 1
    workers = workers_override(given.workers)
    with production_sandbox(progress, overrides=(workers,)) as sandbox:
        backlogs = {}
        for number in range(rounds):
            progress(f"producing backlog {number}: {size_mib} MiB")
            topic = f"backlog-{number}"
            backlogs[topic] = make_filled(sandbox, topic, given.partitions, segment_mib, size_mib)
        for topic in (_PRODUCED, _TWIN):
            make_topic(sandbox, topic, 1, _PRODUCED_SEGMENT_MIB)
        enable(sandbox, _PRODUCED)
        with (
            TimedProducer(sandbox.bootstrap, _PRODUCED) as proxied,
            TimedProducer(sandbox.direct_bootstrap, _TWIN) as direct,
        ):
            time.sleep(_WARM_S)
            idle, copies = [_idle()], []
            for topic, closed in backlogs.items():
                copies.append(_copy(sandbox, topic, closed, closed * segment_mib * MIB))
                progress(f"{topic}: {copies[-1].mb_s} MB/s, load {copies[-1].load}")
                idle.append(_idle())
            least = _LEAST_ACKS_QUICK if given.quick else _LEAST_ACKS
            producers = _Producers(proxied=proxied, direct=direct, least_acks=least)
            return _windows(producers, idle, copies), _ratios(producers, idle, copies)


def _idle() -> _Span:
    time.sleep(_SETTLE_S)
    start_s = time.time()
    time.sleep(_IDLE_S)
    return _Span(start_s=start_s, end_s=time.time(), load=load_in_words())


def _copy(sandbox: Sandbox, topic: str, closed: int, size_bytes: int) -> _Span:
    times = copy_backlog(sandbox, topic, closed, every_s=_WATCH_S)
    return _Span(
        start_s=times.first_s,
        end_s=times.ended_s,
        load=load_in_words(),
        mb_s=round(size_bytes / (times.ended_s - times.first_s) / 1e6, 1),
    )


def _windows(producers: _Producers, idle: Sequence[_Span], copies: Sequence[_Span]) -> list[Window]:
    """In the order of time."""
    spans = sorted((*idle, *copies), key=lambda span: span.start_s)
    return [_window(producers, number, span) for number, span in enumerate(spans)]


def _window(producers: _Producers, number: int, span: _Span) -> Window:
    proxied_ms, direct_ms = producers.took_ms([span.bounds])
    return Window(
        phase=IDLE if span.mb_s is None else COPYING,
        number=number,
        seconds=round(span.end_s - span.start_s, 2),
        mb_s=span.mb_s,
        records=len(proxied_ms),
        p50_ms=round(median(proxied_ms), 3),
        p95_ms=round(p95(proxied_ms), 3),
        p99_ms=round(p99(proxied_ms), 3),
        direct_p50_ms=round(median(direct_ms), 3),
        direct_p95_ms=round(p95(direct_ms), 3),
        direct_p99_ms=round(p99(direct_ms), 3),
        load=span.load,
    )


def _ratios(
    producers: _Producers, idle: Sequence[_Span], copies: Sequence[_Span]
) -> list[CopyRatio]:
    found = []
    for number, copy in enumerate(copies):
        beside = [one.bounds for one in idle[number : number + 2]]
        proxied, direct = (
            (median(in_it) / median(others), p95(in_it) / p95(others))
            for in_it, others in zip(
                producers.took_ms([copy.bounds]), producers.took_ms(beside), strict=True
            )
        )
        found.append(
            CopyRatio(
                number=number,
                p50=round(proxied[0], 3),
                p95=round(proxied[1], 3),
                direct_p50=round(direct[0], 3),
                direct_p95=round(direct[1], 3),
            )
        )
    return found


def _summary(ratios: Sequence[CopyRatio]) -> list[str]:
    values = " ".join(f"{one.p95:.2f}" for one in ratios)
    return [
        f"copying / idle, p95 through the proxy: {median(one.p95 for one in ratios):.2f}, "
        f"the median of {values}; at most {MOST_RATIO} wanted",
        f"p50 {median(one.p50 for one in ratios):.2f}; past the proxy p50 "
        f"{median(one.direct_p50 for one in ratios):.2f}, "
        f"p95 {median(one.direct_p95 for one in ratios):.2f}",
    ]


def _line(one: Window) -> str:
    copied = "" if one.mb_s is None else f", {one.mb_s:.1f} MB/s copied"
    return (
        f"{one.number:>2} {one.phase:8} {one.seconds:5.1f} s, {one.records:>5} records, "
        f"p50 {one.p50_ms:6.2f} ms, p95 {one.p95_ms:7.2f}, p99 {one.p99_ms:7.2f}; direct "
        f"p50 {one.direct_p50_ms:6.2f}, p95 {one.direct_p95_ms:7.2f}, "
        f"p99 {one.direct_p99_ms:7.2f}{copied}, load {one.load}"
    )


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.latency", __doc__)
    made.add_argument("--rounds", type=int, default=5, help="copies")
    made.add_argument("--size-mib", type=int, default=1024, help="values of each backlog")
    made.add_argument("--segment-mib", type=int, default=16, help="segment.bytes of the backlogs")
    made.add_argument("--partitions", type=int, default=8, help="of each backlog")
    made.add_argument("--workers", type=int, default=0, help="proxy.workers of the service")
    return made


if __name__ == "__main__":
    raise SystemExit(main())

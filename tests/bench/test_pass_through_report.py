"""What ProducerPerformance prints is understood; a round's direct run is what its others are by."""

import pytest

from bench.pass_through import Latencies, PassRun, less_idle, summary
from bench.plan import DIRECT, PROXY
from bench.processes import BenchError

PRINTED = """\
48829 records sent, 9765.8 records/sec (9.54 MB/sec), 1.0 ms avg latency, 9.0 ms max latency.
262144 records sent, 48827.3 records/sec (47.68 MB/sec), 12.34 ms avg latency, 401.00 ms max \
latency, 2 ms 50th, 60 ms 95th, 193 ms 99th, 300 ms 99.9th.
"""


def test_the_latencies_of_a_producer_are_those_of_its_last_line() -> None:
    expected = Latencies(avg_ms=12.34, p50_ms=2, p99_ms=193)
    assert Latencies.parse(PRINTED) == expected
    assert Latencies.parse(PRINTED.replace("12.34", "12,34")) == expected


@pytest.mark.parametrize("output", ["", PRINTED.splitlines()[0], "java.lang.Exception"])
def test_a_producer_without_a_result_is_an_error(output: str) -> None:
    with pytest.raises(BenchError, match="no result"):
        Latencies.parse(output)


def test_h32_runs_are_compared_with_the_direct_one_of_their_round() -> None:
    runs = [
        one(PROXY, 0, mb_s=90, cpu=0.6, avg_ms=2.4, wall_s=3.0),
        one(DIRECT, 0, mb_s=100, cpu=0.1, avg_ms=2.0, wall_s=2.0),
        one(PROXY, 1, mb_s=9, cpu=0.6, avg_ms=9.4, wall_s=3.0),  # a slow minute for both
        one(DIRECT, 1, mb_s=10, cpu=0.1, avg_ms=9.0, wall_s=2.0),
    ]
    # In 3 s the service takes half as much again, while idle, as in the direct tool's 2 s.
    assert less_idle(runs[0], runs[1]) == pytest.approx(0.45)
    [line] = summary(runs)
    assert "0.60 CPU s/GB (0.45 less what it takes while idle), 0.90 of direct" in line
    assert "avg_ms 5.9 by 5.5 (+0.4)" in line
    assert "p50_ms 2 by 2 (+0)" in line


def test_the_latency_of_a_consumer_is_not_known() -> None:
    runs = [one(variant, 0, mb_s=1, cpu=0.1, avg_ms=None, wall_s=1) for variant in (PROXY, DIRECT)]
    [line] = summary(runs)
    assert "_ms" not in line


def one(
    variant: str, number: int, *, mb_s: float, cpu: float, avg_ms: float | None, wall_s: float
) -> PassRun:
    return PassRun(
        case="produce 1024 B",
        variant=variant,
        round_number=number,
        mb_s=mb_s,
        wall_s=wall_s,
        service_user_s_gb=cpu / 2,
        service_system_s_gb=cpu / 2,
        faults_gb=0,
        peak_mib=90.0,
        avg_ms=avg_ms,
        p50_ms=None if avg_ms is None else 2,
        p99_ms=None if avg_ms is None else 9,
        foreign_cores=0.0,
        load="0",
    )

"""Ratios are of pairs, medians are of ratios, and what is wanted can be missed."""

from dataclasses import replace

import pytest

from bench.plan import DIRECT, MIB, NATIVE, PROXY, VARIANTS, Options, Shape, order_of
from bench.report import (
    IdleRun,
    Run,
    idle_line,
    p95,
    p99,
    ratios,
    raw_line,
    summary,
    tables,
    verdicts,
)

SHAPE = Shape(partitions=8, fetch_bytes=MIB)


def run(number: int, variant: str, mib_s: float, *, service: float = 0.5, fetch: int = MIB) -> Run:
    return Run(
        pass_number=number,
        variant=variant,
        partitions=8,
        fetch_bytes=fetch,
        mib_s=mib_s,
        fetch_ms=1000,
        wall_s=2.5,
        broker_cpu_s_gb=0.4,
        service_cpu_s_gb=service,
        consumer_cpu_s_gb=3.0,
        foreign_cores=0.1,
        service_user_s_gb=service / 4,
        service_system_s_gb=service * 3 / 4,
        service_faults_gb=1_000,
        service_peak_mib=300.0,
    )


def test_h32_ratios_compare_runs_of_one_round_only() -> None:
    runs = [
        run(1, PROXY, 100),
        run(1, DIRECT, 100),
        run(2, PROXY, 10),  # a slow minute for both
        run(2, DIRECT, 20),
        run(3, PROXY, 300),
        run(4, DIRECT, 999),
    ]
    assert ratios(runs, SHAPE, PROXY, DIRECT) == [1.0, 0.5]


def test_h32_every_variant_is_first_second_and_last_equally_often() -> None:
    orders = [order_of(VARIANTS, number) for number in range(6)]
    for position in range(3):
        assert sorted(order[position] for order in orders) == sorted(VARIANTS * 2)


def test_what_is_wanted_is_met_and_missed_by_the_median() -> None:
    runs = [
        *(run(n, PROXY, speed, service=0.6) for n, speed in enumerate((94, 96, 500))),
        *(run(n, DIRECT, 100) for n in range(3)),
        *(run(n, NATIVE, 70) for n in range(3)),
    ]
    found = {verdict.what: verdict for verdict in verdicts(runs, [SHAPE])}
    assert found["proxy / direct"].met
    assert (found["proxy / direct"].measured, found["proxy / direct"].native) == (0.96, 0.7)
    assert not found["proxy / Kafka's own"].met
    cpu = found["service + plugin CPU s/GB"]
    assert (cpu.met, cpu.wanted, cpu.native) == (False, "<= 0.5", 0.4)
    assert not found["broker CPU s/GB"].met
    assert found["broker CPU, of direct's"].met


@pytest.mark.parametrize(
    ("partitions", "mib", "ones", "wanted"),
    [
        (8, 1, False, [">= 0.95", ">= 2", "<= 0.5"]),
        (8, 16, False, [">= 0.95", ">= 6", "<= 0.5"]),
        (1, 1, False, [">= 0.9", ">= 1.5", "<= 0.7"]),
        (1, 16, False, [">= 0.9", ">= 6", "<= 0.7"]),
        (1, 50, False, [">= 0.9", "<= 0.7"]),
        (8, 1, True, [">= 0.95", ">= 2", "<= 0.8"]),
    ],
)
def test_what_is_wanted_depends_on_the_shape(
    partitions: int, mib: int, ones: bool, wanted: list[str]
) -> None:
    shape = Shape(partitions=partitions, fetch_bytes=mib * MIB)
    runs = [
        replace(run(1, variant, 100, fetch=mib * MIB), partitions=partitions)
        for variant in VARIANTS
    ]
    found = [verdict.wanted for verdict in verdicts(runs, [shape], ones=ones)]
    assert found == [*wanted, "<= 0.2", "<= 0.4"]


def test_the_tables_show_all_pairs_and_say_what_was_missed() -> None:
    runs = [run(1, PROXY, 50), run(1, DIRECT, 100), run(2, PROXY, 60), run(2, DIRECT, 100)]
    text = tables(runs, [SHAPE])
    assert "median 0.55   (0.50 0.60)" in text
    assert "MISSED" in text
    assert "0.12    0.38      3.00       1000       300" in text
    assert summary(runs, [SHAPE])["pair_ratios"][0]["values"] == [0.5, 0.6]


def test_a_run_is_printed_with_all_its_values() -> None:
    line = raw_line(run(3, NATIVE, 123.4))
    assert "pass 3" in line
    assert "123.4 MiB/s" in line


def test_one_partition_gets_half_of_the_data() -> None:
    options = Options.full()
    assert options.records(8) == 1 << 20
    assert options.records(1) == 1 << 19
    assert len(options.shapes) == 4
    assert len(list(options.topics())) == 6


def test_p95_is_between_the_values_beside_it() -> None:
    assert p95(range(101)) == 95
    assert p95([1.0, 2.0]) == pytest.approx(1.95)
    assert p95([3.0]) == 3
    assert p99(range(101)) == 99


def test_what_is_taken_while_nobody_reads_is_subtracted_by_the_time_of_each_read() -> None:
    # 1,000 MiB/s for a second; the consumer's process lives for 2.5 s, which is what counts.
    runs = [run(1, PROXY, 1_000), run(1, DIRECT, 500)]
    idle = [idle_run(0.02, 0.05), idle_run(0.04, 0.01), idle_run(0.06, 0.09)]
    assert runs[0].gigabytes == pytest.approx(1.048576)
    ours, direct = summary(runs, [SHAPE], idle=idle)["less_idle"]
    assert (ours["variant"], direct["variant"]) == (PROXY, DIRECT)
    assert (ours["idle_broker_s_gb"], ours["idle_service_s_gb"]) == (0.095, 0.119)
    assert (ours["broker_cpu_s_gb"], ours["service_cpu_s_gb"]) == (0.305, 0.381)
    assert direct["broker_cpu_s_gb"] == 0.209
    text = tables(runs, [SHAPE], idle=idle)
    assert "proxy   broker  0.30 (0.10)  service  0.38 (0.12)" in text
    assert "broker 0.020" in idle_line(idle[0])


def test_without_a_turn_in_which_nobody_reads_nothing_is_subtracted() -> None:
    runs = [run(1, PROXY, 1_000)]
    assert summary(runs, [SHAPE])["less_idle"] == []
    assert "nobody reads" not in tables(runs, [SHAPE])


def idle_run(broker: float, service: float) -> IdleRun:
    return IdleRun(
        pass_number=1,
        seconds=5.0,
        broker_cores=broker,
        service_cores=service,
        foreign_cores=0.0,
    )

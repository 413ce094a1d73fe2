"""Medians are of cells, ratios of pairs of one pass, and expectations can be missed."""

import dataclasses

import pytest

from bench.spark.__main__ import main
from bench.spark.options import DEFAULT, EXPORT, OURS, SUM, TUNED, Cell, SparkOptions, Topic
from bench.spark.report import Run, outcomes, run_line, summary, tables


def run(variant: str, wall_s: float, *, number: int = 1, task: str = SUM, size: int = 100) -> Run:
    return Run(
        cores=1,
        record_bytes=size,
        codec="lz4",
        task=task,
        variant=variant,
        pass_number=number,
        wall_s=wall_s,
        records=10,
        value_bytes=1000,
        cpu_s={"spark": 2 * wall_s, "broker": 0.5, "service": 0.25, "plugin": 0.25},
        foreign_cores=0.1,
    )


RUNS = [
    run(variant, wall_s, number=number)
    for number, walls in ((1, (1.0, 3.0, 4.0)), (2, (2.0, 2.0, 8.0)), (3, (1.0, 2.0, 2.0)))
    for variant, wall_s in zip((OURS, TUNED, DEFAULT), walls, strict=True)
]


def test_ratios_are_medians_of_pairs_not_ratios_of_medians() -> None:
    [one] = outcomes(RUNS)
    assert one.pairs == {TUNED: (3.0, 1.0, 2.0), DEFAULT: (4.0, 4.0, 2.0)}
    assert one.ratios == {TUNED: 2.0, DEFAULT: 4.0}
    assert one.wall_s == {OURS: 1.0, TUNED: 2.0, DEFAULT: 4.0}
    assert one.all_cpu_s[OURS] == 3.0
    assert one.met


@pytest.mark.parametrize(
    ("task", "size", "ratio", "met"),
    [
        (SUM, 100, 1.49, False),
        (SUM, 100, 1.5, True),
        (SUM, 1024, 0.99, False),
        (SUM, 1024, 1.0, True),
        (EXPORT, 100, 2.9, False),
        (EXPORT, 1024, 3.0, True),
    ],
)
def test_expectations_can_be_missed(task: str, size: int, ratio: float, *, met: bool) -> None:
    pair = [run(OURS, 1.0, task=task, size=size), run(TUNED, ratio, task=task, size=size)]
    peers = [*pair, run(DEFAULT, 9.0, task=task, size=size)] if task == SUM else pair
    [one] = outcomes(peers)
    assert one.met is met
    assert ("MISSED" in tables(peers)) is not met
    assert summary(peers)[0]["met"] is met


def test_what_is_printed_names_cell_and_variants() -> None:
    assert "local[1]" in run_line(RUNS[0])
    assert OURS in run_line(RUNS[0])
    head, row = tables(RUNS).splitlines()
    assert "default/ours" in head
    assert "2.00x" in row and "4.00x" in row


def test_each_variant_is_first_equally_often_and_full_is_what_the_issue_asks() -> None:
    options = SparkOptions.full()
    cells = [cell for cores in options.cores for cell in options.cells(cores)]
    assert len(cells) == 2 * 3 * 2 * 3
    assert len(set(cells)) == len(cells)
    assert options.size_mib >= 1024 and options.passes >= 5
    cell = Cell(cores=1, topic=Topic(record_bytes=100, codec="none"), task=SUM)
    assert {cell.order(number)[0] for number in range(3)} == {OURS, TUNED, DEFAULT}
    assert {cell.order(number)[0] for number in range(2)} == {OURS, TUNED}
    assert dataclasses.replace(cell, task=EXPORT).order(1) == (TUNED, OURS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--codecs", "gzip"], "gzip"), (["--cores", "0"], "positive"), (["--tasks", "x"], "x")],
)
def test_wrong_options_are_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err

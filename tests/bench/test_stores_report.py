"""Medians are of cells, ratios of pairs, what is wanted can be missed, and peers stand beside."""

import dataclasses

import pytest

from bench.stores.__main__ import main
from bench.stores.options import HDFS, S3, StoreOptions, order_of_delays
from bench.stores.peers import best_read
from bench.stores.report import (
    CopyPair,
    Figures,
    FirstRecord,
    ReadRun,
    Speed,
    copy_line,
    read_line,
    summary,
    tables,
    verdicts,
)


def read(
    mib_s: float,
    *,
    store: str = S3,
    delay_ms: int = 100,
    partitions: int = 8,
    gets: float = 150,
    fetch_mib: int = 1,
    warm: bool = False,
) -> ReadRun:
    return ReadRun(
        store=store,
        delay_ms=delay_ms,
        partitions=partitions,
        fetch_mib=fetch_mib,
        warm=warm,
        pass_number=1,
        mib_s=mib_s,
        wall_s=2.0,
        cpu_s_gb={"broker": 0.4, "service": 1.0, "plugin": 2.0},
        consumer_cpu_s_gb=3.0,
        requests_per_gib={"GetObject log": gets - 20, "GetObject indexes": 20, "HeadObject": 500},
        store_bytes_per_byte=1.01,
        foreign_cores=0.1,
    )


def speed(mb_s: float) -> Speed:
    return Speed(seconds=1.0, mb_s=mb_s, cpu_s_gb=1.0, requests={"PutObject log": 1})


def first(ms: float, delay_ms: int) -> FirstRecord:
    return FirstRecord(store=S3, delay_ms=delay_ms, partition=0, offset=5, ms=ms)


def pair(number: int, ours: float, plain: float) -> CopyPair:
    return CopyPair(store=S3, delay_ms=0, number=number, ours=speed(ours), plain=speed(plain))


def found(figures: Figures) -> dict[str, bool]:
    return {f"{one.where}: {one.what}": one.met for one in verdicts(figures)}


def test_what_is_wanted_of_reads_is_of_medians() -> None:
    fast = found(Figures(reads=(read(296), read(297), read(1))))
    assert fast == {
        "s3 +100 ms, 8 part.: MB/s": True,
        "s3 +100 ms, 8 part.: of the peer's best": True,
        "s3 +100 ms, 8 part.: GetObject per GiB": True,
        "s3 +100 ms, 8 part.: service + plugin CPU s/GB": False,
    }
    slow = found(Figures(reads=(read(100, gets=201),)))
    assert not slow["s3 +100 ms, 8 part.: MB/s"]
    assert not slow["s3 +100 ms, 8 part.: of the peer's best"]
    assert not slow["s3 +100 ms, 8 part.: GetObject per GiB"]


def test_nobody_measured_hdfs_so_only_cpu_is_wanted_of_it() -> None:
    assert found(Figures(reads=(read(9, store=HDFS, delay_ms=0),))) == {
        "hdfs +0 ms, 8 part.: service + plugin CPU s/GB": False
    }


@pytest.mark.parametrize(
    ("ms", "delay_ms", "met"), [(99, 0, True), (101, 0, False), (299, 100, True), (301, 100, False)]
)
def test_a_first_record_may_take_two_round_trips_and_100_ms(
    ms: float, delay_ms: int, met: bool
) -> None:
    rows = (first(ms, delay_ms), first(ms, delay_ms), first(9_999, delay_ms))
    assert list(found(Figures(first_records=rows)).values()) == [met]


def test_h32_copies_are_compared_pair_by_pair() -> None:
    figures = Figures(copies=(pair(1, 90, 100), pair(2, 9, 10), pair(3, 500, 100)))
    (row,) = summary(figures)["copies"]
    assert (row["ratios"], row["median_ratio"]) == ([0.9, 0.9, 5.0], 0.9)
    assert list(found(figures).values()) == [True, True]


@pytest.mark.parametrize(("store", "met"), [(S3, [False, True]), (HDFS, [True])])
def test_what_is_wanted_of_copies_depends_on_the_store(store: str, met: list[bool]) -> None:
    slow = dataclasses.replace(pair(1, 85, 100), store=store)
    assert list(found(Figures(copies=(slow,))).values()) == met


def test_h32_every_delay_is_first_second_and_last_equally_often() -> None:
    orders = [order_of_delays((0, 20, 100), number) for number in range(6)]
    for position in range(3):
        assert sorted(order[position] for order in orders) == [0, 0, 20, 20, 100, 100]


def test_the_tables_show_ours_the_peers_and_what_was_missed() -> None:
    text = tables(
        Figures(
            reads=(read(50), read(9, store=HDFS, delay_ms=0)),
            first_records=(first(120, 20),),
            copies=(pair(1, 50, 100),),
        )
    )
    assert "measured elsewhere" in text
    assert "s3 +100 ms, 8 part.                    50.0      3.00       89-118    7.0-7.8" in text
    assert "MISSED" in text
    assert "GetObject log 130" in text
    assert "ratio 0.50 (0.50)" in text
    assert text.index("s3 +100 ms") < text.index("hdfs +0 ms")
    assert "per GiB" in read_line(read(50))
    assert "ratio 0.50" in copy_line(pair(1, 50, 100))


def test_the_best_of_a_peers_row() -> None:
    best = best_read(8, 100)
    assert best is not None
    assert (best.best, best.cpu_s_gb) == (118, "7.0-7.8")
    assert best_read(8, 20) is None


@pytest.mark.parametrize(
    ("partitions", "delay_ms", "fetch_mib", "warm", "best"),
    [
        (8, 0, 1, False, 173),
        (1, 0, 1, False, 182),
        (8, 0, 16, False, 84),
        (1, 0, 16, False, 185),
        (8, 100, 16, False, 35),
        (1, 100, 16, False, 42),
        (8, 0, 1, True, 306),
        (1, 0, 1, True, 228),
    ],
)
def test_a_kind_of_read_stands_beside_the_best_of_its_own_kind(
    partitions: int, delay_ms: int, fetch_mib: int, warm: bool, best: float
) -> None:
    mine = read(
        best * 2.5, delay_ms=delay_ms, partitions=partitions, fetch_mib=fetch_mib, warm=warm
    )
    kinds = (read(1.0, delay_ms=delay_ms, partitions=partitions, fetch_mib=50), mine)
    ratios = [one for one in verdicts(Figures(reads=kinds)) if one.what == "of the peer's best"]
    assert [(one.measured, one.met) for one in ratios] == [(2.5, True)]
    assert f"{partitions} part." + (", 16 MiB" if fetch_mib == 16 else "") in ratios[0].where
    assert ratios[0].where.endswith(", warm") is warm


def test_added_latency_is_of_s3_only() -> None:
    options = dataclasses.replace(StoreOptions.full(), delays_ms=(0, 7))
    assert (options.delays_of(S3), options.delays_of(HDFS)) == ((0, 7), (0,))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--stores", "s3,tape"], "tape"),
        (["--delays-ms", "-1"], "-1"),
        (["--partitions", "0"], "0"),
    ],
)
def test_wrong_options_are_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err

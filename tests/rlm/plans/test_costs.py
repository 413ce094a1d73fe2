"""What topics cost a month, in three ways; what is not known is never free."""

from dataclasses import replace

import pytest

from rlm.plans.costs import GIB, MONTH_MS, MonthlyCost, Prices, TopicVolumes, a_month, bills

PRICES = Prices(
    currency="EUR", storage_gib_month=0.02, put_1000=0.005, get_1000=0.0004, local_gib_month=0.1
)
TOPIC = TopicVolumes(
    replicas=3,
    remote_bytes=100 * GIB,
    unsaved_bytes=2 * GIB,
    bytes_a_day=GIB,
    puts_a_day=1_000,
    local_bytes=10 * GIB,
    freed_bytes=6 * GIB,
    local_grows=False,
)


def cost(topic: TopicVolumes = TOPIC, *, months: int = 0, way: str = "kept") -> MonthlyCost:
    found: MonthlyCost = getattr(bills([topic], PRICES, gets_a_month=2_000, months=months), way)
    return found


def test_a_bill_of_today() -> None:
    one = cost()
    assert one.storage == pytest.approx(100 * 0.02)
    assert one.puts == pytest.approx(30 * 0.005)
    assert one.gets == pytest.approx(2 * 0.0004)
    assert one.local == pytest.approx(3 * 10 * 0.1)
    assert one.total == pytest.approx(2 + 0.15 + 0.0008 + 3)


def test_a_month_from_now_the_growth_of_a_month_is_stored_too() -> None:
    assert cost(months=1).storage == pytest.approx(130 * 0.02)
    assert cost(months=1).puts == cost().puts
    assert cost(months=1).local == cost().local
    growing = replace(TOPIC, local_grows=True)
    assert cost(growing, months=1).local == pytest.approx(3 * 40 * 0.1)


def test_local_retention_frees_disks_on_all_replicas() -> None:
    one = cost(way="limited")
    assert one.local == pytest.approx(3 * 4 * 0.1)
    assert (one.storage, one.puts, one.gets) == (cost().storage, cost().puts, cost().gets)
    growing = replace(TOPIC, local_grows=True)
    assert cost(growing, months=1, way="limited").local == one.local


def test_without_a_store_the_brokers_have_all_of_it() -> None:
    one = cost(way="untiered")
    assert (one.storage, one.puts, one.gets) == (0, 0, 0)
    assert one.local == pytest.approx(3 * 102 * 0.1)
    assert cost(months=1, way="untiered").local == pytest.approx(3 * 132 * 0.1)
    untrimmed = replace(TOPIC, local_bytes=200 * GIB)
    assert cost(untrimmed, way="untiered").local == pytest.approx(3 * 200 * 0.1)


def test_h38_what_has_no_price_or_no_amount_is_not_free() -> None:
    nothing = bills([TOPIC], Prices(), gets_a_month=None, months=0)
    assert nothing.kept.items == (None, None, None, None)
    assert (nothing.kept.total, nothing.kept.known, nothing.untiered.total) == (None, 0, None)
    no_gets = bills([TOPIC], PRICES, gets_a_month=None, months=0).kept
    assert no_gets.gets is None and no_gets.total is None
    assert no_gets.known == pytest.approx(2 + 0.15 + 3)


def test_missing_prices_are_named_by_their_settings() -> None:
    assert PRICES.missing == ()
    assert replace(PRICES, put_1000=None).missing == ("cost.put.per.1000",)
    assert len(Prices().missing) == 4


def test_rates_need_time() -> None:
    assert a_month(5, 0) is None
    assert a_month(5, MONTH_MS // 2) == 10


def test_several_topics_are_added() -> None:
    two = bills([TOPIC, replace(TOPIC, replicas=1)], PRICES, gets_a_month=2_000, months=0)
    assert two.kept.storage == pytest.approx(200 * 0.02)
    assert two.kept.local == pytest.approx(4 * 10 * 0.1)
    assert two.kept.gets == cost().gets

"""`rlm cost` and the call DescribeCosts: prices, growth and reads of the whole cluster."""

import pytest

from rlm.api.costs import KEPT_MS
from rlm.plans.costs import MONTH_MS, Prices
from rlm.plans.enabling import PartitionMeasure
from rlm.plans.retention import LocalRetention
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import Node, api_node
from tests.rlm.api.node_fakes import say_alive
from tests.rlm.cli.invoking import as_json, asked, assert_one_line
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.test_shortening import stored

GIB = 1 << 30
MEASURE = PartitionMeasure(
    segments=0, size_bytes=0, local_bytes=8 * GIB, freed_bytes=6 * GIB, requests=0
)
PRICES = Prices(
    currency="EUR", storage_gib_month=0.5, put_1000=0.1, get_1000=1.0, local_gib_month=2.0
)


async def with_remote_data(node: Node) -> None:
    """A segment of 100 bytes, copied of the records of an hour ago."""
    await as_json(node, "topics", "enable", TOPIC)
    at_ms = node.service.clock.now_ms() - 3_600_000
    node.service.ledger.copied(stored(1, 0, 100, at_ms=at_ms))
    node.reports.measures.found = {0: MEASURE, 1: MEASURE}
    node.reports.reads = 3
    node.service.clock.now += MONTH_MS // 2


async def test_bills_of_today_and_in_a_month() -> None:
    async with api_node(Cluster()) as node:
        await with_remote_data(node)
        node.reports.prices = PRICES
        shown = await as_json(node, "cost", "--local-retention", "1h")
    assert (shown["missing"], shown["unknown"], shown["gets_a_month"]) == ([], [], 6)
    assert shown["topics"][TOPIC]["remote_bytes"] == 100
    assert shown["topics"][TOPIC]["local_bytes"] == 16 * GIB
    today = shown["today"]
    assert today["kept"]["local"] == 2 * 16 * 2.0
    assert today["limited"]["local"] == 2 * 4 * 2.0
    assert today["untiered"]["local"] == 2 * 16 * 2.0
    assert today["kept"]["gets"] == pytest.approx(0.006)
    asked_for = LocalRetention(max_age_ms=3_600_000, max_bytes=None)
    assert node.reports.measures.asked == [asked_for]


async def test_g6_segments_are_counted_in_threads_once_in_some_seconds() -> None:
    """Whoever asks again and again neither holds up the event loop nor has all counted again."""
    async with api_node(Cluster()) as node:
        await with_remote_data(node)
        assert node.reports.threads.jobs == 0
        for _ in range(2):
            shown = await as_json(node, "cost")
            assert shown["topics"][TOPIC]["remote_bytes"] == 100
        assert node.reports.threads.jobs == 1, "one for each topic"
        node.service.clock.advance(KEPT_MS)
        await as_json(node, "cost")
        assert node.reports.threads.jobs == 2


async def test_without_prices_it_says_which_settings_to_set() -> None:
    async with api_node(Cluster()) as node:
        await with_remote_data(node)
        done = await asked(node, "cost")
    assert done.exit_code == 0, done.output
    for key in ("storage.per.gib.month", "put.per.1000", "get.per.1000", "local.per.gib.month"):
        assert f"warning: cost.{key} is not set" in done.stderr
    total = next(line for line in done.stdout.splitlines() if line.startswith("total"))
    assert total.split() == ["total", "unknown", "unknown", "unknown"]


async def test_amounts_have_the_currency_and_a_total_that_lacks_a_price_says_so() -> None:
    async with api_node(Cluster()) as node:
        await with_remote_data(node)
        node.reports.prices = PRICES
        whole = await asked(node, "cost")
        node.reports.prices = Prices(currency="EUR", local_gib_month=2.0)
        part = await asked(node, "cost")
    disks = next(line for line in whole.stdout.splitlines() if line.startswith("brokers'"))
    assert disks.split()[2:] == ["64.00", "EUR", "16.00", "EUR", "64.00", "EUR"]
    total = next(line for line in part.stdout.splitlines() if line.startswith("total"))
    assert "at least 64.00 EUR" in total


async def test_h38_reads_that_are_not_known_and_reads_of_some_topics_are_unknown() -> None:
    async with api_node(Cluster()) as node:
        await with_remote_data(node)
        await say_alive(node.service, 2, "127.0.0.1:1")
        node.reports.measures.found = {0: MEASURE}
        shown = await as_json(node, "cost", TOPIC)
        assert shown["gets_a_month"] is None
        assert any("reads by the service of broker 2" in one for one in shown["unknown"])
        assert any(f"{TOPIC}-1: " in one for one in shown["unknown"])


async def test_what_matches_nothing_is_one_line() -> None:
    async with api_node(Cluster()) as node:
        assert_one_line(await asked(node, "cost", "x"), "no topic", status=1)
        assert_one_line(await asked(node, "cost", "("), "regular expression", status=2)

"""What the store costs a month, as the console shows it: today, and for a year at the growth of the
last day. Pure.

Brokers' disks are left out: to measure what of them a trim would free takes a plan of every topic,
which `rlm cost` asks for.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rlm.console.paging import Order, Page, Row, paged
from rlm.plans.costs import Prices, TopicVolumes, a_month, bills
from rlm.v1 import admin_pb2 as pb

MONTHS: Final = 12
_OF_THE_STORE: Final = ("storage", "puts", "gets")
_ORDERS: Mapping[str, Order | None] = {
    "": lambda row: -row.remote_bytes,
    "growth": lambda row: -row.bytes_a_day,
    "name": None,
}


def costs(found: pb.CostsResponse, page: Page) -> Row:
    """Costs are None where a price or an amount is not known, never 0 (H38)."""
    prices = _prices(found)
    rates = [a_month(one.requests, one.within_ms) for one in found.reads]
    problems = [one for one in found.reads if one.problem]
    gets = None if problems or None in rates or not rates else sum(filter(None, rates))

    def topic(row: pb.TopicGrowth) -> Row:
        return {
            "topic": row.topic,
            "remote_bytes": row.remote_bytes,
            "bytes_a_day": row.bytes_a_day,
            "storage": _month([row], prices, None, 0)["storage"],
            "storage_later": _month([row], prices, None, 1)["storage"],
        }

    return {
        "currency": prices.currency,
        "missing": [key for key in prices.missing if key != "cost.local.per.gib.month"],
        "months": [_month(found.topics, prices, gets, months) for months in range(MONTHS + 1)],
        "problems": [f"node {one.node_id}: {one.problem}" for one in problems],
        "topics": paged(found.topics, page, _ORDERS, lambda row: str(row.topic), topic),
    }


def _month(
    topics: Iterable[pb.TopicGrowth], prices: Prices, gets: float | None, months: int
) -> Row:
    volumes = [_volumes(row) for row in topics]
    bill = bills(volumes, prices, gets_a_month=gets, months=months).kept
    items: Row = {name: getattr(bill, name) for name in _OF_THE_STORE}
    is_known = None not in items.values()
    return {**items, "total": sum(items.values()) if is_known else None}


def _volumes(row: pb.TopicGrowth) -> TopicVolumes:
    return TopicVolumes(
        replicas=1,
        remote_bytes=row.remote_bytes,
        unsaved_bytes=0,
        bytes_a_day=row.bytes_a_day,
        puts_a_day=row.requests_a_day,
        local_bytes=0,
        freed_bytes=0,
        local_grows=False,
    )


def _prices(found: pb.CostsResponse) -> Prices:
    def price(name: str) -> float | None:
        return getattr(found, name) if found.HasField(name) else None

    return Prices(
        currency=found.currency,
        storage_gib_month=price("storage_per_gib_month"),
        put_1000=price("put_per_1000"),
        get_1000=price("get_per_1000"),
    )

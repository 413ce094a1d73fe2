"""`rlm cost` says what tiered topics cost a month, by prices of the configuration."""

from dataclasses import asdict, dataclass
from typing import Any

import click
import grpc

from kip405.errors import NotFound
from rlm.cli.output import human_size, show_json, show_table, warn
from rlm.cli.parameters import DURATION, SIZE
from rlm.cli.target import Connect, Target, service_options
from rlm.plans.costs import Bills, MonthlyCost, Prices, TopicVolumes, a_month, bills
from rlm.v1 import admin_pb2 as pb
from rsm_plugins.contract.status import error_of_call
from rsm_plugins.endpoints import topic_pattern

_ALL = ".*"
"""Reads are not counted by topic, so only what is asked of all topics has them."""

_ITEMS = {
    "storage": "store",
    "puts": "requests that write",
    "gets": "requests that read",
    "local": "brokers' disks",
}
_WAYS = {
    "kept": "as it is",
    "limited": "trimmed to local retention",
    "untiered": "all on the brokers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """What the bills are made of; `unknown`: what is in no sum."""

    volumes: dict[str, TopicVolumes]
    gets_a_month: float | None
    unknown: tuple[str, ...]


@click.command()
@click.argument("pattern", required=False, default=_ALL)
@click.option("--local-retention", type=DURATION, help="On the brokers, for the second column.")
@click.option("--local-retention-bytes", type=SIZE, help="The same by size, per partition.")
@service_options
def cost(
    *,
    pattern: str,
    local_retention: int | None,
    local_retention_bytes: int | None,
    connect: Connect,
) -> None:
    """Show what the topics that match PATTERN cost a month, now and in 30 days.

    There are three columns: with the local logs as they are; with local logs trimmed to the local
    retention, which is that of each topic unless one is given; and if the brokers kept all of it
    and there was no store. Growth is that of the last day. Prices are settings (cost.*) of the
    service that answers; without them the amounts are shown, and which settings to set.
    """
    wanted = pb.EnableTopicRequest(
        local_retention_ms=local_retention, local_retention_bytes=local_retention_bytes
    )
    with connect.open() as target:
        answer = target.ask(target.admin.DescribeCosts, pb.DescribeCostsRequest())
        counted = _counted(target, answer, pattern, wanted)
    prices = _prices(answer)
    if connect.as_json:
        show_json(_as_json(counted, prices))
        return
    _show_volumes(counted)
    for months, title in ((0, "a month, today"), (1, "a month, in 30 days")):
        click.echo()
        _show_bills(_bills(counted, prices, months), prices, title)
    warn([f"{key} is not set: what it is the price of is not known" for key in prices.missing])
    warn([f"unknown, and in no sum: {text}" for text in counted.unknown])


def _counted(
    target: Target, answer: pb.CostsResponse, pattern: str, wanted: pb.EnableTopicRequest
) -> _Counted:
    matched = topic_pattern(pattern)
    rows = [row for row in answer.topics if matched.fullmatch(row.topic)]
    if not rows:
        raise NotFound(
            f"no topic that is or was enabled matches {pattern}; `rlm plan` says what enabling "
            "topics would mean"
        )
    volumes, unknown = {}, list[str]()
    for row in rows:
        plan, why = _plan(target, row.topic, wanted)
        volumes[row.topic] = _volumes(row, plan)
        unknown += why
    unknown += [
        f"reads by the service of broker {one.node_id}: {one.problem}"
        for one in answer.reads
        if one.problem
    ]
    rates = [a_month(one.requests, one.within_ms) for one in answer.reads if not one.problem]
    known = [rate for rate in rates if rate is not None]
    return _Counted(
        volumes=volumes,
        gets_a_month=sum(known) if known and pattern == _ALL else None,
        unknown=tuple(unknown),
    )


def _plan(
    target: Target, topic: str, wanted: pb.EnableTopicRequest
) -> tuple[pb.TopicPlan, list[str]]:
    """The measures of the topic's partitions, and which are not known."""
    enable = pb.EnableTopicRequest()
    enable.CopyFrom(wanted)
    enable.topic = topic
    try:
        plan = target.ask_until_free(target.admin.PlanTopic, pb.PlanTopicRequest(enable=enable))
    except grpc.RpcError as failed:
        error = error_of_call(failed, f"service at {target.address}")
        return pb.TopicPlan(topic=topic), [f"the local logs of {topic}: {error}"]
    why = [f"{topic}-{row.partition}: {row.problem}" for row in plan.partitions if row.problem]
    return plan, why


def _volumes(row: pb.TopicGrowth, plan: pb.TopicPlan) -> TopicVolumes:
    measured = [one for one in plan.partitions if not one.problem]
    return TopicVolumes(
        replicas=max((one.replicas for one in plan.partitions), default=1),
        remote_bytes=row.remote_bytes,
        unsaved_bytes=sum(one.size_bytes for one in measured),
        bytes_a_day=row.bytes_a_day,
        puts_a_day=row.requests_a_day,
        local_bytes=sum(one.local_bytes for one in measured),
        freed_bytes=sum(one.freed_bytes for one in measured),
        local_grows=row.local_grows,
    )


def _prices(answer: pb.CostsResponse) -> Prices:
    def price(name: str) -> float | None:
        return getattr(answer, name) if answer.HasField(name) else None

    return Prices(
        currency=answer.currency,
        storage_gib_month=price("storage_per_gib_month"),
        put_1000=price("put_per_1000"),
        get_1000=price("get_per_1000"),
        local_gib_month=price("local_per_gib_month"),
    )


def _bills(counted: _Counted, prices: Prices, months: int) -> Bills:
    return bills(counted.volumes.values(), prices, gets_a_month=counted.gets_a_month, months=months)


def _as_json(counted: _Counted, prices: Prices) -> dict[str, Any]:
    return {
        "prices": asdict(prices),
        "missing": prices.missing,
        "topics": {topic: asdict(one) for topic, one in counted.volumes.items()},
        "gets_a_month": counted.gets_a_month,
        "today": _with_totals(_bills(counted, prices, 0)),
        "in_30_days": _with_totals(_bills(counted, prices, 1)),
        "unknown": counted.unknown,
    }


def _with_totals(found: Bills) -> dict[str, Any]:
    ways = ((way, getattr(found, way)) for way in _WAYS)
    return {way: {**asdict(one), "total": one.total} for way, one in ways}


def _show_volumes(counted: _Counted) -> None:
    show_table(
        ("topic", "remote", "a day", "writes a day", "replicas", "local", "trim frees"),
        [
            (
                topic,
                human_size(one.remote_bytes),
                human_size(one.bytes_a_day),
                one.puts_a_day,
                one.replicas,
                human_size(one.local_bytes * one.replicas),
                human_size(one.freed_bytes * one.replicas),
            )
            for topic, one in counted.volumes.items()
        ],
        "",
    )


def _show_bills(found: Bills, prices: Prices, title: str) -> None:
    columns: list[MonthlyCost] = [getattr(found, way) for way in _WAYS]
    rows = [
        (words, *(_amount(getattr(one, name), prices) for one in columns))
        for name, words in _ITEMS.items()
    ]
    rows.append(("total", *(_total(one, prices) for one in columns)))
    show_table((title, *_WAYS.values()), rows, "")


def _amount(value: float | None, prices: Prices) -> str:
    return "unknown" if value is None else f"{value:,.2f} {prices.currency}".strip()


def _total(one: MonthlyCost, prices: Prices) -> str:
    if one.total is not None:
        return _amount(one.total, prices)
    return f"at least {_amount(one.known, prices)}" if one.known else "unknown"

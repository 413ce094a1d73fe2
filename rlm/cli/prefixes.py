"""`rlm store prefixes`: the beginnings of object names, by which to pre-partition a bucket.

They follow from the settings, the cluster's id, topics and counts of partitions alone. No service
and no store is asked; brokers only for what is not given.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kip405.errors import Invalid
from rlm.cli.output import show_json, show_table
from rlm.cli.parameters import CommandGroup
from rsm_plugins.endpoints import EndpointProvider
from rsm_plugins.layout.keys import (
    ENTROPY_BITS_MAX,
    check_cluster_id,
    check_topic,
    entropy_digits,
    with_prefix,
)

if TYPE_CHECKING:
    from rlm.config import ServiceConfig

_SHOWN_PARTITIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPrefix:
    """The objects of these partitions begin with `prefix`, in a store at `location`."""

    store: str
    location: str
    prefix: str
    entropy_bits: int
    partitions: tuple[tuple[str, int], ...]


@click.group(cls=CommandGroup)
def store() -> None:
    """Say where objects lie in a store."""


@store.command()
@click.argument("topic", required=False)
@click.option("--all", "all_topics", is_flag=True, help="All topics of the cluster but internal.")
@click.option("--partitions", type=click.IntRange(1, 100_000), help="As many as TOPIC has.")
@click.option(
    "--bits",
    type=click.IntRange(0, ENTROPY_BITS_MAX),
    help="Instead of rsm.config.prefix.entropy.bits and prefix.entropy.bits of rules.",
)
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    help="Settings of a broker's service: its cluster, stores, rules and brokers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every partition.")
def prefixes(
    *,
    topic: str | None,
    all_topics: bool,
    partitions: int | None,
    bits: int | None,
    path: Path,
    as_json: bool,
) -> None:
    """List the key prefixes by which to pre-partition a bucket, and which partitions have each.

    A prefix is that of the store, and as many digits of the partition's hash as it has bits of
    entropy; without entropy, the cluster's id. The objects of one partition have one prefix. With
    TOPIC and --partitions nothing is asked; else the brokers of kafka.bootstrap.servers are.
    """
    from rlm.config import load

    if all_topics == (topic is not None):
        raise Invalid("give TOPIC or --all")
    if all_topics and partitions is not None:
        raise Invalid("--partitions: goes with TOPIC")
    config = load(path)
    if topic is not None and partitions is not None:
        counts: Mapping[str, int] = {topic: partitions}
    else:
        counts = asyncio.run(_counts(config, topic))
    found = key_prefixes(config.provider(), config.cluster_id, counts, bits)
    if as_json:
        show_json({"cluster_id": config.cluster_id, "prefixes": [_as_json(one) for one in found]})
        return
    rows = [
        (one.store, one.location, one.prefix, len(one.partitions), _shown(one.partitions))
        for one in found
    ]
    show_table(("STORE", "LOCATION", "PREFIX", "COUNT", "PARTITIONS"), rows, "no topics")


def key_prefixes(
    provider: EndpointProvider, cluster_id: str, counts: Mapping[str, int], bits: int | None
) -> tuple[KeyPrefix, ...]:
    """The prefixes of all partitions of topics with these counts, in the order of the names."""
    check_cluster_id(cluster_id)
    members: dict[tuple[str, str, str, int], list[tuple[str, int]]] = {}
    for topic, count in sorted(counts.items()):
        check_topic(topic)
        for partition in range(count):
            at = provider.endpoint(cluster_id, topic, partition)
            used = at.entropy_bits if bits is None else bits
            digits = entropy_digits(cluster_id, topic, partition, used)
            prefix = with_prefix(at.prefix, digits or cluster_id) + "/"
            key = (at.store, at.location, prefix, used)
            members.setdefault(key, []).append((topic, partition))
    return tuple(
        KeyPrefix(
            store=name,
            location=location,
            prefix=prefix,
            entropy_bits=used,
            partitions=tuple(all_of),
        )
        for (name, location, prefix, used), all_of in sorted(members.items())
    )


async def _counts(config: "ServiceConfig", topic: str | None) -> Mapping[str, int]:
    """Partitions by topic, as the brokers say."""
    from kafka_clients.channel_security import ChannelSecurity
    from rlm.broker.own_broker import AnyBroker
    from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

    brokers = AnyBroker(
        config.kafka_bootstrap_servers,
        client_id=config.principal,
        security=ChannelSecurity(config.kafka_security()),
    )
    try:
        if topic is not None:
            return {topic: len((await brokers.topic(topic)).partitions)}
        own = (LEDGER_TOPIC, SETTINGS_TOPIC)
        found = [one for one in await brokers.topics() if not one.internal and one.name not in own]
        return {one.name: len(one.partitions) for one in found}
    finally:
        await brokers.close()


def _shown(partitions: Sequence[tuple[str, int]]) -> str:
    more = len(partitions) - _SHOWN_PARTITIONS
    names = _names(partitions[:_SHOWN_PARTITIONS])
    return ", ".join([*names, f"and {more} more"] if more > 0 else names)


def _names(partitions: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{topic}-{partition}" for topic, partition in partitions]


def _as_json(one: KeyPrefix) -> dict[str, object]:
    return {
        "store": one.store,
        "location": one.location,
        "prefix": one.prefix,
        "entropy_bits": one.entropy_bits,
        "partitions": _names(one.partitions),
    }
